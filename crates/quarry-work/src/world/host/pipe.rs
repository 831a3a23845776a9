//! Pipes.

use std::collections::VecDeque;

use quarry_core::design::Design;

use super::kernel::{HostTask, Kernel};
use super::skb::Block;
use crate::world::{End, Over, PIPE_PAGES, Received};

const BUFFERS: usize = PIPE_PAGES as usize;

/// Contents of a pipe, at its reader.
#[derive(Default)]
pub(super) struct PipeState<'h> {
    buffers: VecDeque<Buffer<'h>>,
    /// A page that was read, for the next write (`tmp_page`).
    spare: Option<Block<'h>>,
}

/// A page with bytes that were not read.
struct Buffer<'h> {
    page: Block<'h>,
    from: usize,
    to: usize,
}

impl<'h, D: Design> Kernel<'h, D> {
    /// Writes a message. What fits behind the last one goes into its page. The pipe's lock is held, as in a kernel.
    pub(super) fn write_pipe(
        &self,
        task: &HostTask<'_, 'h, D>,
        from: End,
        bytes: usize,
    ) -> Result<(), Over> {
        let reader = self.side(from.peer());
        let mut left = bytes;
        let mut state = reader.lock();
        while left > 0 {
            let room = |buffer: &Buffer<'_>| self.page_bytes - buffer.to;
            let merges = state.pipe.buffers.back().map_or(0, room) >= left;
            if !merges && state.pipe.buffers.len() >= BUFFERS {
                reader.readable.wake(state);
                state = reader.lock();
                if state.pipe.buffers.len() >= BUFFERS {
                    // Writers wait at the reader's side, where the pipe is.
                    state = self.wait(state, &reader.writable)?;
                }
                continue;
            }
            if !merges {
                let page = match state.pipe.spare.take() {
                    Some(page) => page,
                    None => self.alloc_block(0)?,
                };
                let (from, to) = (0, 0);
                state.pipe.buffers.push_back(Buffer { page, from, to });
            }
            if let Some(last) = state.pipe.buffers.back_mut() {
                let part = left.min(self.page_bytes - last.to);
                self.copy_to_block(task, &last.page, last.to, part);
                last.to += part;
                left -= part;
            }
        }
        reader.readable.wake(state);
        Ok(())
    }

    /// Reads what is there, and waits for the first of it.
    pub(super) fn read_pipe(
        &self,
        task: &HostTask<'_, 'h, D>,
        at: End,
        most: usize,
    ) -> Result<Received, Over> {
        let own = self.side(at);
        let mut state = own.lock();
        while state.pipe.buffers.is_empty() {
            if state.ended {
                return Ok(Received { bytes: 0, word: 0 });
            }
            state = self.wait(state, &own.readable)?;
        }
        let mut bytes = 0;
        while bytes < most {
            let Some(mut first) = state.pipe.buffers.pop_front() else {
                break;
            };
            let part = (most - bytes).min(first.to - first.from);
            self.copy_from_block(task, &first.page, first.from, part);
            bytes += part;
            first.from += part;
            if first.from < first.to {
                state.pipe.buffers.push_front(first);
                break;
            }
            state.pipe.spare.get_or_insert(first.page);
        }
        own.writable.wake_all(state);
        Ok(Received {
            bytes: bytes as u32,
            word: 0,
        })
    }
}
