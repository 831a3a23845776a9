//! A slab's list of free objects and its counters in one 64-bit word.
//!
//! ```text
//!   63        49 48      47        32 31                       0
//!   +-----------+--------+-----------+-------------------------+
//!   |  0        | frozen |  inuse    | first free object       |
//!   +-----------+--------+-----------+-------------------------+
//! ```
//!
//! The first free object is its offset from the slab's start in words, plus one; 0 is none. The
//! kernel needs a double word for this (a pointer and counters); slabs of at most 2^10 pages fit
//! in one.
//!
//! Reuse of an object cannot fool the compare-and-swap (ABA): all but the owner of a slab only
//! push. The owner takes the whole list or, under the list lock, the first object: no other code can take
//! that off meanwhile.

use crate::machine::{Access, Line, Machine, access};
use crate::page::Page;
use crate::sync::Ordering;

/// A decoded word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlabWord {
    /// Offset of the first free object in words plus one; 0 if there is none.
    pub(crate) first: u32,
    /// Objects that are not on the slab's list: users' and the owning CPU's.
    pub(crate) inuse: u32,
    /// Owned by one CPU.
    pub(crate) frozen: bool,
}

impl SlabWord {
    #[inline(always)]
    pub(crate) fn load<M: Machine>(machine: &M, slab: &Page) -> Self {
        access(
            machine,
            Line::Slab,
            Access::Read,
            core::ptr::from_ref(&slab.word),
        );
        Self::peek(slab)
    }

    /// [`SlabWord::load`] for checks of a heap, which are not accounted.
    #[inline(always)]
    pub(crate) fn peek(slab: &Page) -> Self {
        // Acquire: pairs with the Release in `replace`, by which a free publishes its link.
        Self::decode(slab.word.load(Ordering::Acquire))
    }

    /// Sets the word of a slab that no other code knows yet.
    pub(crate) fn init(self, slab: &Page) {
        slab.word.store(self.encode(), Ordering::Relaxed);
    }

    /// Puts `new` in the place of `self`, unless the word has changed: then its present value.
    #[inline(always)]
    pub(crate) fn replace<M: Machine>(
        self,
        machine: &M,
        slab: &Page,
        new: Self,
    ) -> Result<(), Self> {
        access(
            machine,
            Line::Slab,
            Access::Atomic,
            core::ptr::from_ref(&slab.word),
        );
        // AcqRel: the Release publishes the free pointers written before, the Acquire lets the
        // taker of a list follow them. Acquire on failure: the returned value is used in the same way.
        slab.word
            .compare_exchange(
                self.encode(),
                new.encode(),
                Ordering::AcqRel,
                Ordering::Acquire,
            )
            .map(|_| ())
            .map_err(Self::decode)
    }

    #[inline(always)]
    fn encode(self) -> u64 {
        u64::from(self.first) | u64::from(self.inuse) << 32 | u64::from(self.frozen) << 48
    }

    #[inline(always)]
    fn decode(bits: u64) -> Self {
        Self {
            first: bits as u32,
            inuse: (bits >> 32) as u32 & 0xffff,
            frozen: bits >> 48 & 1 != 0,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn survives_encoding_at_the_limits() {
        for first in [0, 1, u32::MAX] {
            for inuse in [0, 1, 65535] {
                for frozen in [false, true] {
                    let word = SlabWord {
                        first,
                        inuse,
                        frozen,
                    };
                    assert_eq!(SlabWord::decode(word.encode()), word);
                }
            }
        }
    }
}
