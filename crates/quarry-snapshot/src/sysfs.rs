//! The attributes of a cache in `/sys/kernel/slab`.

use std::collections::BTreeMap;

use quarry_core::geometry::{CacheFlags, CacheParams};

/// The files of one cache's directory.
///
/// ```
/// use quarry_snapshot::CacheAttributes;
///
/// let mut cache = CacheAttributes::default();
/// cache.set("slabs", "59 N0=59");
/// cache.set("slabs_cpu_partial", "72(9) C0=24(3) C1=48(6)");
/// assert_eq!(cache.number("slabs"), Some(59));
/// assert_eq!(cache.cpu_partial_slabs(), Some(9));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheAttributes {
    values: BTreeMap<String, String>,
}

/// Files that tell how many objects and slabs there are at the moment.
const COUNTS: [&str; 7] = [
    "cpu_slabs",
    "objects",
    "objects_partial",
    "partial",
    "slabs",
    "slabs_cpu_partial",
    "total_objects",
];

impl CacheAttributes {
    /// Sets the text of a file.
    pub fn set(&mut self, file: &str, text: &str) {
        self.values
            .insert(file.to_string(), text.trim().to_string());
    }

    /// The text of a file, without white space around it.
    #[must_use]
    pub fn text(&self, file: &str) -> Option<&str> {
        self.values.get(file).map(String::as_str)
    }

    /// The files with their text.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values
            .iter()
            .map(|(file, text)| (file.as_str(), text.as_str()))
    }

    /// The number that a file begins with; parts by node or CPU follow it.
    #[must_use]
    pub fn number(&self, file: &str) -> Option<u64> {
        leading(self.text(file)?)
    }

    /// Slabs on the CPUs' partial lists: the number in the brackets of `slabs_cpu_partial`, whose
    /// first number is the kernel's guess of free objects.
    #[must_use]
    pub fn cpu_partial_slabs(&self) -> Option<u64> {
        let (_, in_brackets) = self.text("slabs_cpu_partial")?.split_once('(')?;
        leading(in_brackets)
    }

    /// The same by CPU; without parts by CPU all are on CPU 0, as kernels for one CPU print them.
    /// `None` if it is not told.
    #[must_use]
    pub fn cpu_partial_lists(&self) -> Option<BTreeMap<u32, u64>> {
        let slabs_of = |part: &str| leading(part.split_once('(')?.1);
        let mut parts = self.text("slabs_cpu_partial")?.split_whitespace();
        let all = slabs_of(parts.next()?)?;
        let mut lists = BTreeMap::new();
        for part in parts {
            let (cpu, list) = part.strip_prefix('C')?.split_once('=')?;
            lists.insert(cpu.parse().ok()?, slabs_of(list)?);
        }
        if lists.is_empty() && all > 0 {
            lists.insert(0, all);
        }
        Some(lists)
    }

    /// Forgets how many objects and slabs there were; sizes, limits and flags stay.
    pub fn forget_counts(&mut self) {
        for file in COUNTS {
            self.values.remove(file);
        }
    }

    /// True if the file shows that something is on.
    fn is_on(&self, file: &str) -> bool {
        self.number(file).is_some_and(|number| number > 0)
    }

    /// The flags that sysfs shows.
    #[must_use]
    pub fn flags(&self) -> CacheFlags {
        let mut flags = CacheFlags::NONE;
        for (file, flag) in [
            ("hwcache_align", CacheFlags::HWCACHE_ALIGN),
            ("destroy_by_rcu", CacheFlags::RCU),
            ("reclaim_account", CacheFlags::RECLAIM),
            ("red_zone", CacheFlags::RED_ZONE),
            ("poison", CacheFlags::POISON),
            ("store_user", CacheFlags::STORE_USER),
            ("sanity_checks", CacheFlags::CONSISTENCY),
        ] {
            if self.is_on(file) {
                flags |= flag;
            }
        }
        if self.text("ctor").is_some_and(|text| !text.is_empty()) {
            flags |= CacheFlags::CTOR;
        }
        flags
    }

    /// Parameters that the cache was created with. The alignment is the one that sysfs shows, which is the
    /// result of cache-line alignment where that was asked for. `None` without the sizes.
    #[must_use]
    pub fn params(&self) -> Option<CacheParams> {
        let small = |file| u32::try_from(self.number(file)?).ok();
        Some(
            CacheParams::new(small("object_size")?)
                .with_align(small("align")?)
                .with_flags(self.flags()),
        )
    }
}

fn leading(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit());
    text[..end.unwrap_or(text.len())].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_and_sizes() {
        let mut cache = CacheAttributes::default();
        assert_eq!(cache.params(), None);
        for (file, text) in [
            ("object_size", "176"),
            ("align", "64"),
            ("hwcache_align", "1"),
            ("destroy_by_rcu", "0"),
            ("poison", "1\n"),
            ("ctor", "init_once+0x0/0x20"),
        ] {
            cache.set(file, text);
        }
        let flags = CacheFlags::HWCACHE_ALIGN | CacheFlags::POISON | CacheFlags::CTOR;
        let params = CacheParams::new(176).with_align(64).with_flags(flags);
        assert_eq!(cache.params(), Some(params));
        cache.set("ctor", "\n");
        assert!(!cache.flags().contains(CacheFlags::CTOR));
    }

    #[test]
    fn counts_can_be_forgotten() {
        let mut cache = CacheAttributes::default();
        cache.set("slabs", "3 N0=3");
        cache.set("order", "2");
        cache.forget_counts();
        assert_eq!(
            (cache.number("slabs"), cache.number("order")),
            (None, Some(2))
        );
        assert_eq!(cache.cpu_partial_slabs(), None);
    }

    #[test]
    fn cpu_partial_lists_by_cpu() {
        let lists = |text: &str| {
            let mut cache = CacheAttributes::default();
            cache.set("slabs_cpu_partial", text);
            cache.cpu_partial_lists()
        };
        let two = BTreeMap::from([(0, 3), (12, 6)]);
        assert_eq!(lists("72(9) C0=24(3) C12=48(6)\n"), Some(two));
        assert_eq!(lists("0(0)"), Some(BTreeMap::new()));
        assert_eq!(lists("8(1)"), Some(BTreeMap::from([(0, 1)])));
        for bad in ["", "9", "72(9) N0=24(3)", "72(9) C0=24", "72(9) Cx=24(3)"] {
            assert_eq!(lists(bad), None, "{bad}");
        }
        assert_eq!(CacheAttributes::default().cpu_partial_lists(), None);
    }
}
