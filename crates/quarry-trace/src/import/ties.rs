//! Events with the same time, on several CPUs.
//!
//! A recorder prints the events of all CPUs in the order of their times. Where the clock is coarse (a
//! kernel without a better one counts jiffies, milliseconds apart) thousands of events have the same time, and
//! it prints them CPU after CPU, though they happened side by side. Then an object is freed by one CPU before
//! another has allocated it. What is certain is the order of each CPU's own events, that an address is
//! allocated only while it is free and freed only while it is not, and that a slab is given back only when it
//! is empty. So a group of equal times is put in a new order:
//!
//! 1. each CPU's events stay in their order;
//! 2. a free of something that is not alive waits while another CPU still has to allocate it, and
//!    an allocation of something alive waits while another CPU still has to free it;
//! 3. a free of a block of pages waits while another CPU still has to free an object that lies in it: the
//!    block is a slab, which is given back when its last object is gone;
//! 4. of the events that do not wait, or, if all wait, of all, the next is that of the CPU which is least
//!    far through its events of the group, by their share: each CPU's events are spread evenly over the
//!    time that the clock does not divide. Among equals the one printed first is next.
//!
//! Groups of a single CPU pass unchanged. The events of a group are copied; a group is cut at
//! [`GROUP_EVENTS_MAX`], so that memory stays bounded whatever the clock.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::io::Write;
use std::ops::Range;

use crate::build::TraceBuilder;
use crate::error::Result;
use crate::event::RawEvent;

/// Most events that are held back.
const GROUP_EVENTS_MAX: usize = 1 << 16;

/// An event without its texts, and where these are.
#[derive(Debug)]
struct Held {
    event: RawEvent<'static>,
    comm: Range<usize>,
    cache: Option<Range<usize>>,
    gfp_flags: Option<Range<usize>>,
    call_site: Option<Range<usize>>,
}

/// What an event is about: a page frame or an address.
type Subject = (bool, u64);

/// What a CPU of the group has still to do to a subject.
#[derive(Debug)]
struct Todo {
    queue: usize,
    allocs: u32,
    frees: u32,
}

/// The group of events that is being read.
#[derive(Debug, Default)]
pub(crate) struct Ties {
    held: Vec<Held>,
    texts: Vec<u8>,
}

/// The events of one CPU in a group.
#[derive(Debug, Default)]
struct Queue {
    events: Vec<usize>,
    done: usize,
}

impl Queue {
    fn head(&self) -> Option<usize> {
        self.events.get(self.done).copied()
    }

    /// Whose next event, taken to happen in the middle of its share of the time, comes first.
    fn cmp_share(&self, other: &Queue) -> Ordering {
        let middle = |queue: &Queue| 2 * queue.done + 1;
        (middle(self) * other.events.len()).cmp(&(middle(other) * self.events.len()))
    }
}

impl Ties {
    /// Takes the next event of the text. The group before it goes to the trace if it is complete.
    pub(crate) fn push<W: Write + Send>(
        &mut self,
        event: &RawEvent<'_>,
        trace: &mut TraceBuilder<W>,
    ) -> Result<()> {
        let first = self.held.first();
        if first.is_some_and(|held| held.event.time_ns != event.time_ns)
            || self.held.len() == GROUP_EVENTS_MAX
        {
            self.flush(trace)?;
        }
        let texts = &mut self.texts;
        let mut keep = |text: &[u8]| {
            let start = texts.len();
            texts.extend_from_slice(text);
            start..texts.len()
        };
        self.held.push(Held {
            comm: keep(event.comm),
            cache: event.cache.map(&mut keep),
            gfp_flags: event.gfp_flags.map(&mut keep),
            call_site: event.call_site.map(&mut keep),
            event: RawEvent {
                comm: b"",
                cache: None,
                gfp_flags: None,
                call_site: None,
                ..*event
            },
        });
        Ok(())
    }

    /// Gives the group to the trace.
    pub(crate) fn flush<W: Write + Send>(&mut self, trace: &mut TraceBuilder<W>) -> Result<()> {
        let cpu = self.held.first().map(|held| held.event.cpu);
        if self.held.iter().all(|held| Some(held.event.cpu) == cpu) {
            for held in &self.held {
                trace.push(&held.with(&self.texts))?;
            }
        } else {
            self.merge(trace)?;
        }
        self.held.clear();
        self.texts.clear();
        Ok(())
    }

    fn merge<W: Write + Send>(&self, trace: &mut TraceBuilder<W>) -> Result<()> {
        let mut queue_of: HashMap<u16, usize> = HashMap::new();
        let mut queues: Vec<Queue> = Vec::new();
        let mut todo: HashMap<Subject, Vec<Todo>> = HashMap::new();
        for (index, held) in self.held.iter().enumerate() {
            let queue = *queue_of.entry(held.event.cpu).or_insert(queues.len());
            if queue == queues.len() {
                queues.push(Queue::default());
            }
            queues[queue].events.push(index);
            count(
                todo.entry(subject(&held.event)).or_default(),
                queue,
                &held.event,
            );
        }
        for _ in 0..self.held.len() {
            let event = |queue: &Queue| queue.head().map(|index| &self.held[index]);
            let waits = |at: usize, held: &Held| {
                let left = |subject: Subject, frees: bool| {
                    let others = todo.get(&subject).into_iter().flatten();
                    others
                        .filter(|other| other.queue != at)
                        .any(|other| if frees { other.frees } else { other.allocs } > 0)
                };
                let subject @ (page, address) = subject(&held.event);
                let frees = held.event.kind.is_free();
                if trace.is_live(page, address) != frees {
                    return left(subject, !frees);
                }
                let mut inside = trace.objects_in(address, held.event.order);
                page && frees && inside.any(|object| left((false, object), true))
            };
            // The queues are in the order of their first events.
            let heads = || {
                queues
                    .iter()
                    .enumerate()
                    .filter(|(_, queue)| queue.head().is_some())
            };
            let least_far = |a: &(usize, &Queue), b: &(usize, &Queue)| a.1.cmp_share(b.1);
            let ready = heads()
                .filter(|(at, queue)| event(queue).is_some_and(|held| !waits(*at, held)))
                .min_by(least_far);
            let Some((at, _)) = ready.or_else(|| heads().min_by(least_far)) else {
                break;
            };
            let Some(held) = event(&queues[at]) else {
                break;
            };
            queues[at].done += 1;
            trace.push(&held.with(&self.texts))?;
            let done = todo.get_mut(&subject(&held.event)).into_iter().flatten();
            for todo in done.filter(|todo| todo.queue == at) {
                if held.event.kind.is_free() {
                    todo.frees -= 1;
                } else {
                    todo.allocs -= 1;
                }
            }
        }
        Ok(())
    }
}

impl Held {
    fn with<'a>(&self, texts: &'a [u8]) -> RawEvent<'a> {
        let text = |range: &Option<Range<usize>>| range.clone().map(|range| &texts[range]);
        RawEvent {
            comm: &texts[self.comm.clone()],
            cache: text(&self.cache),
            gfp_flags: text(&self.gfp_flags),
            call_site: text(&self.call_site),
            ..self.event
        }
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
