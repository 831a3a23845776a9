//! The owner of each object, which the kernel's SLOB does not record and every design here must.
//!
//! Each heap page has a table with an entry of two bytes for every word of the page. It is made
//! when the page is first used, and kept with it. An entry is 0 unless an object starts at its
//! word; then it names the cache. The tables are among the allocators' own structures, so they
//! count in `overhead_bytes` and not as slab memory, and looking at them is not accounted. They
//! cost a quarter of the largest heap there has been.
//!
//! An entry also says that its object has been freed by a thread that could not have the lock.
//! Such a thread is a signal handler that interrupted the holder, or would have waited in a
//! circle: the next holder frees it. Pages with such entries are on a stack, linked through their
//! descriptors' `private`, from which the lock's holder takes all at once.
//!
//! No such free is lost: the deferring thread marks the entry and then pushes the page unless it is on
//! the stack. The lock's holder takes the page off the stack and then reads its entries. These
//! four steps are `SeqCst`, so either the first sees the page gone and pushes it again, or the second
//! sees the mark.

use core::ptr::NonNull;

use super::geometry::HEADER_BYTES;
use crate::design::{CacheHead, Env};
use crate::geometry::WORD_BYTES;
use crate::machine::Machine;
use crate::page::{PageAllocator, Pfn};
use crate::sync::{AtomicPtr, AtomicU16, Ordering};

/// Numbers of caches in one part of the registry.
const PART: usize = 256;
/// Parts of the registry.
const PARTS: usize = 64;
/// Bytes of an entry.
const ENTRY_BYTES: usize = size_of::<u16>();

/// An entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mark(u16);

impl Mark {
    const HEADER: u16 = 1 << 14;
    const DEFERRED: u16 = 1 << 15;

    /// No object starts here.
    pub(super) const NONE: Self = Mark(0);

    /// An object of the cache with this number; `header` if its size is in front of it.
    pub(super) fn new(id: u16, header: bool) -> Self {
        Mark(id | if header { Self::HEADER } else { 0 })
    }

    pub(super) fn id(self) -> u16 {
        self.0 & !(Self::HEADER | Self::DEFERRED)
    }

    pub(super) fn has_header(self) -> bool {
        self.0 & Self::HEADER != 0
    }

    /// The user has given the object up.
    pub(super) fn is_deferred(self) -> bool {
        self.0 & Self::DEFERRED != 0
    }

    pub(super) fn deferred(self) -> Self {
        Mark(self.0 | Self::DEFERRED)
    }
}

/// The table of a page.
#[derive(Clone, Copy)]
pub(super) struct Owners {
    first: NonNull<AtomicU16>,
    entries: u32,
}

impl Owners {
    /// The table of a page that has been a heap page.
    pub(super) fn of<M: Machine>(pages: &PageAllocator<M>, pfn: Pfn) -> Option<Self> {
        let offset = pages.map().page(pfn).private2.load(Ordering::Relaxed);
        let offset = offset.checked_sub(1)? as usize;
        let base = pages.machine().ranges().meta.base;
        // SAFETY: `make` stored the offset of a block of this range.
        let first = unsafe { base.byte_add(offset) }.cast();
        Some(Self {
            first,
            entries: entries(pages),
        })
    }

    /// Makes sure that a page, which is the caller's, has a table. `false` if there is no room.
    pub(super) fn make<M: Machine>(pages: &PageAllocator<M>, pfn: Pfn) -> bool {
        let page = pages.map().page(pfn);
        if page.private2.load(Ordering::Relaxed) != 0 {
            return true;
        }
        let machine = pages.machine();
        let bytes = entries(pages) as usize * ENTRY_BYTES;
        let Some(table) = pages.meta().alloc(machine, bytes) else {
            return false;
        };
        let offset = table.addr().get() - machine.ranges().meta.base.addr().get();
        page.private2.store(offset as u64 + 1, Ordering::Relaxed);
        true
    }

    fn entry(&self, number: u32) -> &AtomicU16 {
        debug_assert!(number < self.entries, "entry {number}");
        // SAFETY: callers ask for entries of words of the page, and the table has one for each.
        let entry = unsafe { self.first.add(number as usize) };
        // SAFETY: the table is zero-filled memory that is only used as these atomics, and is never
        // given back.
        unsafe { entry.as_ref() }
    }

    /// The mark of the object that starts `offset` bytes into the page, a multiple of a word.
    pub(super) fn get(&self, offset: u32) -> Mark {
        // SeqCst: see the module's documentation. It also orders what the user and `kmalloc` wrote
        // before the free that `defer` noted.
        Mark(self.entry(offset / WORD_BYTES).load(Ordering::SeqCst))
    }

    /// Changes an entry; the lock is held.
    pub(super) fn set(&self, offset: u32, mark: Mark) {
        self.entry(offset / WORD_BYTES)
            .store(mark.0, Ordering::Relaxed);
    }

    /// Notes that an object waits to be freed; `false` if another free of it was faster.
    pub(super) fn defer(&self, offset: u32, mark: Mark) -> bool {
        let entry = self.entry(offset / WORD_BYTES);
        // SeqCst: see the module's documentation.
        entry
            .compare_exchange(
                mark.0,
                mark.deferred().0,
                Ordering::SeqCst,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// All objects of the page in address order: where they start, and whose they are.
    pub(super) fn objects(self) -> impl Iterator<Item = (u32, Mark)> {
        (0..self.entries).filter_map(move |number| {
            let offset = number * WORD_BYTES;
            let mark = self.get(offset);
            (mark != Mark::NONE).then_some((offset, mark))
        })
    }

    /// The last object that starts at this offset or before it.
    pub(super) fn object_before(self, offset: u32) -> Option<(u32, Mark)> {
        let numbers = (0..=offset / WORD_BYTES).rev();
        let mut objects =
            numbers.map(|number| (number * WORD_BYTES, self.get(number * WORD_BYTES)));
        objects.find(|(_, mark)| *mark != Mark::NONE)
    }
}

/// Words of a page.
fn entries<M: Machine>(pages: &PageAllocator<M>) -> u32 {
    (1 << pages.map().page_shift()) / WORD_BYTES
}

type Part = [AtomicPtr<CacheHead>; PART];

/// Caches by number.
pub(super) struct Registry {
    parts: [AtomicPtr<Part>; PARTS],
}

impl Registry {
    pub(super) fn new() -> Self {
        Self {
            parts: core::array::from_fn(|_| AtomicPtr::new(core::ptr::null_mut())),
        }
    }

    fn part(&self, number: usize) -> Option<&Part> {
        // Acquire: pairs with the Release in `make_part`.
        let part = self.parts.get(number)?.load(Ordering::Acquire);
        // SAFETY: not null means that `make_part` stored a zero-filled block, which is a valid part
        // and is never given back.
        unsafe { part.as_ref() }
    }

    fn make_part<M: Machine>(&self, env: Env<'_, M>, number: usize) -> Option<&Part> {
        let machine = env.machine();
        let block = env.pages().meta().alloc(machine, size_of::<Part>())?;
        // Release: publishes the zeroes. Relaxed on failure: another thread's part is used.
        let stored = self.parts[number].compare_exchange(
            core::ptr::null_mut(),
            block.as_ptr().cast(),
            Ordering::Release,
            Ordering::Relaxed,
        );
        if stored.is_err() {
            // SAFETY: the region handed out this block just now, and no code has written to it.
            unsafe { env.pages().meta().free(machine, block, size_of::<Part>()) };
        }
        self.part(number)
    }

    /// Gives a cache a number, which is not 0. `None` if there are 16383 caches, or no room.
    pub(super) fn enter<M: Machine>(&self, env: Env<'_, M>) -> Option<u16> {
        let head = core::ptr::from_ref(env.cache).cast_mut();
        for number in 0..PARTS {
            let part = self.part(number).or_else(|| self.make_part(env, number))?;
            for (place, at) in part.iter().zip(number * PART..).filter(|(_, at)| *at > 0) {
                // Release: pairs with the Acquire in `get`.
                let taken = place.compare_exchange(
                    core::ptr::null_mut(),
                    head,
                    Ordering::Release,
                    Ordering::Relaxed,
                );
                if taken.is_ok() {
                    return Some(at as u16);
                }
            }
        }
        None
    }

    /// Takes a number back from a cache without objects.
    pub(super) fn leave(&self, id: u16) {
        let id = usize::from(id);
        if let Some(part) = self.part(id / PART) {
            part[id % PART].store(core::ptr::null_mut(), Ordering::Relaxed);
        }
    }

    /// The cache with this number.
    pub(super) fn get(&self, id: u16) -> Option<NonNull<CacheHead>> {
        let id = usize::from(id);
        let part = self.part(id / PART)?;
        // Acquire: pairs with the Release in `enter`.
        NonNull::new(part[id % PART].load(Ordering::Acquire))
    }

    /// Bytes of the block of an object that starts at `object`, and of the header in front of it.
    /// `None` if the header cannot be one, or if the mark names no cache.
    pub(super) fn block_of<M: Machine>(
        &self,
        pages: &PageAllocator<M>,
        object: NonNull<u8>,
        mark: Mark,
    ) -> Option<Block> {
        if !mark.has_header() {
            // SAFETY: a cache with objects is not destroyed, and the mark is of an object.
            let head = unsafe { self.get(mark.id())?.as_ref() };
            let bytes = head.geometry.layout.size;
            return Some(Block { bytes, lead: 0 });
        }
        // SAFETY: an object with a header has it in front of it, in the same page.
        let header = unsafe { object.byte_sub(HEADER_BYTES as usize) }.cast::<u32>();
        // SAFETY: kmalloc wrote the size there; headers are aligned to a word.
        let asked = unsafe { header.read() };
        let page_bytes = 1u32 << pages.map().page_shift();
        let offset = object.addr().get() as u32 & (page_bytes - 1);
        let fits = asked > 0 && asked <= page_bytes - offset;
        fits.then_some(Block {
            bytes: asked + HEADER_BYTES,
            lead: HEADER_BYTES,
        })
    }
}

/// The block of an object.
#[derive(Clone, Copy)]
pub(super) struct Block {
    /// Its bytes, header included.
    pub(super) bytes: u32,
    /// Bytes of the header.
    pub(super) lead: u32,
}
