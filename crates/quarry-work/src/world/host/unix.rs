//! Unix sockets, and how streams are read.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use quarry_core::design::Design;

use super::kernel::{HostTask, Kernel, Side, State};
use super::skb::Held;
use crate::world::skb::HeadKind;
use crate::world::{DATAGRAMS_MAX, End, Over, Received, Transport};

impl<'h, D: Design> Kernel<'h, D> {
    /// Sends a message in buffers of half the send buffer at most.
    pub(super) fn send_unix(
        &self,
        task: &HostTask<'_, 'h, D>,
        from: End,
        bytes: usize,
        word: u64,
    ) -> Result<(), Over> {
        let (mut left, mut word) = (bytes, word);
        while left > 0 {
            let part = left.min(self.rules.send_buffer as usize / 2);
            self.send_unix_buffer(task, from, part, word)?;
            left -= part;
            word = 0;
        }
        Ok(())
    }

    /// Sends a buffer, which is a whole datagram.
    pub(super) fn send_unix_buffer(
        &self,
        task: &HostTask<'_, 'h, D>,
        from: End,
        bytes: usize,
        word: u64,
    ) -> Result<(), Over> {
        let (own, peer) = (self.side(from), self.side(from.peer()));
        let is_full = || own.sent.load(Ordering::Relaxed) > self.rules.send_buffer;
        if is_full() {
            let mut state = own.lock();
            while is_full() {
                state = self.wait(state, &own.writable)?;
            }
        }
        let data = self.rules.message(bytes as u32);
        let mut skb = self.alloc_skb(task, HeadKind::Plain, data, bytes)?;
        skb.word = word;
        own.sent.fetch_add(skb.true_size, Ordering::Relaxed);
        let mut state = peer.lock();
        while own.transport == Transport::Datagram && state.queue.len() > DATAGRAMS_MAX {
            // Writers wait at the reader's side, where the queue is.
            state = self.wait(state, &peer.writable)?;
        }
        peer.queue(state, Held::Alone(skb));
        Ok(())
    }

    /// Waits until something has come, or no more comes.
    fn wait_for_message<'a>(
        &self,
        own: &'a Side<'h, D>,
    ) -> Result<MutexGuard<'a, State<'h, D>>, Over> {
        let mut state = own.lock();
        while state.queue.is_empty() && !state.ended {
            state = self.wait(state, &own.readable)?;
        }
        Ok(state)
    }

    /// Receives a datagram, and waits for one. The part of it that is longer than `most` bytes is lost.
    pub(super) fn receive_datagram(
        &self,
        task: &HostTask<'_, 'h, D>,
        at: End,
        most: usize,
    ) -> Result<Received, Over> {
        let own = self.side(at);
        let mut state = self.wait_for_message(own)?;
        let Some(mut first) = state.queue.pop_front() else {
            return Ok(Received { bytes: 0, word: 0 });
        };
        own.writable.wake_all(state);
        let word = first.skb.word;
        let bytes = self.take(task, &mut first, most) as u32;
        let true_size = first.skb.true_size;
        drop(first);
        self.read_from(at.peer(), true_size);
        Ok(Received { bytes, word })
    }

    /// Receives what has come, and waits for the first of it.
    pub(super) fn receive_stream(
        &self,
        task: &HostTask<'_, 'h, D>,
        at: End,
        most: usize,
    ) -> Result<Received, Over> {
        let own = self.side(at);
        let mut received = Received { bytes: 0, word: 0 };
        let mut state = self.wait_for_message(own)?;
        while (received.bytes as usize) < most {
            let Some(mut first) = state.queue.pop_front() else {
                break;
            };
            // A stream has one reader, so the rest of the buffer stays first.
            drop(state);
            if received.bytes == 0 && first.taken == 0 {
                received.word = first.skb.word;
            }
            let left = most - received.bytes as usize;
            received.bytes += self.take(task, &mut first, left) as u32;
            if first.taken < first.skb.bytes {
                own.lock().queue.push_front(first);
                break;
            }
            let true_size = first.skb.true_size;
            drop(first);
            if own.transport == Transport::Unix {
                self.read_from(at.peer(), true_size);
            }
            state = own.lock();
        }
        Ok(received)
    }

    /// A buffer that was sent from here has been read: there may be room for the next.
    fn read_from(&self, from: End, true_size: u32) {
        let sender = self.side(from);
        let limit = u64::from(self.rules.send_buffer);
        let before = sender.sent.fetch_sub(true_size, Ordering::Relaxed);
        let has_room = u64::from(before - true_size) * 4 <= limit;
        // Writers wait above the limit only, and each crossing of the quarter wakes them once. One that found no room before
        // waits when this thread has the lock.
        if has_room && u64::from(before) * 4 > limit {
            sender.writable.wake_all(sender.lock());
        }
    }
}
