//! Numbers of caches, by which the times of operations are summed.

use quarry_core::design::Design;
use quarry_core::geometry::KmallocService;
use quarry_sim::driver::{CacheIndex, Driver};

use super::super::objects::KMALLOC;
use crate::run::Kmalloc;

/// Bytes of a step of kmalloc's table: all sizes of classes are multiples of it.
const STEP_BYTES: u32 = 8;
/// Number of what has no cache.
const NO_CACHE: u16 = u16::MAX;

/// The caches of a run, and their numbers.
pub(super) struct Caches {
    names: Vec<String>,
    /// By the driver's index.
    named: Vec<u16>,
    /// By the steps that a kmalloc's bytes fill.
    kmalloc: Vec<u16>,
}

impl Caches {
    /// Numbers all caches there are. kmallocs have none if they are larger than the classes, or if there are no classes.
    pub(super) fn of<D: Design>(driver: &Driver<'_, D>, kmalloc: &Kmalloc) -> Self {
        let mut caches = Self {
            names: Vec::new(),
            named: Vec::new(),
            kmalloc: Vec::new(),
        };
        driver.for_each_cache(|cache| caches.names.push(cache.head().name().to_string()));
        let number = |name: &str| {
            let number = caches.number(name);
            number.map_or(NO_CACHE, |number| number as u16)
        };
        let named = (0..=u16::MAX).map_while(|index| driver.cache(CacheIndex(index)));
        let named = named.map(|cache| number(cache.head().name())).collect();
        let steps = match kmalloc.rules.service {
            KmallocService::Classes => kmalloc.slab_bytes_max as u32 / STEP_BYTES,
            KmallocService::Design => 0,
        };
        let of_step = |step: u32| {
            let cache = driver.kmalloc_cache(step.max(1) * STEP_BYTES);
            cache.map_or(NO_CACHE, |cache| number(cache.head().name()))
        };
        let kmalloc = (0..=steps).map(of_step).collect();
        caches.named = named;
        caches.kmalloc = kmalloc;
        caches
    }

    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    /// Number of the cache of this name.
    pub(super) fn number(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| known == name)
    }

    /// Number of the cache of an object, as the table of objects names it.
    #[inline(always)]
    pub(super) fn of_object(&self, cache: u16, bytes: u32) -> u16 {
        let number = match cache {
            KMALLOC => self.kmalloc.get(bytes.div_ceil(STEP_BYTES) as usize),
            index => self.named.get(usize::from(index)),
        };
        number.copied().unwrap_or(NO_CACHE)
    }
}
