//! Contents of a cache's sheaves and barns (7.0 and later).
//!
//! A CPU has a main and a spare sheaf, a node's barn keeps full ones up to its limit. Kernels count
//! objects that lie there as active. They are free all the same: an allocation takes them before it
//! makes a slab, and while they lie there they keep their slabs from being freed.
//!
//! When a load goes, frees fill the main sheaf, then the spare one, then the barn, and only then
//! slabs. So after it barns and spare sheaves are full, and a main sheaf holds any number: half.

/// The sheaves that a cache can fill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sheaves {
    /// Objects of a sheaf (`sheaf_capacity`); 0 if the cache has none.
    pub capacity: u64,
    /// Full sheaves that all barns keep.
    pub in_barns: u64,
    /// CPUs that use the cache.
    pub cpus: u64,
}

impl Sheaves {
    /// Most objects of a CPU: of its main and its spare sheaf.
    pub const fn cpu_max(&self) -> u64 {
        2 * self.capacity
    }

    /// Most objects: all sheaves are full.
    pub const fn max(&self) -> u64 {
        self.in_barns * self.capacity + self.cpus * self.cpu_max()
    }

    /// Objects that are expected after a load has gone: frees have overflowed into slabs.
    pub const fn after_load(&self) -> u64 {
        self.in_barns * self.capacity + self.cpus * (self.capacity + self.capacity / 2)
    }

    /// Sheaves that exist after a load, beside the main ones that each cache has from its creation.
    pub const fn beside_main(&self) -> u64 {
        self.cpus + self.in_barns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// UNIX-STREAM on a kernel 7.2 with two CPUs after a burst, by its counters: 352 objects, the barn
    /// having 10 full sheaves.
    #[test]
    fn an_overflow_leaves_a_full_barn() {
        let sheaves = Sheaves {
            capacity: 28,
            in_barns: 10,
            cpus: 2,
        };
        assert_eq!(sheaves.max(), 392);
        assert_eq!(sheaves.after_load(), 364);
    }

    #[test]
    fn capacity_bounds_what_is_kept() {
        let sheaves = |capacity, cpus| Sheaves {
            capacity,
            cpus,
            in_barns: 10,
        };
        // kmalloc-cg-2k on two CPUs, kernel 7.0: about 180 objects active, 22 of them live.
        assert_eq!(sheaves(12, 2).max(), 168);
        assert_eq!(sheaves(12, 2).after_load(), 156);
        assert_eq!(sheaves(12, 8).max(), 312);
        assert_eq!(sheaves(0, 8).max(), 0);
        assert_eq!(sheaves(60, 2).beside_main(), 12);
    }
}
