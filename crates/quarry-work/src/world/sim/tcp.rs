//! TCP over the loopback device.

use std::rc::Rc;

use quarry_core::design::Design;
use quarry_core::machine::Access;

use super::kernel::Kernel;
use super::socket::{Fragment, Skb};
use super::socket::{Side, SocketLine};
use crate::world::skb::HeadKind;
use crate::world::{End, Over};

/// Bytes that a receiver owes acknowledgements for, at most: data of a full segment.
const OWES_MAX: u32 = 16384;

impl<'h, D: Design> Kernel<'_, 'h, D> {
    /// Sends a message in segments. The receiver's socket gets each on this CPU.
    pub(super) fn send_tcp(&self, from: End, bytes: u32, word: u64) -> Result<(), Over> {
        let own = self.side(from);
        let mut left = bytes;
        let mut word = word;
        while left > 0 {
            let part = left.min(self.rules.segment);
            let skb = self.segment(own, part, word)?;
            self.protocol(self.tcp_ps * 3 / 8);
            self.touch(own, SocketLine::State, Access::Write);
            let skb = Rc::new(skb);
            own.unacked.borrow_mut().push(Rc::clone(&skb));
            self.arrive(from.peer(), skb)?;
            left -= part;
            word = 0;
        }
        Ok(())
    }

    /// A segment with the task's data.
    pub(super) fn segment(&self, own: &Side<'h>, bytes: u32, word: u64) -> Result<Skb<'h>, Over> {
        let mut skb = self.alloc_skb(HeadKind::Fclone, self.rules.segment_data)?;
        skb.word = word;
        let linear = bytes.min(self.rules.linear);
        if linear > 0 {
            self.fill_linear(&mut skb, linear);
        }
        let mut left = bytes - linear;
        while left > 0 {
            match self.fragment(own, left) {
                Ok(fragment) => {
                    left -= fragment.bytes;
                    skb.bytes += fragment.bytes;
                    skb.fragments.push(fragment);
                }
                Err(over) => {
                    self.put_skb(Rc::new(skb));
                    return Err(over);
                }
            }
        }
        Ok(skb)
    }

    /// Cuts a fragment of at most `most` bytes from the socket's block, and fills it.
    fn fragment(&self, own: &Side<'h>, most: u32) -> Result<Fragment<'h>, Over> {
        let block_bytes = self.page_bytes << self.rules.fragment_order;
        let current = own.block.take();
        let (block, at) = match current {
            Some((block, at)) if at < block_bytes => (block, at),
            used_up => {
                if let Some((block, _)) = used_up {
                    self.put_block(block);
                }
                (self.alloc_block(self.rules.fragment_order)?, 0)
            }
        };
        let bytes = most.min(block_bytes - at);
        self.copy_to_block(&block, at, bytes);
        // Another sender may have left one meanwhile.
        let left = own.block.replace(Some((Rc::clone(&block), at + bytes)));
        if let Some((block, _)) = left {
            self.put_block(block);
        }
        Ok(Fragment { block, at, bytes })
    }

    /// A segment reaches its receiver's socket, on this CPU. It acknowledges what its sender has received.
    fn arrive(&self, at: End, skb: Rc<Skb<'h>>) -> Result<(), Over> {
        let (receiver, sender) = (self.side(at), self.side(at.peer()));
        self.protocol(self.tcp_ps * 3 / 8);
        self.touch(receiver, SocketLine::State, Access::Write);
        self.acknowledge(receiver, sender);
        receiver.owes.set(receiver.owes.get() + skb.bytes);
        self.deliver(receiver, skb);
        if receiver.owes.get() <= OWES_MAX {
            return Ok(());
        }
        let ack = self.alloc_skb(HeadKind::Plain, self.rules.ack_data())?;
        self.protocol(self.tcp_ps / 4);
        self.touch(sender, SocketLine::State, Access::Write);
        self.acknowledge(sender, receiver);
        self.put_skb(Rc::new(ack));
        Ok(())
    }

    /// The other end acknowledges all that `of` sent: `of` frees it.
    fn acknowledge(&self, of: &Side<'h>, by: &Side<'h>) {
        by.owes.set(0);
        for skb in of.unacked.take() {
            self.put_skb(skb);
        }
    }
}
