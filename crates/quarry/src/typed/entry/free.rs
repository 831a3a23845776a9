//! Frees of objects, which have nothing but their entry.

use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use quarry_core::design::Design;

use super::super::check_freed;
use super::{Entry, IDLE, ORPHANED, QUEUE, WITHIN, settle};

impl Entry {
    /// Frees an object.
    ///
    /// Never inline: what drops an object stays so small that it is inlined itself. Else the handle goes to it in memory,
    /// and the object's address, which the next allocation returns, waits for a store and a load more (a quarter of a pair's
    /// time).
    ///
    /// # Safety
    ///
    /// A live object of the entry's cache, of design `D`, without user.
    #[inline(never)]
    pub(in crate::typed) unsafe fn free<D: Design>(&'static self, object: NonNull<u8>) {
        // SAFETY: the object is live, so its cache is not destroyed (`attempt` destroys none with objects).
        let raw = unsafe { self.raw::<D>() };
        // SAFETY: `claim` wrote the cell, and nothing writes it while the cache lives.
        let Some(stacks) = (unsafe { &*self.stacks.get() }) else {
            // SAFETY: the caller vouches for the object.
            return unsafe { self.free_without_stacks::<D>(object) };
        };
        // Without a look at `watch` before: a cache with debugging has no such stacks.
        // SAFETY: the stacks are this cache's; the object, too, and it is without user, as this function's caller says of it.
        if unsafe { stacks.push(raw.heap(), object) } {
            // Relaxed: E4.
            if self.watch.load(Ordering::Relaxed) != 0 {
                self.count_down();
            }
            return;
        }
        // SAFETY: the object is live and without user, and the attempt above has not freed it.
        unsafe { self.free_rest::<D>(object) }
    }

    /// [`Entry::free`] by the cache.
    ///
    /// # Safety
    ///
    /// As for [`Entry::free`].
    #[inline(never)]
    unsafe fn free_without_stacks<D: Design>(&'static self, object: NonNull<u8>) {
        // SAFETY: as in `free`.
        let raw = unsafe { self.raw::<D>() };
        // Without a look at `watch` before: the step fails for a cache with debugging, and reports nothing (E3).
        // SAFETY: the object is of this cache and without user, as this function's caller says of it.
        if unsafe { raw.free_own_fast(object) } {
            // Relaxed: E4.
            if self.watch.load(Ordering::Relaxed) != 0 {
                self.count_down();
            }
            return;
        }
        // SAFETY: the object is live and without user, and the attempt above has not freed it.
        unsafe { self.free_rest::<D>(object) }
    }

    /// # Safety
    ///
    /// As for [`Entry::free`].
    #[cold]
    #[inline(never)]
    unsafe fn free_rest<D: Design>(&'static self, object: NonNull<u8>) {
        // Relaxed: COUNTED is set before there are objects, and E4 covers ORPHANED.
        if self.watch.load(Ordering::Relaxed) != 0 {
            // SAFETY: the object is live and without user, as this function's caller says of it.
            return unsafe { self.free_watched::<D>(object) };
        }
        // SAFETY: as in `free`.
        let raw = unsafe { self.raw::<D>() };
        // SAFETY: the object is of this cache and without user, as this function's caller says of it.
        check_freed(unsafe { raw.free(object) });
        // Relaxed: E4.
        if self.watch.load(Ordering::Relaxed) != 0 {
            self.count_down();
        }
    }

    /// # Safety
    ///
    /// As for [`Entry::free`].
    unsafe fn free_watched<D: Design>(&'static self, object: NonNull<u8>) {
        WITHIN.set(WITHIN.get() + 1);
        // SeqCst: comes before the object counts as free (E3).
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the object is live, so its cache is not destroyed; until the count goes down again it is not either (E3).
        let raw = unsafe { self.raw::<D>() };
        // SAFETY: the object is of this cache and without user, as this function's caller says of it.
        check_freed(unsafe { raw.free(object) });
        // SeqCst: what the free did comes before (pairs with the load in `attempt`).
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
        WITHIN.set(WITHIN.get() - 1);
        self.count_down();
    }

    /// Counts a free of an orphaned cache, and ends the cache if it may have been the last.
    #[cold]
    #[inline(never)]
    fn count_down(&'static self) {
        if self.watch.load(Ordering::SeqCst) & ORPHANED == 0 {
            return;
        }
        let left = self.left.fetch_sub(1, Ordering::SeqCst) - 1;
        if left <= -IDLE {
            if self.take_token() {
                QUEUE.push(self.number(), &self.link);
                settle();
            }
        } else if left > -IDLE / 2 {
            // The token is elsewhere: an attempt may have found this very free in flight, and queued the entry.
            settle();
        }
    }

    /// Takes the token, if the frees counted so far leave no object.
    pub(super) fn take_token(&self) -> bool {
        let none_left = |left: i64| (left <= -IDLE).then_some(0);
        // SeqCst: what others freed before they counted is seen by the walk that follows.
        let order = (Ordering::SeqCst, Ordering::SeqCst);
        let taken = self.left.fetch_update(order.0, order.1, none_left);
        taken.is_ok()
    }
}
