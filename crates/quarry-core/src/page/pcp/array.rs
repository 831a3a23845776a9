//! The front of a CPU's list of single unmovable pages: an array, on which an allocation and a
//! free are one step of the machine each.
//!
//! The array holds the pages that come out next, newest at the top; the list holds all older ones.
//! Together they are one list in the order of the kernel's: what an era takes from the front is
//! taken from the array, what it takes from the back from the list. When the array is empty its
//! lower half is loaded from the list's front; when it is full its older half is spilled there. So
//! pages that come and go around either end do not move with each call: after a load or a spill, half an array
//! of either calls passes before the next one.
//!
//! Steps know nothing of limits. The holder of the lists leaves the array armed ([`FrontPages::arm`]):
//! it has room for the steps that may go before the holder has to look at `high` again.

use core::mem::offset_of;
use core::num::NonZero;
use core::ptr::NonNull;

use super::Pcp;
use super::stack::BlockStack;
use crate::machine::{PerCpu, StackLayout};
use crate::page::memmap::MemMap;
use crate::page::memmap::page::AHEAD;
use crate::page::types::{FRONT_PAGES, Pfn};

/// Pages that are loaded or spilled at a time.
const HALF: usize = FRONT_PAGES / 2;

/// A page's link ([`Pfn::link`]), which is never 0.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Entry(usize);

impl Entry {
    #[inline(always)]
    pub(crate) fn new(pfn: Pfn) -> Self {
        Self(pfn.0 as usize + 1)
    }

    #[inline(always)]
    pub(crate) fn pfn(self) -> Pfn {
        Pfn((self.0 as u32).wrapping_sub(1))
    }
}

/// See the module's documentation. All-zero is empty and not armed: no step gets through.
#[repr(C)]
pub(crate) struct FrontPages {
    /// The entry above the newest.
    top: *mut Entry,
    base: *mut Entry,
    /// The entry that no step may fill, nor any above it; it may be below the top.
    limit: *mut Entry,
    /// Pages taken and put by steps, in bulk too; an interrupted step may count twice.
    pops: u64,
    pushes: u64,
    entries: [Entry; FRONT_PAGES],
    /// Pages taken by bulk calls since the lists were last held; part of [`FrontPages::pops`].
    bulk_pops: u64,
    /// The length and the counters when the array was armed.
    armed: Seen,
}

// SAFETY: the pointers lead into the value itself, which stays in its slot; only the holder of the
// slot and its steps use them.
unsafe impl Send for FrontPages {}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Seen {
    len: u32,
    pops: u64,
    pushes: u64,
}

/// Work of steps since the array was armed.
pub(crate) struct Steps {
    /// The length now less the length then.
    pub(crate) grown: i32,
    pub(crate) pops: u64,
    pub(crate) pushes: u64,
}

impl StackLayout for Pcp {
    const TOP: usize = PerCpu::<Pcp>::STATE + Pcp::FRONT + offset_of!(FrontPages, top);
    const BASE: usize = PerCpu::<Pcp>::STATE + Pcp::FRONT + offset_of!(FrontPages, base);
    const LIMIT: usize = PerCpu::<Pcp>::STATE + Pcp::FRONT + offset_of!(FrontPages, limit);
    const POPS: usize = PerCpu::<Pcp>::STATE + Pcp::FRONT + offset_of!(FrontPages, pops);
    const PUSHES: usize = PerCpu::<Pcp>::STATE + Pcp::FRONT + offset_of!(FrontPages, pushes);
}

// The word in front of the first entry is a counter, as large as any page's link at least.
const _: () = assert!(offset_of!(FrontPages, entries) >= size_of::<Entry>());

/// A page as an entry that a step takes.
#[inline(always)]
pub(crate) fn entry_of(pfn: Pfn) -> NonNull<u8> {
    NonNull::without_provenance(NonZero::<usize>::MIN.saturating_add(pfn.0 as usize))
}

/// The page of an entry that a step gave.
#[inline(always)]
pub(crate) fn page_of(entry: NonNull<u8>) -> Pfn {
    Entry(entry.addr().get()).pfn()
}

impl FrontPages {
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        (self.top.addr() - self.base.addr()) / size_of::<Entry>()
    }

    /// Sets the number of filled entries. The pointers are made anew each time, as the value has been borrowed
    /// since they were made.
    #[inline(always)]
    fn set_len(&mut self, len: usize) {
        self.base = self.entries.as_mut_ptr();
        // Plain stores: the word of the slot is held, so no step sees one without the other.
        self.top = self.base.wrapping_add(len);
    }

    /// Pages taken and put by steps so far.
    pub(crate) fn traffic(&self) -> [u64; 2] {
        [self.pops, self.pushes]
    }

    /// Work of steps since [`FrontPages::arm`]; `None` if there was none.
    #[inline(always)]
    pub(crate) fn steps(&self) -> Option<Steps> {
        let (pops, pushes) = (
            self.pops.wrapping_sub(self.armed.pops),
            self.pushes.wrapping_sub(self.armed.pushes),
        );
        (pops | pushes != 0).then(|| Steps {
            grown: self.len() as i32 - self.armed.len as i32,
            pops,
            pushes,
        })
    }

    /// Lets steps take all pages, and put pages until there are `room`.
    #[inline(always)]
    pub(crate) fn arm(&mut self, room: u32) {
        // `room` may be below the length: then no push gets through until the holder has drained, while pops
        // still do, as they only shorten the lists.
        let len = self.len();
        self.set_len(len);
        let end = (room as usize).min(FRONT_PAGES);
        self.limit = self.base.wrapping_add(end);
        self.armed = Seen {
            len: len as u32,
            pops: self.pops,
            pushes: self.pushes,
        };
    }

    /// Takes the newest page, of those of the list behind if there is none here.
    #[inline(always)]
    pub(crate) fn pop(&mut self, map: &MemMap, behind: &mut BlockStack) -> Option<Pfn> {
        let newest = *self.newest(map, behind).last()?;
        self.take(1);
        Some(newest.pfn())
    }

    /// Puts a page, and some of the oldest to the list behind if there is no room.
    #[inline(always)]
    pub(crate) fn push(&mut self, map: &MemMap, behind: &mut BlockStack, pfn: Pfn) {
        if let Some(entry) = self.vacant(map, behind, 1).first_mut() {
            *entry = Entry::new(pfn);
            self.put(1);
        }
    }

    /// Notes that a bulk call took n of the newest pages as n steps would.
    #[inline(always)]
    pub(crate) fn popped_in_bulk(&mut self, pages: usize) {
        self.take(pages);
        self.pops += pages as u64;
        self.bulk_pops += pages as u64;
    }

    /// Pages that bulk calls took since this was asked last.
    pub(crate) fn take_bulk_pops(&mut self) -> u64 {
        core::mem::take(&mut self.bulk_pops)
    }

    /// Free entries above the newest page, as many as steps may fill.
    #[inline(always)]
    pub(crate) fn room(&mut self) -> &mut [Entry] {
        let len = self.len();
        let end = self.limit.addr().saturating_sub(self.base.addr()) / size_of::<Entry>();
        self.entries.get_mut(len..end).unwrap_or_default()
    }

    /// Notes that `pages` of these were filled.
    #[inline(always)]
    pub(crate) fn pushed(&mut self, pages: usize) {
        self.put(pages);
        self.pushes += pages as u64;
    }

    /// The entries of the pages here, oldest first, of those of the list behind if there are none.
    #[inline(always)]
    pub(crate) fn newest(&mut self, map: &MemMap, behind: &mut BlockStack) -> &[Entry] {
        if self.len() == 0 {
            self.load(map, behind);
        }
        &self.entries[..self.len()]
    }

    /// Takes the newest `pages` pages, which the caller has seen.
    #[inline(always)]
    pub(crate) fn take(&mut self, pages: usize) {
        self.set_len(self.len() - pages);
    }

    /// Free entries above the newest page, at least `pages` up to the array's size. If there are fewer, some of
    /// the oldest pages go to the list behind first.
    #[inline(always)]
    pub(crate) fn vacant(
        &mut self,
        map: &MemMap,
        behind: &mut BlockStack,
        pages: usize,
    ) -> &mut [Entry] {
        let missing = (self.len() + pages).saturating_sub(FRONT_PAGES);
        if missing > 0 {
            self.spill(map, behind, missing.max(HALF));
        }
        let len = self.len();
        &mut self.entries[len..]
    }

    /// Adds the `pages` pages that were put into free entries.
    #[inline(always)]
    pub(crate) fn put(&mut self, pages: usize) {
        self.set_len(self.len() + pages);
    }

    /// Moves the list's first pages here; there are none here.
    #[cold]
    #[inline(never)]
    fn load(&mut self, map: &MemMap, behind: &mut BlockStack) {
        let mut fill = Fill::new(HALF);
        while !fill.is_full()
            && let Some(pfn) = behind.pop_front(map)
        {
            fill.put_below(self, pfn);
        }
        fill.finish(self);
    }

    /// Moves the oldest `pages` pages to the list's front.
    #[cold]
    #[inline(never)]
    pub(crate) fn spill(&mut self, map: &MemMap, behind: &mut BlockStack, pages: usize) {
        let len = self.len();
        let pages = pages.min(len);
        let spilled = &self.entries[..pages];
        for (at, entry) in spilled.iter().enumerate() {
            let pfn = entry.pfn();
            behind.push_front(map, pfn);
            // From the list's back on.
            let further = spilled.get(at + AHEAD).map(|entry| entry.pfn());
            map.page(pfn).set_ahead(further);
        }
        self.entries.copy_within(pages..len, 0);
        self.set_len(len - pages);
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries[..self.len()]
    }
}

/// Entries or slots handled between two checks of the number left. The loops do so little for each that the
/// checks would be a third of their time.
const AT_A_TIME: usize = 8;

/// Gives slots entries until `give` refuses: the first slot the newest entry, and so on.
///
/// Returns the number given. There are as many entries as slots.
#[inline(always)]
pub(crate) fn newest_to_slots<S>(
    entries: &[Entry],
    slots: &mut [S],
    mut give: impl FnMut(Entry, &mut S) -> bool,
) -> usize {
    let (oldest, entries) = entries.as_rchunks::<AT_A_TIME>();
    let (slots, last) = slots.as_chunks_mut::<AT_A_TIME>();
    let mut given = 0;
    for (slots, entries) in slots.iter_mut().zip(entries.iter().rev()) {
        for (slot, entry) in slots.iter_mut().zip(entries.iter().rev()) {
            if !give(*entry, slot) {
                return given;
            }
            given += 1;
        }
    }
    for (slot, entry) in last.iter_mut().zip(oldest.iter().rev()) {
        if !give(*entry, slot) {
            return given;
        }
        given += 1;
    }
    given
}

/// Gives each vacant entry a slot, both from the first on, until `give` refuses. Returns the number given.
#[inline(always)]
pub(crate) fn slots_to_vacant<S>(
    slots: &mut [S],
    vacant: &mut [Entry],
    mut give: impl FnMut(&mut S, &mut Entry) -> bool,
) -> usize {
    let (slots, last_slots) = slots.as_chunks_mut::<AT_A_TIME>();
    let (vacant, last_vacant) = vacant.as_chunks_mut::<AT_A_TIME>();
    let mut given = 0;
    for (slots, vacant) in slots.iter_mut().zip(vacant) {
        for (slot, entry) in slots.iter_mut().zip(vacant) {
            if !give(slot, entry) {
                return given;
            }
            given += 1;
        }
    }
    for (slot, entry) in last_slots.iter_mut().zip(last_vacant) {
        if !give(slot, entry) {
            return given;
        }
        given += 1;
    }
    given
}

/// Fills an empty array in the order in which the pages are to come out.
pub(crate) struct Fill {
    /// The entry above those that are still free.
    below: usize,
    end: usize,
}

impl Fill {
    /// Room for `pages` pages, at most the whole array.
    pub(crate) fn new(pages: usize) -> Self {
        let end = pages.min(FRONT_PAGES);
        Self { below: end, end }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.below == 0
    }

    /// Puts a page that comes out after all that were put before.
    #[inline(always)]
    pub(crate) fn put_below(&mut self, front: &mut FrontPages, pfn: Pfn) {
        self.below -= 1;
        front.entries[self.below] = Entry::new(pfn);
    }

    pub(crate) fn finish(self, front: &mut FrontPages) {
        front.entries.copy_within(self.below..self.end, 0);
        front.set_len(self.end - self.below);
    }
}
