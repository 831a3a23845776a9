//! Slabs: made from pages, taken apart, their locks and bitmaps.

use core::ptr::NonNull;

use super::stats::{Stat, Stats};
use super::types::Slubq;
use crate::debug;
use crate::design::Env;
use crate::machine::{Access, Line, LockClass, Machine, NodeId, access};
use crate::page::{Page, Pfn};
use crate::slabs::{self, NewSlab};
use crate::slubq::geometry::bitmap_bytes;
use crate::sync::Ordering;

/// A slab whose lock is held; frees it when dropped.
pub(super) struct LockedSlab<'a, M: Machine> {
    env: Env<'a, M>,
    pub(super) slab: Pfn,
}

impl<'a, M: Machine> LockedSlab<'a, M> {
    /// Waits for the lock; `None` if the calling thread has it.
    pub(super) fn lock(env: Env<'a, M>, slab: Pfn) -> Option<Self> {
        let page = env.map().page(slab);
        access(
            env.machine(),
            Line::Slab,
            Access::Write,
            env.map().page(slab),
        );
        env.machine().lock(&page.lock, LockClass::Slab).ok()?;
        Some(Self { env, slab })
    }

    /// Takes the lock if it is free.
    pub(super) fn try_lock(env: Env<'a, M>, slab: Pfn) -> Option<Self> {
        let page = env.map().page(slab);
        access(
            env.machine(),
            Line::Slab,
            Access::Write,
            env.map().page(slab),
        );
        // The guard must not exist unless the lock was taken: its drop would free another's.
        if !env.machine().try_lock(&page.lock, LockClass::Slab) {
            return None;
        }
        Some(Self { env, slab })
    }

    fn page(&self) -> &'a Page {
        self.env.map().page(self.slab)
    }

    pub(super) fn objects(&self) -> u32 {
        self.page().objects.load(Ordering::Relaxed)
    }

    /// Objects that are free in the slab (I2).
    pub(super) fn free(&self) -> u32 {
        self.page().private.load(Ordering::Relaxed) as u32
    }

    fn set_free(&self, free: u32) {
        self.page()
            .private
            .store(u64::from(free), Ordering::Relaxed);
    }

    /// Word `i` of the bitmap.
    fn word(&self, size: usize, i: usize) -> u64 {
        if bitmap_bytes(self.objects()) == 0 {
            return self.page().word.load(Ordering::Relaxed);
        }
        let word = self.in_slab_word(size, i);
        access(
            self.env.machine(),
            Line::Bitmap,
            Access::Read,
            word.as_ptr(),
        );
        // SAFETY: I2 - the slab's lock is held, and only its holders access the bitmap, which
        // `in_slab_word` finds.
        unsafe { word.read() }
    }

    fn set_word(&self, size: usize, i: usize, bits: u64) {
        if bitmap_bytes(self.objects()) == 0 {
            self.page().word.store(bits, Ordering::Relaxed);
            return;
        }
        let word = self.in_slab_word(size, i);
        access(
            self.env.machine(),
            Line::Bitmap,
            Access::Store,
            word.as_ptr(),
        );
        // SAFETY: as in `word`.
        unsafe { word.write(bits) };
    }

    fn in_slab_word(&self, size: usize, i: usize) -> NonNull<u64> {
        let objects = self.objects() as usize;
        debug_assert!(i * 8 < bitmap_bytes(objects as u32) as usize);
        let first = self.env.map().address(self.slab);
        // SAFETY: geometry leaves room for the bitmap behind the last object, word-aligned.
        unsafe { first.byte_add(objects * size + i * 8) }.cast()
    }

    /// Marks all objects of a new slab as free.
    fn fill(&self, size: usize) {
        let objects = self.objects();
        for i in 0..objects.div_ceil(64) {
            let here = (objects - i * 64).min(64);
            self.set_word(size, i as usize, u64::MAX >> (64 - here));
        }
        self.set_free(objects);
    }

    /// Takes up to `wanted` free objects, lowest address first, handing each to `give`.
    pub(super) fn take(&self, size: usize, wanted: u32, mut give: impl FnMut(NonNull<u8>)) -> u32 {
        let first = self.env.map().address(self.slab);
        let taken = wanted.min(self.free());
        let mut left = taken;
        let mut i = 0;
        while left > 0 {
            let mut bits = self.word(size, i);
            while bits != 0 && left > 0 {
                let number = i * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                left -= 1;
                // SAFETY: number < objects, as only bits of objects are ever set.
                give(unsafe { first.byte_add(number * size) });
            }
            self.set_word(size, i, bits);
            i += 1;
        }
        self.set_free(self.free() - taken);
        taken
    }

    /// The number of the object that starts at an address; `None` if none does.
    pub(super) fn number(&self, size: usize, object: NonNull<u8>) -> Option<usize> {
        let first = self.env.map().address(self.slab);
        let offset = object.addr().get().checked_sub(first.addr().get())?;
        let number = offset / size;
        (offset.is_multiple_of(size) && number < self.objects() as usize).then_some(number)
    }

    /// Marks an object as free; `false` if it is already, or if the slab has no such object.
    pub(super) fn give_back(&self, size: usize, object: NonNull<u8>) -> bool {
        let Some(number) = self.number(size, object) else {
            return false;
        };
        let (i, bit) = (number / 64, 1 << (number % 64));
        let bits = self.word(size, i);
        if bits & bit != 0 {
            return false;
        }
        self.set_word(size, i, bits | bit);
        self.set_free(self.free() + 1);
        true
    }

    /// True if an object is free in the slab.
    pub(super) fn is_free(&self, size: usize, number: u32) -> bool {
        self.word(size, number as usize / 64) >> (number % 64) & 1 != 0
    }
}

impl<M: Machine> Drop for LockedSlab<'_, M> {
    fn drop(&mut self) {
        // SAFETY: the constructors took the lock, and this frees it once.
        unsafe {
            self.env
                .machine()
                .unlock(&self.page().lock, LockClass::Slab)
        };
    }
}

impl Slubq {
    /// A new slab with all objects free, on no list.
    pub(super) fn new_slab<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: Option<NodeId>,
        mut stats: Option<&mut Stats>,
    ) -> Option<Pfn> {
        let NewSlab {
            slab,
            objects,
            fallback,
        } = slabs::take(env, &self.nodes, node)?;
        if fallback {
            super::count(env, stats.as_deref_mut(), Stat::OrderFallback);
        }
        debug::set_up(env, slab, env.map().address(slab), objects);
        // No other code knows the slab, so its lock is free unless a mistaken free looks at it.
        LockedSlab::lock(env, slab)?.fill(self.size);
        super::count(env, stats, Stat::AllocSlab);
        Some(slab)
    }

    /// Gives an empty slab's pages back. The slab is on no list and its lock is free.
    pub(super) fn discard<M: Machine>(&self, env: Env<'_, M>, slab: Pfn) {
        debug::discard(env, slab, env.map().address(slab));
        slabs::give_back(env, &self.nodes, slab);
    }
}
