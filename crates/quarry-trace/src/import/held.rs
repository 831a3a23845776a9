//! An event that is held back, with its texts.

use std::io::Write;
use std::ops::Range;

use crate::build::TraceBuilder;
use crate::event::RawEvent;

/// Properties that all allocations of a cache share, if events show them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sort {
    pub(crate) kmalloc: bool,
    pub(crate) bytes_alloc: u32,
}

/// A part of an allocation that took a new slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refill {
    /// Sort of the allocated object.
    pub(super) sort: Sort,
    /// The event allocated the slab's pages; otherwise it came later, up to the object.
    pub(super) opens: bool,
}

/// An event without its texts, these, and where each of them is.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) event: RawEvent<'static>,
    /// If it is part of an allocation that took a new slab.
    pub(super) refill: Option<Refill>,
    texts: Vec<u8>,
    comm: Range<usize>,
    cache: Option<Range<usize>>,
    gfp_flags: Option<Range<usize>>,
    call_site: Option<Range<usize>>,
    stack: Option<Range<usize>>,
}

impl Held {
    /// Copies an event; `texts` is room for its texts.
    pub(crate) fn new(event: &RawEvent<'_>, mut texts: Vec<u8>) -> Self {
        texts.clear();
        let mut keep = |text: &[u8]| {
            let start = texts.len();
            texts.extend_from_slice(text);
            start..texts.len()
        };
        Self {
            comm: keep(event.comm),
            cache: event.cache.map(&mut keep),
            gfp_flags: event.gfp_flags.map(&mut keep),
            call_site: event.call_site.map(&mut keep),
            stack: event.stack.map(&mut keep),
            texts,
            event: RawEvent {
                comm: b"",
                cache: None,
                gfp_flags: None,
                call_site: None,
                stack: None,
                ..*event
            },
            refill: None,
        }
    }

    /// The event with its texts.
    pub(crate) fn whole(&self) -> RawEvent<'_> {
        let text = |range: &Option<Range<usize>>| range.clone().map(|range| &self.texts[range]);
        RawEvent {
            comm: &self.texts[self.comm.clone()],
            cache: text(&self.cache),
            gfp_flags: text(&self.gfp_flags),
            call_site: text(&self.call_site),
            stack: text(&self.stack),
            ..self.event
        }
    }

    /// The room of its texts, for another event.
    pub(super) fn room(self) -> Vec<u8> {
        self.texts
    }

    /// True if it is part of an allocation that took a new slab: its pages (`opens`), or an event that
    /// comes later. The object that an event frees may be of that cache.
    pub(super) fn is_of_refill<W: Write + Send>(
        &self,
        opens: bool,
        free: &RawEvent<'_>,
        trace: &TraceBuilder<W>,
    ) -> bool {
        self.refill
            .is_some_and(|refill| refill.opens == opens && trace.may_be(free.address, refill.sort))
    }

    /// True if it frees an object.
    pub(super) fn frees_object(&self) -> bool {
        self.event.kind.is_free() && !self.event.kind.is_page()
    }
}
