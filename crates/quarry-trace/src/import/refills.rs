//! Allocations that took a new slab, and frees that happened beside them.
//!
//! Times do not tell when an event had its effect: a free is traced before the object is given
//! back; an allocation when it has its object; the pages of a slab when they are there. Now and
//! then that makes a difference. An allocator makes a slab only if it found none with a free place:
//! in the CPU's stock, and, last, on the node's lists. It looked before the event of the pages. So
//! a free of another CPU did not put a slab there before that,
//!
//! 1. if it is traced after the pages, though before the object: that is certain;
//! 2. if it is under way when the pages are traced: it is traced after the last event of the CPU that takes
//!    them, and the next event of its own CPU comes after the pages. Times leave it open whether the free
//!    or the look at the lists was first. If the free put a slab there, the new slab tells that it came later.
//!    If it did not, the order of the two makes no difference. A free that is traced longer before the pages
//!    than the object comes after them was over: it has less to do than that half of the allocation.
//!
//! So what such an allocation did from its pages to its object goes before the first of these
//! frees, and no further. Only frees that may be of the same cache count. What third CPUs did
//! between that free and the pages comes after it then, although they may have taken the last slab
//! of the lists: no recording here has such a case. Nothing goes into the middle of the events of
//! one time: their order is found together, and half of an allocation is no measure where a clock
//! stands for milliseconds. The events keep their times, so that rows may step back by the length
//! of an allocation ([`crate::TraceMeta::time_regressions`]). Each CPU's own order stays, and so
//! does the order of everything that is about one address.
//!
//! The other way round nothing needs an order: a free that gives a slab back is traced before it does so. Such
//! a slab tells that the lists had enough others, which is as true at the time of the free.
//!
//! The first object of a new slab shows it: the object lies in pages that the same thread allocated on
//! the same CPU not long before. In between the CPU does nothing but allocations of other caches,
//! for what is kept beside a slab. (Where objects come in bulk the pages were for others.) So the
//! last [`WINDOW_EVENTS`] events are held back. Where pages are is known as soon as the direct map
//! is found; before, nothing is moved. The order of events of one time comes from [`super::ties`],
//! which receives the events that belong to such an allocation.

use std::collections::VecDeque;
use std::io::Write;

use crate::build::TraceBuilder;
use crate::error::Result;
use crate::event::{Kind, RawEvent};

use super::held::{Held, Refill, Sort};
use super::ties::Ties;

/// Events that are held back.
const WINDOW_EVENTS: usize = 1024;
/// The last blocks of a CPU in which the next object may be the first: what is kept beside a slab
/// may need new slabs, too.
const RECENT_BLOCKS: usize = 8;

/// A block of pages that may be a new slab.
#[derive(Clone, Copy, Debug)]
struct Block {
    start: u64,
    order: u8,
    pid: i32,
}

/// The events that are held back.
#[derive(Debug, Default)]
pub(crate) struct Refills {
    window: VecDeque<Held>,
    /// Last blocks by CPU.
    recent: Vec<VecDeque<Block>>,
    ties: Ties,
}

impl Refills {
    /// Takes the next event of the text.
    pub(crate) fn push<W: Write + Send>(
        &mut self,
        event: &RawEvent<'_>,
        trace: &mut TraceBuilder<W>,
    ) -> Result<()> {
        let held = Held::new(event, self.ties.room());
        self.window.push_back(held);
        if event.kind == Kind::MmPageAlloc {
            self.note(event);
        } else if !event.kind.is_free()
            && let Some(block) = self.first_object(event, trace)
        {
            self.refilled(block, event, trace);
        }
        if self.window.len() > WINDOW_EVENTS
            && let Some(held) = self.window.pop_front()
        {
            self.ties.push(held, trace)?;
        }
        Ok(())
    }

    /// Gives everything that is held back to the trace.
    pub(crate) fn flush<W: Write + Send>(&mut self, trace: &mut TraceBuilder<W>) -> Result<()> {
        while let Some(held) = self.window.pop_front() {
            self.ties.push(held, trace)?;
        }
        self.ties.flush(trace)
    }

    fn note(&mut self, event: &RawEvent<'_>) {
        let cpu = usize::from(event.cpu);
        if self.recent.len() <= cpu {
            self.recent.resize_with(cpu + 1, VecDeque::new);
        }
        let recent = &mut self.recent[cpu];
        if recent.len() == RECENT_BLOCKS {
            recent.pop_front();
        }
        recent.push_back(Block {
            start: event.address,
            order: event.order,
            pid: event.pid,
        });
    }

    /// The block in which this is the first object.
    fn first_object<W: Write + Send>(
        &mut self,
        event: &RawEvent<'_>,
        trace: &TraceBuilder<W>,
    ) -> Option<Block> {
        let recent = self.recent.get_mut(usize::from(event.cpu))?;
        let page = trace
            .page_of(event.address)
            .filter(|_| !recent.is_empty())?;
        let inside = |block: &Block| {
            page.checked_sub(block.start)
                .is_some_and(|n| n >> block.order == 0)
        };
        let at = recent.iter().rposition(inside)?;
        // Only the first object shows the refill: later ones would move events that the slab was there for.
        recent.remove(at).filter(|block| block.pid == event.pid)
    }

    /// The last event of the window is the first object of a block.
    fn refilled<W: Write + Send>(
        &mut self,
        block: Block,
        object: &RawEvent<'_>,
        trace: &TraceBuilder<W>,
    ) {
        let (cpu, last) = (object.cpu, self.window.len() - 1);
        let is_block = |held: &Held| {
            let event = &held.event;
            event.kind == Kind::MmPageAlloc && (event.cpu, event.address) == (cpu, block.start)
        };
        // The pages left the window if the allocation took longer than the window is; then frees beside it have, too.
        let Some(pages) = self.window.iter().rposition(is_block) else {
            return;
        };
        let sort = sort_of(object);
        let mut between = self.window.range(pages..last).map(|held| &held.event);
        let on_the_way = |event: &RawEvent<'_>| {
            event.kind.is_page() || sort_of(event) != sort && !event.kind.is_free()
        };
        // An event of the same cache, or a free, in between: the pages were for that, or for a bulk call.
        if !between.all(|event| event.cpu != cpu || on_the_way(event)) {
            return;
        }
        // The order of events of one time is found later, and needs to know whose pages these are.
        for (at, held) in self.window.iter_mut().enumerate().skip(pages) {
            if held.event.cpu == cpu {
                let opens = at == pages;
                held.refill = Some(Refill { sort, opens });
            }
        }
        let pages_ns = self.window[pages].event.time_ns;
        let oldest_ns = pages_ns.saturating_sub(object.time_ns.saturating_sub(pages_ns));
        let beside = |at: usize| {
            let held = &self.window[at];
            held.frees_object()
                && (oldest_ns..object.time_ns).contains(&held.event.time_ns)
                && self.may_be(at, sort, trace)
        };
        let under_way = self.under_way(pages).into_iter();
        let frees =
            under_way.chain((pages + 1..last).filter(|at| self.window[*at].event.cpu != cpu));
        // Nearly always there is none, and nothing moves.
        let Some(first) = frees.filter(|at| beside(*at)).min() else {
            return;
        };
        let first_ns = self.window[first].event.time_ns;
        let before = first.checked_sub(1).map(|at| self.window[at].event.time_ns);
        // Moving the allocation between two events of one time would split a group that is ordered as a whole. If the time
        // is also the object's, all of it is in that group.
        if first_ns != object.time_ns && before.is_none_or(|before_ns| before_ns == first_ns) {
            return;
        }
        let passed = &mut self.window.make_contiguous()[first..=last];
        let (own, others): (Vec<_>, Vec<_>) = passed.iter().partition(|held| held.event.cpu == cpu);
        let page_of = |address| trace.page_of(address);
        let touches = |a: &Held| {
            others
                .iter()
                .any(|b| same_subject(&a.event, &b.event, &page_of))
        };
        // The own CPU's events pass all others, in their order, unless that changes the order of events about one address:
        // a stable sort by "is another CPU's".
        if !own.into_iter().any(touches) {
            passed.sort_by_key(|held| held.event.cpu != cpu);
        }
    }

    /// True if the object that the free at `at` gives back may be of this sort. If the trace does not
    /// know yet the window does.
    fn may_be<W: Write + Send>(&self, at: usize, sort: Sort, trace: &TraceBuilder<W>) -> bool {
        let address = self.window[at].event.address;
        let before = self.window.range(..at).rev().map(|held| &held.event);
        let mut same = before.filter(|event| !event.kind.is_page() && event.address == address);
        match same.next() {
            Some(event) if !event.kind.is_free() => sort_of(event) == sort,
            _ => trace.may_be(address, sort),
        }
    }

    /// The events of other CPUs that are their last before the one at `pages`, and come after the
    /// last one of its own CPU.
    fn under_way(&self, pages: usize) -> Vec<usize> {
        let cpu = self.window[pages].event.cpu;
        let mut found: Vec<usize> = Vec::new();
        for at in (0..pages).rev() {
            let other = self.window[at].event.cpu;
            if other == cpu {
                break;
            }
            if found.iter().all(|at| self.window[*at].event.cpu != other) {
                found.push(at);
            }
        }
        found
    }
}

fn sort_of(alloc: &RawEvent<'_>) -> Sort {
    Sort {
        kmalloc: alloc.kind.is_kmalloc(),
        bytes_alloc: alloc.bytes_alloc,
    }
}

/// True if two events are about one object, about blocks of pages that overlap, or about pages and an
/// object in them.
fn same_subject(a: &RawEvent<'_>, b: &RawEvent<'_>, page_of: &impl Fn(u64) -> Option<u64>) -> bool {
    let has = |pages: &RawEvent<'_>, page: u64| {
        let offset = page.checked_sub(pages.address);
        offset.is_some_and(|offset| offset >> pages.order == 0)
    };
    match (a.kind.is_page(), b.kind.is_page()) {
        (false, false) => a.address == b.address,
        (true, true) => has(a, b.address) || has(b, a.address),
        (true, false) => page_of(b.address).is_some_and(|page| has(a, page)),
        (false, true) => page_of(a.address).is_some_and(|page| has(b, page)),
    }
}

#[cfg(test)]
mod tests;
