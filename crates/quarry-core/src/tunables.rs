//! Tunables, declared once as data: names, ranges, defaults and where they exist.
//!
//! Parsing, help texts, error messages and generated documents are derived from [`TUNABLES`].
//! A *boot* tunable applies to every cache and is fixed when the system is built; a *cache* tunable
//! belongs to one cache and can be written while the cache is in use. Names are the kernel's.

use core::fmt;

use crate::era::Era;
use crate::sheaf::geometry::SHEAF_CAPACITY_MAX;
use crate::slubq::geometry::{QUEUE_MAX, QUEUE_MIN};

/// What a tunable belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// The system: a kernel boot parameter.
    Boot,
    /// One cache: a file in `/sys/kernel/slab/<cache>/`.
    Cache,
    /// One cache, by Quarry's own means: the era's kernel has no such file.
    Own,
    /// The page allocator: a file in `/proc/sys/vm/`.
    Sysctl,
}

/// What [`Availability::design`] says of the tunables of the page allocator.
pub const PAGE_ALLOCATOR: &str = "page";

/// A design and the eras in which it has a tunable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Availability {
    /// The design's name.
    pub design: &'static str,
    /// First era.
    pub from: Era,
    /// Last era.
    pub to: Era,
}

/// The value used when nothing is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DefaultValue {
    /// This value.
    Value(u64),
    /// It depends on the cache or the machine, as described.
    Computed(&'static str),
}

impl fmt::Display for DefaultValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DefaultValue::Value(value) => write!(f, "{value}"),
            DefaultValue::Computed(how) => f.write_str(how),
        }
    }
}

/// One tunable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tunable {
    /// The kernel's name.
    pub name: &'static str,
    /// A second spelling and the era from which the kernel takes it.
    pub alias: Option<(&'static str, Era)>,
    /// What it belongs to.
    pub scope: Scope,
    /// The designs and eras that have it.
    pub available: &'static [Availability],
    /// Smallest valid value.
    pub min: u64,
    /// Largest valid value.
    pub max: u64,
    /// What a value counts.
    pub unit: &'static str,
    /// The value when nothing is set.
    pub default: DefaultValue,
    /// What it does, in one sentence, and the kernel's symbol.
    pub doc: &'static str,
}

impl Tunable {
    /// Whether this design has it in this era.
    pub fn applies(&self, design: &str, era: Era) -> bool {
        self.available
            .iter()
            .any(|at| at.design == design && (at.from..=at.to).contains(&era))
    }

    /// Whether the kernel of this era takes this spelling of it.
    fn is_spelled(&self, name: &str, era: Era) -> bool {
        self.name == name
            || self
                .alias
                .is_some_and(|(alias, from)| alias == name && era >= from)
    }
}

const fn span(design: &'static str, from: Era, to: Era) -> Availability {
    Availability { design, from, to }
}

/// SLUB from a release on.
const fn slub_since(from: Era) -> Availability {
    span("slub", from, *crate::slub::geometry::RELEASES.end())
}

const SLUB_ALL: Availability = slub_since(Era::FIRST);
const SLUBQ: Availability = span("slubq", Era::V2_6_35, Era::V2_6_35);
const SLAB_ALL: Availability = span("slab", Era::FIRST, Era::V6_7);
const SHEAF: Availability = span("sheaf", Era::V6_18, Era::LAST);

/// The largest count that can still be doubled in 32 bits.
const COUNT_MAX: u64 = i32::MAX as u64;

/// Every tunable of the designs built here.
pub static TUNABLES: &[Tunable] = &[
    Tunable {
        name: "slub_min_order",
        alias: Some(("slab_min_order", Era::V6_9)),
        scope: Scope::Boot,
        available: &[SLUB_ALL, SLUBQ, SHEAF],
        min: 0,
        max: crate::geometry::PAGE_ORDER_MAX as u64,
        unit: "order",
        default: DefaultValue::Value(0),
        doc: "Lowest order of a slab, save for the object limit (slub_min_order).",
    },
    Tunable {
        name: "slub_max_order",
        alias: Some(("slab_max_order", Era::V6_9)),
        scope: Scope::Boot,
        available: &[SLUB_ALL, SLUBQ, SHEAF],
        min: 0,
        max: crate::geometry::PAGE_ORDER_MAX as u64,
        unit: "order",
        default: DefaultValue::Computed(
            "3 from 2.6.35 on; before, 1 with 4 KiB pages and 2 with larger ones",
        ),
        doc: "Highest order of a slab unless one object needs more (slub_max_order).",
    },
    Tunable {
        name: "slub_min_objects",
        alias: Some(("slab_min_objects", Era::V6_9)),
        scope: Scope::Boot,
        available: &[SLUB_ALL, SLUBQ, SHEAF],
        min: 0,
        max: 65535,
        unit: "objects",
        default: DefaultValue::Computed(
            "0: 4 * (fls(CPUs) + 1) from 2.6.35 on; \
             before, 4 with 4 KiB pages and 8 with larger ones",
        ),
        doc: "Objects that a slab should hold at least; 0 for the default (slub_min_objects).",
    },
    Tunable {
        name: "slab_max_order",
        alias: None,
        scope: Scope::Boot,
        available: &[span("slab", Era::V3_8, Era::V6_7)],
        min: 0,
        max: crate::geometry::PAGE_ORDER_MAX as u64,
        unit: "order",
        default: DefaultValue::Value(1),
        doc: "Highest order of a slab unless one object needs more (slab_max_order).",
    },
    Tunable {
        name: "slub_nomerge",
        alias: Some(("slab_nomerge", Era::V3_18)),
        scope: Scope::Boot,
        available: &[SLUB_ALL, SLUBQ],
        min: 0,
        max: 1,
        unit: "0 or 1",
        default: DefaultValue::Value(1),
        doc: "0: a new cache that an existing one can serve becomes its alias, as kernels do by \
              default; names in recordings are those after merging (slub_nomerge).",
    },
    Tunable {
        name: "slub_cpu_partial",
        alias: None,
        scope: Scope::Boot,
        available: &[slub_since(Era::V3_2)],
        min: 0,
        max: COUNT_MAX,
        unit: "objects",
        default: DefaultValue::Computed("by slab size, as cpu_partial"),
        doc: "Quarry's own: cpu_partial of every cache, as measured by the 64K-page report of 2020.",
    },
    Tunable {
        name: "slub_cpu_partial_by_size",
        alias: None,
        scope: Scope::Boot,
        available: &[span("slub", Era::V3_2, Era::V5_15)],
        min: 0,
        max: 1,
        unit: "0 or 1",
        default: DefaultValue::Value(0),
        doc: "Quarry's own: cpu_partial 1 from 8192 bytes and 2 from 4096 at any page size, \
              as that report proposed (set_cpu_partial()).",
    },
    Tunable {
        name: "order",
        alias: None,
        scope: Scope::Cache,
        available: &[span("slub", Era::V2_6_25, Era::V5_8)],
        min: 0,
        max: crate::geometry::PAGE_ORDER_MAX as u64,
        unit: "order",
        default: DefaultValue::Computed("calculate_order()"),
        doc: "Order of new slabs, or the nearest that holds an object; from slub_min_order to \
              slub_max_order (order_store()).",
    },
    Tunable {
        name: "slab_order",
        alias: None,
        scope: Scope::Own,
        available: &[SLUB_ALL],
        min: 0,
        max: crate::geometry::PAGE_ORDER_MAX as u64,
        unit: "order",
        default: DefaultValue::Computed("calculate_order()"),
        doc: "Quarry's own: order of slabs, or the nearest that holds an object; can be set \
              before the first slab.",
    },
    Tunable {
        name: "cpu_slabs_max",
        alias: None,
        scope: Scope::Own,
        available: &[SLUB_ALL],
        min: 1,
        max: COUNT_MAX,
        unit: "slabs",
        default: DefaultValue::Computed("1 until 2.6.35; from 4.13 on what cpu_partial allows"),
        doc: "Quarry's own, asked for in 2007: slabs a CPU may hold, its CPU slab among them; \
              writing cpu_partial undoes it.",
    },
    Tunable {
        name: "min_partial",
        alias: None,
        scope: Scope::Cache,
        available: &[slub_since(Era::V2_6_30), SHEAF],
        min: 0,
        max: COUNT_MAX,
        unit: "slabs",
        default: DefaultValue::Computed(
            "log2 of the slab size in 2.6.35, half of that from 4.13 on; within 5..=10",
        ),
        doc: "Slabs a node keeps on its partial list even if empty (set_min_partial()).",
    },
    Tunable {
        name: "cpu_partial",
        alias: None,
        scope: Scope::Cache,
        available: &[slub_since(Era::V3_2), span("sheaf", Era::V6_18, Era::V6_19)],
        min: 0,
        max: COUNT_MAX,
        unit: "objects",
        default: DefaultValue::Computed(
            "by slab size (a page, 1024, 256, less): \
             2, 6, 13, 30 until 5.9; 6, 24, 52, 120 from 6.1 on",
        ),
        doc: "Objects a CPU may hold on its list of partial slabs (slub_set_cpu_partial()).",
    },
    Tunable {
        name: "defrag_ratio",
        alias: None,
        scope: Scope::Cache,
        available: &[span("slub", Era::FIRST, Era::V2_6_24)],
        min: 0,
        max: 99,
        unit: "tens of 1/1024",
        default: DefaultValue::Value(10),
        doc: "How often an allocation looks at other nodes' partial lists (get_any_partial()).",
    },
    Tunable {
        name: "remote_node_defrag_ratio",
        alias: None,
        scope: Scope::Cache,
        available: &[slub_since(Era::V2_6_25), SLUBQ, SHEAF],
        min: 0,
        max: 100,
        unit: "tens of 1/1024",
        default: DefaultValue::Value(100),
        doc: "How often an allocation looks at other nodes' partial lists (get_any_partial()).",
    },
    Tunable {
        name: "cpu_queue_size",
        alias: None,
        scope: Scope::Cache,
        available: &[SLUBQ],
        min: QUEUE_MIN as u64,
        max: QUEUE_MAX as u64,
        unit: "objects",
        default: DefaultValue::Computed(
            "by slot size (above a page, 1024, 256, less): 8, 24, 54, 120",
        ),
        doc: "Objects a CPU's queue holds (cpu_queue_size).",
    },
    Tunable {
        name: "cpu_batch_size",
        alias: None,
        scope: Scope::Cache,
        available: &[SLUBQ],
        // The posted store refuses values below the queue size; its test is taken as inverted.
        min: QUEUE_MIN as u64,
        max: QUEUE_MAX as u64,
        unit: "objects",
        default: DefaultValue::Computed("half of the queue, rounded up"),
        doc: "Objects moved per refill or drain, at most the queue (cpu_batch_size).",
    },
    Tunable {
        name: "limit",
        alias: None,
        scope: Scope::Cache,
        available: &[SLAB_ALL],
        min: 1,
        // The kernel has no bound; this one keeps the arrays in the per-CPU range.
        max: QUEUE_MAX as u64,
        unit: "objects",
        default: DefaultValue::Computed(
            "by buffer size (above 128 KiB, a page, 1024, 256, less): 1, 8, 24, 54, 120",
        ),
        doc: "Objects a CPU's array holds (do_tune_cpucache()).",
    },
    Tunable {
        name: "batchcount",
        alias: None,
        scope: Scope::Cache,
        available: &[SLAB_ALL],
        min: 1,
        max: QUEUE_MAX as u64,
        unit: "objects",
        default: DefaultValue::Computed("half of the limit, rounded up"),
        doc: "Objects moved per refill or flush, at most the limit (do_tune_cpucache()).",
    },
    Tunable {
        name: "sharedfactor",
        alias: None,
        scope: Scope::Cache,
        available: &[SLAB_ALL],
        min: 0,
        // The kernel has no bound; above it no general object could hold the array.
        max: 1024,
        unit: "batches",
        default: DefaultValue::Computed("8 with more than one CPU and objects of up to a page"),
        doc: "Room of the array that a node's CPUs share (do_tune_cpucache()).",
    },
    Tunable {
        name: "shared_queue_size",
        alias: None,
        scope: Scope::Own,
        available: &[SLUBQ],
        min: 0,
        max: QUEUE_MAX as u64,
        unit: "objects",
        default: DefaultValue::Value(0),
        doc: "Objects in the queue that a node's CPUs share (shared_queue_size; S+Q3).",
    },
    Tunable {
        name: "alien_queue_size",
        alias: None,
        scope: Scope::Own,
        available: &[SLUBQ],
        min: 0,
        max: QUEUE_MAX as u64,
        unit: "objects",
        default: DefaultValue::Value(0),
        doc: "Objects in each queue of a node for objects of another node (alien_queue_size; S+Q3).",
    },
    Tunable {
        name: "idle_expiry",
        alias: None,
        scope: Scope::Own,
        available: &[SLUBQ],
        min: 0,
        max: 1,
        unit: "0 or 1",
        default: DefaultValue::Value(0),
        doc: "1: every 2 s, queues not used since the last time are drained, and their next refill \
              brings at most 16 objects (S+Q3).",
    },
    Tunable {
        name: "sheaf_capacity",
        alias: None,
        scope: Scope::Own,
        available: &[SHEAF],
        min: 0,
        max: SHEAF_CAPACITY_MAX as u64,
        unit: "objects",
        default: DefaultValue::Computed(
            "by slab size (a page, 1024, 256, less): 4, 12, 28, 60 in 7.0, or more if the \
             creator asks; in 6.18 what the creator asks",
        ),
        doc: "Objects a sheaf holds; 0 for no sheaves. Read-only in the kernel (sheaf_capacity).",
    },
    Tunable {
        name: "barn_full",
        alias: None,
        scope: Scope::Own,
        available: &[SHEAF],
        min: 0,
        max: COUNT_MAX,
        unit: "sheaves",
        default: DefaultValue::Value(10),
        doc: "Full sheaves a node keeps. A constant in the kernel (MAX_FULL_SHEAVES).",
    },
    Tunable {
        name: "barn_empty",
        alias: None,
        scope: Scope::Own,
        available: &[SHEAF],
        min: 0,
        max: COUNT_MAX,
        unit: "sheaves",
        default: DefaultValue::Value(10),
        doc: "Empty sheaves a node keeps. A constant in the kernel (MAX_EMPTY_SHEAVES).",
    },
    Tunable {
        name: "min_free_kbytes",
        alias: None,
        scope: Scope::Sysctl,
        available: &[span(PAGE_ALLOCATOR, Era::FIRST, Era::LAST)],
        min: 0,
        max: COUNT_MAX,
        unit: "KiB",
        default: DefaultValue::Computed(
            "0 for heaps; kernels take 4 times the root of the memory in KiB, within 128..=65536 \
             until 4.13 and within 128..=262144 from 5.9 on",
        ),
        doc: "Memory that allocations leave free, shared out to the zones as their min watermarks.",
    },
    Tunable {
        name: "percpu_pagelist_fraction",
        alias: None,
        scope: Scope::Sysctl,
        available: &[span(PAGE_ALLOCATOR, Era::FIRST, Era::V5_13)],
        min: 0,
        max: u32::MAX as u64,
        unit: "1/f of a zone",
        default: DefaultValue::Value(0),
        doc: "Part of a zone that each CPU may hold on its page lists; 0 for the default, else at \
              least 8 (percpu_pagelist_fraction).",
    },
    Tunable {
        name: "percpu_pagelist_high_fraction",
        alias: None,
        scope: Scope::Sysctl,
        available: &[span(PAGE_ALLOCATOR, Era::V5_14, Era::LAST)],
        min: 0,
        max: u32::MAX as u64,
        unit: "1/f of a zone",
        default: DefaultValue::Value(0),
        doc: "Part of a zone that all CPUs of its node may hold on their page lists, without \
              tuning; 0 for the default, else at least 8 (percpu_pagelist_high_fraction).",
    },
];

/// The tunables that this design has in this era.
pub fn tunables_of(design: &str, era: Era) -> impl Iterator<Item = &'static Tunable> + use<'_> {
    TUNABLES
        .iter()
        .filter(move |tunable| tunable.applies(design, era))
}

/// The tunable of this name or alias, whatever the design and era.
pub fn lookup(name: &str) -> Option<&'static Tunable> {
    TUNABLES
        .iter()
        .find(|tunable| tunable.is_spelled(name, Era::LAST))
}

/// Whether this design takes this value for this tunable in this era; gives the tunable.
///
/// # Errors
/// [`TunableError`], whose message lists the valid names or the valid range.
///
/// ```
/// use quarry_core::{era::Era, tunables::check};
/// assert!(check("slub", Era::V5_9, "cpu_partial", 30).is_ok());
/// assert!(check("slub", Era::V2_6_24, "cpu_partial", 30).is_err());
/// ```
pub fn check<'a>(
    design: &'a str,
    era: Era,
    name: &'a str,
    value: u64,
) -> Result<&'static Tunable, TunableError<'a>> {
    let Some(tunable) = tunables_of(design, era).find(|known| known.is_spelled(name, era)) else {
        return Err(TunableError::Unknown { design, era, name });
    };
    if !(tunable.min..=tunable.max).contains(&value) {
        return Err(TunableError::OutOfRange { tunable, value });
    }
    Ok(tunable)
}

/// Why a setting is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TunableError<'a> {
    /// The design has no such tunable in this era.
    Unknown {
        /// The design's name.
        design: &'a str,
        /// The era.
        era: Era,
        /// The name asked for.
        name: &'a str,
    },
    /// The value is not in the tunable's range.
    OutOfRange {
        /// The tunable.
        tunable: &'static Tunable,
        /// The value asked for.
        value: u64,
    },
}

impl fmt::Display for TunableError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            TunableError::OutOfRange { tunable, value } => write!(
                f,
                "{} is {value}; it takes {}..={} ({})",
                tunable.name, tunable.min, tunable.max, tunable.unit
            ),
            TunableError::Unknown { design, era, name } => {
                write!(f, "{design}@{era} has no tunable {name:?}; it has")?;
                let mut separator = " ";
                for tunable in tunables_of(design, era) {
                    write!(f, "{separator}{}", tunable.name)?;
                    separator = ", ";
                }
                if separator == " " {
                    f.write_str(" none")?;
                }
                Ok(())
            }
        }
    }
}

impl core::error::Error for TunableError<'_> {}
