//! The model: which objects are live, where, whose, and what is written in them.

use std::collections::{BTreeMap, BTreeSet};
use std::ptr::NonNull;

use super::{Check, ensure, ensure_eq};

/// Who an object was allocated from: kmalloc, or the cache in a slot of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Owner {
    /// `Heap::kmalloc`.
    Kmalloc,
    /// A named cache.
    Cache(usize),
}

/// Choice of one of an owner's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pick {
    /// The one allocated first.
    Oldest,
    /// The one allocated last.
    Newest,
    /// Any, by a number that is taken modulo their count.
    Any(u16),
}

/// One live object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Live {
    /// Its first byte.
    pub(crate) object: NonNull<u8>,
    /// Bytes that its user may write.
    pub(crate) bytes: usize,
    /// Decides what is written in it.
    fill: u64,
}

/// Objects of at most this many bytes are filled altogether, larger ones at both ends and in the
/// middle, where the designs put their links.
const FILLED_WHOLE: usize = 256;
const WINDOW: usize = 80;

impl Live {
    fn windows(&self) -> [std::ops::Range<usize>; 3] {
        if self.bytes <= FILLED_WHOLE {
            return [0..self.bytes, 0..0, 0..0];
        }
        let middle = self.bytes / 2;
        [
            0..WINDOW,
            middle - WINDOW / 2..middle + WINDOW / 2,
            self.bytes - WINDOW..self.bytes,
        ]
    }

    fn byte(&self, at: usize) -> u8 {
        let mixed = (self.fill ^ at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 56) as u8
    }

    fn write(&self) {
        for at in self.windows().into_iter().flatten() {
            // SAFETY: at < bytes, and the object is live and the test's.
            let byte = unsafe { self.object.byte_add(at) };
            // SAFETY: as above.
            unsafe { byte.write(self.byte(at)) };
        }
    }

    /// Checks that everything written at allocation is still there.
    pub(crate) fn intact(&self) -> Check {
        for at in self.windows().into_iter().flatten() {
            // SAFETY: at < bytes, and the object is live and the test's.
            let byte = unsafe { self.object.byte_add(at) };
            // SAFETY: as above; `write` initialised it.
            let found = unsafe { byte.read() };
            let written = self.byte(at);
            ensure_eq!(
                found,
                written,
                "byte {at} of {} in the object at {:p}",
                self.bytes,
                self.object
            );
        }
        Ok(())
    }

    fn range(&self) -> std::ops::Range<usize> {
        let start = self.object.addr().get();
        start..start + self.bytes
    }
}

/// All live objects.
#[derive(Default)]
pub(crate) struct Ledger {
    objects: BTreeMap<usize, Live>,
    /// Addresses by owner, oldest first.
    owned: BTreeMap<Owner, Vec<usize>>,
    fills: u64,
}

impl Ledger {
    /// Number of an owner's live objects.
    pub(crate) fn count(&self, owner: Owner) -> usize {
        self.owned.get(&owner).map_or(0, Vec::len)
    }

    /// Number of all live objects.
    pub(crate) fn all(&self) -> usize {
        self.objects.len()
    }

    /// An owner's live objects by address.
    pub(crate) fn addresses(&self, owner: Owner) -> Vec<usize> {
        let mut addresses = self.owned.get(&owner).cloned().unwrap_or_default();
        addresses.sort_unstable();
        addresses
    }

    /// An owner's live objects: where each is, and a number that none had before.
    pub(crate) fn marks(&self, owner: Owner) -> BTreeSet<(usize, u64)> {
        let addresses = self.owned.get(&owner).into_iter().flatten();
        let marks = addresses.filter_map(|at| Some((*at, self.objects.get(at)?.fill)));
        marks.collect()
    }

    /// Owners that have live objects.
    pub(crate) fn owners(&self) -> Vec<Owner> {
        let mut owners: Vec<Owner> = self.owned.keys().copied().collect();
        owners.retain(|&owner| self.count(owner) > 0);
        owners
    }

    /// Takes a new object in: it must overlap no live one. Fills it.
    pub(crate) fn admit(&mut self, owner: Owner, object: NonNull<u8>, bytes: usize) -> Check {
        self.fills += 1;
        let live = Live {
            object,
            bytes,
            fill: self.fills.wrapping_mul(0xd6e8_feb8_6659_fd93),
        };
        let range = live.range();
        let before = self.objects.range(..range.end).next_back();
        if let Some((_, other)) = before {
            ensure!(
                other.range().end <= range.start,
                "the new object at {range:x?} overlaps the live one at {:x?}",
                other.range()
            );
        }
        live.write();
        self.objects.insert(range.start, live);
        self.owned.entry(owner).or_default().push(range.start);
        Ok(())
    }

    /// Looks at an object without forgetting it.
    pub(crate) fn peek(&self, owner: Owner, pick: Pick) -> Option<Live> {
        let (_, address) = self.position(owner, pick)?;
        self.objects.get(&address).copied()
    }

    /// Forgets an object that is about to be freed; its contents must be as they were written.
    pub(crate) fn dismiss(&mut self, owner: Owner, pick: Pick) -> Check<Option<Live>> {
        let Some((at, address)) = self.position(owner, pick) else {
            return Ok(None);
        };
        self.owned.entry(owner).or_default().remove(at);
        let Some(live) = self.objects.remove(&address) else {
            return Err(format!("the ledger lost {address:x}"));
        };
        live.intact()?;
        Ok(Some(live))
    }

    fn position(&self, owner: Owner, pick: Pick) -> Option<(usize, usize)> {
        let owned = self.owned.get(&owner).filter(|owned| !owned.is_empty())?;
        let at = match pick {
            Pick::Oldest => 0,
            Pick::Newest => owned.len() - 1,
            Pick::Any(number) => usize::from(number) % owned.len(),
        };
        Some((at, owned[at]))
    }

    /// Checks the contents of every live object.
    pub(crate) fn all_intact(&self) -> Check {
        self.objects.values().try_for_each(Live::intact)
    }
}
