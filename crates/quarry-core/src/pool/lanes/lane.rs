//! One CPU's lane: the producer's end in its slot, and the entries with the owner's end.

use core::mem::offset_of;
use core::ptr::{NonNull, null_mut};

use crate::machine::{CpuId, Line, Machine, PerCpu, PerCpuState, RawRange, Region, StackLayout};
use crate::page::Pfn;
use crate::pool::give_back;
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// Most pages of a lane, which takes 4 KiB then.
pub(super) const LANE_PAGES: u32 = if cfg!(loom) { 3 } else { 992 };

/// A page's link.
pub(super) type Entry = AtomicU32;

/// The page of an entry.
#[inline(always)]
pub(in crate::pool) fn page_of(entry: &Entry) -> Pfn {
    Pfn(entry.load(Ordering::Relaxed).wrapping_sub(1))
}

impl PerCpuState for Producer {
    const LINE: Line = Line::PoolLane;
}

/// A CPU's end of its lane, in its per-CPU slot; written by the slot's holder and by steps. All null without a
/// lane.
#[repr(C)]
pub(super) struct Producer {
    /// The entry that is filled next.
    pub(super) top: AtomicPtr<Entry>,
    pub(super) base: AtomicPtr<Entry>,
    /// The entry that no step may fill; null in a closed lane.
    pub(super) limit: AtomicPtr<Entry>,
    /// Pages put by steps.
    pub(super) pushes: AtomicU64,
}

impl StackLayout for Producer {
    const NARROW: bool = true;
    const TOP: usize = PerCpu::<Self>::STATE + offset_of!(Self, top);
    const BASE: usize = PerCpu::<Self>::STATE + offset_of!(Self, base);
    const LIMIT: usize = PerCpu::<Self>::STATE + offset_of!(Self, limit);
    // Nothing is taken by steps.
    const POPS: usize = Self::PUSHES;
    const PUSHES: usize = PerCpu::<Self>::STATE + offset_of!(Self, pushes);
}

/// A lane's head; its entries follow.
#[repr(C, align(64))]
pub(super) struct Lane {
    /// The lane that was made before.
    pub(super) next: AtomicPtr<Self>,
    pub(super) entries: NonNull<Entry>,
    /// [`OPEN`], [`SEALED`] or [`CLOSED`].
    pub(super) state: AtomicU32,
    /// Entries.
    size: u32,
    pub(super) cpu: CpuId,
    done: Done,
}

/// Word that the owner writes with each look, on a cache line that producers seldom need.
#[repr(C, align(64))]
struct Done {
    /// [`Progress::packed`].
    progress: AtomicU64,
    room: [u32; 13],
    /// A step looks at the entry below the top, which may be this.
    below: u32,
}

/// Progress of the owner.
#[derive(Clone, Copy)]
pub(super) struct Progress {
    /// Pages taken.
    pub(super) taken: u64,
    /// Index of the oldest entry.
    pub(super) head: u32,
}

impl Progress {
    const HEAD_BITS: u32 = 10;

    /// In one word, so that others see both of one moment.
    pub(super) fn packed(self) -> u64 {
        const { assert!(LANE_PAGES < 1 << Self::HEAD_BITS) };
        self.taken << Self::HEAD_BITS | u64::from(self.head)
    }

    fn unpacked(word: u64) -> Self {
        Self {
            taken: word >> Self::HEAD_BITS,
            head: word as u32 & ((1 << Self::HEAD_BITS) - 1),
        }
    }
}

/// A lane takes pages.
const OPEN: u32 = 0;
/// It takes no more once the holder of its slot has let go.
pub(super) const SEALED: u32 = 1;
/// It takes no more, and the holder of its slot has let go.
pub(super) const CLOSED: u32 = 2;

impl Lane {
    fn bytes(size: u32) -> usize {
        size_of::<Self>() + size as usize * size_of::<Entry>()
    }

    /// An empty lane. `None` if there is no room for it.
    pub(super) fn new<M: Machine>(machine: &M, meta: &Region, size: u32) -> Option<NonNull<Self>> {
        let lane = meta.alloc(machine, Self::bytes(size))?.cast::<Self>();
        // SAFETY: the entries follow the head inside the block.
        let entries = unsafe { lane.add(1) }.cast::<Entry>();
        let new = Self {
            next: AtomicPtr::new(null_mut()),
            entries,
            state: AtomicU32::new(OPEN),
            size,
            cpu: CpuId(0),
            done: Done {
                progress: AtomicU64::new(0),
                room: [0; 13],
                below: 0,
            },
        };
        // SAFETY: the block is fresh, large enough and aligned to its size.
        unsafe { lane.write(new) };
        for entry in 0..size as usize {
            // SAFETY: there are `size` of them.
            let entry = unsafe { entries.add(entry) };
            // SAFETY: the entry is in the fresh block, which is aligned to a cache line and known to no other
            // code.
            unsafe { entry.write(Entry::new(0)) };
        }
        Some(lane)
    }

    /// # Safety
    ///
    /// `new` made it in this region, and no code uses it any more.
    pub(super) unsafe fn free<M: Machine>(lane: NonNull<Self>, machine: &M, meta: &Region) {
        // SAFETY: `new` made the lane and nothing has freed it, by the caller's promise.
        let bytes = Self::bytes(unsafe { lane.as_ref() }.size);
        let block = RawRange {
            base: lane.cast(),
            bytes,
        };
        // SAFETY: `new` took this block of as many bytes from the region, and no code uses it any more, by the
        // caller's promise.
        unsafe { give_back(machine, meta, block) };
    }

    /// The lane whose entries begin here, or none for null.
    ///
    /// # Safety
    ///
    /// `base` is null, or [`Lane::entries`] of a lane that lives as long as `'a`.
    pub(super) unsafe fn at<'a>(base: *mut Entry) -> Option<&'a Self> {
        let lane = NonNull::new(base)?.cast::<Self>();
        // SAFETY: the head is in front of the entries, in the same block.
        let lane = unsafe { lane.sub(1) };
        // SAFETY: it is only shared, and made of atomics and of what does not change once the lane is
        // in use.
        Some(unsafe { lane.as_ref() })
    }

    /// Entries from one index up to another.
    #[inline(always)]
    fn run(&self, from: u32, to: u32) -> &[Entry] {
        assert!(
            from <= to && to <= self.size,
            "{from} to {to} of {}",
            self.size
        );
        // SAFETY: `new` made `size` entries, and `from` is not above that.
        let first = unsafe { self.entries.add(from as usize) };
        // SAFETY: `to` is at most `size`, by the assertion; the entries live as long as the lane and are
        // atomics.
        unsafe { core::slice::from_raw_parts(first.as_ptr(), (to - from) as usize) }
    }

    /// The entry of an index, or the place behind the last.
    fn at_index(&self, index: u32) -> *mut Entry {
        self.entries.as_ptr().wrapping_add(index as usize)
    }

    /// The index of an entry, or the lane's size for the place behind the last.
    pub(super) fn index(&self, entry: *mut Entry) -> u32 {
        ((entry.addr() - self.entries.addr().get()) / size_of::<Entry>()) as u32
    }

    pub(super) fn is(&self, state: u32) -> bool {
        self.state.load(Ordering::Relaxed) == state
    }

    /// Progress of the owner: it has read all entries before.
    #[inline(always)]
    pub(super) fn progress(&self) -> Progress {
        // Acquire: pairs with the Release in `take`.
        Progress::unpacked(self.done.progress.load(Ordering::Acquire))
    }

    /// Entries that are filled.
    pub(super) fn filled(&self, head: u32, top: u32) -> u32 {
        if top >= head {
            top - head
        } else {
            self.size - head + top
        }
    }

    /// Puts pages behind the newest while there is room, and returns their number; the caller holds the
    /// producer's slot.
    #[inline]
    pub(super) fn push(&self, producer: &Producer, pages: &[Pfn]) -> usize {
        if !self.is(OPEN) {
            return 0;
        }
        let (top, limit) = (&producer.top, &producer.limit);
        let top = self.index(top.load(Ordering::Relaxed));
        // As long as there is room below the limit, what the owner writes is of no interest.
        let limit = limit.load(Ordering::Relaxed).max(self.entries.as_ptr());
        if pages.len() > self.index(limit).saturating_sub(top) as usize {
            return self.push_beyond(producer, top, pages);
        }
        self.put(producer, top, pages);
        pages.len()
    }

    /// Fills the entries from an index on.
    #[inline(always)]
    fn put(&self, producer: &Producer, top: u32, pages: &[Pfn]) {
        let end = top + pages.len() as u32;
        for (entry, &pfn) in self.run(top, end).iter().zip(pages) {
            entry.store(Pfn::link(Some(pfn)), Ordering::Relaxed);
        }
        // Release: pairs with the Acquire in `top`, for the entries and what was done with the pages.
        producer.top.store(self.at_index(end), Ordering::Release);
        if !self.is(OPEN) {
            // The owner could not have the slot: the next step must not get through.
            producer.limit.store(null_mut(), Ordering::Relaxed);
        }
    }

    /// [`Lane::push`] of more pages than fit below the limit.
    #[cold]
    #[inline(never)]
    fn push_beyond(&self, producer: &Producer, mut top: u32, mut pages: &[Pfn]) -> usize {
        let all = pages.len();
        loop {
            // Mostly once or twice, for the part before and the part behind the end. An older head than the
            // owner's makes less room, and never fills an entry that was not read.
            let head = self.progress().head;
            // With the head at 0 the lane would look empty then, and with the head at 1 it would gain no room.
            if top == self.size && head > 1 {
                top = 0;
            }
            let end = if top >= head { self.size } else { head - 1 };
            let (now, later) = pages.split_at(pages.len().min((end - top) as usize));
            producer.limit.store(self.at_index(end), Ordering::Relaxed);
            self.put(producer, top, now);
            top += now.len() as u32;
            pages = later;
            if pages.is_empty() || now.is_empty() {
                return all - pages.len();
            }
        }
    }

    /// [`Lanes::take`] from this lane: the number taken, and true if that is enough. Only for the owner, which
    /// has read the top.
    #[inline]
    pub(super) fn take(
        &self,
        top: u32,
        limit: usize,
        mut take: impl FnMut(&[Entry]) -> usize,
    ) -> (usize, bool) {
        let done = Progress::unpacked(self.done.progress.load(Ordering::Relaxed));
        let mut head = done.head;
        let mut taken = 0;
        let mut enough = limit == 0;
        while !enough {
            if head == self.size && top < head {
                head = 0;
            }
            let end = if top >= head { top } else { self.size };
            let run = self.run(head, end);
            let run = &run[..run.len().min(limit - taken)];
            if run.is_empty() {
                break;
            }
            let now = take(run);
            debug_assert!(now <= run.len());
            head += now as u32;
            taken += now;
            enough = now < run.len() || taken == limit;
        }
        let done = Progress {
            taken: done.taken + taken as u64,
            head,
        };
        // Release: pairs with the Acquire in `progress`: the entries have been read.
        self.done.progress.store(done.packed(), Ordering::Release);
        (taken, enough)
    }
}
