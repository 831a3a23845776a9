//! Call sites: who asked.

use core::panic::Location;
use core::ptr;

use crate::sync::{AtomicPtr, Ordering};

/// Call site of an allocation or a free: a place in Rust source, or the address of code.
///
/// One word, as track records keep it. A place's address is even; a code address is shifted up by
/// one with the lowest bit set, which loses a bit that canonical addresses repeat anyway.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct CallSite(*const ());

// SAFETY: what it may point to is a `Location`, which is immutable and lives for ever.
unsafe impl Send for CallSite {}
// SAFETY: as for `Send`.
unsafe impl Sync for CallSite {}

const _: () = assert!(align_of::<Location<'static>>() >= 2);

impl CallSite {
    /// No code knows.
    pub const UNKNOWN: Self = Self(ptr::null());

    /// The caller of the function that calls this, as far up as `#[track_caller]` reaches.
    #[must_use]
    #[track_caller]
    #[inline(always)]
    pub fn caller() -> Self {
        Self::of(Location::caller())
    }

    /// A place in Rust source.
    #[must_use]
    #[inline(always)]
    pub const fn of(location: &'static Location<'static>) -> Self {
        Self(ptr::from_ref(location).cast())
    }

    /// The address of code, such as a return address or a recorded call site. 0 is unknown.
    #[must_use]
    pub const fn code(address: u64) -> Self {
        if address == 0 {
            return Self::UNKNOWN;
        }
        Self(ptr::without_provenance((address << 1 | 1) as usize))
    }

    /// The place in Rust source, if it is one.
    #[must_use]
    pub fn location(self) -> Option<&'static Location<'static>> {
        if self.0.is_null() || self.0.addr() & 1 != 0 {
            return None;
        }
        // SAFETY: not null and even, so `of` made it from a reference that lives for ever.
        Some(unsafe { &*self.0.cast() })
    }

    /// The address of code, if it is one.
    #[must_use]
    pub fn address(self) -> Option<u64> {
        // The arithmetic shift restores the top bit of a canonical address.
        (self.0.addr() & 1 != 0).then_some(((self.0.addr() as i64) >> 1) as u64)
    }

    /// True if the call site is not known.
    #[must_use]
    pub fn is_unknown(self) -> bool {
        self.0.is_null()
    }
}

/// Places that track records may name. A record is memory that a mistake of the user may have
/// overwritten, so what it says is looked up here before it is believed.
pub(crate) struct SiteTable([AtomicPtr<()>; SITES]);

/// Places that a cache can tell apart; calls from further ones show the address of the place, or
/// nothing where records keep numbers.
const SITES: usize = 512;

impl SiteTable {
    /// Places that a table can hold.
    pub(crate) const LEN: usize = SITES;

    pub(crate) fn new() -> Self {
        Self(core::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())))
    }

    /// Places in the order in which one of this address is looked for.
    fn probe(&self, address: usize) -> impl Iterator<Item = (usize, &AtomicPtr<()>)> {
        let start = (address >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        (0..SITES).map(move |i| {
            let at = start.wrapping_add(i) % SITES;
            (at, &self.0[at])
        })
    }

    /// Puts a call site into the table; `None` if there is no room.
    fn enter(&self, site: CallSite) -> Option<usize> {
        let word = site.0.cast_mut();
        let mut places = self.probe(word.addr());
        let found = places.find(|(_, place)| {
            // Relaxed: the pointer is all that is shared; what it points to is constant.
            let mut stored = place.load(Ordering::Relaxed);
            if stored.is_null() {
                let exchanged =
                    place.compare_exchange(stored, word, Ordering::Relaxed, Ordering::Relaxed);
                stored = exchanged.map_or_else(|other| other, |_| word);
            }
            stored == word
        });
        found.map(|(at, _)| at)
    }

    /// Number of a call site, 1 to [`SiteTable::LEN`], for those who have no room for its address;
    /// 0 if it is unknown or the table is full.
    pub(crate) fn number(&self, site: CallSite) -> u32 {
        let entered = (!site.is_unknown()).then(|| self.enter(site)).flatten();
        entered.map_or(0, |at| at as u32 + 1)
    }

    /// The call site of a number of this table; unknown for any other number.
    pub(crate) fn numbered(&self, number: u32) -> CallSite {
        let at = (number as usize).checked_sub(1);
        let place = at.and_then(|at| self.0.get(at));
        place.map_or(CallSite::UNKNOWN, |place| {
            CallSite(place.load(Ordering::Relaxed))
        })
    }

    /// Returns the bits of a call site that a track record keeps.
    pub(super) fn remember(&self, site: CallSite) -> u64 {
        if site.location().is_some() {
            self.enter(site);
        }
        site.0.addr() as u64
    }

    /// The call site of what [`SiteTable::remember`] returned, or of damaged memory.
    pub(super) fn recall(&self, word: u64) -> CallSite {
        let address = word as usize;
        if word == 0 {
            return CallSite::UNKNOWN;
        }
        if word & 1 != 0 {
            return CallSite(ptr::without_provenance(address));
        }
        let known = self
            .probe(address)
            .map(|(_, place)| place.load(Ordering::Relaxed))
            .take_while(|place| !place.is_null())
            .find(|place| place.addr() == address);
        known.map_or(CallSite::code(word), |place| CallSite(place))
    }
}

impl core::fmt::Display for CallSite {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if let Some(location) = self.location() {
            location.fmt(f)
        } else if let Some(address) = self.address() {
            write!(f, "{address:#x}")
        } else {
            f.write_str("an unknown place")
        }
    }
}

impl core::fmt::Debug for CallSite {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "CallSite({self})")
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[track_caller]
    fn asked() -> CallSite {
        CallSite::caller()
    }

    #[test]
    fn a_caller_is_a_place() {
        let (line, site) = (line!(), asked());
        let location = site.location().unwrap();
        assert_eq!((location.file(), location.line()), (file!(), line));
        assert_eq!(site.address(), None);
        assert!(site.to_string().contains("site.rs:"));
    }

    #[test]
    fn only_known_places_are_recalled() {
        let table = SiteTable::new();
        let sites = [asked(), asked(), CallSite::code(0x1235), CallSite::UNKNOWN];
        for site in sites {
            let word = table.remember(site);
            assert_eq!(table.remember(site), word);
            assert_eq!(table.recall(word), site);
        }
        for site in &sites[..3] {
            let number = table.number(*site);
            assert_eq!(table.number(*site), number);
            assert_eq!(table.numbered(number), *site);
        }
        // What memory holds after a mistake.
        let address = table.recall(0x4141_4141_4140).address();
        assert_eq!(address, Some(0x4141_4141_4140));
        assert!(table.recall(0x4141_4141_4141_4141).location().is_none());
    }

    #[test]
    fn sites_have_numbers() {
        let table = SiteTable::new();
        let sites: std::vec::Vec<_> = (1..=SITES as u64 + 1).map(CallSite::code).collect();
        let numbers: std::vec::Vec<_> = sites.iter().map(|&site| table.number(site)).collect();
        for (site, number) in sites.iter().zip(&numbers).take(SITES) {
            assert_eq!(table.number(*site), *number);
            assert_eq!(table.numbered(*number), *site);
        }
        assert_eq!(numbers[SITES], 0, "the table is full");
        assert_eq!(table.number(CallSite::UNKNOWN), 0);
        assert!(table.numbered(0).is_unknown());
        assert!(table.numbered(SITES as u32 + 1).is_unknown());
    }

    #[test]
    fn a_code_address_survives() {
        for address in [1, 0x1234, 0x7fff_ffff_f123, 0xffff_ffff_8123_4567, u64::MAX] {
            let site = CallSite::code(address);
            assert_eq!(site.address(), Some(address));
            assert_eq!(site.location(), None);
            assert!(!site.is_unknown());
        }
        assert_eq!(CallSite::code(0), CallSite::UNKNOWN);
        assert_eq!(CallSite::UNKNOWN.to_string(), "an unknown place");
    }
}
