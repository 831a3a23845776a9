//! Facts about a snapshot's machine, each with its origin: a guess is never taken for a fact.

use std::fmt;

use quarry_core::era::Era;
use quarry_sim::PAGE_BYTES;

use crate::slabinfo::SlabinfoRow;

/// Origin of a fact.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// A file says so: its name.
    Told(String),
    /// It follows from something else: the reason.
    Inferred(String),
    /// The user said so.
    Asked,
    /// Nothing says it.
    #[default]
    Unknown,
}

impl Origin {
    /// True if a file or the user said so.
    #[must_use]
    pub fn is_fact(&self) -> bool {
        matches!(self, Self::Told(_) | Self::Asked)
    }

    /// The reason of a guess.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Inferred(reason) => Some(reason),
            _ => None,
        }
    }

    pub(crate) fn told(source: &str) -> Self {
        Self::Told(source.to_string())
    }

    pub(crate) fn inferred(reason: impl Into<String>) -> Self {
        Self::Inferred(reason.into())
    }
}

/// Origins of the facts that a [`Snapshot`](crate::Snapshot) has about its machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Origin of the release. An inferred one is a range, in [`Snapshot::releases`](crate::Snapshot::releases).
    pub release: Origin,
    /// Origin of the number of CPUs that are present.
    pub present_cpus: Origin,
    /// Origin of the number of possible CPUs.
    pub nr_cpu_ids: Origin,
    /// Origin of the page size.
    pub page_bytes: Origin,
    /// Origin of the architecture.
    pub architecture: Origin,
    /// Origin of the machine's memory.
    pub memory: Origin,
    /// Origin of the command line.
    pub cmdline: Origin,
}

/// Releases that a kernel can be of, from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Releases {
    /// The oldest.
    pub first: Era,
    /// The newest.
    pub last: Era,
}

impl Releases {
    /// True if the release is one of them.
    #[must_use]
    pub fn contains(&self, release: Era) -> bool {
        (self.first..=self.last).contains(&release)
    }
}

impl fmt::Display for Releases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.first == Era::FIRST, self.last == Era::LAST) {
            (true, _) => write!(f, "{} or earlier", self.last),
            (_, true) => write!(f, "{} or later", self.first),
            _ => write!(f, "{} to {}", self.first, self.last),
        }
    }
}

/// The page size by how full slabs are: with the right one most have as many objects as fit, with another hardly any. SLAB
/// keeps lists in some. With the reason.
pub(crate) fn page_bytes_of(rows: &[SlabinfoRow]) -> Option<(u64, String)> {
    const CACHES_MIN: usize = 8;
    let rows: Vec<&SlabinfoRow> = rows.iter().filter(|row| row.objsize > 0).collect();
    let full = |page: u64| {
        let is_full = |row: &&&SlabinfoRow| {
            row.pagesperslab.saturating_mul(page) / row.objsize == row.objperslab
        };
        rows.iter().filter(is_full).count()
    };
    let mut counts = PAGE_BYTES.map(|page| (full(page), page));
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let [(most, page), (next, _), ..] = counts;
    let reason = format!(
        "{most} of {} caches have slabs that are full with it",
        rows.len()
    );
    (most >= CACHES_MIN && most * 2 > rows.len() && next * 2 < most).then_some((page, reason))
}

/// A name of caches that dates a kernel.
struct Name {
    is: fn(&str) -> bool,
    first: Era,
    last: Era,
}

/// General caches below 1 KiB have had the same names since SLUB has them.
const NAMES: [Name; 10] = [
    Name {
        is: |name| {
            let size = name.strip_prefix("size-").unwrap_or_default();
            size.starts_with(|c: char| c.is_ascii_digit())
        },
        first: Era::FIRST,
        last: Era::V3_9,
    },
    Name {
        is: |name| matches!(kmalloc_size(name), Some("1024" | "2048" | "4096" | "8192")),
        first: Era::FIRST,
        last: Era::V4_19,
    },
    Name {
        is: |name| matches!(kmalloc_size(name), Some("1k" | "2k" | "4k" | "8k")),
        first: Era::V4_20,
        last: Era::LAST,
    },
    Name {
        is: |name| name.starts_with("kmalloc-rcl-"),
        first: Era::V4_20,
        last: Era::LAST,
    },
    Name {
        is: |name| name.starts_with("kmalloc-cg-"),
        first: Era::V5_14,
        last: Era::LAST,
    },
    Name {
        is: |name| name.starts_with("kmalloc-rnd-"),
        first: Era::V6_6,
        last: Era::LAST,
    },
    // kernfs took the place of sysfs' own nodes in 3.14; classes of DMA were renamed with those of SLAB.
    Name {
        is: |name| name == "sysfs_dir_cache",
        first: Era::FIRST,
        last: Era::V3_13,
    },
    Name {
        is: |name| name == "kernfs_node_cache",
        first: Era::V3_14,
        last: Era::LAST,
    },
    Name {
        is: |name| name.starts_with("kmalloc_dma-"),
        first: Era::FIRST,
        last: Era::V3_9,
    },
    Name {
        is: |name| name == "idr_layer_cache",
        first: Era::FIRST,
        last: Era::V4_10,
    },
];

/// Size in the name of a general cache, such as `1024` of `kmalloc-1024`.
fn kmalloc_size(name: &str) -> Option<&str> {
    name.strip_prefix("dma-")
        .unwrap_or(name)
        .strip_prefix("kmalloc-")
}

/// Releases that the names of caches allow, with the reason. SLAB's tunables allow 6.7 at the latest, and 3.10 at the
/// earliest if its general caches are named as SLUB's.
pub(crate) fn releases_of(rows: &[SlabinfoRow]) -> Option<(Releases, String)> {
    let mut range = Releases {
        first: Era::FIRST,
        last: Era::LAST,
    };
    let (mut from, mut until) = (None, None);
    let mut narrow = |first: Era, last: Era, name: &str| {
        if first > range.first {
            (range.first, from) = (first, Some(name.to_string()));
        }
        if last < range.last {
            (range.last, until) = (last, Some(name.to_string()));
        }
    };
    let slab = rows.iter().any(|row| row.limit > 0);
    if slab {
        narrow(Era::FIRST, Era::V6_7, "SLAB's tunables");
    }
    for row in rows {
        for name in NAMES.iter().filter(|name| (name.is)(&row.name)) {
            narrow(name.first, name.last, &row.name);
        }
        if slab && kmalloc_size(&row.name).is_some() {
            narrow(Era::V3_10, Era::LAST, &row.name);
        }
    }
    let reason = match (from, until) {
        (None, None) => return None,
        (Some(from), Some(until)) if from != until => {
            format!(
                "{from} is {} or later, {until} {} or earlier",
                range.first, range.last
            )
        }
        (Some(name), _) | (_, Some(name)) => format!("{name} is {range}"),
    };
    // Vendors mix releases.
    (range.first <= range.last).then_some((range, reason))
}

/// The first name that a release does not have, with the releases that have it. A kernel that has SLAB's tunables and one
/// after it are such, too.
pub(crate) fn not_of(rows: &[SlabinfoRow], era: Era) -> Option<(&str, Releases)> {
    let tunables = Releases {
        first: Era::FIRST,
        last: Era::V6_7,
    };
    let has_tunables = rows.iter().any(|row| row.limit > 0);
    let of_names = rows.iter().flat_map(|row| {
        let names = NAMES.iter().filter(|name| (name.is)(&row.name));
        names.map(|name| {
            let (first, last) = (name.first, name.last);
            (row.name.as_str(), Releases { first, last })
        })
    });
    let of_slab = has_tunables.then_some(("a cache with SLAB's tunables", tunables));
    let mut all = of_names.chain(of_slab);
    all.find(|(_, releases)| !releases.contains(era))
}

/// Caches that must have the same number of slabs to take it for the number of CPUs.
const SAME_MIN: usize = 12;
/// Smaller numbers of slabs are common for other reasons.
const CPUS_MIN: u64 = 4;

/// Number of CPUs that slabs suggest: of a cache in light use SLUB has one slab for each CPU, and counts it as full.
pub(crate) fn cpus_of(rows: &[SlabinfoRow]) -> Option<(u32, String)> {
    if is_smp(rows) {
        // SLAB's CPUs hold objects, not slabs.
        return None;
    }
    let mut slabs: Vec<u64> = rows
        .iter()
        .filter(|row| row.active_objs == row.num_objs && row.num_slabs >= CPUS_MIN)
        .map(|row| row.num_slabs)
        .collect();
    slabs.sort_unstable();
    let mut runs: Vec<(usize, u64)> = slabs
        .chunk_by(|a, b| a == b)
        .map(|run| (run.len(), run[0]))
        .collect();
    runs.sort_unstable_by(|a, b| b.cmp(a));
    let &(caches, cpus) = runs.first()?;
    let next = runs.get(1).map_or(0, |(caches, _)| *caches);
    let clear = caches >= SAME_MIN && caches >= 3 * next;
    let cpus = u32::try_from(cpus).ok().filter(|_| clear)?;
    Some((cpus, format!("{caches} caches have exactly {cpus} slabs")))
}

/// True if SLAB's tunables show an array that CPUs share: the kernel runs on several.
pub(crate) fn is_smp(rows: &[SlabinfoRow]) -> bool {
    rows.iter().any(|row| row.sharedfactor > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(names: &[&str]) -> Vec<SlabinfoRow> {
        let row = |name: &&str| SlabinfoRow {
            name: (*name).to_string(),
            ..SlabinfoRow::default()
        };
        names.iter().map(row).collect()
    }

    fn range(names: &[&str]) -> Option<String> {
        releases_of(&rows(names)).map(|(range, _)| range.to_string())
    }

    #[test]
    fn names_date_kernels() {
        let some = |text: &str| Some(text.to_string());
        assert_eq!(range(&["dentry", "kmalloc-512"]), None);
        assert_eq!(range(&["kmalloc-1024"]), some("4.19 or earlier"));
        assert_eq!(range(&["dma-kmalloc-8192"]), some("4.19 or earlier"));
        assert_eq!(range(&["kmalloc-1k"]), some("4.20 or later"));
        assert_eq!(range(&["kmalloc-cg-64"]), some("5.14 or later"));
        assert_eq!(
            range(&["kmalloc-1k", "kmalloc-rnd-01-96"]),
            some("6.6 or later")
        );
        assert_eq!(range(&["size-1024(DMA)"]), some("3.9 or earlier"));
        assert_eq!(range(&["size-of-things"]), None);
        assert_eq!(
            range(&["kmalloc-1024", "idr_layer_cache"]),
            some("4.10 or earlier")
        );
        assert_eq!(range(&["sysfs_dir_cache"]), some("3.13 or earlier"));
        assert_eq!(
            range(&["kernfs_node_cache", "kmalloc-1024"]),
            some("3.14 to 4.19")
        );
        assert_eq!(range(&["kmalloc_dma-512"]), some("3.9 or earlier"));
        // Names of different times contradict each other.
        assert_eq!(range(&["kmalloc-1024", "kmalloc-cg-64"]), None);
    }

    #[test]
    fn tunables_of_slab_date_kernels() {
        let mut slab = rows(&["kmalloc-192", "kmalloc-1k"]);
        slab[0].limit = 120;
        let (range, reason) = releases_of(&slab).unwrap();
        assert_eq!(range.to_string(), "4.20 to 6.7");
        let expected = "kmalloc-1k is 4.20 or later, SLAB's tunables 6.7 or earlier";
        assert_eq!(reason, expected);
        assert!(range.contains(Era::V5_4) && !range.contains(Era::V6_8));
    }

    #[test]
    fn caches_with_a_slab_for_each_cpu() {
        let row = |slabs: u64| SlabinfoRow {
            num_slabs: slabs,
            active_objs: slabs * 32,
            num_objs: slabs * 32,
            ..SlabinfoRow::default()
        };
        let mut rows: Vec<_> = (0..22).map(|_| row(80)).collect();
        rows.extend((0..40).map(|_| row(1)));
        rows.extend((0..7).map(|_| row(81)));
        let (cpus, reason) = cpus_of(&rows).unwrap();
        assert_eq!(
            (cpus, reason.as_str()),
            (80, "22 caches have exactly 80 slabs")
        );
        // Too few, or another number is about as common.
        assert_eq!(cpus_of(&rows[12..]), None);
        rows.push(row(81));
        assert_eq!(cpus_of(&rows), None);
        let mut slab = rows[..22].to_vec();
        assert!(cpus_of(&slab).is_some() && !is_smp(&slab));
        slab[0].sharedfactor = 8;
        assert!(cpus_of(&slab).is_none() && is_smp(&slab));
    }
}
