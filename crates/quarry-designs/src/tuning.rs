//! Values of tunables, checked, as a run takes them.

use quarry_core::debug::SlubDebug;
use quarry_core::design::Design;
use quarry_core::geometry::{BootParams, CacheFlags, Geometry};
use quarry_core::page::PageConfig;
use quarry_core::slub::geometry::cpu_partial_slabs;
use quarry_core::tunables::{Scope, Tunable};
use quarry_sim::driver::{CacheView, Driver};

use crate::{DesignError, DesignSpec, PagePolicy};

/// Values of a design's tunables, checked against their ranges. None by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// Boot parameters.
    pub boot: BootParams,
    /// Tunables of every cache, in the order in which they are set.
    pub cache: Vec<(&'static Tunable, u64)>,
    /// Sysctls of the page allocator.
    pub pages: Vec<(&'static Tunable, u64)>,
    /// Debugging of caches.
    pub debug: Option<SlubDebug>,
    /// Rules of the page allocator beyond the release's, whose placement is then accounted.
    pub policy: Option<PagePolicy>,
}

/// A tunable that a cache does not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The tunable.
    pub name: &'static str,
    /// The value.
    pub value: u64,
}

impl Tuning {
    /// The configuration of a page allocator with its policy.
    #[must_use]
    pub fn page_config(&self, plain: PageConfig) -> PageConfig {
        self.policy.map_or(plain, |policy| policy.config(plain))
    }

    /// Sets the sysctls.
    ///
    /// # Errors
    ///
    /// [`DesignError`] if the page allocator refuses one.
    pub fn set_pages<D: Design>(&self, driver: &Driver<'_, D>) -> Result<(), DesignError> {
        for (tunable, value) in &self.pages {
            let set = driver.pages().set_sysctl(tunable.name, *value);
            set.map_err(|error| DesignError(error.to_string()))?;
        }
        Ok(())
    }

    /// True if it has a value for this tunable of every cache.
    #[must_use]
    pub fn sets(&self, name: &str) -> bool {
        let mut set = self.cache.iter();
        set.any(|(tunable, _)| tunable.name == name)
    }

    /// Sets the tunables of a cache.
    ///
    /// # Errors
    ///
    /// [`Refused`] with the first that the cache does not take.
    pub fn set_cache<D: Design>(&self, cache: &CacheView<'_, D>) -> Result<(), Refused> {
        // The values are for every cache; those that other caches are made of never have sheaves.
        let never = cache.head().flags().contains(CacheFlags::NO_SHEAVES);
        for (tunable, value) in &self.cache {
            if never && tunable.name == "sheaf_capacity" {
                continue;
            }
            if !cache.set_attribute(tunable.name, *value) {
                let (name, value) = (tunable.name, *value);
                return Err(Refused { name, value });
            }
        }
        Ok(())
    }

    /// Switches debugging on as a `slub_debug` setting says, in the words of the design's era.
    ///
    /// # Errors
    ///
    /// [`DesignError`] if it does not parse, or the design has no debugging.
    pub fn set_debug(&mut self, text: &str, spec: &DesignSpec) -> Result<(), DesignError> {
        let parsed = SlubDebug::parse(text, spec.era)
            .map_err(|error| DesignError(format!("{spec}: {error}")))?;
        let flags = CacheFlags::DEBUG_DEFAULT;
        if let Err(error) = spec.design.try_geometry(spec.era, flags) {
            return Err(DesignError(format!("{spec}: {error}")));
        }
        self.debug = Some(parsed);
        Ok(())
    }

    pub(crate) fn set(&mut self, tunable: &'static Tunable, value: u64) {
        // The ranges of the table keep the values below 2^32.
        let small = u32::try_from(value).unwrap_or(u32::MAX);
        match (tunable.scope, tunable.name) {
            (Scope::Boot, "slub_min_order") => self.boot.slub_min_order = small,
            (Scope::Boot, "slub_max_order") => self.boot.slub_max_order = Some(small),
            (Scope::Boot, "slab_max_order") => self.boot.slab_max_order = Some(small),
            (Scope::Boot, "slub_min_objects") => self.boot.slub_min_objects = small,
            (Scope::Boot, "slub_nomerge") => self.boot.merge = value == 0,
            (Scope::Boot, "slub_cpu_partial") => self.boot.slub_cpu_partial = Some(small),
            (Scope::Boot, "slub_cpu_partial_by_size") => {
                self.boot.slub_cpu_partial_by_size = value != 0;
            }
            (Scope::Sysctl, _) => self.pages.push((tunable, value)),
            _ => self.cache.push((tunable, value)),
        }
    }

    /// Changes a cache's geometry as the cache tunables do.
    pub fn adjust(&self, geometry: &mut Geometry) {
        for (tunable, value) in &self.cache {
            let value = u32::try_from(*value).unwrap_or(u32::MAX);
            match tunable.name {
                "min_partial" => geometry.min_partial = value,
                "order" | "slab_order" => set_order(geometry, value),
                "cpu_partial" => {
                    if geometry.cpu_partial_slabs > 0 {
                        geometry.cpu_partial_slabs = cpu_partial_slabs(value, geometry.objects);
                    }
                    geometry.cpu_partial = value;
                }
                "cpu_queue_size" | "limit" => geometry.queue = value,
                "cpu_batch_size" | "batchcount" => geometry.batch = value,
                "sharedfactor" => geometry.slab.shared_factor = value,
                "sheaf_capacity" => geometry.sheaf_capacity = value,
                _ => {}
            }
        }
        geometry.batch = geometry.batch.min(geometry.queue);
    }
}

/// Another order of slabs, or the nearest that holds an object.
fn set_order(geometry: &mut Geometry, order: u32) {
    let size = u64::from(geometry.layout.size);
    let used = size * u64::from(geometry.objects);
    let page_bytes = (used + u64::from(geometry.slack_bytes)) >> geometry.order;
    let lowest = size.div_ceil(page_bytes).next_power_of_two().ilog2();
    // A slab counts its objects in 16 bits.
    let holds = |order: u32| (page_bytes << order) / size;
    let fits = |order: &u32| holds(*order) <= u64::from(u16::MAX);
    geometry.order = (lowest..=order).rev().find(fits).unwrap_or(lowest);
    geometry.objects = holds(geometry.order) as u32;
    geometry.slack_bytes = ((page_bytes << geometry.order) % size) as u32;
}
