//! Operations on their way to the kernel.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{opcode, squeue};
use quarry_core::pool::Mapper;

use super::Ring;
use super::operations::{Kind, Operation, Running};
#[cfg(doc)]
use super::{BUFFER_GROUP, Outcome};
use crate::Buffer;

/// Wait between two looks at an exhausted pool.
const STARVED: Duration = Duration::from_millis(1);

impl<H: Mapper> Ring<H> {
    /// Accepts connections until it is cancelled or fails ([`Outcome::Accepted`]).
    ///
    /// # Errors
    ///
    /// As [`Ring::submit_and_wait`], when the submission queue was full.
    pub fn accept_multi(
        &mut self,
        listener: &Arc<OwnedFd>,
        user_data: u64,
    ) -> io::Result<Operation> {
        self.start(Kind::Accept, Some(listener), user_data)
    }

    /// Receives into provided buffers until the stream ends, it is cancelled or fails ([`Outcome::Received`],
    /// [`Outcome::End`]).
    ///
    /// # Errors
    ///
    /// As [`Ring::submit_and_wait`], when the submission queue was full.
    pub fn recv_multi(&mut self, socket: &Arc<OwnedFd>, user_data: u64) -> io::Result<Operation> {
        self.start(Kind::Receive, Some(socket), user_data)
    }

    /// Sends a buffer's filled bytes ([`Outcome::Sent`]). A stream's bytes keep their order only if one send is in flight
    /// at a time.
    ///
    /// # Errors
    ///
    /// As [`Ring::submit_and_wait`], when the submission queue was full.
    pub fn send(
        &mut self,
        socket: &Arc<OwnedFd>,
        buffer: Buffer<H>,
        user_data: u64,
    ) -> io::Result<Operation> {
        self.start(Kind::Send(buffer), Some(socket), user_data)
    }

    /// Cancels an operation. Its last completion has the error `ECANCELED`, unless it ended before.
    ///
    /// # Errors
    ///
    /// As [`Ring::submit_and_wait`], when the submission queue was full.
    pub fn cancel(&mut self, operation: Operation) -> io::Result<()> {
        let Some(running) = self.operations.get_mut(operation) else {
            return Ok(());
        };
        running.is_cancelled = true;
        if let Some(at) = self
            .unarmed
            .iter()
            .position(|&unarmed| unarmed == operation)
        {
            self.unarmed.swap_remove(at);
            let cancelled = self.finish(
                operation,
                Err(io::Error::from_raw_os_error(libc::ECANCELED)),
            );
            self.ready.extend(cancelled);
            return Ok(());
        }
        let entry = opcode::AsyncCancel::new(operation.0).build();
        self.queue(&entry.user_data(Operation::CANCEL.0))
    }

    /// Queues an entry of the caller's ([`Outcome::Other`]). Entries that select a buffer name [`BUFFER_GROUP`], and one
    /// buffer for each completion (no bundles).
    ///
    /// # Errors
    ///
    /// As [`Ring::submit_and_wait`], when the submission queue was full.
    ///
    /// # Safety
    ///
    /// As for [`squeue::SubmissionQueue::push`]: what the entry names is valid until its last completion, also if the ring
    /// is dropped before. It does not close the ring, cancel others or change its buffers.
    pub unsafe fn push(&mut self, entry: squeue::Entry, user_data: u64) -> io::Result<Operation> {
        let operation = self.insert(Kind::Other, None, user_data)?;
        self.queue_inserted(&entry.user_data(operation.0), operation)
    }

    fn insert(
        &mut self,
        kind: Kind<H>,
        file: Option<&Arc<OwnedFd>>,
        user_data: u64,
    ) -> io::Result<Operation> {
        if self.maker.is_another() {
            return Err(io::Error::from_raw_os_error(libc::EOWNERDEAD));
        }
        Ok(self.operations.insert(Running {
            user_data,
            kind,
            file: file.cloned(),
            is_cancelled: false,
        }))
    }

    pub(super) fn start(
        &mut self,
        kind: Kind<H>,
        file: Option<&Arc<OwnedFd>>,
        user_data: u64,
    ) -> io::Result<Operation> {
        let operation = self.insert(kind, file, user_data)?;
        let running = self.operations.get_mut(operation);
        let entry = running.and_then(|running| running.entry(operation));
        self.queue_inserted(&entry.expect("a kind with an entry"), operation)
    }

    /// Queues the entry of an operation in the table, which goes if that fails.
    fn queue_inserted(
        &mut self,
        entry: &squeue::Entry,
        operation: Operation,
    ) -> io::Result<Operation> {
        let queued = self.queue(entry).map(|()| operation);
        if queued.is_err() {
            self.operations.remove(operation);
        }
        queued
    }

    /// Queues an entry; a full queue is submitted first.
    fn queue(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        for _ in 0..2 {
            // SAFETY: I4.
            let mut queue = unsafe { self.uring.submission_shared() };
            // SAFETY: what the entry names is in the table (I2), or the caller of `push` promised that it is valid.
            let pushed = unsafe { queue.push(entry) };
            drop(queue);
            if pushed.is_ok() {
                return Ok(());
            }
            self.enter(0, None)?;
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Submits what is queued, as [`Ring::submit_and_wait`] for no completion.
    ///
    /// # Errors
    ///
    /// As [`Ring::submit_and_wait`].
    #[track_caller]
    pub fn submit(&mut self) -> io::Result<()> {
        self.submit_and_wait(0)
    }

    /// Refills the buffer ring, submits what is queued, and waits for `want` completions. It returns with fewer, or with
    /// none that [`Ring::completion`] shows, if receives were armed again.
    ///
    /// # Errors
    ///
    /// The system's (`io_uring_enter(2)`), `Interrupted` by a signal among them; `EOWNERDEAD` in the child of a fork.
    #[track_caller]
    pub fn submit_and_wait(&mut self, want: usize) -> io::Result<()> {
        if self.maker.is_another() {
            return Err(io::Error::from_raw_os_error(libc::EOWNERDEAD));
        }
        loop {
            let has_buffers = self.provided.refill(&mut self.pool);
            self.arm(has_buffers)?;
            if !self.ready.is_empty() {
                return self.enter(0, None);
            }
            if self.unarmed.is_empty() {
                return self.enter(want, None);
            }
            // Receives wait for buffers, which may come home without the kernel's knowing.
            match self.enter(want, Some(STARVED)) {
                Err(error) if error.raw_os_error() == Some(libc::ETIME) => {}
                entered => entered?,
            }
            // SAFETY: I4.
            if want == 0 || !unsafe { self.uring.completion_shared() }.is_empty() {
                return Ok(());
            }
        }
    }

    /// Starts multishot operations again; receives only if there are buffers.
    fn arm(&mut self, has_buffers: bool) -> io::Result<()> {
        for operation in std::mem::take(&mut self.unarmed) {
            let Some(running) = self.operations.get_mut(operation) else {
                continue;
            };
            let starved = matches!(running.kind, Kind::Receive) && !has_buffers;
            let Some(entry) = running.entry(operation).filter(|_| !starved) else {
                self.unarmed.push(operation);
                continue;
            };
            self.queue(&entry)
                .inspect_err(|_| self.unarmed.push(operation))?;
        }
        Ok(())
    }

    pub(super) fn enter(&self, want: usize, timeout: Option<Duration>) -> io::Result<()> {
        let submitter = self.uring.submitter();
        let entered = match timeout {
            None => submitter.submit_and_wait(want),
            Some(time) => {
                let time = Timespec::from(time);
                submitter.submit_with_args(want, &SubmitArgs::new().timespec(&time))
            }
        };
        match entered {
            // The completions are to be taken first.
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(()),
            entered => entered.map(drop),
        }
    }
}
