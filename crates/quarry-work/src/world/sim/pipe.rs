//! Pipes.

use std::rc::Rc;

use quarry_core::design::Design;
use quarry_core::machine::Access;

use super::kernel::{Kernel, Path};
use super::socket::{Block, Buffer, Side, SocketLine};
use crate::world::{End, Over, PIPE_PAGES, Received};

const BUFFERS: usize = PIPE_PAGES as usize;

impl<'h, D: Design> Kernel<'_, 'h, D> {
    /// Writes a message. What fits behind the last one goes into its page.
    pub(super) fn write_pipe(&self, from: End, bytes: u32) -> Result<(), Over> {
        let (own, reader) = (self.side(from), self.side(from.peer()));
        let mut left = bytes;
        while left > 0 {
            self.machine.take_turn();
            self.touch(reader, SocketLine::Queue, Access::Atomic);
            let is_full = || reader.pipe.borrow().buffers.len() >= BUFFERS;
            let room = |buffer: &Buffer<'_>| self.page_bytes - buffer.to;
            let last_room = reader.pipe.borrow().buffers.back().map_or(0, room);
            let merges = last_room >= left;
            if !merges && is_full() {
                self.wake_all(&reader.readers);
                // A reader may have made room meanwhile.
                if is_full() {
                    self.wait_in(&own.writers, "room in a pipe")?;
                }
                continue;
            }
            if !merges {
                let spare = reader.pipe.borrow_mut().spare.take();
                let page = match spare {
                    Some(page) => page,
                    None => self.alloc_block(0)?,
                };
                let (from, to) = (0, 0);
                reader
                    .pipe
                    .borrow_mut()
                    .buffers
                    .push_back(Buffer { page, from, to });
            }
            let mut pipe = reader.pipe.borrow_mut();
            let Some(last) = pipe.buffers.back_mut() else {
                continue;
            };
            let part = left.min(self.page_bytes - last.to);
            let (page, at) = (Rc::clone(&last.page), last.to);
            last.to += part;
            drop(pipe);
            self.copy_to_block(&page, at, part);
            self.put_block(page);
            left -= part;
        }
        self.protocol(self.unix_ps / 2);
        self.wake_all(&reader.readers);
        Ok(())
    }

    /// Reads what is there, and waits for the first of it.
    pub(super) fn read_pipe(&self, at: End, most: u32) -> Result<Received, Over> {
        let (own, writer) = (self.side(at), self.side(at.peer()));
        self.machine.take_turn();
        while own.pipe.borrow().buffers.is_empty() {
            if writer.closed.get() {
                return Ok(Received { bytes: 0, word: 0 });
            }
            self.wait_in(&own.readers, "bytes in a pipe")?;
            self.machine.take_turn();
        }
        self.touch(own, SocketLine::Queue, Access::Atomic);
        let mut bytes = 0;
        while bytes < most {
            let first = own.pipe.borrow_mut().buffers.pop_front();
            let Some(mut first) = first else { break };
            let part = (most - bytes).min(first.to - first.from);
            self.on(Path::Copy, || {
                self.driver
                    .copy_out_pages(&first.page.pages, first.from, part);
            });
            bytes += part;
            first.from += part;
            if first.from < first.to {
                own.pipe.borrow_mut().buffers.push_front(first);
                break;
            }
            let has_spare = own.pipe.borrow().spare.is_some();
            match has_spare {
                true => self.put_block(first.page),
                false => own.pipe.borrow_mut().spare = Some(first.page),
            }
        }
        self.protocol(self.unix_ps / 2);
        self.wake_all(&writer.writers);
        Ok(Received { bytes, word: 0 })
    }

    /// Frees what is in a pipe.
    pub(super) fn shut_pipe(&self, side: &Side<'h>) {
        let pipe = side.pipe.take();
        for buffer in pipe.buffers {
            self.put_block(buffer.page);
        }
        if let Some(page) = pipe.spare {
            self.put_block(page);
        }
    }

    /// Copies bytes from the task to a block.
    pub(super) fn copy_to_block(&self, block: &Rc<Block<'h>>, at: u32, bytes: u32) {
        self.on(Path::Copy, || {
            self.driver.copy_in_pages(&block.pages, at, bytes);
        });
    }
}
