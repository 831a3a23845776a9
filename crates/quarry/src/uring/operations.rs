//! Operations in flight, and what they own.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use io_uring::{opcode, squeue, types};
use quarry_core::pool::Mapper;

use super::BUFFER_GROUP;
use crate::{Buffer, Frame};

/// An operation of a [`Ring`](super::Ring), to cancel it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operation(pub(super) u64);

impl Operation {
    /// The number of the kernel's own requests to cancel; no operation has it.
    pub(super) const CANCEL: Self = Self(u64::MAX);

    fn new(index: usize, generation: u32) -> Self {
        Self(u64::from(generation) << 32 | index as u64)
    }

    fn index(self) -> usize {
        self.0 as u32 as usize
    }

    fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The kind of an operation, with the memory that the kernel uses for it (I2).
pub(super) enum Kind<H: Mapper> {
    Accept,
    Receive,
    Send(Buffer<H>),
    /// With the frame's place among the registered buffers, and the offset in the file.
    Read(Frame<H>, u16, u64),
    Write(Buffer<H>, u16, u64),
    /// An entry of the caller's.
    Other,
}

pub(super) struct Running<H: Mapper> {
    pub(super) user_data: u64,
    pub(super) kind: Kind<H>,
    /// Kept open, so that the kernel finds this file and no other when it reads the entry.
    pub(super) file: Option<Arc<OwnedFd>>,
    /// It must not be armed again.
    pub(super) is_cancelled: bool,
}

impl<H: Mapper> Running<H> {
    /// The entry that starts it; `None` for those of the caller's.
    pub(super) fn entry(&self, operation: Operation) -> Option<squeue::Entry> {
        let file = types::Fd(self.file.as_ref().map_or(-1, AsRawFd::as_raw_fd));
        let entry = match &self.kind {
            Kind::Accept => opcode::AcceptMulti::new(file)
                .flags(libc::SOCK_CLOEXEC)
                .build(),
            Kind::Receive => opcode::RecvMulti::new(file, BUFFER_GROUP).build(),
            Kind::Send(buffer) => opcode::Send::new(file, buffer.as_ptr(), buffer.len() as u32)
                .flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL)
                .build(),
            Kind::Read(frame, place, offset) => {
                let memory = frame.memory();
                let start = memory.cast::<u8>().as_ptr();
                opcode::ReadFixed::new(file, start, memory.len() as u32, *place)
                    .offset(*offset)
                    .build()
            }
            Kind::Write(buffer, place, offset) => {
                opcode::WriteFixed::new(file, buffer.as_ptr(), buffer.len() as u32, *place)
                    .offset(*offset)
                    .build()
            }
            Kind::Other => return None,
        };
        Some(entry.user_data(operation.0))
    }
}

/// The table of operations in flight.
pub(super) struct Operations<H: Mapper> {
    /// With the number of operations that had the place before.
    entries: Vec<(u32, Option<Running<H>>)>,
    free: Vec<usize>,
}

impl<H: Mapper> Operations<H> {
    pub(super) const fn new() -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Operations in flight.
    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Frames and fragments that they own.
    pub(super) fn buffers(&self) -> usize {
        let running = self
            .entries
            .iter()
            .filter_map(|(_, running)| running.as_ref());
        let owning = |running: &&Running<H>| {
            matches!(
                running.kind,
                Kind::Send(_) | Kind::Read(..) | Kind::Write(..)
            )
        };
        running.filter(owning).count()
    }

    pub(super) fn insert(&mut self, running: Running<H>) -> Operation {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push((0, None));
            self.entries.len() - 1
        });
        let (generation, place) = &mut self.entries[index];
        *place = Some(running);
        Operation::new(index, *generation)
    }

    pub(super) fn get_mut(&mut self, operation: Operation) -> Option<&mut Running<H>> {
        let (generation, running) = self.entries.get_mut(operation.index())?;
        running
            .as_mut()
            .filter(|_| *generation == operation.generation())
    }

    pub(super) fn remove(&mut self, operation: Operation) -> Option<Running<H>> {
        self.get_mut(operation)?;
        let (generation, running) = &mut self.entries[operation.index()];
        *generation = generation.wrapping_add(1) & (u32::MAX >> 1);
        self.free.push(operation.index());
        running.take()
    }
}
