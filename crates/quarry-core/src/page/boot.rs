//! Setting up a page allocator: zones, their lists and the order in which they are tried.

use super::PageAllocator;
use super::buddy::lists::Lists;
use super::buddy::vacancy::Vacancy;
use super::config::{MAX_ZONES, PageConfig, ZoneLayout};
use super::geometry::PageGeometryError;
use super::memmap::MemMap;
use super::pcp::{Pagesets, Zones};
use super::policy::CpuLists;
use super::rules::Rules;
use super::trim::Trimmer;
use super::types::{MAX_ORDER, Pfn, ZoneId};
use super::zone::Zone;
use crate::era::Era;
use crate::machine::{
    Gate, LockClass, MAX_NODES, Machine, NodeId, PerCpu, RawRange, Region, SpinLock,
};
use crate::sync::{AtomicU32, AtomicU64};

/// Reason that a page allocator could not be set up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum BootError {
    /// The machine's pages do not even make one page per node.
    NoPages,
    /// The configuration's zones have no pages ([`ZoneLayout::Sized`]).
    NoZones,
    /// The per-CPU or structure ranges are too small for the first structures.
    NoRoom,
    /// The zones need more pages than the machine has ([`ZoneLayout::pages_of`]).
    Zones {
        /// Pages that the zones need.
        needed: u64,
        /// Pages that the machine has.
        pages: u32,
    },
    /// The largest block is larger than one can be ([`PageConfig::max_order`]).
    MaxOrder {
        /// log2 of its pages.
        order: u32,
    },
    /// The configuration does not fit the machine.
    Sizes(PageGeometryError),
}

impl core::fmt::Display for BootError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NoPages => f.write_str("the machine has no pages to allocate from"),
            Self::NoZones => f.write_str(
                "no zone of the configuration has pages: ZoneLayout::Sized needs one of at least 1 page",
            ),
            Self::NoRoom => f.write_str("the machine's per-CPU or structure ranges are too small"),
            Self::Zones { needed, pages } => write!(
                f,
                "the zones need {needed} pages, and the machine has {pages}: give it more memory or \
                 make them smaller"
            ),
            Self::MaxOrder { order } => write!(
                f,
                "max_order is {order}: the largest block has order {MAX_ORDER} at most"
            ),
            Self::Sizes(error) => error.fmt(f),
        }
    }
}

crate::error::debug_is_display!(BootError);

impl core::error::Error for BootError {}

impl<M: Machine> PageAllocator<M> {
    /// Takes over a machine whose memory no code has used yet, all of whose pages can be used;
    /// `era` says what the per-CPU lists do and how long locks are held. A process has
    /// [`PageConfig::in_process`] for [`PageAllocator::with_config`].
    ///
    /// # Errors
    ///
    /// [`BootError`] if the machine's ranges are too small.
    pub fn new(machine: M, era: Era) -> Result<Self, BootError> {
        Self::with_config(machine, &PageConfig::new(era))
    }

    /// Takes over a machine whose memory no code has used yet.
    ///
    /// # Errors
    ///
    /// [`BootError`] if the machine's ranges are too small, or the configuration is none of the era's.
    /// [`BootError::NoZones`] and [`BootError::Zones`] if the zones have no pages or need more than
    /// the machine has.
    pub fn with_config(machine: M, config: &PageConfig) -> Result<Self, BootError> {
        if config.max_order > MAX_ORDER {
            let order = config.max_order;
            return Err(BootError::MaxOrder { order });
        }
        let ranges = *machine.ranges();
        let area = RawRange {
            base: ranges.percpu.base,
            bytes: 1 << M::PERCPU_SHIFT,
        };
        // SAFETY: M2 - the ranges are zero-filled and unused; the allocator owns the machine, so
        // these are the only regions over them.
        let meta = unsafe { Region::new(ranges.meta) };
        // SAFETY: M2 and the ownership of the machine, as for `meta`; offsets in CPU 0's area hold for all
        // areas.
        let percpu = unsafe { Region::new(area) };
        let block_order = config.block_order_of(machine.topology().page_shift);
        let mut map = MemMap::new(&machine, &meta, block_order, config.tracks_contents)
            .ok_or(BootError::NoRoom)?;
        let lists = config.policy.map(|policy| policy.rules().cpu_lists());
        if lists == Some(CpuLists::Owned) {
            map = map.with_owners(&machine, &meta).ok_or(BootError::NoRoom)?;
        }
        if map.pages() == 0 {
            return Err(BootError::NoPages);
        }
        if let ZoneLayout::Sized(sizes) = &config.zones {
            let (needed, pages) = (ZoneLayout::pages_of(sizes), map.pages());
            if needed == 0 {
                return Err(BootError::NoZones);
            }
            if needed > u64::from(pages) {
                return Err(BootError::Zones { needed, pages });
            }
        }
        let topology = *machine.topology();
        let mut zones =
            make_zones(&machine, &map, &meta, &percpu, config).ok_or(BootError::NoRoom)?;
        let zonelists = zonelists(&zones, topology.nodes);
        let mut near = [const { PerCpu::absent() }; MAX_NODES];
        let nodes = (0..topology.nodes).map(NodeId);
        for (node, (near, list)) in nodes.zip(near.iter_mut().zip(&zonelists)) {
            let first = zones.get_mut(usize::from(list[0]));
            let first = first.ok_or(BootError::NoPages)?;
            // The CPUs of a node without memory of its own have to count that they go elsewhere.
            if first.zone.id.node == node {
                first.zone.set_first(map.blocks());
                *near = first.slots.clone();
            }
        }
        let pages = Self {
            zonelists,
            near,
            machine,
            map,
            meta,
            percpu,
            gate: Gate::new(),
            plain_nodes: AtomicU32::new(topology.nodes),
            zones,
            slab_pages: AtomicU64::new(0),
            config: SpinLock::new(LockClass::PageConfig, *config),
            max_order: config.max_order,
            bulk_free_hold: config.bulk_free_hold.max(1),
            trimmer: Trimmer::new(),
        };
        pages.size_zones(config).map_err(BootError::Sizes)?;
        Ok(pages)
    }
}

/// The zones of a machine; `None` if there is no room for their per-CPU lists and books.
fn make_zones<M: Machine>(
    machine: &M,
    map: &MemMap,
    meta: &Region,
    percpu: &Region,
    config: &PageConfig,
) -> Option<Zones> {
    let topology = machine.topology();
    let rules = Rules::new(config, topology.page_shift);
    let listed_order = config.era().lists.max_order.min(config.max_order);
    let mut ranges = config.ranges(map.pages(), topology.page_shift, topology.nodes);
    let count = ranges.clone().count();
    if count > MAX_ZONES {
        return None;
    }
    Zones::new(machine, meta, count, |at| {
        let (node, zone, pages) = ranges.next()?;
        for block in pages.clone().step_by(1 << map.blocks().order()) {
            map.blocks()
                .assign(Pfn(block), at, rules.boot_type().into());
        }
        // SAFETY: all-zero is a valid `Pcp`: empty lists and zero counters.
        let slots = unsafe { PerCpu::new(machine, percpu) }?;
        let vacancy = Vacancy::new(machine, meta, &pages)?;
        let lists = Lists::new(machine, meta, &pages, config.region_bytes())?;
        machine.bind(map.range(&pages), node);
        let id = ZoneId { node, zone };
        let absent = match node {
            NodeId(0) => config.absent[zone as usize],
            _ => 0,
        };
        let zone = Zone::new(
            (id, at),
            (pages, absent),
            rules,
            (vacancy, lists),
            listed_order,
        );
        Some(Pagesets { zone, slots })
    })
}

/// For each node its zones from high to low, then those of the following nodes, round.
fn zonelists(zones: &[Pagesets], nodes: u32) -> [[u8; MAX_ZONES]; MAX_NODES] {
    let mut lists = [[MAX_ZONES as u8; MAX_ZONES]; MAX_NODES];
    for (list, node) in lists.iter_mut().zip(0..nodes) {
        let near_to_far = (0..nodes).map(|distance| NodeId((node + distance) % nodes));
        let order = near_to_far.flat_map(|node| {
            let is_of_node = move |at: &usize| zones[*at].zone.id.node == node;
            (0..zones.len()).rev().filter(is_of_node)
        });
        for (place, at) in list.iter_mut().zip(order) {
            *place = at as u8;
        }
    }
    lists
}
