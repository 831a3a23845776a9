//! Debugging: caches that notice what their users do wrong.
//!
//! # 1 Idea and source
//!
//! The kernel's `slub_debug`: per cache, by letters, objects get red zones (Z); free ones get a
//! poison pattern (P); each has a record of who allocated and who freed it (U); every allocation
//! and free is checked (F) or traced (T). Facts, not code, of those kernels were
//! used.
//!
//! # 2 How it hangs on the designs
//!
//! ```text
//!   Cache::alloc --> Allocate::alloc_fast: one step, misses, as such a cache has nothing per CPU
//!        | jump, with the call site
//!        v
//!   Heap::alloc_slow --> Allocate::alloc_slow: None, as the cache has debugging
//!        | cold
//!        v
//!   debug::alloc --> Allocate::alloc_direct --> check, track, paint --> object
//! ```
//!
//! A cache with debugging keeps nothing per CPU, so its fast paths always miss, and the slow paths
//! refuse ([`FreeError::Unchecked`](crate::design::FreeError), `None`). The call site is a constant
//! that only the jump after a miss loads (`#[track_caller]` on inlined functions). Nothing of the
//! fast path is alive behind that jump. So caches without debugging execute no test for it, and
//! their callers save no register: 282 instructions a pair of slub without rseq, as without all
//! this; a wrapper that looked at the results in the caller's code cost 17 more.
//!
//! What a design has to do (`slub`, `slubq`, `slab` are examples):
//!
//! 1. In the slow path of an allocation, and where its slot is busy: nothing but
//!    `if env.cache.flags().debug() { return None; }`; never give such a cache per-CPU state. (For
//!    speed alone: `alloc_fast`, `alloc_slow`, `free_fast` and `free_slow`, which split `alloc` and
//!    `free` behind their one-step operation.)
//! 2. In the slow path of a free: `return Err(FreeError::Unchecked)`, or any other error.
//! 3. Where it makes a slab, before it writes to it: `debug::set_up`, which runs the constructor as well; where it
//!    gives one back: `debug::discard`.
//! 4. Links in a free object go to `red_left_pad + free_pointer` from the slot's start.
//!    `alloc_direct` and `free_direct` deal in slots; objects start `red_left_pad` further.
//! 5. [`Slots::free_slots`](crate::design::Slots::free_slots), and where slots do not start at
//!    the slab's first byte, [`first_slot`](crate::design::Slots::first_slot). Where the slab's own
//!    list is inside a free object, [`held_by`](crate::design::Slots::held_by), and
//!    `debug::cover` when it leaves.
//!
//! A design without debugging says so ([`debug_rules`](crate::design::Design::debug_rules)): heaps on
//! it refuse settings and caches that ask for some.
//!
//! # 3 States of a slot
//!
//! | state | red zones | object | who has it |
//! |---|---|---|---|
//! | free | 0xbb | 0x6b, last 0xa5 | its slab's list |
//! | used | 0xcc | the user's | a user |
//! | quarantined | 0xbb | 0x6b, last 0xa5 | `Quarantine`; its slab counts it as in use |
//!
//! SLAB's red zones are words of its own (the module `slab::geometry`). A free object that holds its slab's
//! indices has these instead of poison.
//!
//! # 4 Locks and their order
//!
//! The gate -> the cache's debug lock, over the whole operation, so that no slot changes while it
//! is looked at -> the design's locks. Reporters and tracers are called outside all of them. In a
//! signal handler that interrupted an operation on the same cache an allocation fails and a free
//! is deferred, unchecked.
//!
//! # 5 Departures from the kernel
//!
//! * What a letter adds is checked at every allocation and free, also without F; modern kernels
//!   look at red zones and poison only with F or when told to validate. Likewise every letter
//!   brings the checks of addresses and free lists that F stands for.
//! * A cache with debugging has no CPU slabs or queues in any era; 2.6 and S+Q kept them.
//! * A damaged object is taken out of circulation alone, not with its slab. It is given back when
//!   the cache is destroyed.
//! * Track records name one call site, not a stack; fields without meaning here are 0. SLAB's
//!   have no room for thread and time.
//! * SLAB's letters are ours: its kernels had debugging built in or not. What differs from them is
//!   in [`slab`](crate::slab), section 7. SLOB's kernels had none, and its heaps refuse it.
//!
//! # 6 Without debugging
//!
//! What designs refuse by themselves:
//!
//! | free of | slub | slubq | slab | sheaf | slob |
//! |---|---|---|---|---|---|
//! | foreign memory, a page, a large block | always | always | always | always | always |
//! | another cache's object | always | always | always | always | always |
//! | an address inside an object | unless its slab is the CPU's | if the queue is full or not used | if the array is full or not used | if the main sheaf is full or not used | always |
//! | the object freed last on this CPU | if its slab is the CPU's | always | always | always | always |
//! | the object freed last to its slab | always | dropped | dropped | always | always |
//! | an object of a slab with nothing in use | always | dropped | dropped | always | always |
//! | an object freed earlier | no: its list would have to be walked | dropped | dropped, if among the last 64 there | no, as slub | always |
//!
//! "Dropped" is at the next drain to the slab, without a report. An address inside an object that a fast
//! way took is dropped there, too: the object around it stays in use. Until then it can be allocated, and then
//! overlaps. Fast ways do not look: a look takes a division or its like, about 8 instructions of the
//! 282 of a pair without rseq and of far fewer with it.

mod about;
mod alloc;
mod free;
mod report;
mod setting;
mod site;
mod slot;
mod state;
mod validate;

pub use report::{Damage, During, EXCERPT_BYTES, Finding, Fix, Report, TraceEvent, Track};
pub use setting::{SLUB_DEBUG_BYTES_MAX, SlubDebug, SlubDebugError};
pub use site::CallSite;
pub use state::{Reporter, Tracer};
pub use validate::{REPORTS_MAX, Validation};

pub(crate) use about::{Described, deliver, live, release, report_of};
pub(crate) use alloc::{alloc, request};
pub(crate) use free::{describe, found_late, free, reason, refused};
pub(crate) use report::here;
pub(crate) use site::SiteTable;
pub(crate) use state::{CacheDebug, HeapDebug};
pub(crate) use validate::{cover, discard, set_up, validate};

use core::ptr::NonNull;

use crate::design::{CacheHead, Env};
use crate::machine::Machine;
use slot::{Slot, State};

/// Lets `settle` free what signal handlers have deferred, if anything is, outside of other operations on the
/// cache. With debugging it is an operation of its own, so that no check sees a part of it; a handler that
/// interrupted one leaves it for later.
pub(crate) fn settle_alone<M: Machine>(env: Env<'_, M>, settle: impl FnOnce()) {
    if !env.cache.has_deferred() {
        return;
    }
    let Some(debug) = env.cache.debug() else {
        return settle();
    };
    if let Some(_ops) = debug.ops.lock(env.machine()) {
        settle();
    }
}

/// Takes the deferred objects of a cache. With debugging each slot looks free again: its free was not
/// checked, and its link may be in a red zone.
pub(crate) fn take_deferred(cache: &CacheHead) -> impl Iterator<Item = NonNull<u8>> + use<'_> {
    cache.take_deferred().inspect(move |&base| {
        if let Some(debug) = cache.debug() {
            // SAFETY: a slot of the cache that its user gave up and whose link has been read; the
            // caller has it alone.
            unsafe { Slot::new(cache, debug, base) }.restore(State::Free);
        }
    })
}
