//! One slot: where its parts are, what they should hold, and how they are restored.
//!
//! ```text
//! |<- red_left_pad ->|<------ inuse ------>|
//! | left red zone    | object | red zone   | free pointer | tracks | request | padding |
//! |<-------------------------------- size ------------------------------------------->|
//! ```

use core::ops::Range;
use core::ptr::NonNull;

use super::CacheDebug;
use super::report::{Damage, EXCERPT_BYTES, Finding, Track};
use super::site::SiteTable;
use crate::design::CacheHead;
use crate::geometry::{CacheFlags, DebugRules, Layout, TrackLayout, WORD_BYTES};

/// In half a user word: a call site without a number; 0 is no call at all.
const UNNUMBERED: u16 = u16::MAX;
const _: () = assert!(SiteTable::LEN < UNNUMBERED as usize);

/// Used or free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Free,
    Used,
}

/// One of the two track records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Which {
    Alloc = 0,
    Free = 1,
}

/// A part of a slot with known content.
struct Zone {
    /// Counted from the slot's first byte.
    range: Range<usize>,
    /// Contents of each word of a free slot.
    fill: [u8; 8],
    /// The last byte, if it differs.
    last: Option<u8>,
    what: Finding,
}

impl Zone {
    fn expected(&self, at: usize) -> u8 {
        match self.last {
            Some(last) if at + 1 == self.range.end => last,
            _ => self.fill[at % 8],
        }
    }
}

/// A slot of a cache with debugging.
#[derive(Clone, Copy)]
pub(super) struct Slot<'c> {
    base: NonNull<u8>,
    cache: &'c CacheHead,
    debug: &'c CacheDebug,
    /// Bytes of the object that the design uses while it is free, from its first on.
    held: u32,
}

impl<'c> Slot<'c> {
    /// # Safety
    ///
    /// `base` is the start of a slot in a slab of the cache. While the value is used no other code
    /// in the allocator accesses the slot: its cache's debug lock is held, or its slab belongs to the
    /// caller alone.
    pub(super) unsafe fn new(
        cache: &'c CacheHead,
        debug: &'c CacheDebug,
        base: NonNull<u8>,
    ) -> Self {
        Self {
            base,
            cache,
            debug,
            held: 0,
        }
    }

    /// The same slot, with `held` bytes of the free object that are the design's.
    pub(super) fn held(self, held: u32) -> Self {
        Self { held, ..self }
    }

    fn rules(&self) -> &'c DebugRules {
        &self.debug.rules
    }

    fn layout(&self) -> &Layout {
        &self.cache.geometry.layout
    }

    fn pad(&self) -> usize {
        self.layout().red_left_pad as usize
    }

    fn has(&self, flags: CacheFlags) -> bool {
        self.cache.flags.contains(flags)
    }

    /// True if the object itself is poisoned while it is free.
    fn poisons_object(&self) -> bool {
        self.has(CacheFlags::POISON)
            && !self
                .cache
                .flags
                .intersects(CacheFlags::RCU | CacheFlags::CTOR)
    }

    /// The slot's first byte.
    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The object's first byte.
    pub(super) fn object(&self) -> NonNull<u8> {
        // SAFETY: geometry puts the object inside the slot.
        unsafe { self.base.byte_add(self.pad()) }
    }

    fn bytes(&self, range: Range<usize>) -> &[u8] {
        debug_assert!(range.end <= self.layout().size as usize);
        // SAFETY: the range is in the slot (geometry).
        let first = unsafe { self.base.byte_add(range.start) };
        // SAFETY: the bytes were written when the slab was set up (`Slot::set_up`), and the
        // constructor's contract keeps the allocator away. A user who writes to them meanwhile
        // breaks the contract of his object, which is what this is here to find.
        unsafe { core::slice::from_raw_parts(first.as_ptr(), range.len()) }
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        debug_assert!(at + bytes.len() <= self.layout().size as usize);
        // SAFETY: the range is in the slot (geometry).
        let to = unsafe { self.base.byte_add(at) };
        // SAFETY: `new` made the slot's bytes the caller's, and the range is inside the slot (geometry); the source is
        // not in `bytes`, which is a value of the caller's.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
    }

    fn fill(&self, range: Range<usize>, value: u8) {
        debug_assert!(range.end <= self.layout().size as usize);
        // SAFETY: the range is in the slot (geometry).
        let to = unsafe { self.base.byte_add(range.start) };
        // SAFETY: `new` made the slot's bytes the caller's, and the range is inside the slot (geometry).
        unsafe { to.write_bytes(value, range.len()) };
    }

    fn paint_zone(&self, zone: &Zone) {
        if zone.fill == [zone.fill[0]; 8] {
            self.fill(zone.range.clone(), zone.fill[0]);
        } else {
            self.repaint(zone, zone.range.clone());
        }
        if let (Some(last), false) = (zone.last, zone.range.is_empty()) {
            self.fill(zone.range.end - 1..zone.range.end, last);
        }
    }

    /// Writes what some bytes of a zone should hold.
    fn repaint(&self, zone: &Zone, bytes: Range<usize>) {
        for at in bytes {
            self.write(at, &[zone.expected(at)]);
        }
    }

    /// Writes what the design has kept in the free object.
    pub(super) fn cover_held(&self) {
        let hole = self.hole(State::Free);
        for zone in self.zones(State::Free).iter().flatten() {
            let bytes = hole.start.max(zone.range.start)..hole.end.min(zone.range.end);
            self.repaint(zone, bytes);
        }
    }

    /// End of the metadata behind the object; padding begins there.
    fn metadata_end(&self) -> usize {
        let layout = self.layout();
        let mut end = layout.inuse;
        if let Some(pointer) = layout.free_pointer {
            end = end.max(pointer + WORD_BYTES);
        }
        if let Some(tracks) = layout.tracks {
            end = end.max(tracks + 2 * self.rules().track.bytes());
        }
        if let Some(request) = layout.requested_size {
            end = end.max(request + self.rules().request_bytes);
        }
        self.pad() + end as usize
    }

    /// Parts with known content, in the order in which they are checked.
    fn zones(&self, state: State) -> [Option<Zone>; 4] {
        let layout = self.layout();
        let object = self.pad();
        let object_end = object + layout.object_size as usize;
        let inuse = object + layout.inuse as usize;
        let red = match state {
            State::Free => self.rules().red_inactive,
            State::Used => self.rules().red_active,
        };
        let padding = [self.rules().poison_inuse; 8];
        let zone = |range: Range<usize>, fill, what| Zone {
            range,
            fill,
            last: None,
            what,
        };
        let red_zone = self.has(CacheFlags::RED_ZONE);
        let poison = self.has(CacheFlags::POISON);
        let red_start = match state {
            State::Used if self.rules().red_zone_from_request => object + self.request() as usize,
            _ => object_end,
        };
        let left = red_zone.then(|| zone(0..object, red, Finding::RedZone));
        let right = if red_zone {
            Some(zone(red_start..inuse, red, Finding::RedZone))
        } else {
            poison.then(|| zone(object_end..inuse, padding, Finding::ObjectPadding))
        };
        let filled = (state == State::Free && self.poisons_object()).then(|| Zone {
            range: object..object_end,
            fill: [self.rules().poison_free; 8],
            last: Some(self.rules().poison_end),
            what: Finding::Poison,
        });
        let rest = self.metadata_end()..layout.size as usize;
        let rest = poison.then(|| zone(rest, padding, Finding::ObjectPadding));
        [left, right, filled, rest]
    }

    /// Bytes that the design takes from the zones of a free object: for its free pointer, or for
    /// all that it holds there.
    fn hole(&self, state: State) -> Range<usize> {
        let (start, bytes) = match self.layout().free_pointer {
            _ if state == State::Used => return 0..0,
            Some(pointer) => (pointer, WORD_BYTES),
            None => (0, self.held),
        };
        let start = self.pad() + start as usize;
        start..start + bytes as usize
    }

    /// The first part that does not hold what it should.
    pub(super) fn check(&self, state: State) -> Option<(Finding, Damage)> {
        let hole = self.hole(state);
        let zones = self.zones(state);
        zones.iter().flatten().find_map(|zone| {
            let bytes = self.bytes(zone.range.clone());
            let wrong = |&at: &usize| {
                bytes[at - zone.range.start] != zone.expected(at) && !hole.contains(&at)
            };
            let first = zone.range.clone().find(wrong)?;
            let last = zone.range.clone().rfind(wrong)?;
            let mut found = [0; EXCERPT_BYTES];
            let shown = &bytes[first - zone.range.start..=last - zone.range.start];
            for (to, from) in found.iter_mut().zip(shown) {
                *to = *from;
            }
            let damage = Damage {
                offset: first as i64 - self.pad() as i64,
                bytes: (last - first + 1) as u32,
                expected: zone.expected(first),
                found,
            };
            Some((zone.what, damage))
        })
    }

    /// Writes what a slot of this state should hold; the free pointer is the design's to write
    /// afterwards.
    pub(super) fn paint(&self, state: State) {
        // Padding is only ever written to by mistake.
        for zone in self.zones(state).iter().take(3).flatten() {
            self.paint_zone(zone);
        }
    }

    /// Writes all parts, also those that stay the same for the life of a slot. What the design
    /// keeps of a free object inside a zone survives.
    pub(super) fn restore(&self, state: State) {
        let hole = self.hole(state);
        for zone in self.zones(state).iter().flatten() {
            let Range { start, end } = zone.range;
            self.repaint(zone, start..end.min(hole.start));
            self.repaint(zone, start.max(hole.end)..end);
        }
    }

    /// Prepares the slot of a new slab: free, never allocated.
    pub(super) fn set_up(&self) {
        let size = self.layout().size as usize;
        let fresh = if self.has(CacheFlags::POISON) {
            self.rules().poison_inuse
        } else {
            0
        };
        self.fill(0..size, fresh);
        if let Some(tracks) = self.layout().tracks {
            let start = self.pad() + tracks as usize;
            self.fill(start..start + 2 * self.rules().track.bytes() as usize, 0);
        }
        self.set_request(self.layout().object_size);
        self.paint(State::Free);
    }

    /// Keeps the size of a request, in caches that do.
    pub(super) fn set_request(&self, bytes: u32) {
        if let Some(request) = self.layout().requested_size {
            let word = u64::from(bytes.min(self.layout().object_size)).to_le_bytes();
            let kept = (self.rules().request_bytes as usize).min(word.len());
            self.write(self.pad() + request as usize, &word[..kept]);
        }
    }

    /// The size of the request, at most the object's size; that size where none is kept.
    pub(super) fn request(&self) -> u32 {
        let size = self.layout().object_size;
        let Some(request) = self.layout().requested_size else {
            return size;
        };
        let start = self.pad() + request as usize;
        let mut word = [0; 4];
        word.copy_from_slice(self.bytes(start..start + 4));
        u32::from_le_bytes(word).min(size)
    }

    fn track_start(&self, which: Which) -> Option<usize> {
        let tracks = self.layout().tracks? + which as u32 * self.rules().track.bytes();
        Some(self.pad() + tracks as usize)
    }

    /// Keeps who allocated or freed the object, in caches that do.
    pub(super) fn set_track(&self, which: Which, track: &Track) {
        let Some(start) = self.track_start(which) else {
            return;
        };
        let at = |offset: u32| start + offset as usize;
        match self.rules().track {
            TrackLayout::Record { cpu, pid, when, .. } => {
                let site = self.debug.sites.remember(track.site);
                self.write(start, &site.to_le_bytes());
                self.write(at(cpu), &track.cpu.to_le_bytes());
                self.write(at(pid), &track.pid.to_le_bytes());
                self.write(at(when), &track.when.to_le_bytes());
            }
            TrackLayout::HalfWord => {
                let number = match self.debug.sites.number(track.site) {
                    0 => UNNUMBERED,
                    number => number as u16,
                };
                self.write(start, &number.to_le_bytes());
                self.write(at(2), &(track.cpu as u16).to_le_bytes());
            }
        }
    }

    /// Who allocated or freed the object last; `None` where that is not kept or never happened.
    pub(super) fn track(&self, which: Which) -> Option<Track> {
        let start = self.track_start(which)?;
        let number = |from: u32, bytes: usize| {
            let from = start + from as usize;
            let mut word = [0; 8];
            word[..bytes].copy_from_slice(self.bytes(from..from + bytes));
            u64::from_le_bytes(word)
        };
        match self.rules().track {
            TrackLayout::Record { cpu, pid, when, .. } => {
                let track = Track {
                    site: self.debug.sites.recall(number(0, 8)),
                    cpu: number(cpu, 4) as u32,
                    pid: number(pid, 4) as u32,
                    when: number(when, 8),
                };
                let never = track.site.is_unknown() && track.when == 0 && track.pid == 0;
                (!never).then_some(track)
            }
            TrackLayout::HalfWord => {
                let site = number(0, 2) as u32;
                (site != 0).then(|| Track {
                    site: self.debug.sites.numbered(site),
                    cpu: number(2, 2) as u32,
                    pid: 0,
                    when: 0,
                })
            }
        }
    }
}
