//! Unix sockets, and how streams are read.

use std::rc::Rc;

use quarry_core::design::Design;
use quarry_core::machine::Access;

use super::kernel::Kernel;
use super::socket::SocketLine;
use crate::world::skb::HeadKind;
use crate::world::{DATAGRAMS_MAX, End, Over, Received, Transport};

impl<D: Design> Kernel<'_, '_, D> {
    /// Sends a message: buffers that no more than half of the send buffer holds.
    pub(super) fn send_unix(&self, from: End, bytes: u32, word: u64) -> Result<(), Over> {
        let most = self.rules.send_buffer / 2;
        let mut left = bytes;
        let mut word = word;
        while left > 0 {
            let part = left.min(most);
            self.send_unix_buffer(from, part, word)?;
            left -= part;
            word = 0;
        }
        Ok(())
    }

    /// Sends a buffer, which is a whole datagram.
    pub(super) fn send_unix_buffer(&self, from: End, bytes: u32, word: u64) -> Result<(), Over> {
        let (own, peer) = (self.side(from), self.side(from.peer()));
        let are_datagrams = own.transport == Transport::Datagram;
        self.machine.take_turn();
        while own.sent.get() > self.rules.send_buffer
            || are_datagrams && peer.queue.borrow().len() > DATAGRAMS_MAX
        {
            self.wait_in(&own.writers, "room in a socket")?;
            self.machine.take_turn();
        }
        let data = self.rules.message(bytes);
        let mut skb = self.alloc_skb(HeadKind::Plain, data)?;
        self.fill_linear(&mut skb, bytes);
        skb.word = word;
        self.protocol(self.unix_ps / 2);
        self.touch(own, SocketLine::Sent, Access::Atomic);
        own.sent.set(own.sent.get() + self.rules.true_size(data));
        self.deliver(peer, Rc::new(skb));
        Ok(())
    }

    /// Waits until something has come. `false` if no more comes.
    fn wait_for_message(&self, at: End) -> Result<bool, Over> {
        let (own, peer) = (self.side(at), self.side(at.peer()));
        self.machine.take_turn();
        while own.queue.borrow().is_empty() {
            if peer.closed.get() {
                return Ok(false);
            }
            self.wait_in(&own.readers, "a message")?;
            self.machine.take_turn();
        }
        Ok(true)
    }

    /// Receives a datagram, and waits for one. The part of it that is longer than `most` bytes is lost.
    pub(super) fn receive_datagram(&self, at: End, most: u32) -> Result<Received, Over> {
        let own = self.side(at);
        let mut first = loop {
            if !self.wait_for_message(at)? {
                return Ok(Received { bytes: 0, word: 0 });
            }
            self.touch(own, SocketLine::Queue, Access::Atomic);
            // Another reader may have been faster.
            let first = own.queue.borrow_mut().pop_front();
            if let Some(first) = first {
                break first;
            }
        };
        self.wake_all(&self.side(at.peer()).writers);
        self.look_at(&first.skb);
        let word = first.skb.word;
        let bytes = self.take(&mut first, most);
        self.protocol(self.unix_ps / 2);
        let data = self.rules.message(first.skb.bytes);
        self.read_from(at.peer(), self.rules.true_size(data));
        self.put_skb(first.skb);
        Ok(Received { bytes, word })
    }

    /// Receives what has come, and waits for the first of it.
    pub(super) fn receive_stream(&self, at: End, most: u32) -> Result<Received, Over> {
        let own = self.side(at);
        let is_tcp = own.transport != Transport::Unix;
        let mut received = Received { bytes: 0, word: 0 };
        if !self.wait_for_message(at)? {
            return Ok(received);
        }
        if is_tcp {
            self.protocol(self.tcp_ps / 4);
            self.touch(own, SocketLine::State, Access::Write);
        }
        while received.bytes < most {
            self.touch(own, SocketLine::Queue, Access::Atomic);
            let first = own.queue.borrow_mut().pop_front();
            let Some(mut first) = first else {
                // Another reader may have been faster.
                if received.bytes == 0 && self.wait_for_message(at)? {
                    continue;
                }
                break;
            };
            if received.bytes == 0 {
                received.word = if first.taken == 0 { first.skb.word } else { 0 };
            }
            self.look_at(&first.skb);
            received.bytes += self.take(&mut first, most - received.bytes);
            if first.taken < first.skb.bytes {
                own.queue.borrow_mut().push_front(first);
                break;
            }
            if !is_tcp {
                self.protocol(self.unix_ps / 2);
                self.read_from(
                    at.peer(),
                    self.rules.true_size(self.rules.message(first.skb.bytes)),
                );
            }
            self.put_skb(first.skb);
        }
        Ok(received)
    }

    /// A buffer that was sent from here has been read: there may be room for the next.
    fn read_from(&self, from: End, true_size: u32) {
        let sender = self.side(from);
        self.touch(sender, SocketLine::Sent, Access::Atomic);
        sender.sent.set(sender.sent.get() - true_size);
        if u64::from(sender.sent.get()) * 4 <= u64::from(self.rules.send_buffer) {
            self.wake_all(&sender.writers);
        }
    }
}
