//! Events with the same time, on several CPUs.
//!
//! A recorder prints the events of all CPUs in the order of their times. A coarse clock gives thousands of
//! events the same time: a kernel without a better one counts jiffies, milliseconds apart. The recorder prints
//! such events CPU after CPU, though they happened side by side. Then an object is freed by one CPU before
//! another has allocated it.
//!
//! Three things are certain: the order of each CPU's own events; that an address is allocated only while it is
//! free, and freed only while it is not; and that a slab is given back only when it is empty. So a group of
//! equal times is put in a new order:
//!
//! 1. Each CPU's events stay in their order.
//! 2. A free of something that is not alive waits while another CPU still has to allocate it. An allocation of
//!    something alive waits while another CPU still has to free it.
//! 3. A free of a block of pages waits while another CPU still has to free an object in the block: the block is
//!    a slab, and is given back when its last object is gone. The free of an object that the free of the block
//!    follows on its CPU waits with it.
//! 4. A free of an object waits while another CPU makes a slab for that cache: the CPU has the pages, and not
//!    yet the object that it wanted ([`super::refills`]).
//! 5. The next event is that of the CPU which is least far through its events of the group, by their share.
//!    This spreads each CPU's events evenly over the time that the clock does not divide. CPUs whose event waits
//!    are left out, unless all wait. Among equals the one printed first is next.
//! 6. If that is the free of an object, a new slab for its cache may come first: its pages are next if another
//!    CPU takes them before the CPU of the free is to go on.
//!
//! Groups of a single CPU pass unchanged. The events of a group are copied; a group is cut at
//! [`GROUP_EVENTS_MAX`], so that memory stays bounded whatever the clock.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::io::Write;

use crate::build::TraceBuilder;
use crate::error::Result;
use crate::event::{Kind, RawEvent};

use super::held::Held;

/// Most events that are held back.
const GROUP_EVENTS_MAX: usize = 1 << 16;

/// The memory that an event is about: true and a page frame, or false and an address.
type Subject = (bool, u64);

/// Events about a subject that a CPU of the group has yet to do.
#[derive(Debug)]
struct Todo {
    queue: usize,
    allocs: u32,
    frees: u32,
}

/// The group of events that is being read.
#[derive(Debug, Default)]
pub(super) struct Ties {
    held: Vec<Held>,
    /// Room of texts that have gone to the trace.
    rooms: Vec<Vec<u8>>,
}

/// The events of one CPU in a group.
#[derive(Debug, Default)]
struct Queue {
    events: Vec<usize>,
    done: usize,
}

impl Queue {
    /// The events that are not done.
    fn left(&self) -> impl Iterator<Item = usize> {
        self.events[self.done..].iter().copied()
    }

    /// Compares its next event with the one that follows another queue's next by `later`. Each
    /// event is taken to happen in the middle of its share of the time.
    fn cmp_share(&self, other: &Queue, later: usize) -> Ordering {
        let middle = |queue: &Queue, later: usize| 2 * (queue.done + later) + 1;
        (middle(self, 0) * other.events.len()).cmp(&(middle(other, later) * self.events.len()))
    }
}

impl Ties {
    /// Takes the next event. The group before it goes to the trace if it is complete.
    pub(super) fn push<W: Write + Send>(
        &mut self,
        held: Held,
        trace: &mut TraceBuilder<W>,
    ) -> Result<()> {
        let first = self.held.first();
        if first.is_some_and(|first| first.event.time_ns != held.event.time_ns)
            || self.held.len() == GROUP_EVENTS_MAX
        {
            self.flush(trace)?;
        }
        self.held.push(held);
        Ok(())
    }

    /// Room for an event's texts.
    pub(super) fn room(&mut self) -> Vec<u8> {
        self.rooms.pop().unwrap_or_default()
    }

    /// Gives the group to the trace.
    pub(super) fn flush<W: Write + Send>(&mut self, trace: &mut TraceBuilder<W>) -> Result<()> {
        let cpu = self.held.first().map(|held| held.event.cpu);
        if self.held.iter().all(|held| Some(held.event.cpu) == cpu) {
            for held in &self.held {
                trace.push(&held.whole())?;
            }
        } else {
            self.merge(trace)?;
        }
        self.rooms.extend(self.held.drain(..).map(Held::room));
        Ok(())
    }

    fn merge<W: Write + Send>(&self, trace: &mut TraceBuilder<W>) -> Result<()> {
        let mut merge = Merge::new(&self.held);
        while let Some(at) = merge.next_queue(trace)
            && let Some(held) = merge.take(at)
        {
            trace.push(&held.whole())?;
        }
        Ok(())
    }
}

/// A group that is being put in order.
struct Merge<'a> {
    held: &'a [Held],
    /// In the order of their first events.
    queues: Vec<Queue>,
    todo: HashMap<Subject, Vec<Todo>>,
}

impl<'a> Merge<'a> {
    fn new(held: &'a [Held]) -> Self {
        let mut queue_of: HashMap<u16, usize> = HashMap::new();
        let mut queues: Vec<Queue> = Vec::new();
        let mut todo: HashMap<Subject, Vec<Todo>> = HashMap::new();
        for (index, Held { event, .. }) in held.iter().enumerate() {
            let queue = *queue_of.entry(event.cpu).or_insert(queues.len());
            if queue == queues.len() {
                queues.push(Queue::default());
            }
            queues[queue].events.push(index);
            count(todo.entry(subject(event)).or_default(), queue, event);
        }
        Self { held, queues, todo }
    }

    /// The queue whose next event is next.
    fn next_queue<W: Write + Send>(&self, trace: &TraceBuilder<W>) -> Option<usize> {
        let least_far = |a: &usize, b: &usize| self.queues[*a].cmp_share(&self.queues[*b], 0);
        let ready = self
            .heads()
            .filter(|(at, held)| !self.waits(*at, held, trace));
        let ready = ready.map(|(at, _)| at).min_by(least_far);
        // All wait only if events were lost or are contradictory. One has to go first, or the group would never end; the
        // orphan rule then says what became of its object.
        let next = ready.or_else(|| self.heads().map(|(at, _)| at).min_by(least_far))?;
        let Some(free) = self.head(next).filter(|held| held.frees_object()) else {
            return Some(next);
        };
        // Rule 6: this free may put a slab on the node's list, and the other CPU would have used that instead of making one.
        // Only pages that the other CPU takes before this CPU's next event come first; later ones have time to wait.
        let meanwhile = self.heads().filter(|(at, held)| {
            *at != next
                && held.is_of_refill(true, &free.event, trace)
                && self.queues[*at].cmp_share(&self.queues[next], 1) == Ordering::Less
                && !self.waits(*at, held, trace)
        });
        Some(
            meanwhile
                .map(|(at, _)| at)
                .min_by(least_far)
                .unwrap_or(next),
        )
    }

    /// The next event of a queue is done.
    fn take(&mut self, at: usize) -> Option<&'a Held> {
        let held = self.head(at)?;
        self.queues[at].done += 1;
        let done = self
            .todo
            .get_mut(&subject(&held.event))
            .into_iter()
            .flatten();
        for todo in done.filter(|todo| todo.queue == at) {
            if held.event.kind.is_free() {
                todo.frees -= 1;
            } else {
                todo.allocs -= 1;
            }
        }
        Some(held)
    }

    fn head(&self, at: usize) -> Option<&'a Held> {
        self.queues[at].left().next().map(|index| &self.held[index])
    }

    /// The next event of every queue that has one.
    fn heads(&self) -> impl Iterator<Item = (usize, &'a Held)> {
        (0..self.queues.len()).filter_map(|at| Some((at, self.head(at)?)))
    }

    fn waits<W: Write + Send>(&self, at: usize, held: &Held, trace: &TraceBuilder<W>) -> bool {
        let subject @ (page, address) = subject(&held.event);
        let frees = held.event.kind.is_free();
        // Rule 4.
        let mut others = self.heads().filter(|(other, _)| *other != at);
        if held.frees_object()
            && others.any(|(_, other)| other.is_of_refill(false, &held.event, trace))
        {
            return true;
        }
        // Rule 2. Mostly the object is as the event wants it, and nothing else is asked.
        if trace.is_live(page, address) != frees && self.is_left(at, subject, !frees) {
            return true;
        }
        // Rule 3: live objects inside, whose frees other CPUs still have to do.
        let mut given_back = self.given_back(at, held);
        given_back.any(|pages| {
            let mut inside = trace.objects_in(pages.address, pages.order);
            inside.any(|object| self.is_left(at, (false, object), true))
        })
    }

    /// True if another CPU than that of a queue still has to free the subject, or to allocate it.
    fn is_left(&self, at: usize, subject: Subject, frees: bool) -> bool {
        let mut others = self
            .todo
            .get(&subject)
            .into_iter()
            .flatten()
            .filter(|other| other.queue != at);
        others.any(|other| if frees { other.frees } else { other.allocs } > 0)
    }

    /// The blocks of pages that the next event of a queue gives back: its own, or, if it frees an
    /// object, those whose frees follow.
    fn given_back(&self, at: usize, held: &Held) -> impl Iterator<Item = &'a RawEvent<'static>> {
        let own = usize::from(held.frees_object());
        let later = self.queues[at]
            .left()
            .skip(own)
            .map(|index| &self.held[index].event);
        let follow = later.take_while(|event| event.kind == Kind::MmPageFree);
        // A free of pages has nothing to do with the next one.
        follow.take(if own > 0 { usize::MAX } else { 1 })
    }
}

fn subject(event: &RawEvent<'_>) -> Subject {
    (event.kind.is_page(), event.address)
}

fn count(todos: &mut Vec<Todo>, queue: usize, event: &RawEvent<'_>) {
    let at = todos.iter().position(|todo| todo.queue == queue);
    let at = at.unwrap_or_else(|| {
        todos.push(Todo {
            queue,
            allocs: 0,
            frees: 0,
        });
        todos.len() - 1
    });
    if event.kind.is_free() {
        todos[at].frees += 1;
    } else {
        todos[at].allocs += 1;
    }
}

#[cfg(test)]
mod tests;
