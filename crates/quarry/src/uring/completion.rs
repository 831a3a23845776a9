//! Results of operations.

use std::fmt;
use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};

use io_uring::cqueue;
use quarry_core::pool::{InFlightReport, Mapper, NoMapper};

use super::Ring;
use super::operations::{Kind, Operation};
use crate::Buffer;

/// A result of an operation of a [`Ring`](super::Ring).
#[derive(Debug)]
pub struct Completion<H: Mapper = NoMapper> {
    /// The operation.
    pub operation: Operation,
    /// The number that its caller gave it.
    pub user_data: u64,
    /// True if the operation goes on and gives more results (`IORING_CQE_F_MORE`).
    pub more: bool,
    /// The outcome, or the system's error. The operation's buffer goes home at an error.
    pub result: io::Result<Outcome<H>>,
}

/// The outcome of an operation.
#[derive(Debug)]
pub enum Outcome<H: Mapper = NoMapper> {
    /// A new connection.
    Accepted(OwnedFd),
    /// Bytes came.
    Received(Buffer<H>),
    /// The peer will send no more. On a datagram socket, a datagram without bytes; the operation goes on.
    End,
    /// Bytes were sent: all of the buffer, unless the connection failed meanwhile.
    Sent {
        /// The buffer, to be recycled or dropped.
        buffer: Buffer<H>,
        /// Its bytes that were sent.
        bytes: usize,
    },
    /// A file's bytes were read: fewer than the frame has at the end of the file.
    Read(Buffer<H>),
    /// Bytes were written to a file.
    Written {
        /// The buffer.
        buffer: Buffer<H>,
        /// Its bytes that were written.
        bytes: usize,
    },
    /// The result of an entry of [`Ring::push`](super::Ring::push).
    Other {
        /// Its `res`, which is not negative.
        result: i32,
        /// Its flags.
        flags: u32,
        /// The provided buffer that it names, with `result` bytes filled or all if it has fewer.
        buffer: Option<Buffer<H>>,
    },
}

/// The places of a ring's buffers.
#[derive(Clone, Debug)]
pub struct RingReport {
    /// Frames or fragments that wait in the kernel's buffer ring.
    pub provided: usize,
    /// Those of sends, reads and writes in flight.
    pub operating: usize,
    /// All frames in flight, those of the kernel included, by the call that allocated them.
    pub pool: InFlightReport,
}

impl fmt::Display for RingReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (provided, operating) = (self.provided, self.operating);
        write!(
            f,
            "{provided} buffers wait in the kernel, {operating} are in operations\n{}",
            self.pool
        )
    }
}

impl<H: Mapper> Ring<H> {
    /// Takes the next result, without waiting. New ones come by [`Ring::submit`] and [`Ring::submit_and_wait`].
    #[track_caller]
    pub fn completion(&mut self) -> Option<Completion<H>> {
        if self.maker.is_another() {
            return None;
        }
        if let Some(ready) = self.ready.pop_front() {
            return Some(ready);
        }
        loop {
            // SAFETY: I4.
            let entry = unsafe { self.uring.completion_shared() }.next()?;
            if let Some(completion) = self.complete(&entry) {
                return Some(completion);
            }
        }
    }

    /// The caller's view of a completion, `None` if it is of no interest to it.
    #[track_caller]
    fn complete(&mut self, entry: &cqueue::Entry) -> Option<Completion<H>> {
        let (result, flags) = (entry.result(), entry.flags());
        let operation = Operation(entry.user_data());
        let id = cqueue::buffer_select(flags);
        let buffer = id.and_then(|id| self.provided.take(id));
        if self.provided.is_low() {
            self.provided.refill(&mut self.pool);
        }
        let running = self.operations.get_mut(operation)?;
        let mut more = cqueue::more(flags);
        // By the end of the thread that submitted it, unless it is the caller's own cancel.
        let is_interrupted = result == -libc::ECANCELED;
        let is_endless = match running.kind {
            Kind::Accept => result >= 0 || is_interrupted,
            Kind::Receive => result > 0 || is_interrupted || result == -libc::ENOBUFS,
            _ => false,
        };
        if !more && is_endless && !running.is_cancelled {
            self.unarmed.push(operation);
            more = true;
            if result < 0 {
                return None;
            }
        }
        let outcome = match (usize::try_from(result), &running.kind) {
            // It would have been armed again.
            (Err(_), Kind::Receive) if result == -libc::ENOBUFS => {
                Err(io::Error::from_raw_os_error(libc::ECANCELED))
            }
            (Err(_), _) => Err(io::Error::from_raw_os_error(-result)),
            // SAFETY: the kernel made a descriptor, which no other code knows.
            (Ok(_), Kind::Accept) => Ok(Outcome::Accepted(unsafe { OwnedFd::from_raw_fd(result) })),
            (Ok(0), Kind::Receive) => Ok(Outcome::End),
            (Ok(bytes), Kind::Receive) => filled(buffer, bytes).map(Outcome::Received),
            (Ok(bytes), Kind::Other) => Ok(Outcome::Other {
                result,
                flags,
                buffer: buffer.and_then(|buffer| {
                    let bytes = bytes.min(buffer.capacity());
                    buffer.written(bytes)
                }),
            }),
            (Ok(bytes), Kind::Send(_) | Kind::Read(..) | Kind::Write(..)) => {
                let running = self.operations.remove(operation)?;
                let user_data = running.user_data;
                let result = match running.kind {
                    Kind::Send(buffer) => Ok(Outcome::Sent { buffer, bytes }),
                    Kind::Write(buffer, ..) => Ok(Outcome::Written { buffer, bytes }),
                    Kind::Read(frame, ..) => {
                        filled(Some(frame.filled(0)), bytes).map(Outcome::Read)
                    }
                    _ => return None,
                };
                return Some(Completion {
                    operation,
                    user_data,
                    more: false,
                    result,
                });
            }
        };
        if !more {
            return self.finish(operation, outcome);
        }
        Some(Completion {
            operation,
            user_data: running.user_data,
            more,
            result: outcome,
        })
    }

    /// The last completion of an operation.
    pub(super) fn finish(
        &mut self,
        operation: Operation,
        result: io::Result<Outcome<H>>,
    ) -> Option<Completion<H>> {
        let running = self.operations.remove(operation)?;
        Some(Completion {
            operation,
            user_data: running.user_data,
            more: false,
            result,
        })
    }
}

/// A buffer that the kernel filled.
pub(super) fn filled<H: Mapper>(buffer: Option<Buffer<H>>, bytes: usize) -> io::Result<Buffer<H>> {
    let filled = buffer.and_then(|buffer| buffer.written(bytes));
    filled.ok_or_else(|| io::Error::other("the kernel named no buffer of this ring"))
}
