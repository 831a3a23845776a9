//! The attributes of a cache in `/sys/kernel/slab/<cache>/`, as data.

use crate::design::{CacheHead, Design, NodeUsage};
use crate::era::Era;
use crate::geometry::CacheFlags;
use crate::magazine::Magazine;
use crate::sheaf::SheafCache;
use crate::slub::Slub;
use crate::slubq::Slubq;
use crate::tunables::{Scope, Table, Tunable};

/// Effect of a write that does not set the attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Flushes the CPUs and gives empty slabs back.
    Shrink,
    /// Checks lists and counters, and with debugging all objects.
    Validate,
}

/// Source of an attribute's value, which decides how it is printed.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    /// A number that is fixed when the cache is made, unless the design knows it by this name.
    Geometry(fn(&CacheHead) -> u64),
    /// 1 if the cache has the flag, else 0.
    Flag(CacheFlags),
    /// Caches that were merged into this one.
    Aliases,
    /// A number that the design knows by this name; this one if it does not.
    Design(u64),
    /// `sum N<node>=<part>...`, of the nodes whose part is not 0.
    Nodes(fn(&NodeUsage) -> u64),
    /// `sum C<cpu>=<part>...`, of the CPUs whose part is not 0. Writing 0 clears it.
    Statistic,
    /// `objects(slabs) C<cpu>=<objects>(<slabs>)...` of the cpu partial lists. The objects are
    /// counted, or estimated as half of what the slabs hold.
    CpuPartial {
        /// True if they are estimated.
        estimated: bool,
    },
    /// The constructor's name, or nothing.
    Ctor,
    /// Bytes of an object that may be copied to and from user space: all of it in kmalloc's caches.
    UserSize,
    /// Who allocated or freed the objects; needs user tracking.
    Calls,
    /// Reads as nothing; writing 1 does something.
    Action(Action),
}

/// A design and the eras in which its kernel has a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Availability {
    /// The design's name.
    pub design: &'static str,
    /// First era.
    pub from: Era,
    /// Last era.
    pub to: Era,
}

impl Availability {
    pub(super) fn applies(&self, design: &str, era: Era) -> bool {
        self.design == design && (self.from..=self.to).contains(&era)
    }
}

/// One attribute.
#[derive(Clone, Copy, Debug)]
pub struct Attribute {
    /// The file's name.
    pub name: &'static str,
    /// The configuration without which a kernel does not have it.
    pub config: Option<&'static str>,
    /// Source of its value.
    pub source: Source,
}

impl Attribute {
    /// True if the design of these tunables takes writes to it in this era.
    #[must_use]
    pub fn writable(&self, tunables: &Table, era: Era) -> bool {
        matches!(self.source, Source::Statistic | Source::Action(_))
            || self.tunable(tunables, era).is_some()
    }

    /// The tunable behind it. What is counted is never one.
    pub(super) fn tunable(&self, tunables: &Table, era: Era) -> Option<&'static Tunable> {
        if !matches!(self.source, Source::Geometry(_) | Source::Design(_)) {
            return None;
        }
        tunables
            .of(era)
            .find(|tunable| tunable.scope == Scope::Cache && tunable.name == self.name)
    }
}

/// An attribute of kernels.
#[derive(Clone, Copy, Debug)]
pub struct KernelAttribute {
    /// The attribute.
    pub attribute: Attribute,
    /// The designs and eras that have it.
    pub available: &'static [Availability],
}

impl KernelAttribute {
    /// True if this design has it in this era.
    #[must_use]
    pub fn applies(&self, design: &str, era: Era) -> bool {
        self.available.iter().any(|at| at.applies(design, era))
    }
}

const fn span(design: &'static str, from: Era, to: Era) -> Availability {
    Availability { design, from, to }
}

/// The last release with SLUB's cpu slabs.
const LAST_SLUB: Era = *Slub::RELEASES.end();

/// SLUB from a release on.
const fn slub_since(from: Era) -> Availability {
    span(Slub::NAME, from, LAST_SLUB)
}

const SLUBQ: Availability = span(Slubq::NAME, Era::V2_6_35, Era::V2_6_35);
const SHEAF: Availability = span(SheafCache::NAME, Era::V6_18, Era::LAST);
/// It has the files of the release whose slabs it uses.
const MAGAZINE: Availability = span(Magazine::NAME, Magazine::DEFAULT_ERA, Magazine::DEFAULT_ERA);
/// Sheaves above cpu slabs.
const SHEAF_AND_CPU_SLABS: Availability = span(SheafCache::NAME, Era::V6_18, Era::V6_19);

/// Every design with sysfs folders, in all its releases.
const ALL: &[Availability] = &[slub_since(Era::FIRST), SLUBQ, SHEAF, MAGAZINE];
/// Those with cpu slabs, or with their file kept.
const CPU_SLABS: &[Availability] = &[slub_since(Era::FIRST), SHEAF, MAGAZINE];
const UNTIL_2_6_24: &[Availability] = &[span(Slub::NAME, Era::FIRST, Era::V2_6_24)];
const UNTIL_5_13: &[Availability] = &[span(Slub::NAME, Era::FIRST, Era::V5_13), SLUBQ];
const FROM_2_6_25: &[Availability] = &[slub_since(Era::V2_6_25), SLUBQ, SHEAF, MAGAZINE];
const FROM_2_6_30: &[Availability] = &[slub_since(Era::V2_6_30), SLUBQ, SHEAF, MAGAZINE];
const FROM_2_6_34: &[Availability] = &[slub_since(Era::V2_6_34), SLUBQ, SHEAF, MAGAZINE];
const FROM_3_1: &[Availability] = &[slub_since(Era::V3_1), SHEAF, MAGAZINE];
const FROM_3_2: &[Availability] = &[slub_since(Era::V3_2), SHEAF, MAGAZINE];
const FROM_4_16: &[Availability] = &[slub_since(Era::V4_16), SHEAF, MAGAZINE];
const FROM_3_2_TO_5_15: &[Availability] = &[span(Slub::NAME, Era::V3_2, Era::V5_15)];
const FROM_5_16: &[Availability] = &[slub_since(Era::V5_16), SHEAF, MAGAZINE];
const FROM_6_1: &[Availability] = &[slub_since(Era::V6_1), SHEAF, MAGAZINE];
const FROM_6_18: &[Availability] = &[slub_since(Era::V6_18), SHEAF, MAGAZINE];
const QUEUES: &[Availability] = &[SLUBQ];

/// Statistics that only kernels with cpu slabs have; SLUB with queues has none of them.
const STATS_CPU_SLAB: &[Availability] = &[slub_since(Era::V2_6_25), SHEAF_AND_CPU_SLABS];
/// Statistics that came with double-word compare-and-swap.
const STATS_CMPXCHG: &[Availability] = &[slub_since(Era::V3_1), SHEAF_AND_CPU_SLABS];
/// Statistics that came with cpu partial lists.
const STATS_CPU_PARTIAL: &[Availability] = &[slub_since(Era::V3_2), SHEAF_AND_CPU_SLABS];
/// Statistics of cpu partial lists that came later.
const STATS_CPU_PARTIAL_MOVES: &[Availability] = &[slub_since(Era::V3_4), SHEAF_AND_CPU_SLABS];
/// Statistics that 7.0 dropped.
const STATS_UNTIL_6_19: &[Availability] = &[slub_since(Era::V6_18), SHEAF_AND_CPU_SLABS];

const fn attribute(
    name: &'static str,
    available: &'static [Availability],
    source: Source,
) -> KernelAttribute {
    KernelAttribute {
        attribute: Attribute {
            name,
            config: None,
            source,
        },
        available,
    }
}

const fn configured(
    name: &'static str,
    available: &'static [Availability],
    config: &'static str,
    source: Source,
) -> KernelAttribute {
    KernelAttribute {
        attribute: Attribute {
            name,
            config: Some(config),
            source,
        },
        available,
    }
}

const fn stat(name: &'static str, available: &'static [Availability]) -> KernelAttribute {
    configured(name, available, "CONFIG_SLUB_STATS", Source::Statistic)
}

/// Every attribute of the designs with sysfs folders, statistics last.
pub static ATTRIBUTES: &[KernelAttribute] = &[
    attribute(
        "slab_size",
        ALL,
        Source::Geometry(|head| head.geometry().layout.size.into()),
    ),
    attribute(
        "object_size",
        ALL,
        Source::Geometry(|head| head.geometry().layout.object_size.into()),
    ),
    attribute(
        "objs_per_slab",
        ALL,
        Source::Geometry(|head| head.geometry().objects.into()),
    ),
    attribute(
        "order",
        ALL,
        Source::Geometry(|head| head.geometry().order.into()),
    ),
    attribute("min_partial", FROM_2_6_30, Source::Design(0)),
    attribute("cpu_partial", FROM_3_2, Source::Design(0)),
    attribute("cpu_queue_size", QUEUES, Source::Design(0)),
    attribute("cpu_batch_size", QUEUES, Source::Design(0)),
    attribute("objects", ALL, Source::Nodes(|node| node.objects)),
    attribute(
        "objects_partial",
        FROM_2_6_25,
        Source::Nodes(|node| node.objects_partial),
    ),
    attribute("partial", ALL, Source::Nodes(|node| node.partial)),
    attribute("cpu_slabs", CPU_SLABS, Source::Nodes(|node| node.cpu_slabs)),
    attribute("ctor", ALL, Source::Ctor),
    attribute("aliases", ALL, Source::Aliases),
    attribute(
        "align",
        ALL,
        Source::Geometry(|head| head.geometry().layout.align.into()),
    ),
    attribute(
        "hwcache_align",
        ALL,
        Source::Flag(CacheFlags::HWCACHE_ALIGN),
    ),
    attribute("reclaim_account", ALL, Source::Flag(CacheFlags::RECLAIM)),
    attribute("destroy_by_rcu", ALL, Source::Flag(CacheFlags::RCU)),
    attribute("shrink", ALL, Source::Action(Action::Shrink)),
    attribute(
        "slabs_cpu_partial",
        FROM_3_2_TO_5_15,
        Source::CpuPartial { estimated: false },
    ),
    attribute(
        "slabs_cpu_partial",
        FROM_5_16,
        Source::CpuPartial { estimated: true },
    ),
    attribute(
        "total_objects",
        FROM_2_6_25,
        Source::Nodes(|node| node.total_objects),
    ),
    attribute("slabs", ALL, Source::Nodes(|node| node.slabs)),
    attribute("sanity_checks", ALL, Source::Flag(CacheFlags::CONSISTENCY)),
    attribute("trace", ALL, Source::Design(0)),
    attribute("red_zone", ALL, Source::Flag(CacheFlags::RED_ZONE)),
    attribute("poison", ALL, Source::Flag(CacheFlags::POISON)),
    attribute("store_user", ALL, Source::Flag(CacheFlags::STORE_USER)),
    attribute("validate", ALL, Source::Action(Action::Validate)),
    attribute("alloc_calls", UNTIL_5_13, Source::Calls),
    attribute("free_calls", UNTIL_5_13, Source::Calls),
    configured("cache_dma", ALL, "CONFIG_ZONE_DMA", Source::Design(0)),
    configured(
        "defrag_ratio",
        UNTIL_2_6_24,
        "CONFIG_NUMA",
        Source::Design(10),
    ),
    configured(
        "remote_node_defrag_ratio",
        FROM_2_6_25,
        "CONFIG_NUMA",
        Source::Design(100),
    ),
    configured(
        "failslab",
        FROM_2_6_34,
        "CONFIG_FAILSLAB",
        Source::Design(0),
    ),
    configured(
        "usersize",
        FROM_4_16,
        "CONFIG_HARDENED_USERCOPY",
        Source::UserSize,
    ),
    configured("skip_kfence", FROM_6_1, "CONFIG_KFENCE", Source::Design(0)),
    attribute("sheaf_capacity", FROM_6_18, Source::Design(0)),
    stat("alloc_fastpath", FROM_2_6_25),
    stat("alloc_slowpath", FROM_2_6_25),
    stat("free_fastpath", FROM_2_6_25),
    stat("free_slowpath", FROM_2_6_25),
    stat("free_frozen", STATS_CPU_SLAB),
    stat("free_add_partial", FROM_2_6_25),
    stat("free_remove_partial", FROM_2_6_25),
    stat("alloc_from_partial", STATS_CPU_SLAB),
    stat("alloc_from_partial", QUEUES),
    stat("alloc_slab", FROM_2_6_25),
    stat("alloc_refill", STATS_CPU_SLAB),
    stat("alloc_node_mismatch", FROM_3_1),
    stat("free_slab", FROM_2_6_25),
    stat("cpuslab_flush", STATS_CPU_SLAB),
    stat("queue_flush", QUEUES),
    stat("deactivate_full", STATS_CPU_SLAB),
    stat("deactivate_empty", STATS_CPU_SLAB),
    stat("deactivate_to_head", STATS_CPU_SLAB),
    stat("deactivate_to_tail", STATS_CPU_SLAB),
    stat("deactivate_remote_frees", STATS_CPU_SLAB),
    stat("deactivate_bypass", STATS_CMPXCHG),
    stat("order_fallback", FROM_2_6_25),
    stat("cmpxchg_double_fail", FROM_3_1),
    stat("cmpxchg_double_cpu_fail", STATS_CMPXCHG),
    stat("cpu_partial_alloc", STATS_CPU_PARTIAL),
    stat("cpu_partial_free", STATS_CPU_PARTIAL),
    stat("cpu_partial_node", STATS_CPU_PARTIAL_MOVES),
    stat("cpu_partial_drain", STATS_CPU_PARTIAL_MOVES),
    stat("alloc_cpu_sheaf", STATS_UNTIL_6_19),
    stat("free_cpu_sheaf", STATS_UNTIL_6_19),
    stat("free_rcu_sheaf", FROM_6_18),
    stat("free_rcu_sheaf_fail", FROM_6_18),
    stat("sheaf_flush", FROM_6_18),
    stat("sheaf_refill", FROM_6_18),
    stat("sheaf_alloc", FROM_6_18),
    stat("sheaf_free", FROM_6_18),
    stat("barn_get", FROM_6_18),
    stat("barn_get_fail", FROM_6_18),
    stat("barn_put", FROM_6_18),
    stat("barn_put_fail", FROM_6_18),
    stat("sheaf_prefill_fast", FROM_6_18),
    stat("sheaf_prefill_slow", FROM_6_18),
    stat("sheaf_prefill_oversize", FROM_6_18),
    stat("sheaf_return_fast", FROM_6_18),
    stat("sheaf_return_slow", FROM_6_18),
];

/// The attributes that a cache of the design with these tunables has in this era: the kernel's, then
/// tunables of caches that the kernel does not have. None if the kernel has no sysfs folders for the
/// design.
pub fn attributes_of(
    tunables: &'static Table,
    era: Era,
) -> impl Iterator<Item = Attribute> + use<> {
    let kernel = move || {
        ATTRIBUTES
            .iter()
            .filter(move |known| known.applies(tunables.design, era))
            .map(|known| known.attribute)
    };
    let has_folder = kernel().next().is_some();
    let own = tunables
        .of(era)
        .filter(|tunable| tunable.scope == Scope::Cache)
        .filter(move |tunable| has_folder && kernel().all(|known| known.name != tunable.name));
    kernel().chain(own.map(|tunable| Attribute {
        name: tunable.name,
        config: None,
        source: Source::Design(0),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Stat;

    /// The counts of the columns of facts 2.11.
    #[test]
    fn eras_show_their_counters() {
        let counters = |tunables, era| {
            attributes_of(tunables, era).filter(|file| matches!(file.source, Source::Statistic))
        };
        let count = |tunables, era| counters(tunables, era).count();
        assert_eq!(count(Slub::TUNABLES, Era::V2_6_22), 0);
        assert_eq!(count(Slub::TUNABLES, Era::V2_6_24), 0);
        assert_eq!(count(Slub::TUNABLES, Era::V2_6_35), 18);
        assert_eq!(count(Slub::TUNABLES, Era::V4_13), 26);
        assert_eq!(count(Slub::TUNABLES, Era::V5_9), 26);
        assert_eq!(count(Slub::TUNABLES, Era::V6_18), 43);
        assert_eq!(count(Slubq::TUNABLES, Era::V2_6_35), 11);
        let own = Stat::CpuSlotBusy.name();
        assert!(counters(Slub::TUNABLES, Era::V6_18).all(|file| file.name != own));
    }
}
