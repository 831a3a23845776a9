//! A heap page and the free blocks inside it; runs of pages that are one object.

use core::ptr::NonNull;

use super::geometry::unit_bytes;
use super::types::Request;
use crate::design::{Env, FreeError};
use crate::geometry::up;
use crate::machine::{Access, Line, Machine, NodeId, access};
use crate::page::{Page, PageKind, Pfn};
use crate::sync::Ordering;

/// State of a heap page, packed into its descriptor's word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct State {
    /// Free units.
    pub(super) units: u32,
    /// The first free block, in units from the page's start; the page's end if there is none.
    pub(super) first: u32,
    /// The list that the page is on, or was on before it became full.
    pub(super) list: usize,
}

impl State {
    fn unpack(word: u64) -> Self {
        Self {
            units: word as u32 & 0xffff,
            first: (word >> 16) as u32 & 0xffff,
            list: (word >> 32) as usize & 0xff,
        }
    }

    fn pack(self) -> u64 {
        u64::from(self.units) | u64::from(self.first) << 16 | (self.list as u64) << 32
    }
}

/// A heap page whose free blocks the caller may change: the lock is held, or no other code knows the
/// page (I1).
#[derive(Clone, Copy)]
pub(super) struct HeapPage<'a, M: Machine> {
    env: Env<'a, M>,
    pub(super) pfn: Pfn,
    unit: u32,
}

impl<'a, M: Machine> HeapPage<'a, M> {
    pub(super) fn new(env: Env<'a, M>, pfn: Pfn) -> Self {
        let unit = unit_bytes(env.map().page_shift());
        Self { env, pfn, unit }
    }

    pub(super) fn page(&self) -> &'a Page {
        self.env.map().page(self.pfn)
    }

    /// Units of the page; also the offset of its end.
    pub(super) fn total(&self) -> u32 {
        (1 << self.env.map().page_shift()) / self.unit
    }

    /// Bytes as whole units.
    pub(super) fn units(&self, bytes: u32) -> u32 {
        bytes.div_ceil(self.unit)
    }

    /// Units up to `offset_bytes` bytes from the page's start.
    pub(super) fn at(&self, offset_bytes: u32) -> u32 {
        offset_bytes / self.unit
    }

    pub(super) fn state(&self) -> State {
        State::unpack(self.page().word.load(Ordering::Relaxed))
    }

    pub(super) fn set_state(&self, state: State) {
        self.page().word.store(state.pack(), Ordering::Relaxed);
    }

    /// Makes the whole page one free block.
    pub(super) fn clear(&self, list: usize) {
        self.write(0, self.total(), self.total());
        self.set_state(State {
            units: self.total(),
            first: 0,
            list,
        });
    }

    fn place(&self, at: u32) -> NonNull<u8> {
        debug_assert!(at < self.total(), "unit {at}");
        let base = self.env.map().address(self.pfn);
        // SAFETY: callers ask for units below `total`, so the place is inside the page.
        unsafe { base.byte_add((at * self.unit) as usize) }
    }

    fn load(&self, at: u32) -> i32 {
        let place = self.place(at);
        if self.unit == 2 {
            // SAFETY: I1 - the unit is part of a free block, which no other code uses; it is inside
            // the page and a multiple of 2 bytes from its start.
            let unit = unsafe { place.cast::<i16>().read() };
            i32::from(unit)
        } else {
            // SAFETY: 4 bytes of the block's head, which a free block has (geometry).
            unsafe { place.cast::<i32>().read() }
        }
    }

    fn store(&self, at: u32, value: i32) {
        let place = self.place(at);
        if self.unit == 2 {
            // SAFETY: as in `load`; the value fits, because offsets are at most 2^14 units.
            unsafe { place.cast::<i16>().write(value as i16) };
        } else {
            // SAFETY: as in `load`.
            unsafe { place.cast::<i32>().write(value) };
        }
    }

    fn account(&self, at: u32, kind: Access) {
        let head = self.place(at).as_ptr();
        access(self.env.machine(), Line::Object, kind, head);
    }

    /// Size of a free block and where the next one is, in units; `None` if its memory has been
    /// overwritten, so that no walk leaves the page.
    pub(super) fn read(&self, at: u32) -> Option<(u32, u32)> {
        self.account(at, Access::Read);
        let head = self.load(at);
        let (size, next) = match head {
            2.. if at + 1 < self.total() => (head as u32, self.load(at + 1)),
            ..0 => (1, head.saturating_neg()),
            _ => return None,
        };
        let next = u32::try_from(next).ok()?;
        let valid = at.checked_add(size)? <= next && next <= self.total();
        valid.then_some((size, next))
    }

    /// Writes the head of a free block.
    fn write(&self, at: u32, size: u32, next: u32) {
        self.account(at, Access::Store);
        if size == 1 {
            self.store(at, -(next as i32));
        } else {
            self.store(at, size as i32);
            self.store(at + 1, next as i32);
        }
    }

    /// Takes a block: the first free one that holds it with what alignment costs. Returns its
    /// offset in bytes.
    pub(super) fn take(&self, request: &Request) -> Option<u32> {
        let need = self.units(request.bytes);
        let mut state = self.state();
        // The free block in front of `at`, and its size.
        let mut before: Option<(u32, u32)> = None;
        let mut at = state.first;
        while at < self.total() {
            let (size, next) = self.read(at)?;
            let aligned = up(at * self.unit + request.lead, request.align) - request.lead;
            let start = aligned / self.unit;
            let gap = start - at;
            if size < need + gap {
                before = Some((at, size));
                at = next;
                continue;
            }
            let rest = size - gap - need;
            let after = if rest > 0 {
                self.write(start + need, rest, next);
                start + need
            } else {
                next
            };
            if gap > 0 {
                self.write(at, gap, after);
            } else if let Some((before, size)) = before {
                self.write(before, size, after);
            } else {
                state.first = after;
            }
            state.units -= need;
            self.set_state(state);
            return Some(aligned);
        }
        None
    }

    /// Gives a block back to a page that does not become entirely free by it.
    ///
    /// # Errors
    ///
    /// [`FreeError::DoubleFree`] if the page's free blocks overlap it or have been overwritten;
    /// nothing has changed then.
    pub(super) fn give(
        &self,
        at: u32,
        units: u32,
        merge_before_first: bool,
    ) -> Result<(), FreeError> {
        let mut state = self.state();
        let total = self.total();
        if state.units == 0 {
            self.write(at, units, total);
            state.first = at;
        } else if at < state.first {
            if at + units > state.first {
                return Err(FreeError::DoubleFree);
            }
            if merge_before_first && at + units == state.first {
                let (size, next) = self.read(state.first).ok_or(FreeError::DoubleFree)?;
                self.write(at, units + size, next);
            } else {
                self.write(at, units, state.first);
            }
            state.first = at;
        } else {
            self.give_behind(state.first, at, units)?;
        }
        state.units += units;
        self.set_state(state);
        Ok(())
    }

    /// Links a block in behind the free block in front of it; `first` is one such.
    fn give_behind(&self, first: u32, at: u32, units: u32) -> Result<(), FreeError> {
        let total = self.total();
        let mut before = first;
        let (before_size, next) = loop {
            let (size, next) = self.read(before).ok_or(FreeError::DoubleFree)?;
            if at < next || next == total {
                break (size, next);
            }
            before = next;
        };
        if before + before_size > at || at + units > next {
            return Err(FreeError::DoubleFree);
        }
        let (mut size, mut link) = (units, next);
        if at + units == next && next < total {
            let (next_size, after) = self.read(next).ok_or(FreeError::DoubleFree)?;
            size += next_size;
            link = after;
        }
        if before + before_size == at {
            self.write(before, before_size + size, link);
        } else {
            self.write(at, size, link);
            self.write(before, before_size, at);
        }
        Ok(())
    }

    /// True if a unit is part of a free block.
    pub(super) fn is_free(&self, at: u32) -> bool {
        let mut free = self.state().first;
        while free <= at && free < self.total() {
            match self.read(free) {
                Some((size, _)) if at < free + size => return true,
                Some((_, next)) => free = next,
                None => return false,
            }
        }
        false
    }
}

/// Makes 2^order pages part of SLOB's memory. `cache` is the owner of a run that is one object, null
/// for a heap page.
pub(super) fn take_pages<M: Machine>(
    env: Env<'_, M>,
    order: u32,
    node: Option<NodeId>,
    cache: *mut (),
) -> Option<Pfn> {
    let pages = env.pages();
    let block = || pages.alloc_block(order, node);
    let pfn = pages.claimed_as(PageKind::Owned, order, block)?;
    let map = env.map();
    map.page(pfn).set_on_list(false);
    for tail in 0..1 << order {
        let page = Pfn(pfn.0 + tail);
        map.set_owner(page, cache);
        map.page(page).set_head(Some(pfn));
    }
    map.page(pfn).set_kind(PageKind::Slab, order);
    env.pages().slab_made(order);
    Some(pfn)
}

/// Gives pages back to the page allocator; they are on no list and the caller's.
pub(super) fn give_pages_back<M: Machine>(env: Env<'_, M>, pfn: Pfn, kind: PageKind) {
    let map = env.map();
    let order = map.page(pfn).order();
    for tail in 0..1 << order {
        let page = Pfn(pfn.0 + tail);
        map.set_owner(page, core::ptr::null_mut());
        map.page(page).set_head(None);
    }
    env.pages().slab_gone(order);
    env.pages().free_block(pfn, order, kind);
}
