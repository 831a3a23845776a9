//! TCP to another machine, through a network card ([`Network`]).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use quarry_core::design::Design;
use quarry_core::machine::Access;
use quarry_sim::sched::TaskId;

use super::kernel::Kernel;
use super::socket::{Skb, SocketLine};
use crate::card::{NAPI_BUDGET, Network};
use crate::net::DataFrom;
use crate::world::skb::HeadKind;
use crate::world::{End, Over};

/// Data of a receive buffer: a frame of 1500 bytes with room in front, without the shared info.
const FRAME_BYTES: u32 = 1600;

/// An answer on its way.
struct Answer {
    comes_ps: u64,
    to: End,
    bytes: u32,
}

/// A queue of the card.
#[derive(Default)]
struct Queue<'h> {
    /// The task that serves its interrupts; `None` until it has begun.
    server: Cell<Option<TaskId>>,
    /// The task waits for a packet.
    waits: Cell<bool>,
    /// Buffers for packets, oldest first.
    posted: RefCell<VecDeque<Skb<'h>>>,
    /// Buffers that were transmitted and are to be freed.
    transmitted: RefCell<Vec<Rc<Skb<'h>>>>,
    coming: RefCell<VecDeque<Answer>>,
    /// Moments of the last interrupts, in nanoseconds: for packets, and for what was transmitted.
    received_ns: Cell<Option<u64>>,
    freed_ns: Cell<Option<u64>>,
    /// Moment of the other machine's last interrupt, or of the one that requests wait for there.
    there_ns: Cell<Option<u64>>,
}

impl Queue<'_> {
    /// The interrupt after which what was transmitted is freed, if there is anything.
    fn frees_ns(&self, network: &Network) -> Option<u64> {
        let is_empty = self.transmitted.borrow().is_empty();
        (!is_empty).then(|| network.card.interrupt_ns(0, self.freed_ns.get()))
    }

    /// The interrupt for the next answer.
    fn receives_ns(&self, network: &Network) -> Option<u64> {
        let comes_ps = self.coming.borrow().front()?.comes_ps;
        let comes_ns = comes_ps.div_ceil(1000);
        Some(network.card.interrupt_ns(comes_ns, self.received_ns.get()))
    }
}

/// The card of a machine.
pub(super) struct Nic<'h> {
    network: Network,
    queues: Vec<Queue<'h>>,
    /// Connections that are not closed.
    open: Cell<u32>,
}

impl<'h> Nic<'h> {
    /// A card with some queues and connections.
    pub(super) fn new(network: Network, queues: u32, connections: u32) -> Self {
        Self {
            network,
            queues: (0..queues).map(|_| Queue::default()).collect(),
            open: Cell::new(connections),
        }
    }

    /// The queue of a connection: packets of both directions keep to it.
    fn queue(&self, end: End) -> &Queue<'h> {
        &self.queues[(end.0 / 2) as usize % self.queues.len()]
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
        let network = self.nic.network;
        self.protocol(self.tcp_ps * 3 / 8 + network.packet_ps);
        self.touch(own, SocketLine::State, Access::Write);
        own.unacked.borrow_mut().push(Rc::clone(&skb));
        let queue = self.nic.queue(from);
        queue.transmitted.borrow_mut().push(skb);
        let now_ns = self.machine.clock_ps().div_ceil(1000);
        let [there_ns, comes_ns] = network.answer_ns(now_ns, queue.there_ns.get());
        queue.there_ns.set(Some(there_ns));
        queue.coming.borrow_mut().push_back(Answer {
            comes_ps: comes_ns * 1000,
            to: from,
            bytes: answer,
        });
        self.wake_server(queue);
        Ok(())
    }

    /// A connection is closed. Servers end with the last one.
    pub(super) fn close_remote(&self) {
        self.nic.open.set(self.nic.open.get() - 1);
        for queue in &self.nic.queues {
            self.wake_server(queue);
        }
    }

    fn wake_server(&self, queue: &Queue<'h>) {
        if let Some(server) = queue.server.get()
            && queue.waits.take()
        {
            self.sched.wake(server);
        }
    }

    /// Serves a queue of the card until all connections are closed.
    pub(crate) fn serve_card(&self, number: u32) -> Result<(), Over> {
        let Nic {
            network, queues, ..
        } = &self.nic;
        let queue = &queues[number as usize];
        queue.server.set(Some(self.sched.task()));
        self.post(queue)?;
        loop {
            let now_ns = self.machine.clock_ps() / 1000;
            let (frees, receives) = (queue.frees_ns(network), queue.receives_ns(network));
            let is_due = |at: Option<u64>| at.is_some_and(|at_ns| at_ns <= now_ns);
            match frees.into_iter().chain(receives).min() {
                Some(at_ns) if at_ns > now_ns && self.has_clocks() => {
                    self.sched.sleep_ns(at_ns - now_ns);
                    continue;
                }
                Some(_) => {}
                None if self.nic.open.get() == 0 => return Ok(()),
                None => {
                    queue.waits.set(true);
                    self.sched.wait("a packet");
                    continue;
                }
            }
            if is_due(frees) || !self.has_clocks() {
                queue.freed_ns.set(Some(now_ns));
                for skb in queue.transmitted.take() {
                    self.put_skb(skb);
                }
            }
            if is_due(receives) || !self.has_clocks() {
                queue.received_ns.set(Some(now_ns));
                while self.poll(queue)? == NAPI_BUDGET {
                    self.sched.leave_kernel();
                }
            }
            self.sched.leave_kernel();
        }
    }

    /// Takes up to a budget of answers, and posts buffers for more. Returns the number of answers.
    fn poll(&self, queue: &Queue<'h>) -> Result<u32, Over> {
        let mut polled = 0;
        while polled < NAPI_BUDGET {
            let now_ps = self.machine.clock_ps();
            let due = |answer: &mut Answer| answer.comes_ps <= now_ps || !self.has_clocks();
            let Some(answer) = queue.coming.borrow_mut().pop_front_if(due) else {
                break;
            };
            let Some(skb) = queue.posted.borrow_mut().pop_front() else {
                // It waits in the card: the next poll finds buffers.
                queue.coming.borrow_mut().push_front(answer);
                break;
            };
            self.answer(&answer, skb);
            polled += 1;
        }
        self.post(queue)?;
        Ok(polled)
    }

    /// Posts a buffer for each that was used.
    fn post(&self, queue: &Queue<'h>) -> Result<(), Over> {
        while queue.posted.borrow().len() < self.nic.network.card.posted as usize {
            let data = DataFrom::Kmalloc(FRAME_BYTES + self.rules.shared_info);
            let skb = self.alloc_skb(HeadKind::Plain, data)?;
            queue.posted.borrow_mut().push_back(skb);
        }
        Ok(())
    }

    /// An answer reaches its socket in a posted buffer. It acknowledges what was sent from there.
    fn answer(&self, answer: &Answer, mut skb: Skb<'h>) {
        (skb.linear, skb.bytes) = (answer.bytes, answer.bytes);
        let own = self.side(answer.to);
        self.protocol(self.tcp_ps * 3 / 8 + self.nic.network.packet_ps);
        self.touch(own, SocketLine::State, Access::Write);
        for skb in own.unacked.take() {
            self.put_skb(skb);
        }
        self.deliver(own, Rc::new(skb));
    }

    /// Frees what the card still has.
    pub(super) fn shut_card(&self) {
        for queue in &self.nic.queues {
            for skb in queue.transmitted.take() {
                self.put_skb(skb);
            }
            for skb in queue.posted.take() {
                self.put_skb(Rc::new(skb));
            }
            queue.coming.borrow_mut().clear();
        }
    }
}
