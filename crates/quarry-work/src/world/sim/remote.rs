//! TCP to another machine: a network card whose interrupts come to one CPU.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use quarry_core::design::Design;
use quarry_core::machine::Access;
use quarry_sim::sched::TaskId;

use super::ROUND_TRIP_NS;
use super::kernel::Kernel;
use super::skb::Skb;
use super::socket::SocketLine;
use crate::net::DataFrom;
use crate::world::skb::HeadKind;
use crate::world::{End, Over};

/// Data of a receive buffer: a frame of 1500 bytes with room in front, without the shared info.
const FRAME_BYTES: u32 = 1600;

/// A network card.
#[derive(Default)]
pub(super) struct Card<'h> {
    /// The task that serves its interrupts; `None` until it has begun.
    server: Cell<Option<TaskId>>,
    /// The card's task waits for a packet.
    waits: Cell<bool>,
    /// Buffers that were transmitted and are to be freed.
    transmitted: RefCell<Vec<Rc<Skb<'h>>>>,
    /// Answers on their way: when they come, to which socket, of how many bytes.
    coming: RefCell<VecDeque<(u64, End, u32)>>,
    /// Connections that are not closed.
    pub(super) open: Cell<u32>,
}

impl Card<'_> {
    /// A card with n connections.
    pub(super) fn new(connections: u32) -> Self {
        Self {
            open: Cell::new(connections),
            ..Self::default()
        }
    }
}

impl<'h, D: Design> Kernel<'_, 'h, D> {
    /// Sends a message to another machine, which will answer.
    pub(super) fn send_remote(
        &self,
        from: End,
        bytes: u32,
        word: u64,
        answer: u32,
    ) -> Result<(), Over> {
        let own = self.side(from);
        let skb = Rc::new(self.segment(own, bytes, word)?);
        self.protocol(self.tcp_ps * 3 / 8);
        self.touch(own, SocketLine::State, Access::Write);
        own.unacked.borrow_mut().push(Rc::clone(&skb));
        self.card.transmitted.borrow_mut().push(skb);
        let comes_ps = self.machine.clock_ps() + ROUND_TRIP_NS * 1000;
        self.card
            .coming
            .borrow_mut()
            .push_back((comes_ps, from, answer));
        self.interrupt();
        Ok(())
    }

    /// The card has something for its server.
    pub(super) fn interrupt(&self) {
        if let Some(server) = self.card.server.get()
            && self.card.waits.take()
        {
            self.sched.wake(server);
        }
    }

    /// Serves the card until all connections are closed.
    pub(crate) fn serve_card(&self) -> Result<(), Over> {
        let card = &self.card;
        card.server.set(Some(self.sched.task()));
        loop {
            for skb in card.transmitted.take() {
                self.put_skb(skb);
            }
            let first = card.coming.borrow().front().map(|(comes_ps, ..)| *comes_ps);
            let now_ps = self.machine.clock_ps();
            match first {
                Some(comes_ps) if comes_ps <= now_ps || !self.has_clocks() => {
                    self.answer_comes()?
                }
                Some(comes_ps) => self.sched.sleep_ns((comes_ps - now_ps).div_ceil(1000)),
                None if card.open.get() == 0 => return Ok(()),
                None => {
                    card.waits.set(true);
                    self.sched.wait("a packet");
                }
            }
            self.sched.leave_kernel();
        }
    }

    /// The first answer reaches its socket. It acknowledges what was sent from there.
    fn answer_comes(&self) -> Result<(), Over> {
        let Some((_, at, bytes)) = self.card.coming.borrow_mut().pop_front() else {
            return Ok(());
        };
        let data = DataFrom::Kmalloc(FRAME_BYTES + self.rules.shared_info);
        let mut skb = self.alloc_skb(HeadKind::Plain, data)?;
        (skb.linear, skb.bytes) = (bytes, bytes);
        let own = self.side(at);
        self.protocol(self.tcp_ps * 3 / 8);
        self.touch(own, SocketLine::State, Access::Write);
        for skb in own.unacked.take() {
            self.put_skb(skb);
        }
        self.deliver(own, Rc::new(skb));
        Ok(())
    }

    /// Frees what the card still has.
    pub(super) fn shut_card(&self) {
        for skb in self.card.transmitted.take() {
            self.put_skb(skb);
        }
        self.card.coming.borrow_mut().clear();
    }
}
