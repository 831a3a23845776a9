//! Alignment and flags of a recorded cache, inferred from its sizes.
//!
//! A trace tells how many bytes an object has and how many were set aside (`bytes_alloc`, the
//! distance between objects), not why. The candidates of [`infer`] are tried in order, plainest
//! first, until the slot layout of the recorded kernel gives exactly the recorded distance. The
//! answer is a cause that explains the size, not necessarily the kernel's own: what it decides,
//! the size on other page sizes and eras, is the same for all causes that explain it by padding.

use std::ops::RangeInclusive;

use quarry_core::era::Era;
use quarry_core::geometry::{CacheFlags, CacheParams, MachineParams};
use quarry_core::sheaf::geometry::sheaf_era;
use quarry_core::slub::geometry::{self as slub, SlubEra, layout, slub_era};

/// Parameters with which a cache is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inferred {
    /// Bytes of an object.
    pub object_size: u32,
    /// Alignment in bytes; 0 for the default.
    pub align: u32,
    /// Flags.
    pub flags: CacheFlags,
}

impl Inferred {
    /// Returns it as what geometries are computed from.
    pub(crate) fn params(&self) -> CacheParams {
        CacheParams::new(self.object_size)
            .with_align(self.align)
            .with_flags(self.flags)
    }
}

/// Cache lines that machines have.
const LINES: [u32; 2] = [64, 128];

/// The kernel that a trace was recorded on, as the layout needs it.
#[derive(Clone, Copy)]
pub struct Recorded {
    release: Era,
    slub: &'static SlubEra,
    page_shift: u32,
}

impl Recorded {
    /// Rules of a kernel release such as `6.18.44-fc-v669` at a page size. The layout is SLUB's, or of the
    /// slabs below sheaves; the newest SLUB's if the release is not known.
    #[must_use]
    pub fn new(release: Option<&str>, page_bytes: u32) -> Self {
        let newest = *slub::RELEASES.end();
        let release = release.and_then(Era::parse).unwrap_or(newest);
        let below = || sheaf_era(release).map(|era| &era.slub);
        let slub = slub_era(release).or_else(below);
        let page_shift = page_bytes.max(1).ilog2().clamp(12, 16);
        Self {
            release,
            slub: slub.unwrap_or(&slub::ERAS[0]),
            page_shift,
        }
    }

    /// The release.
    #[must_use]
    pub fn era(&self) -> Era {
        self.release
    }

    fn slab_size(&self, cache_line: u32, params: &CacheParams) -> u32 {
        let machine = MachineParams {
            page_shift: self.page_shift,
            nr_cpus: 1,
            cache_line,
        };
        layout(self.slub.align, &self.slub.layout, &machine, params).size
    }
}

/// Alignment and flags with which objects of `object_size` bytes lie `slab_size` bytes apart.
///
/// In this order: word alignment; cache-line alignment; alignment to 16 or 32 bytes; a free pointer
/// outside of the object (a constructor, or RCU); that with cache-line alignment; alignment to cache
/// lines of 128 bytes instead of 64; another alignment from 64 to 4096; a free pointer outside with
/// lines of 128 bytes. If nothing fits, a plain cache of objects of `slab_size` bytes.
#[must_use]
pub fn infer(recorded: &Recorded, object_size: u32, slab_size: u32) -> Inferred {
    let plain = CacheParams::new(object_size).with_align(8);
    let hwcache = plain.with_flags(CacheFlags::HWCACHE_ALIGN);
    let ctor = plain.with_flags(CacheFlags::CTOR);
    let both = plain.with_flags(CacheFlags::CTOR | CacheFlags::HWCACHE_ALIGN);
    let [line, long_line] = LINES;
    let aligned =
        |shifts: RangeInclusive<u32>| shifts.map(move |shift| (line, plain.with_align(1 << shift)));
    let candidates = [(line, plain), (line, hwcache)]
        .into_iter()
        .chain(aligned(4..=5))
        .chain([(line, ctor), (line, both), (long_line, hwcache)])
        .chain(aligned(6..=12))
        .chain([(long_line, both)]);
    // Most caches are one of the first three; each later candidate explains a size only by chance if an earlier one does.
    let possible = object_size > 0 && object_size <= slab_size && slab_size <= 1 << 22;
    let found = candidates
        .filter(|_| possible)
        .find(|(line, params)| recorded.slab_size(*line, params) == slab_size)
        .map_or(
            CacheParams::new(object_size.max(slab_size)).with_align(8),
            |(_, params)| params,
        );
    Inferred {
        object_size: found.object_size,
        align: found.align,
        flags: found.flags,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(release: &str, page_bytes: u32, rows: &[(&str, u32, u32, u32, CacheFlags)]) {
        let recorded = Recorded::new(Some(release), page_bytes);
        for (name, object_size, slab_size, align, flags) in rows {
            let found = infer(&recorded, *object_size, *slab_size);
            let expected = Inferred {
                object_size: *object_size,
                align: *align,
                flags: *flags,
            };
            assert_eq!(found, expected, "{name}");
        }
    }

    const NONE: CacheFlags = CacheFlags::NONE;
    const HWCACHE: CacheFlags = CacheFlags::HWCACHE_ALIGN;
    const CTOR: CacheFlags = CacheFlags::CTOR;

    #[test]
    fn caches_of_6_18() {
        check(
            "6.18.44-fc-v669",
            4096,
            &[
                ("dentry", 192, 192, 8, NONE),
                ("anon_vma_chain", 64, 64, 8, NONE),
                ("seq_file", 120, 120, 8, NONE),
                ("buffer_head", 104, 104, 8, NONE),
                ("filp", 184, 192, 8, HWCACHE),
                ("skbuff_head_cache", 224, 256, 8, HWCACHE),
                ("task_struct", 5840, 5888, 8, HWCACHE),
                ("mm_struct", 1568, 1600, 8, HWCACHE),
                ("anon_vma", 96, 104, 8, CTOR),
                ("radix_tree_node", 576, 584, 8, CTOR),
                ("proc_inode_cache", 688, 696, 8, CTOR),
                ("TCP", 2304, 2368, 8, CTOR | HWCACHE),
                ("names_cache", 4096, 4096, 8, NONE),
            ],
        );
    }

    /// A constructor and lines of 64 bytes explain more than lines of 128 bytes, which x86 has not.
    #[test]
    fn a_constructor_before_long_lines() {
        check(
            "6.1.192",
            4096,
            &[("sock_inode_cache", 704, 768, 8, CTOR | HWCACHE)],
        );
    }

    /// Lines of 128 bytes: a cache that pads to them is still one that asks for line alignment.
    #[test]
    fn caches_of_ppc64() {
        check(
            "6.1.0-50-powerpc64le",
            65536,
            &[
                ("filp", 232, 256, 8, HWCACHE),
                ("sighand_cache", 2080, 2176, 8, HWCACHE),
                ("task_struct", 4992, 4992, 8, NONE),
                ("sock_inode_cache", 896, 1024, 256, NONE),
                ("inode_cache", 704, 712, 8, CTOR),
                ("signal_cache", 1152, 1152, 8, NONE),
            ],
        );
    }

    #[test]
    fn alignments_beyond_the_line_and_no_explanation() {
        check("6.1.0", 4096, &[("aligned", 4900, 5120, 256, NONE)]);
        let recorded = Recorded::new(None, 4096);
        assert_eq!(recorded.era(), Era::V6_19);
        let odd = infer(&recorded, 100, 1000);
        assert_eq!((odd.object_size, odd.align, odd.flags), (1000, 8, NONE));
        // Contradictory sizes make a cache that holds both.
        assert_eq!(infer(&recorded, 100, 10).object_size, 100);
        assert_eq!(infer(&recorded, 100, 0).object_size, 100);
        assert_eq!(infer(&recorded, u32::MAX, u32::MAX).object_size, u32::MAX);
    }

    #[test]
    fn releases_find_their_era() {
        for (release, era) in [
            ("6.18.44-fc-v669", Era::V6_18),
            ("6.12.3", Era::V6_12),
            ("6.1.0-50-amd64", Era::V6_1),
            ("5.10", Era::V5_10),
            ("4.14.1", Era::V4_14),
            ("2.6.23", Era::V2_6_23),
            ("2.6.18", Era::V6_19),
            ("7.1.0", Era::V7_1),
        ] {
            assert_eq!(Recorded::new(Some(release), 4096).era(), era, "{release}");
        }
    }
}
