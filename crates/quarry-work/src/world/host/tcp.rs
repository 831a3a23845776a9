//! TCP over a loopback device.

use std::sync::Arc;

use quarry_core::design::Design;

use super::kernel::{HostTask, Kernel};
use super::skb::{Fragment, Held, Skb};
use crate::world::skb::HeadKind;
use crate::world::{End, Over};

/// Bytes that a receiver owes acknowledgements for, at most: data of a full segment.
const OWES_MAX: usize = 16384;

impl<'h, D: Design> Kernel<'h, D> {
    /// Sends a message in segments, which this thread hands to the receiver's socket.
    pub(super) fn send_tcp(
        &self,
        task: &HostTask<'_, 'h, D>,
        from: End,
        bytes: usize,
        word: u64,
    ) -> Result<(), Over> {
        let (mut left, mut word) = (bytes, word);
        while left > 0 {
            let part = left.min(self.rules.segment as usize);
            let mut skb = self.segment(task, from, part)?;
            skb.word = word;
            let skb = Arc::new(skb);
            self.side(from).lock().unacked.push(Arc::clone(&skb));
            self.arrive(task, from.peer(), skb)?;
            left -= part;
            word = 0;
        }
        Ok(())
    }

    /// A segment with the task's data.
    fn segment(
        &self,
        task: &HostTask<'_, 'h, D>,
        from: End,
        bytes: usize,
    ) -> Result<Skb<'h, D>, Over> {
        let linear = bytes.min(self.rules.linear as usize);
        let data = self.rules.segment_data;
        let mut skb = self.alloc_skb(task, HeadKind::Fclone, data, linear)?;
        while skb.bytes < bytes {
            let fragment = self.fragment(task, from, bytes - skb.bytes)?;
            skb.bytes += fragment.bytes;
            skb.fragments.push(fragment);
        }
        Ok(skb)
    }

    /// Cuts a fragment of `most` bytes at most from the socket's block, and fills it.
    fn fragment(
        &self,
        task: &HostTask<'_, 'h, D>,
        from: End,
        most: usize,
    ) -> Result<Fragment<'h>, Over> {
        let block_bytes = self.page_bytes << self.rules.fragment_order;
        let current = self.side(from).lock().block.take();
        let (block, at) = match current.filter(|(_, at)| *at < block_bytes) {
            Some(current) => current,
            None => (self.alloc_block(self.rules.fragment_order)?, 0),
        };
        let bytes = most.min(block_bytes - at);
        self.copy_to_block(task, &block, at, bytes);
        self.side(from).lock().block = Some((Arc::clone(&block), at + bytes));
        Ok(Fragment { block, at, bytes })
    }

    /// A segment reaches its receiver's socket. It acknowledges what its sender has received; the sender frees that.
    fn arrive(
        &self,
        task: &HostTask<'_, 'h, D>,
        at: End,
        skb: Arc<Skb<'h, D>>,
    ) -> Result<(), Over> {
        let receiver = self.side(at);
        self.acknowledge(at, at.peer());
        let mut state = receiver.lock();
        state.owes += skb.bytes;
        let owes = state.owes;
        receiver.queue(state, Held::Shared(skb));
        if owes > OWES_MAX {
            let ack = self.alloc_skb(task, HeadKind::Plain, self.rules.ack_data(), 0)?;
            self.acknowledge(at.peer(), at);
            drop(ack);
        }
        Ok(())
    }

    /// The other end acknowledges all that `of` sent, and owes nothing more.
    fn acknowledge(&self, of: End, by: End) {
        self.side(by).lock().owes = 0;
        let acknowledged = std::mem::take(&mut self.side(of).lock().unacked);
        // Freed without the lock.
        drop(acknowledged);
    }
}
