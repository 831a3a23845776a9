//! Events that a recording has, and assumptions that follow from what it has not.
//!
//! A figure about live objects follows from allocations and frees. Where only one of both was recorded, there is no
//! such figure. A text tells an event only when it happened; a recorder's file also tells which were switched on.

use crate::error::clip;
use crate::event::Kind;
use crate::meta::TraceMeta;

/// Begin of the assumptions about hashed addresses, which come in two degrees of certainty.
const HASHED: &str = "addresses are hashed";
/// Assumption about addresses that may be hashes.
const MAY_BE_HASHED: &str = "addresses are hashed or too few to tell: only an equal address proves that an object is \
    gone, and slab pages are unknown; record with perf as root, or turn ftrace's option hash-ptr off";
/// Assumption about addresses whose digits say that they are hashes.
pub(crate) const HASHED_POINTERS: &str = "addresses are hashed pointers of a 64-bit kernel (%p), 16 digits with an upper \
    half of 0: they tell objects apart and show no neighbours, so only an equal address proves that an object is gone, \
    and slab pages are unknown; record with perf as root, or turn ftrace's option hash-ptr off";

/// Assumption about buffers that are too large to be sorted.
const UNSORTED: &str = "buffers of ftrace follow one another and are too large to be sorted by time: lifetimes, peaks and \
    what was never freed are not known; import ftrace's `trace` or `trace_pipe`, which have all CPUs in the order of time";

/// Allocations and frees of the same memory, the kind that every kernel has first.
struct Pair {
    allocs: &'static [Kind],
    frees: Kind,
}

const OBJECTS: [Pair; 2] = [
    Pair {
        allocs: &[Kind::Kmalloc, Kind::KmallocNode],
        frees: Kind::Kfree,
    },
    Pair {
        allocs: &[Kind::KmemCacheAlloc, Kind::KmemCacheAllocNode],
        frees: Kind::KmemCacheFree,
    },
];
const PAGES: [Pair; 1] = [Pair {
    allocs: &[Kind::MmPageAlloc],
    frees: Kind::MmPageFree,
}];

impl Pair {
    /// The kind that is missing beside the other.
    fn missing(&self, meta: &TraceMeta) -> Option<Kind> {
        let allocs = self.allocs.iter().any(|kind| meta.has_recorded(*kind));
        match (allocs, meta.has_recorded(self.frees)) {
            (true, false) => Some(self.frees),
            (false, true) => Some(self.allocs[0]),
            _ => None,
        }
    }
}

impl TraceMeta {
    /// True if events of a kind were recorded: some are here, or they were switched on and none happened.
    #[must_use]
    pub fn has_recorded(&self, kind: Kind) -> bool {
        self.events.get(kind) > 0 || self.recorded.contains(&kind)
    }

    /// True if it is known which objects are alive: their allocations and frees were recorded.
    #[must_use]
    pub fn knows_live_objects(&self) -> bool {
        self.knows(&OBJECTS)
    }

    /// True if it is known which page blocks are alive: their allocations and frees were recorded.
    #[must_use]
    pub fn knows_live_pages(&self) -> bool {
        self.knows(&PAGES)
    }

    /// Reason why nothing is known of the objects that are alive; `None` if they are known, or if none were recorded.
    #[must_use]
    pub fn no_peak(&self) -> Option<String> {
        let missing = self.missing_events();
        missing.filter(|_| !self.knows_live_objects())
    }

    fn knows(&self, pairs: &[Pair]) -> bool {
        if self.unsorted_buffers {
            return false;
        }
        let has_any = pairs.iter().any(|pair| self.has_recorded(pair.frees));
        has_any && pairs.iter().all(|pair| pair.missing(self).is_none())
    }

    /// Names the events that are missing beside those that were recorded, or says that these are out of order, and what
    /// is not known so.
    #[must_use]
    pub fn missing_events(&self) -> Option<String> {
        if self.unsorted_buffers {
            return Some(UNSORTED.to_string());
        }
        let missing = |pairs: &[Pair]| -> Vec<Kind> {
            let kinds = pairs.iter().filter_map(|pair| pair.missing(self));
            kinds.collect()
        };
        let (objects, pages) = (missing(&OBJECTS), missing(&PAGES));
        let of = match (objects.is_empty(), pages.is_empty()) {
            (true, true) => return None,
            (false, true) if self.knows_live_pages() => " of objects",
            (true, false) if self.knows_live_objects() => " of pages",
            _ => "",
        };
        let all = [objects, pages].concat();
        let frees = all.iter().filter(|kind| kind.is_free()).count();
        let what = match all.len() - frees {
            0 => "frees",
            _ if frees == 0 => "allocations",
            _ => "allocations or frees",
        };
        let names: Vec<&str> = all.iter().map(|kind| kind.name()).collect();
        Some(format!(
            "no {what} ({}) were recorded: lifetimes, peaks and what was never freed are not known{of}",
            names.join(", ")
        ))
    }

    /// Adds the assumptions that follow from other fields, each once: files from before
    /// [`TraceMeta::assumptions`] have them, too.
    pub(crate) fn complete_assumptions(&mut self) {
        let mut found: Vec<String> = self.missing_events().into_iter().collect();
        if self.page_size_assumed {
            found.push(format!(
                "the page size is unknown, {} bytes are assumed; name it with quarry import --page-size",
                self.page_size
            ));
        }
        match &self.kernel {
            None => found.push(
                "the kernel is unknown, the newest rules are assumed; name it with quarry import --kernel"
                    .to_string(),
            ),
            Some(kernel) if !is_release(kernel) => found.push(format!(
                "the kernel is {:?}, which is no release such as 6.18: the newest rules are assumed; name it with \
                 quarry import --kernel",
                clip(kernel.as_bytes())
            )),
            Some(_) => {}
        }
        let mut told = self.assumptions.iter();
        if self.hashed_addresses && !told.any(|sentence| sentence.starts_with(HASHED)) {
            found.push(MAY_BE_HASHED.to_string());
        }
        if self.time_steps_back > 0 {
            found.push(format!(
                "time runs backwards at {} events of the recording, by {} ns at most; their order is kept",
                self.time_steps_back, self.time_step_back_ns_max
            ));
        }
        found.retain(|sentence| !self.assumptions.contains(sentence));
        self.assumptions.append(&mut found);
    }
}

/// True if a text begins as the name of a release does: two numbers with a dot between them, and perhaps a `v`
/// in front.
fn is_release(kernel: &str) -> bool {
    let mut parts = kernel.strip_prefix('v').unwrap_or(kernel).splitn(3, '.');
    let mut begins_with_digit = || {
        let part = parts.next().unwrap_or_default();
        part.starts_with(|letter: char| letter.is_ascii_digit())
    };
    begins_with_digit() && begins_with_digit()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kinds: &[Kind], recorded: &[Kind]) -> TraceMeta {
        let mut meta = TraceMeta::default();
        kinds
            .iter()
            .for_each(|kind| *meta.events.get_mut(*kind) = 1);
        meta.recorded = recorded.to_vec();
        meta
    }

    fn told(kinds: &[Kind], recorded: &[Kind]) -> (bool, bool, String) {
        let meta = of(kinds, recorded);
        let text = meta.missing_events().unwrap_or_default();
        (meta.knows_live_objects(), meta.knows_live_pages(), text)
    }

    #[test]
    fn one_half_of_a_pair_is_no_figure() {
        use Kind::*;
        let none = String::new();
        let all = "lifetimes, peaks and what was never freed are not known";
        assert_eq!(told(&[], &[]), (false, false, none.clone()));
        assert_eq!(told(&[Kmalloc, Kfree], &[]), (true, false, none.clone()));
        assert_eq!(
            told(&[MmPageAlloc, MmPageFree], &[]),
            (false, true, none.clone())
        );
        let text = format!("no frees (kmem_cache_free) were recorded: {all}");
        assert_eq!(told(&[KmemCacheAlloc], &[]), (false, false, text.clone()));
        // One pair is whole, and objects of the other are never freed.
        assert_eq!(
            told(&[Kmalloc, Kfree, KmemCacheAllocNode], &[]),
            (false, false, text.clone())
        );
        let whole = [Kmalloc, Kfree, MmPageAlloc, MmPageFree];
        assert_eq!(
            told(&[&whole[..], &[KmemCacheAlloc]].concat(), &[]),
            (false, true, text + " of objects")
        );
        let text = format!("no allocations (kmalloc) were recorded: {all}");
        assert_eq!(told(&[Kfree], &[]), (false, false, text));
        let text = format!("no allocations or frees (kmalloc, mm_page_free) were recorded: {all}");
        assert_eq!(told(&[Kfree, MmPageAlloc], &[]), (false, false, text));
        let text = format!("no frees (mm_page_free) were recorded: {all} of pages");
        assert_eq!(
            told(&[KmallocNode, Kfree, MmPageAlloc], &[]),
            (true, false, text)
        );
    }

    #[test]
    fn events_out_of_order_are_no_figure() {
        let mut meta = of(&[Kind::Kmalloc, Kind::Kfree], &[]);
        assert_eq!((meta.knows_live_objects(), meta.no_peak()), (true, None));
        meta.unsorted_buffers = true;
        assert!(!meta.knows_live_objects());
        let told = meta.no_peak().unwrap_or_default();
        assert!(told.contains("too large to be sorted"), "{told}");
    }

    #[test]
    fn events_that_were_switched_on_are_not_missing() {
        use Kind::*;
        let known = [KmemCacheAlloc, KmemCacheFree];
        assert_eq!(
            told(&[KmemCacheAlloc], &known),
            (true, false, String::new())
        );
        assert!(!told(&[KmemCacheAlloc], &known[..1]).0);
    }
}
