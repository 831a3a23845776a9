//! Scripts: operations on caches as data.

use proptest::collection::vec;
use proptest::prelude::*;
use quarry_core::design::CacheSpec;
use quarry_core::geometry::CacheFlags;

use super::ledger::Pick;

/// Request for a cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    /// Bytes of an object.
    pub(crate) size: u32,
    /// Alignment in bytes, or 0.
    pub(crate) align: u32,
    pub(crate) flags: CacheFlags,
    /// Objects of a sheaf, or 0.
    pub(crate) sheaf_capacity: u32,
}

impl Ask {
    /// The cache of this name that is asked for.
    pub(crate) fn spec<'n>(&self, name: &'n str) -> CacheSpec<'n> {
        CacheSpec {
            name,
            object_size: self.size,
            align: self.align,
            flags: self.flags,
            sheaf_capacity: self.sheaf_capacity,
            ctor: None,
        }
    }
}

/// A tunable that can be written while its cache is in use.
pub(crate) const ATTRIBUTES: [&str; 16] = [
    "idle_expiry",
    "shared_queue_size",
    "alien_queue_size",
    "cpu_slabs_max",
    "cpu_partial",
    "min_partial",
    "defrag_ratio",
    "remote_node_defrag_ratio",
    "cpu_queue_size",
    "cpu_batch_size",
    "limit",
    "batchcount",
    "sharedfactor",
    "sheaf_capacity",
    "barn_full",
    "barn_empty",
];

/// A free that must be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// Memory that is not the machine's.
    Foreign,
    /// A page that is in no slab.
    NotSlab,
    /// An object of another cache.
    OtherCache,
    /// An address this number of bytes behind the start of an object.
    Inside(u16),
    /// The object that was freed just before.
    Double,
    /// A bulk free with an object of another cache among its own.
    OtherCacheInBulk,
    /// A page of a slab, given to the page allocator.
    PageOfSlab,
}

/// One operation. `cache`, `cpu` and `node` are taken modulo what there is.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// A new cache.
    Create(Ask),
    /// Single allocations.
    Alloc {
        cpu: u16,
        cache: u8,
        count: u16,
    },
    /// Single allocations from a node.
    AllocNode {
        cpu: u16,
        cache: u8,
        node: u8,
        count: u8,
    },
    /// Single frees.
    Free {
        cpu: u16,
        cache: u8,
        pick: Pick,
        count: u16,
    },
    /// A bulk allocation.
    AllocBulk {
        cpu: u16,
        cache: u8,
        count: u8,
    },
    /// A bulk free with `gaps` empty slots in between.
    FreeBulk {
        cpu: u16,
        cache: u8,
        pick: Pick,
        count: u8,
        gaps: u8,
    },
    Kmalloc {
        cpu: u16,
        bytes: u32,
        node: Option<u8>,
    },
    Kfree {
        cpu: u16,
        pick: Pick,
    },
    /// Empties per-CPU state.
    Flush {
        cache: u8,
    },
    /// Also gives empty slabs back.
    Shrink {
        cache: u8,
    },
    /// Writes a tunable.
    Set {
        cache: u8,
        attribute: usize,
        value: u32,
    },
    /// Periodic work of a CPU, `pause_ms` after the last.
    Reap {
        cpu: u16,
        pause_ms: u16,
    },
    /// Destroys a cache, after freeing its objects if `empty`.
    Destroy {
        cpu: u16,
        cache: u8,
        empty: bool,
    },
    /// A free that must be refused.
    Wrong {
        cpu: u16,
        cache: u8,
        mistake: Mistake,
        pick: Pick,
    },
    /// Gives pages of all per-CPU lists back.
    DrainPages,
    /// Compares the walk over live objects with the model.
    Walk,
}

impl Op {
    /// The operation with single allocations or frees of at most `most` objects.
    pub(crate) fn limited(&self, most: u8) -> Self {
        let mut op = self.clone();
        match &mut op {
            Op::Alloc { count, .. } | Op::Free { count, .. } => *count = (*count).min(most.into()),
            Op::AllocNode { count, .. } => *count = (*count).min(most),
            _ => {}
        }
        op
    }
}

/// A whole run.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    /// Caches that exist from the start.
    pub(crate) caches: Vec<Ask>,
    /// Operations in order.
    pub(crate) ops: Vec<Op>,
}

fn flags() -> impl Strategy<Value = CacheFlags> {
    prop_oneof![
        4 => Just(CacheFlags::NONE),
        2 => Just(CacheFlags::HWCACHE_ALIGN),
        1 => Just(CacheFlags::CTOR),
        1 => Just(CacheFlags::RCU),
        1 => Just(CacheFlags::RCU | CacheFlags::FREEPTR_OFFSET),
        1 => Just(CacheFlags::RECLAIM | CacheFlags::HWCACHE_ALIGN),
    ]
}

fn asks() -> impl Strategy<Value = Ask> {
    let size = prop_oneof![
        2 => 1u32..64,
        4 => 64u32..1025,
        2 => 1025u32..8200,
        1 => 8200u32..70_000,
    ];
    let align = prop_oneof![4 => Just(0u32), 1 => (0u32..14).prop_map(|shift| 1 << shift)];
    let sheaf_capacity = prop_oneof![2 => Just(0u32), 2 => Just(32u32), 1 => 1u32..100];
    (size, align, flags(), sheaf_capacity).prop_map(|(size, align, flags, sheaf_capacity)| Ask {
        size,
        align,
        flags,
        sheaf_capacity,
    })
}

/// Few CPUs do most of the work, so that they meet in the same slabs.
fn cpus() -> impl Strategy<Value = u16> {
    prop_oneof![4 => 0u16..3, 1 => any::<u16>()]
}

fn picks() -> impl Strategy<Value = Pick> {
    prop_oneof![
        1 => Just(Pick::Oldest),
        1 => Just(Pick::Newest),
        2 => any::<u16>().prop_map(Pick::Any),
    ]
}

fn counts() -> impl Strategy<Value = u16> {
    prop_oneof![3 => 1u16..8, 3 => 8u16..80, 1 => 80u16..400]
}

fn kmalloc_bytes() -> impl Strategy<Value = u32> {
    prop_oneof![
        1 => Just(0u32),
        6 => 1u32..2048,
        2 => 2048u32..20_000,
        1 => 20_000u32..600_000,
        1 => Just(u32::MAX),
    ]
}

fn mistakes() -> impl Strategy<Value = Mistake> {
    prop_oneof![
        1 => Just(Mistake::Foreign),
        1 => Just(Mistake::NotSlab),
        1 => Just(Mistake::OtherCache),
        1 => any::<u16>().prop_map(Mistake::Inside),
        2 => Just(Mistake::Double),
        1 => Just(Mistake::OtherCacheInBulk),
        1 => Just(Mistake::PageOfSlab),
    ]
}

fn work() -> impl Strategy<Value = Op> {
    let cache = any::<u8>;
    prop_oneof![
        8 => (cpus(), cache(), counts()).prop_map(|(cpu, cache, count)| Op::Alloc { cpu, cache, count }),
        2 => (cpus(), cache(), any::<u8>(), 1u8..60)
            .prop_map(|(cpu, cache, node, count)| Op::AllocNode { cpu, cache, node, count }),
        8 => (cpus(), cache(), picks(), counts())
            .prop_map(|(cpu, cache, pick, count)| Op::Free { cpu, cache, pick, count }),
        2 => (cpus(), cache(), any::<u8>()).prop_map(|(cpu, cache, count)| Op::AllocBulk { cpu, cache, count }),
        2 => (cpus(), cache(), picks(), any::<u8>(), 0u8..4)
            .prop_map(|(cpu, cache, pick, count, gaps)| Op::FreeBulk { cpu, cache, pick, count, gaps }),
        3 => (cpus(), kmalloc_bytes(), proptest::option::weighted(0.2, any::<u8>()))
            .prop_map(|(cpu, bytes, node)| Op::Kmalloc { cpu, bytes, node }),
        2 => (cpus(), picks()).prop_map(|(cpu, pick)| Op::Kfree { cpu, pick }),
    ]
}

fn care() -> impl Strategy<Value = Op> {
    let cache = any::<u8>;
    let values = prop_oneof![1 => Just(0u32), 3 => 1u32..40, 1 => 40u32..500];
    prop_oneof![
        1 => asks().prop_map(Op::Create),
        2 => cache().prop_map(|cache| Op::Flush { cache }),
        2 => cache().prop_map(|cache| Op::Shrink { cache }),
        3 => (cache(), 0..ATTRIBUTES.len(), values)
            .prop_map(|(cache, attribute, value)| Op::Set { cache, attribute, value }),
        2 => (cpus(), 0u16..5000).prop_map(|(cpu, pause_ms)| Op::Reap { cpu, pause_ms }),
        1 => (cpus(), cache(), any::<bool>())
            .prop_map(|(cpu, cache, empty)| Op::Destroy { cpu, cache, empty }),
        3 => (cpus(), cache(), mistakes(), picks())
            .prop_map(|(cpu, cache, mistake, pick)| Op::Wrong { cpu, cache, mistake, pick }),
        1 => Just(Op::DrainPages),
        1 => Just(Op::Walk),
    ]
}

/// Any script of at most `ops` operations.
pub(crate) fn scripts(ops: usize) -> impl Strategy<Value = Script> {
    (
        vec(asks(), 1..4),
        vec(prop_oneof![4 => work(), 1 => care()], 1..ops),
    )
        .prop_map(|(caches, ops)| Script { caches, ops })
}
