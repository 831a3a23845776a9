//! Differences between two kernels that are known to change memory and are not computed: they widen the bounds, and the
//! prediction names them.
//!
//! | from | to | bytes | source |
//! |---|---|---|---|
//! | 3.8 to 5.8: memory groups have caches of their own | 5.9: all groups share a cache's slabs | -45 to 0 %, of each cache too | the series' author: 30 to 45 % less, 650 to 700 MB on a web front end |
//! | before 5.9: a page names its group | 5.9: a slab of accounted objects has a vector with a word for each | 0 to 8 for each object | the vector's element |
//! | 5.9 to 6.19: the vector is a kmalloc object | 7.0: it may lie in what a slab leaves over | -8 to 0 for each object | messages of the series |
//! | to 6.4 on arm64: the smallest kmalloc class is of 128 bytes | 6.5: of 8 | the class of 128 down to a sixteenth | published: 38.9 to 22.3 MB |
//! | before 6.6: each file of a trace event has an inode and a dentry from boot on | 6.6: when it is used | 0 to 10,000 inodes and dentries less | published: 9 MB for 10,000 files; one load on 6.1 and 6.12: 8,800 inodes less |
//! | any | the same before 6.6: events are added | 250 inodes and dentries more for each release | one load on 5.10 and 6.1: 2,350 inodes more |
//! | SLAB whose `kmem_cache` has a pointer for each possible CPU | any: it may have none | all of `kmem_cache` less | 4,096 CPUs take 32 KiB of each object |
//! | any | any: objects have other sizes, and caches come and go | 0.5 % for each release between | boots of one machine: +4.5 % by sizes and +2.9 % by new caches from 6.1 to 6.17, -0.5 to +0.9 % for each step from there to 7.3 |
//! | a page size | another one | 20 % | 16 pairs of boots on arm64 and ppc64: -20 to +12 % of what was expected |
//! | a kernel | any other, also of the release | 7 % | two boots of one machine differ by -3.2 to +4.2 % (ppc64el, 7 stages), and by up to 6.3 % (14 pairs in 7 stages: x86-64, 6.17 to 7.3, 2 and 8 CPUs) |
//!
//! The way back has the reverse. Sizes of nine of ten caches changed by 11 % from 6.1 to 6.17, by 6 % from there to 7.0
//! and from 7.0 to 7.2: a cache's own bounds are wider by 2 % for each release, by 30 % at most.

use quarry_core::era::Era;
use schemars::JsonSchema;
use serde::Serialize;

use quarry_snapshot::Snapshot;

use super::Prediction;
use crate::kernel::names::{is_arm64, kmalloc_class};
use crate::on::vectors::ACCOUNT_BYTES;
use crate::unknown::{NORMAL, Spread};

/// A difference that is not computed and is in the bounds.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Unmodelled {
    /// The difference.
    pub what: String,
    /// Bytes that it may take away of those expected; `low_bytes` is lower by the same part.
    pub less_bytes: u64,
    /// Bytes that it may add; they are in `high_bytes`.
    pub more_bytes: u64,
}

/// Least part that was left when groups began to share slabs.
const SHARED_BY_GROUPS: f64 = 0.55;
/// Smallest kmalloc class of arm64 while it was the size of a line for DMA, and afterwards.
const ARM64_SMALLEST: [u64; 2] = [128, 8];
/// Files of trace events that a kernel has, and those that a release added.
const EVENT_FILES: u64 = 10_000;
const EVENT_FILES_OF_A_RELEASE: u64 = 250;
/// Caches with an object for each of these files.
const OF_EVENT_FILES: [&str; 3] = ["inode_cache", "dentry", "lsm_inode_cache"];
/// Bytes of a `kmem_cache` that has no array of CPUs at most.
const KMEM_CACHE: u64 = 1024;
/// Part of the memory by which sizes and new caches may change it with each release.
const OF_ALL: f64 = 0.005;
/// The same of a cache, and the most.
const OF_A_CACHE: (f64, f64) = (0.02, 0.3);

/// Part by which another page size may change what is expected: 4, 16 and 64 KiB on arm64 and ppc64, at boot.
const OF_PAGES: f64 = 0.2;

/// Part by which two boots of one machine differ at most.
const OF_A_BOOT: f64 = 0.07;
/// The same of all caches in common: the standard deviation beside what each has of its own (`tests/boots/releases.rs` measures it).
const COMMON_OF_A_BOOT: f64 = 0.016;
/// Slabs of a cache by which two boots differ: the standard deviation, in roots of the slabs that it has, up to a number.
const SLABS_OF_A_BOOT: f64 = 0.4;
const SLABS_MAX: u64 = 32;

/// Two releases, and what is known of the machine.
pub(crate) struct Step<'a> {
    pub(crate) from: Era,
    pub(crate) to: Era,
    pub(crate) snapshot: &'a Snapshot,
}

impl Step<'_> {
    /// Widens the bounds of a prediction by what is not computed. `reboots` tells whether another boot is asked for.
    pub(crate) fn widen(&self, told: &mut Prediction, reboots: bool) {
        let changes = told.caches.iter().any(|cache| !cache.stays());
        let is_other = self.from != self.to;
        let low = |told: &Prediction| told.sum(|cache| cache.bytes.low_bytes);
        let needed = told.sum(|cache| cache.needed_bytes);
        let mut gone: u64 = 0;
        if is_other {
            let before = low(told);
            if let Some(places) = self.memory_groups(told) {
                told.bytes.low_bytes = told
                    .bytes
                    .low_bytes
                    .saturating_sub(before.saturating_sub(low(told)));
                told.add(places);
            }
            let objects = [
                self.vectors(told),
                self.smallest_class(told),
                self.event_files(),
                self.own_caches(),
            ];
            for objects in objects.into_iter().flatten() {
                gone = gone.saturating_add(objects.less_bytes);
                told.lower(&objects);
                told.add(objects);
            }
            let sizes = self.sizes(told);
            told.lower(&sizes);
            told.unmodelled.push(sizes);
        }
        if told.page_size != self.snapshot.page_bytes {
            let pages = Unmodelled::even(
                "objects and buffers that are as many or as large as pages are: 16 pairs of boots are known, 20 % off at most",
                part(told.bytes.predicted_bytes, OF_PAGES),
            );
            told.lower(&pages);
            told.add(pages);
        }
        if changes || is_other || reboots {
            let boot = another_boot(told);
            told.lower(&boot);
            told.unmodelled.push(boot);
        }
        let more = told.unmodelled.iter().map(|one| one.more_bytes);
        told.bytes.high_bytes = more.fold(told.bytes.high_bytes, u64::saturating_add);
        // The same objects need as much, packed.
        let needed = needed.saturating_sub(gone).min(told.bytes.predicted_bytes);
        told.bytes.low_bytes = told.bytes.low_bytes.max(needed);
    }

    /// True if the step comes to `first` or a later release from an earlier one; false if it is the way back. `None` if
    /// it does neither.
    fn crosses(&self, first: Era) -> Option<bool> {
        match (self.from >= first, self.to >= first) {
            (false, true) => Some(true),
            (true, false) => Some(false),
            _ => None,
        }
    }

    fn memory_groups(&self, told: &mut Prediction) -> Option<Unmodelled> {
        let shared = self.crosses(Era::V5_9)?;
        let older = self.from.min(self.to);
        // The kernel's parameters say that there are no groups.
        let is_off = |parameter: &str, word: &str| {
            let names = [parameter];
            let mut values = self.snapshot.boot_values(&names);
            values.any(|value| value.split(',').any(|part| part == word))
        };
        let off = is_off("cgroup_disable", "memory") || is_off("cgroup.memory", "nokmem");
        if older < Era::V3_8 || off {
            return None;
        }
        let (factors, way) = match shared {
            true => ((SHARED_BY_GROUPS, 1.0), "less"),
            false => (
                (1.0, 1.0 / SHARED_BY_GROUPS),
                "more, seen from the later release",
            ),
        };
        for cache in &mut told.caches {
            cache.scale_bounds(factors);
            cache.bytes.low_bytes = cache.bytes.low_bytes.max(cache.needed_bytes);
        }
        Some(Unmodelled {
            what: format!(
                "memory groups' own caches, which 3.8 to 5.8 have and 5.9 has not: published is 30 to 45 % {way}"
            ),
            less_bytes: part(told.bytes.predicted_bytes, 1.0 - factors.0),
            more_bytes: part(told.bytes.predicted_bytes, factors.1 - 1.0),
        })
    }

    fn vectors(&self, told: &Prediction) -> Option<Unmodelled> {
        let objects = told.sum(|cache| cache.objects);
        let bytes = objects.saturating_mul(ACCOUNT_BYTES);
        let what = |change: &str| {
            format!("accounting vectors {change}: up to {ACCOUNT_BYTES} bytes for each object")
        };
        let (what, is_more) = match (self.crosses(Era::V5_9), self.crosses(Era::V7_0)) {
            // They may come and lie in the slabs at once.
            (Some(came), _) => (what("of accounted objects, from 5.9 on"), came),
            (None, Some(inside)) => (what("inside of slabs, from 7.0 on"), !inside),
            (None, None) => return None,
        };
        Some(Unmodelled {
            what,
            less_bytes: if is_more { 0 } else { bytes },
            more_bytes: if is_more { bytes } else { 0 },
        })
    }

    fn smallest_class(&self, told: &mut Prediction) -> Option<Unmodelled> {
        let smaller = self
            .crosses(Era::V6_5)
            .filter(|_| is_arm64(self.snapshot))?;
        let [old, new] = ARM64_SMALLEST;
        let (mut less_bytes, mut more_bytes) = (0, 0);
        for cache in &mut told.caches {
            match kmalloc_class(&cache.name) {
                Some((_, bytes)) if smaller && bytes == old => {
                    let low = cache.bytes.low_bytes;
                    cache.scale_bounds((new as f64 / old as f64, 1.0));
                    less_bytes += low.saturating_sub(cache.bytes.low_bytes);
                }
                Some((_, bytes)) if !smaller && bytes < old => {
                    let high = cache.bytes.high_bytes;
                    cache.scale_bounds((1.0, old as f64 / bytes.max(1) as f64));
                    more_bytes += cache.bytes.high_bytes.saturating_sub(high);
                }
                _ => {}
            }
        }
        Some(Unmodelled {
            what: "the smallest kmalloc class of arm64: 128 bytes to 6.4, 8 from 6.5 on (published: 38.9 to 22.3 MB)"
                .to_string(),
            less_bytes,
            more_bytes,
        })
    }

    /// SLAB's `kmem_cache` has an array for each possible CPU; that of other designs is smaller.
    fn own_caches(&self) -> Option<Unmodelled> {
        let row = self.snapshot.slabinfo.row("kmem_cache")?;
        let is_large = row.limit > 0 && row.objsize > KMEM_CACHE;
        is_large.then(|| Unmodelled {
            what: "kmem_cache, whose objects have an array for each possible CPU in SLAB"
                .to_string(),
            less_bytes: row.slab_bytes(self.snapshot.page_bytes),
            more_bytes: 0,
        })
    }

    /// Files of trace events; other releases have others.
    fn event_files(&self) -> Option<Unmodelled> {
        let rows = &self.snapshot.slabinfo;
        let inodes = rows.row(OF_EVENT_FILES[0])?.active_objs;
        let bytes = OF_EVENT_FILES.iter().filter_map(|name| rows.row(name));
        let bytes: u64 = bytes.map(|row| row.objsize).sum();
        let (less, more) = match self.crosses(Era::V6_6) {
            Some(true) => (EVENT_FILES.min(inodes), 0),
            Some(false) => (0, EVENT_FILES),
            None if self.from >= Era::V6_6 => return None,
            None => {
                let releases = (self.from as u64).abs_diff(self.to as u64);
                let files = EVENT_FILES_OF_A_RELEASE * releases;
                match self.from < self.to {
                    true => (0, files),
                    false => (files.min(inodes), 0),
                }
            }
        };
        Some(Unmodelled {
            what: "inodes and dentries of trace events' files, which kernels before 6.6 make when they boot"
                .to_string(),
            less_bytes: less.saturating_mul(bytes),
            more_bytes: more.saturating_mul(bytes),
        })
    }

    fn sizes(&self, told: &mut Prediction) -> Unmodelled {
        let releases = (self.from as u8).abs_diff(self.to as u8);
        let of_a_cache = (OF_A_CACHE.0 * f64::from(releases)).min(OF_A_CACHE.1);
        for cache in &mut told.caches {
            cache.scale_bounds((1.0 - of_a_cache, 1.0 + of_a_cache));
            let bytes = part(cache.bytes.predicted_bytes, of_a_cache);
            cache.spread.add(Spread::even(bytes as f64));
        }
        let bytes = part(told.bytes.predicted_bytes, OF_ALL * f64::from(releases));
        told.spread = told.spread.beside(Spread::even(bytes as f64));
        let plural = if releases == 1 { "" } else { "s" };
        Unmodelled::even(
            format!(
                "objects of other sizes, caches that came or went, in {releases} release{plural}"
            ),
            bytes,
        )
    }
}

impl Unmodelled {
    /// A difference that may take away as much as add.
    fn even(what: impl Into<String>, bytes: u64) -> Self {
        Self {
            what: what.into(),
            less_bytes: bytes,
            more_bytes: bytes,
        }
    }
}

impl Prediction {
    /// Lowers the bound by the part that a difference may take away of what is expected.
    fn lower(&mut self, unmodelled: &Unmodelled) {
        let stays = 1.0 - unmodelled.less_bytes as f64 / self.bytes.predicted_bytes.max(1) as f64;
        self.bytes.low_bytes = (self.bytes.low_bytes as f64 * stays.max(0.0)).round() as u64;
    }

    /// Names a difference that nothing is known of but its ends.
    fn add(&mut self, unmodelled: Unmodelled) {
        let [less, more] = [unmodelled.less_bytes, unmodelled.more_bytes];
        let spread = Spread::evenly(less as f64, more as f64);
        self.spread = self.spread.beside(spread);
        self.unmodelled.push(unmodelled);
    }
}

fn another_boot(told: &mut Prediction) -> Unmodelled {
    for cache in &mut told.caches {
        let slab_bytes = cache.pages_per_slab.saturating_mul(told.page_size);
        if let Some(slabs) = cache.bytes.predicted_bytes.checked_div(slab_bytes) {
            let slabs = NORMAL * SLABS_OF_A_BOOT * (slabs.min(SLABS_MAX) as f64).sqrt();
            cache
                .spread
                .add_chance(Spread::even(slabs * slab_bytes as f64));
        }
    }
    let common = NORMAL * COMMON_OF_A_BOOT * told.bytes.predicted_bytes as f64;
    told.chance = told.chance.beside(Spread::even(common));
    Unmodelled::even(
        "another boot: two of one machine differ by up to 7 %",
        part(told.bytes.predicted_bytes, OF_A_BOOT),
    )
}

fn part(bytes: u64, share: f64) -> u64 {
    (bytes as f64 * share).round() as u64
}
