//! The order of a slab: how many pages it has.

use crate::geometry::{BootParams, GeometryError, MachineParams, PAGE_ORDER_MAX, fls};

/// Number of objects that a slab should hold when `slub_min_objects` is not set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MinObjects {
    /// By page size [until 2.6.25].
    ByPage {
        /// With 4 KiB pages.
        small: u32,
        /// With larger pages.
        large: u32,
    },
    /// `4 * (fls(CPUs) + 1)`, at most `cap` [2.6.26 and later].
    ByCpus {
        /// Upper bound; `u32::MAX` for none.
        cap: u32,
    },
}

/// Concessions of the search when no order satisfies it (`calculate_order()`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OrderSearch {
    /// The demand for objects is halved [until 2.6.29].
    HalveObjects,
    /// The demand is first cut to what `slub_max_order` can hold, then lowered by one at a time
    /// [2.6.30 to 6.6].
    DecrementObjects,
    /// The demand becomes a minimum order, once [6.7 and later].
    MinOrder,
}

/// Treatment of a slab that would hold more objects than a counter can count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ObjectLimit {
    /// There is no limit [SLUB with queues].
    None,
    /// The cache is refused [2.6.22].
    Refuse(u32),
    /// The minimum order is lowered, and an order is taken, whatever its slack, if twice of it
    /// exceeds the limit [2.6.23 to 2.6.25].
    StopGrowing(u32),
    /// If the minimum order exceeds the limit, the order just below the limit is taken
    /// [2.6.26 and later].
    BelowLimit(u32),
}

/// The numbers of the order search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OrderRules {
    /// Default `slub_max_order` with 4 KiB pages.
    pub max_order_small: u32,
    /// Default `slub_max_order` with larger pages.
    pub max_order_large: u32,
    /// Default number of objects.
    pub min_objects: MinObjects,
    /// Fractions of the slab that may be slack, tried in turn: 16 means at most 1/16.
    pub fractions: &'static [u32],
    /// Concessions of the search.
    pub search: OrderSearch,
    /// The limit on objects.
    pub object_limit: ObjectLimit,
    /// A boot parameter that contradicts the other one moves it [6.7 and later]. A given `slub_max_order`
    /// lowers a higher `slub_min_order`, as if it came last; the default one is raised.
    pub orders_adjusted: bool,
}

impl OrderRules {
    /// The minimum and maximum order in force under these boot parameters.
    pub fn effective_orders(&self, machine: &MachineParams, boot: &BootParams) -> (u32, u32) {
        let min = boot.slub_min_order;
        let small = machine.page_shift == crate::geometry::PAGE_SHIFT_MIN;
        let default = if small {
            self.max_order_small
        } else {
            self.max_order_large
        };
        match boot.slub_max_order.map(|max| max.min(PAGE_ORDER_MAX)) {
            Some(max) if self.orders_adjusted => (min.min(max), max),
            None if self.orders_adjusted => (min, default.max(min)),
            given => (min, given.unwrap_or(default)),
        }
    }

    /// The demand for objects under these boot parameters, before any cut.
    pub fn effective_min_objects(&self, machine: &MachineParams, boot: &BootParams) -> u32 {
        if boot.slub_min_objects != 0 {
            return boot.slub_min_objects;
        }
        match self.min_objects {
            MinObjects::ByPage { small, .. }
                if machine.page_shift == crate::geometry::PAGE_SHIFT_MIN =>
            {
                small
            }
            MinObjects::ByPage { large, .. } => large,
            MinObjects::ByCpus { cap } => (4 * (fls(machine.nr_cpus.into()) + 1)).min(cap),
        }
    }
}

/// The order of slabs with slots of `size` bytes (`calculate_order()`).
///
/// # Errors
/// [`GeometryError::SizeTooLarge`] if one slot does not fit in the largest slab;
/// [`GeometryError::OrderOutOfRange`] if the minimum order leads above the page allocator's.
pub fn calculate_order(
    rules: &OrderRules,
    machine: &MachineParams,
    boot: &BootParams,
    size: u32,
) -> Result<u32, GeometryError> {
    let max_bytes = machine.slab_bytes_max();
    if u64::from(size) > max_bytes {
        return Err(GeometryError::SizeTooLarge {
            bytes: size.into(),
            max_bytes,
        });
    }
    let (min_order, max_order) = rules.effective_orders(machine, boot);
    let min_objects = rules.effective_min_objects(machine, boot);
    let search = Search {
        rules,
        machine,
        size: size.into(),
        min_order,
        max_order,
    };
    let order = match rules.search {
        OrderSearch::HalveObjects => search.by_objects(min_objects, |objects| objects / 2),
        OrderSearch::DecrementObjects => {
            let fitting = machine.slab_bytes(max_order) / u64::from(size);
            search.by_objects(min_objects.min(fitting as u32), |objects| objects - 1)
        }
        OrderSearch::MinOrder => Some(search.by_min_order(min_objects)),
    };
    order.ok_or(GeometryError::OrderOutOfRange {
        name: "slub_min_order",
        order: min_order,
    })
}

/// One search, with the boot parameters resolved.
struct Search<'a> {
    rules: &'a OrderRules,
    machine: &'a MachineParams,
    size: u64,
    min_order: u32,
    max_order: u32,
}

impl Search<'_> {
    /// Until 6.6: for fewer and fewer objects, for more and more slack.
    fn by_objects(&self, min_objects: u32, fewer: fn(u32) -> u32) -> Option<u32> {
        let mut objects = min_objects;
        while objects > 1 {
            for &fraction in self.rules.fractions {
                let order = self.slab_order(objects, self.max_order, fraction);
                if order.is_some() {
                    return order;
                }
            }
            objects = fewer(objects);
        }
        self.slab_order(1, self.max_order, 1)
            .or_else(|| self.slab_order(1, PAGE_ORDER_MAX, 1))
    }

    /// The lowest order up to `max_order` that holds `objects` objects and wastes at most 1/`fraction` of
    /// the slab (`slab_order()`).
    fn slab_order(&self, objects: u32, max_order: u32, fraction: u32) -> Option<u32> {
        if let Some(order) = self.below_limit(self.min_order) {
            return Some(order);
        }
        let mut min_order = self.min_order;
        let mut growth_limit = u64::MAX;
        if let ObjectLimit::StopGrowing(limit) = self.rules.object_limit {
            growth_limit = self.size * u64::from(limit);
            while min_order > 0 && self.machine.slab_bytes(min_order) >= growth_limit {
                min_order -= 1;
            }
        }
        let start = min_order.max(self.machine.order_for(u64::from(objects) * self.size));
        (start..=max_order).find(|&order| {
            self.slack_fits(order, fraction) || self.machine.slab_bytes(order + 1) > growth_limit
        })
    }

    /// From 6.7 on: the demand is an order; only the slack gives way (`calculate_order()`).
    fn by_min_order(&self, min_objects: u32) -> u32 {
        let fitting = (self.machine.slab_bytes(self.max_order) / self.size).max(1);
        let demand = u64::from(min_objects).min(fitting) * self.size;
        let min_order = self.min_order.max(self.machine.order_for(demand));
        if let Some(order) = self.below_limit(min_order) {
            return order;
        }
        for &fraction in self.rules.fractions {
            let found =
                (min_order..=self.max_order).find(|&order| self.slack_fits(order, fraction));
            if let Some(order) = found {
                return order;
            }
        }
        self.machine.order_for(self.size)
    }

    /// The order just below the object limit, if this order exceeds it.
    fn below_limit(&self, order: u32) -> Option<u32> {
        let ObjectLimit::BelowLimit(limit) = self.rules.object_limit else {
            return None;
        };
        let objects = self.machine.slab_bytes(order) / self.size;
        let limit = u64::from(limit);
        // The limit in bytes is above one page here, so its order is at least 1.
        (objects > limit).then(|| self.machine.order_for(self.size * limit) - 1)
    }

    fn slack_fits(&self, order: u32, fraction: u32) -> bool {
        let slab_bytes = self.machine.slab_bytes(order);
        slab_bytes % self.size <= slab_bytes / u64::from(fraction)
    }
}
