//! What the sheaves and barns of a cache hold (7.0 and later; one node).
//!
//! Kernels count objects that lie there as active. They are free all the same: an allocation takes
//! them before it makes a slab, and while they lie there they keep their slabs from being freed.

/// What CPUs and the node's barn can hold of one cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SheafStock {
    /// Objects of a sheaf (`sheaf_capacity`).
    pub capacity: u64,
    /// Full sheaves that the barn keeps.
    pub barn_full: u64,
    /// CPUs that use the cache.
    pub cpus: u64,
}

impl SheafStock {
    /// Most objects of a CPU: of its main and its spare sheaf.
    #[must_use]
    pub const fn cpu_max(&self) -> u64 {
        2 * self.capacity
    }

    /// Most objects.
    #[must_use]
    pub const fn max(&self) -> u64 {
        self.barn_full * self.capacity + self.cpus * self.cpu_max()
    }

    /// Objects after frees overflowed into slabs: these go there only while the barn has all the full
    /// sheaves that it keeps and the CPU's spare sheaf is full; its main one is half full on average.
    #[must_use]
    pub const fn after_overflow(&self) -> u64 {
        self.barn_full * self.capacity + self.cpus * (self.capacity + self.capacity / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// UNIX-STREAM on a kernel 7.2 with two CPUs after a burst, by its counters: 352 objects, the barn
    /// having 10 full sheaves.
    #[test]
    fn an_overflow_leaves_a_full_barn() {
        let stock = SheafStock {
            capacity: 28,
            barn_full: 10,
            cpus: 2,
        };
        assert_eq!(stock.max(), 392);
        assert_eq!(stock.after_overflow(), 364);
    }
}
