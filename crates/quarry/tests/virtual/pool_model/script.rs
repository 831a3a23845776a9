//! Operations on pools, and the pools' parameters.

use super::*;

/// One operation. CPUs, pools and picks are taken modulo what there is.
#[derive(Clone, Debug)]
pub(super) enum Op {
    /// Allocates pages.
    Alloc { pool: u8, cpu: u16, count: u8 },
    /// Puts pages in flight, by their owner or through a handle.
    Put {
        pick: u16,
        cpu: u16,
        count: u8,
        owner: bool,
    },
    /// Allocates pages into an array with every `holes`th slot filled already.
    AllocBulk {
        pool: u8,
        cpu: u16,
        count: u8,
        holes: u8,
    },
    /// Puts pages in flight from an array, in which pages are that must be refused.
    PutBulk {
        pick: u16,
        cpu: u16,
        count: u8,
        owner: bool,
    },
    /// Adds pages to a pool's batch.
    FillBatch { pool: u8, cpu: u16, count: u8 },
    /// Puts the pages of a pool's batch.
    PutBatch { pool: u8, cpu: u16, owner: bool },
    /// Takes pages out of a pool's batch.
    PopBatch { pool: u8, count: u8 },
    /// Allocates pieces.
    Piece { pool: u8, cpu: u16, bytes: u32 },
    /// Puts a piece, by its owner or through a handle.
    PutPiece { pick: u16, cpu: u16, owner: bool },
    /// One more user of a page in flight.
    Get { pick: u16 },
    /// One user less, of a page that may have left its pool.
    Unget { pick: u16, cpu: u16 },
    /// Puts that must be refused.
    Wrong { pick: u16, pool: u8 },
    /// The page allocator's other users.
    Plain { cpu: u16, order: u32, free: bool },
    /// The end of a pool, and another one.
    Replace { pool: u8 },
}

pub(super) fn ops() -> impl Strategy<Value = Vec<Op>> {
    let n = any::<u16>;
    let count = || prop_oneof![4 => 1u8..4, 1 => 4u8..=255];
    let bytes = prop_oneof![2 => 1u32..300, 2 => 1000u32..2048, 1 => 0u32..70_000];
    let op = prop_oneof![
        8 => (any::<u8>(), n(), count()).prop_map(|(pool, cpu, count)| Op::Alloc { pool, cpu, count }),
        8 => (n(), n(), count(), any::<bool>())
            .prop_map(|(pick, cpu, count, owner)| Op::Put { pick, cpu, count, owner }),
        4 => (any::<u8>(), n(), count(), 2u8..6)
            .prop_map(|(pool, cpu, count, holes)| Op::AllocBulk { pool, cpu, count, holes }),
        4 => (n(), n(), count(), any::<bool>())
            .prop_map(|(pick, cpu, count, owner)| Op::PutBulk { pick, cpu, count, owner }),
        3 => (any::<u8>(), n(), count())
            .prop_map(|(pool, cpu, count)| Op::FillBatch { pool, cpu, count }),
        3 => (any::<u8>(), n(), any::<bool>())
            .prop_map(|(pool, cpu, owner)| Op::PutBatch { pool, cpu, owner }),
        1 => (any::<u8>(), count()).prop_map(|(pool, count)| Op::PopBatch { pool, count }),
        3 => (any::<u8>(), n(), bytes).prop_map(|(pool, cpu, bytes)| Op::Piece { pool, cpu, bytes }),
        3 => (n(), n(), any::<bool>()).prop_map(|(pick, cpu, owner)| Op::PutPiece { pick, cpu, owner }),
        1 => n().prop_map(|pick| Op::Get { pick }),
        1 => (n(), n()).prop_map(|(pick, cpu)| Op::Unget { pick, cpu }),
        1 => (n(), any::<u8>()).prop_map(|(pick, pool)| Op::Wrong { pick, pool }),
        1 => (n(), 0u32..4, any::<bool>())
            .prop_map(|(cpu, order, free)| Op::Plain { cpu, order, free }),
        1 => any::<u8>().prop_map(|pool| Op::Replace { pool }),
    ];
    vec(op, 1..60)
}

/// Parameters of a pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) order: u32,
    pub(super) pool_size: u32,
    pub(super) node: Option<u32>,
}

pub(super) fn shapes() -> impl Strategy<Value = Vec<Shape>> {
    let order = prop_oneof![3 => Just(0u32), 1 => 1u32..3];
    let size = prop_oneof![1u32..20, Just(1024u32)];
    let node = prop_oneof![2 => Just(None), 1 => (0u32..4).prop_map(Some)];
    let shape = (order, size, node).prop_map(|(order, pool_size, node)| Shape {
        order,
        pool_size,
        node,
    });
    vec(shape, 1..4)
}
