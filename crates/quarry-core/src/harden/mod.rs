//! Hardened caches: mistakes of users found on every path, at a price that programs can pay.
//!
//! # 1 Idea
//!
//! Debugging ([`crate::debug`]) takes a lock for each operation. Hardening has no lock: each object has a secret word
//! behind it, which says whether the object is free, and for how many bytes it was asked. One load and one comparison
//! find out whether an address is that of an object in use.
//!
//! ```text
//!  |<------------------------- slot ------------------------->|
//!  | object: request | canary ... | link (free), canary (used) | secret word |
//!  |<--------- `usable` bytes --->|<-------- TRAILER --------->|
//! ```
//!
//! The word is a hash of its place and the heap's secret, xor the state: the bytes of the request while the object is in
//! use, `word::FREE` and the bytes that are filled while it is free. It is valid at all times in each slot of a slab.
//!
//! # 2 How it hangs on the designs
//!
//! The cache's body has a *facade*, a state of the design that never has anything per CPU: all fast paths miss, so that
//! other caches execute no test for hardening. Behind the facade is a second state of the same design, with per-CPU
//! objects and slabs (`Hardened::design`). The slow paths of heaps find it by the cache's head:
//!
//! ```text
//!   Cache::alloc --> facade: misses --> Heap::alloc_slow --> harden::alloc --> Allocate::alloc, check, arm --> object
//!   Cache::free  --> facade: refuses --> Heap::free_slow --> harden::free --> check, fill --> ring --> Free::free
//! ```
//!
//! # 3 Measures
//!
//! See [`Hardening`]. A freed object waits in a ring of its CPU (`ring`) until a later free of the same cache throws it
//! out, by chance. It has no lock: an exchange puts one object in and gives another.
//!
//! # 4 Invariants
//!
//! * **N1** The secret word of each slot is valid: `set_up` writes it before others know the slab, and only the owner
//!   of an object changes it, in one store.
//! * **N2** An object in the ring or in the design is free by its word, and its first bytes, as many as the word says,
//!   hold `FILL`.
//!
//! # 5 Limits
//!
//! Two threads that free one object at the same moment may both find it in use; its next allocation but one reports it. An
//! overrun that leaves 16 bytes behind the request as they were is not seen, if it spares the word. A word is
//! forged by who can read one and the object's address.

mod operations;
mod ring;
mod word;

pub(crate) use operations::{alloc, drain, free, is_live, request, set_request, set_up};

use core::ptr::NonNull;

use crate::design::Design;
use crate::geometry::Hardening;
use ring::Ring;

/// Every byte of a freed object: as a pointer it is no address that can be used.
pub(crate) const FILL: u8 = 0x6b;
/// Bytes behind a request that are looked at when it is freed, at most.
pub(crate) const CANARY_BYTES: usize = 16;

/// The part of a hardened cache that all designs share.
pub(crate) struct Armour {
    measures: Hardening,
    secret: u64,
    /// Bytes of the largest request.
    usable: usize,
    /// Free objects can be filled: they have no state of their own while they are free.
    fills: bool,
    ring: Option<Ring>,
}

/// State of a hardened cache behind its facade.
#[repr(C)]
pub(crate) struct Hardened<D> {
    pub(crate) armour: Armour,
    pub(crate) design: D,
}

impl<D: Design> Hardened<D> {
    /// The state of a cache.
    ///
    /// # Safety
    ///
    /// The armour is the first field of one of this design.
    #[inline(always)]
    pub(crate) unsafe fn of(armour: &Armour) -> &Self {
        let place = NonNull::from(armour).cast::<Self>();
        // SAFETY: the armour is first in a state of this type (`repr(C)`), as the caller says.
        unsafe { place.as_ref() }
    }
}
