//! The sysctls of the page allocator: what `/proc/sys/vm` takes while it is in use.

use super::PageAllocator;
use super::config::{MinFree, PageConfig};
use super::geometry::{PageGeometryError, ZoneParams, node_cpus};
use super::types::{ZONE_TYPES, ZoneType};
use super::zone::Zone;
use crate::era::Era;
use crate::machine::Machine;
use crate::sync::Ordering;
use crate::tunables::{COUNT_MAX, DefaultValue, Row, Scope, Table, Tunable, TunableError};

/// The sysctls and the releases that have them.
pub static SYSCTLS: Table = Table {
    design: "page",
    rows: &[
        Row::new(&MIN_FREE_KBYTES, Era::FIRST, Era::LAST),
        Row::new(&PERCPU_PAGELIST_FRACTION, Era::FIRST, Era::V5_13),
        Row::new(&PERCPU_PAGELIST_HIGH_FRACTION, Era::V5_14, Era::LAST),
    ],
};

static MIN_FREE_KBYTES: Tunable = Tunable {
    name: "min_free_kbytes",
    alias: None,
    scope: Scope::Sysctl,
    min: 0,
    max: COUNT_MAX,
    unit: "KiB",
    default: DefaultValue::Computed(
        "0 for heaps; kernels take 4 times the root of the memory in KiB, within 128..=65536 \
         until 4.13 and within 128..=262144 from 5.9 on",
    ),
    doc: "Memory that allocations leave free, shared out to the zones as their min watermarks.",
};

static PERCPU_PAGELIST_FRACTION: Tunable = Tunable {
    name: "percpu_pagelist_fraction",
    alias: None,
    scope: Scope::Sysctl,
    min: 0,
    max: u32::MAX as u64,
    unit: "1/f of a zone",
    default: DefaultValue::Value(0),
    doc: "Part of a zone that each CPU may hold on its page lists; 0 for the default, else at \
          least 8 (percpu_pagelist_fraction).",
};

static PERCPU_PAGELIST_HIGH_FRACTION: Tunable = Tunable {
    name: "percpu_pagelist_high_fraction",
    alias: None,
    scope: Scope::Sysctl,
    min: 0,
    max: u32::MAX as u64,
    unit: "1/f of a zone",
    default: DefaultValue::Value(0),
    doc: "Part of a zone that all CPUs of its node may hold on their page lists, without \
          tuning; 0 for the default, else at least 8 (percpu_pagelist_high_fraction).",
};

/// Parts of the memory above that a zone keeps back from requests which could have had that
/// memory, by zone: the default of the sysctl `lowmem_reserve_ratio` (kernel documentation,
/// `sysctl/vm.rst`), which is not tunable here. The highest zone has nothing above it.
const LOWMEM_RESERVE_RATIO: [u64; ZONE_TYPES] = [256, 256, 32];

/// Reason that a sysctl was not written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SysctlError {
    /// The era has no such sysctl, or it does not take the value.
    Tunable(TunableError),
    /// The value does not fit the machine.
    Sizes(PageGeometryError),
    /// The calling thread is already writing one.
    Reentered,
}

impl core::fmt::Display for SysctlError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Tunable(error) => error.fmt(f),
            Self::Sizes(error) => error.fmt(f),
            Self::Reentered => f.write_str("the calling thread is writing a sysctl"),
        }
    }
}

crate::error::debug_is_display!(SysctlError);

impl core::error::Error for SysctlError {}

impl<M: Machine> PageAllocator<M> {
    /// Reads a sysctl by name; `None` if the era does not have it, or the calling thread is
    /// writing one.
    pub fn sysctl(&self, name: &str) -> Option<u64> {
        let _pass = self.gate().enter(self.machine());
        let config = *self.config.lock(self.machine())?;
        SYSCTLS.of(config.era).find(|known| known.name == name)?;
        Some(match (name, config.min_free) {
            ("min_free_kbytes", MinFree::Nothing) => 0,
            ("min_free_kbytes", MinFree::Kbytes(kib)) => kib,
            ("min_free_kbytes", MinFree::Computed) => config
                .era()
                .min_free_kbytes(self.managed(), self.map().page_shift()),
            _ => config.pagelist_fraction.into(),
        })
    }

    /// Writes a sysctl: `min_free_kbytes`, and `percpu_pagelist_fraction` or `percpu_pagelist_high_fraction` as
    /// the era has it (0 is off). Returns the number of busy CPUs; their lists take the new limits at their
    /// next overflow.
    ///
    /// # Errors
    ///
    /// [`SysctlError`], whose message says what would be valid; nothing has changed then.
    pub fn set_sysctl(&self, name: &str, value: u64) -> Result<u32, SysctlError> {
        let _pass = self.gate().enter(self.machine());
        let mut config = self
            .config
            .lock(self.machine())
            .ok_or(SysctlError::Reentered)?;
        let tunable = SYSCTLS
            .check(config.era, name, value)
            .map_err(SysctlError::Tunable)?;
        let mut wanted = *config;
        match tunable.name {
            "min_free_kbytes" => wanted.min_free = MinFree::Kbytes(value),
            _ => wanted.pagelist_fraction = value as u32,
        }
        self.size_zones(&wanted).map_err(SysctlError::Sizes)?;
        *config = wanted;
        drop(config);
        Ok(self.each_pcp(|_, _, pcp| pcp.forget_high()))
    }

    /// Sizes lists and watermarks of all zones, or none.
    pub(super) fn size_zones(&self, config: &PageConfig) -> Result<(), PageGeometryError> {
        let sysctls = config.sysctls();
        let sizes = |zone: &Zone| {
            let params = self.zone_params(zone, config.initialised_pages);
            config.era().zone(&params, &sysctls)
        };
        self.zones().try_for_each(|zone| sizes(zone).map(|_| ()))?;
        let keeps_back = config.min_free != MinFree::Nothing;
        for zone in self.zones() {
            let sizes = sizes(zone)?;
            let mut marks = sizes.watermarks;
            if !keeps_back {
                (marks.min, marks.low, marks.high) = (0, 0, 0);
                marks.promo = marks.promo.map(|_| 0);
            }
            zone.set_sizes(&sizes.pcp, &marks);
            for (reserve, highest) in zone.lowmem_reserve.iter().zip(ZoneType::ALL) {
                let pages = u64::from(keeps_back) * self.reserve(zone, highest);
                reserve.store(pages, Ordering::Relaxed);
            }
            // Releasing the lock publishes whether the zone is below its new high watermark.
            drop(zone.lock(self.map_on()));
        }
        let nodes = self.machine().topology().nodes;
        let plain = if keeps_back { 0 } else { nodes };
        self.plain_nodes.store(plain, Ordering::Relaxed);
        Ok(())
    }

    /// Pages of all zones.
    pub(super) fn managed(&self) -> u64 {
        self.zones().map(Zone::pages).sum()
    }

    /// `initialised_pages` as in [`PageConfig`].
    fn zone_params(&self, zone: &Zone, initialised_pages: u32) -> ZoneParams {
        let of_node = self.machine().cpus_of_node(zone.id.node);
        let is_above = |other: &Zone| other.id.node == zone.id.node && other.id.zone > zone.id.zone;
        let is_highest = !self.zones().any(is_above);
        ZoneParams {
            page_shift: self.map().page_shift(),
            pages: zone.pages(),
            initialised_pages: match is_highest {
                true => initialised_pages.into(),
                false => zone.pages(),
            },
            all_pages: self.managed(),
            cpus: node_cpus(of_node, self.machine().topology().cpus),
        }
    }

    /// Pages of a zone that a request does not get which could have had zones up to `highest`.
    fn reserve(&self, zone: &Zone, highest: ZoneType) -> u64 {
        let above = |other: &&Zone| {
            let types = zone.id.zone..=highest;
            other.id.node == zone.id.node
                && other.id.zone != zone.id.zone
                && types.contains(&other.id.zone)
        };
        let pages: u64 = self.zones().filter(above).map(Zone::pages).sum();
        pages / LOWMEM_RESERVE_RATIO[zone.id.zone as usize]
    }
}
