//! Scripts for the page allocator.

use proptest::collection::vec;
use proptest::prelude::*;
use quarry_core::machine::Machine;
use quarry_core::page::{AllocOptions, MAX_ORDER, MigrateType};

use super::place::node_of;

/// One operation. CPUs, nodes and picks are taken modulo what there is.
#[derive(Clone, Debug)]
pub(crate) enum PageOp {
    /// A block of a mobility.
    Alloc {
        cpu: u16,
        node: Option<u8>,
        order: u32,
        migratetype: MigrateType,
    },
    /// As many blocks of an order as there are.
    Exhaust { cpu: u16, order: u32 },
    /// Frees blocks.
    Free { cpu: u16, pick: u16, count: u16 },
    /// A bulk call on an array with some slots filled.
    AllocBulk {
        cpu: u16,
        node: Option<u8>,
        slots: u8,
        filled: u8,
    },
    /// A bulk free of single pages with some empty slots, and a page that is free already.
    FreeBulk {
        cpu: u16,
        pick: u16,
        slots: u8,
        mistake: bool,
    },
    /// Frees a block twice.
    Double { cpu: u16, pick: u16 },
    /// Frees a block with another order.
    WrongOrder { pick: u16, order: u32 },
    /// Frees a page that the machine does not have.
    Foreign { beyond: u32, order: u32 },
    /// Frees a page inside a block.
    Inside { pick: u16, offset: u16 },
    /// Gives the pages of all per-CPU lists back.
    Drain,
    /// The periodic work.
    Interval,
}

impl PageOp {
    /// Options of [`PageOp::Alloc`] and [`PageOp::Exhaust`].
    pub(crate) fn options<M: Machine>(&self, machine: &M) -> AllocOptions {
        match *self {
            PageOp::Alloc {
                cpu: _,
                node,
                order,
                migratetype,
            } => AllocOptions {
                order,
                migratetype,
                node: node.map(|node| node_of(machine, node)),
                ..AllocOptions::default()
            },
            PageOp::Exhaust { order, .. } => AllocOptions {
                order,
                ..AllocOptions::default()
            },
            _ => AllocOptions::default(),
        }
    }
}

fn cpus() -> impl Strategy<Value = u16> {
    prop_oneof![4 => 0u16..3, 1 => any::<u16>()]
}

fn orders() -> impl Strategy<Value = u32> {
    prop_oneof![4 => Just(0u32), 4 => 1u32..4, 2 => 4u32..=MAX_ORDER, 1 => Just(MAX_ORDER + 1)]
}

fn types() -> impl Strategy<Value = MigrateType> {
    let [unmovable, movable, reclaimable] = MigrateType::ALL.map(Just);
    prop_oneof![3 => unmovable, 2 => movable, 1 => reclaimable]
}

/// Any script of at most `ops` operations.
pub(crate) fn page_scripts(ops: usize) -> impl Strategy<Value = Vec<PageOp>> {
    let node = || proptest::option::weighted(0.3, any::<u8>());
    let pick = any::<u16>;
    let op = prop_oneof![
        8 => (cpus(), node(), orders(), types())
            .prop_map(|(cpu, node, order, migratetype)| {
                PageOp::Alloc { cpu, node, order, migratetype }
            }),
        1 => (cpus(), orders()).prop_map(|(cpu, order)| PageOp::Exhaust { cpu, order }),
        8 => (cpus(), pick(), prop_oneof![4 => 1u16..6, 1 => 6u16..500])
            .prop_map(|(cpu, pick, count)| PageOp::Free { cpu, pick, count }),
        4 => (cpus(), node(), any::<u8>(), 0u8..4)
            .prop_map(|(cpu, node, slots, filled)| PageOp::AllocBulk { cpu, node, slots, filled }),
        3 => (cpus(), pick(), any::<u8>(), any::<bool>())
            .prop_map(|(cpu, pick, slots, mistake)| PageOp::FreeBulk { cpu, pick, slots, mistake }),
        1 => (cpus(), pick()).prop_map(|(cpu, pick)| PageOp::Double { cpu, pick }),
        1 => (pick(), orders()).prop_map(|(pick, order)| PageOp::WrongOrder { pick, order }),
        1 => (any::<u32>(), orders()).prop_map(|(beyond, order)| PageOp::Foreign { beyond, order }),
        1 => (pick(), pick()).prop_map(|(pick, offset)| PageOp::Inside { pick, offset }),
        1 => Just(PageOp::Drain),
        1 => Just(PageOp::Interval),
    ];
    vec(op, 1..ops)
}
