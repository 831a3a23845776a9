//! Limits of a zone's per-CPU lists.

use crate::page::geometry::ListLimits;
use crate::page::rules::{Rules, Tuning};
use crate::sync::{AtomicU32, Ordering};

/// Limits of the lists of each CPU; they can be changed while in use.
pub(crate) struct PcpLimits {
    batch: AtomicU32,
    high_min: AtomicU32,
    high_max: AtomicU32,
    /// Most that frees count up to; 0 where they are not counted.
    spree_max: AtomicU32,
    /// Number of counted pages at which larger frees drain the lists.
    spree_least: AtomicU32,
}

impl PcpLimits {
    pub(super) fn new() -> Self {
        Self {
            batch: AtomicU32::new(1),
            high_min: AtomicU32::new(0),
            high_max: AtomicU32::new(0),
            spree_max: AtomicU32::new(0),
            spree_least: AtomicU32::new(0),
        }
    }

    pub(super) fn set(&self, limits: ListLimits, high_max: u32, rules: &Rules) {
        self.batch.store(limits.batch, Ordering::Relaxed);
        self.high_min.store(limits.high, Ordering::Relaxed);
        self.high_max.store(high_max, Ordering::Relaxed);
        let counted = rules.tuning == Tuning::Auto;
        let most = u32::from(counted) * (limits.batch << rules.batch_scale_max);
        self.spree_max.store(most, Ordering::Relaxed);
        let least = rules.spree_least(limits.batch, limits.high);
        self.spree_least.store(least, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(crate) fn batch(&self) -> u32 {
        self.batch.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(crate) fn high_min(&self) -> u32 {
        self.high_min.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(crate) fn high_max(&self) -> u32 {
        self.high_max.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(crate) fn spree_max(&self) -> u32 {
        self.spree_max.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(crate) fn spree_least(&self) -> u32 {
        self.spree_least.load(Ordering::Relaxed)
    }
}
