//! Frees that were left for later, and flushing, which is nothing else: there is no per-CPU state,
//! and no page without objects is kept.

use super::owners::{Mark, Owners};
use super::types::{Lists, Shared, Slob};
use crate::design::{Env, Upkeep};
use crate::machine::Machine;
use crate::page::{PageList, Pfn};
use crate::sync::Ordering;

impl Upkeep for Slob {
    /// Does the frees that wait for the lock. No CPU is ever busy.
    fn flush<M: Machine>(&self, env: Env<'_, M>) -> u32 {
        let shared = self.shared();
        if shared.has_deferred() {
            let _pass = env.enter();
            shared.with_lists(env, |_, _| ());
        }
        0
    }

    /// Shrinking does nothing in the kernel either.
    fn shrink<M: Machine>(&self, env: Env<'_, M>) -> u32 {
        self.flush(env)
    }

    fn quiesce<M: Machine>(&self, _: Env<'_, M>, _: bool) -> u32 {
        0
    }

    fn resume<M: Machine>(&self, _: Env<'_, M>) {}
}

impl Shared {
    /// Puts a page on the stack of those with deferred frees, unless it is there.
    pub(super) fn push_deferred<M: Machine>(&self, env: Env<'_, M>, pfn: Pfn) {
        let link = &env.map().page(pfn).private;
        // 0 is "not on the stack", so links are one larger. Claimed before it is linked, so that
        // no other code pushes the page too. SeqCst: see `owners`.
        let claimed = link.compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst);
        if claimed.is_err() {
            return;
        }
        let mut below = self.deferred.load(Ordering::Relaxed);
        loop {
            link.store(u64::from(below) + 1, Ordering::Relaxed);
            // Release: pairs with the Acquire in `settle_deferred`, which reads the link.
            match self.deferred.compare_exchange(
                below,
                Pfn::link(Some(pfn)),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => below = now,
            }
        }
    }

    /// Frees what was deferred, with the lock held.
    #[cold]
    pub(super) fn settle_deferred<M: Machine>(
        &self,
        env: Env<'_, M>,
        lists: &mut Lists,
        empty: &mut PageList,
    ) {
        // Acquire: pairs with the Release in `push_deferred`.
        let mut next = Pfn::from_link(self.deferred.swap(0, Ordering::Acquire));
        while let Some(pfn) = next {
            let link = &env.map().page(pfn).private;
            // The link goes first: who defers from now on pushes the page again. SeqCst: see `owners`.
            let below = link.swap(0, Ordering::SeqCst);
            next = Pfn::from_link(below.saturating_sub(1) as u32);
            let Some(owners) = Owners::of(env.pages(), pfn) else {
                continue;
            };
            for (offset, mark) in owners.objects() {
                if mark.is_deferred() {
                    self.settle_one(env, lists, empty, pfn, offset, mark);
                    owners.set(offset, Mark::NONE);
                }
            }
        }
    }

    fn settle_one<M: Machine>(
        &self,
        env: Env<'_, M>,
        lists: &mut Lists,
        empty: &mut PageList,
        pfn: Pfn,
        offset: u32,
        mark: Mark,
    ) {
        let first = env.map().address(pfn);
        // SAFETY: the table has entries for words of the page.
        let object = unsafe { first.byte_add(offset as usize) };
        // A block whose header or neighbours were overwritten meanwhile is lost: its free has been
        // answered.
        if let Some(block) = self.registry.block_of(env.pages(), object, mark) {
            let start = offset - block.lead;
            let given = self.give_block(env, lists, empty, pfn, start, block.bytes);
            debug_assert!(given.is_ok(), "{given:?}");
        }
    }
}
