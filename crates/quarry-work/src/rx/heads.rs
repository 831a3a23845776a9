//! Socket buffer heads: one object of a slab cache per packet, recycled by NAPI.

use quarry_core::design::{CacheSpec, Design};
use quarry_core::era::Era;
use quarry_core::geometry::CacheFlags;
use quarry_core::machine::CpuId;
use quarry_sim::driver::{CacheIndex, Driver, ObjectRef};

/// Bytes of a `struct sk_buff` slot: `skbuff_head_cache` is in the class of 256.
const HEAD_BYTES: u32 = 256;

/// NAPI's rules for the heads that it keeps on each CPU, by era.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NapiRules {
    /// Heads taken from the slab cache when there is none; 0 if heads that were freed are not reused.
    refill: usize,
    /// Heads at which some are given back.
    limit: usize,
    /// Number of heads that are given back.
    flush: usize,
}

impl NapiRules {
    /// 4.13: freed heads are gathered and given back 64 at a time. 6.18, and believed to be the same
    /// in 6.1: they are also reused.
    fn of(era: Era) -> Self {
        let (refill, flush) = if era < Era::V6_1 { (0, 64) } else { (16, 32) };
        Self {
            refill,
            limit: 64,
            flush,
        }
    }
}

/// A head, and the CPU whose slab cache handed it out.
#[derive(Debug)]
pub(super) struct Head<'h> {
    object: ObjectRef<'h>,
    cpu: CpuId,
}

/// The slab cache of heads.
pub(super) struct Heads<'d, 'h, D: Design> {
    driver: &'d Driver<'h, D>,
    cache: CacheIndex,
    rules: NapiRules,
}

/// Heads that NAPI keeps on a ring's CPU.
pub(super) struct RingHeads<'h> {
    cpu: CpuId,
    kept: Vec<Head<'h>>,
}

impl RingHeads<'_> {
    /// None, on the CPU of a ring.
    pub(super) fn new(ring: u32) -> Self {
        Self {
            cpu: CpuId(ring),
            kept: Vec::new(),
        }
    }
}

/// Parameters of the cache of heads.
pub(super) const HEAD_CACHE: CacheSpec<'static> = CacheSpec {
    flags: CacheFlags::HWCACHE_ALIGN,
    ..CacheSpec::new("skbuff_head_cache", HEAD_BYTES)
};

impl<'d, 'h, D: Design> Heads<'d, 'h, D> {
    pub(super) fn new(driver: &'d Driver<'h, D>, cache: CacheIndex, era: Era) -> Self {
        Self {
            driver,
            cache,
            rules: NapiRules::of(era),
        }
    }

    /// A head for a packet of a ring, on the ring's CPU. `None` if memory is exhausted.
    pub(super) fn alloc(&self, ring: &mut RingHeads<'h>) -> Option<Head<'h>> {
        let cpu = ring.cpu;
        self.driver.run_on(cpu);
        if self.rules.refill > 0 && !ring.kept.is_empty() {
            return ring.kept.pop();
        }
        for _ in 1..self.rules.refill {
            let Some(object) = self.driver.alloc(self.cache) else {
                break;
            };
            ring.kept.push(Head { object, cpu });
        }
        let object = self.driver.alloc(self.cache)?;
        Some(Head { object, cpu })
    }

    /// GRO has merged a packet into another: its head stays with the ring.
    pub(super) fn merged(&self, ring: &mut RingHeads<'h>, head: Head<'h>) {
        ring.kept.push(head);
        if ring.kept.len() >= self.rules.limit {
            self.driver.run_on(ring.cpu);
            let given = ring.kept.len() - self.rules.flush..;
            for head in ring.kept.drain(given) {
                free(self.driver, self.cache, head);
            }
        }
    }

    /// The driver is unloaded: gives back what NAPI kept, on the ring's CPU.
    pub(super) fn close(&self, ring: RingHeads<'h>) {
        self.driver.run_on(ring.cpu);
        for head in ring.kept {
            free(self.driver, self.cache, head);
        }
    }

    /// A reader has finished with a socket buffer.
    pub(super) fn read(&self, cpu: CpuId, head: Head<'h>) {
        self.driver.run_on(cpu);
        free(self.driver, self.cache, head);
    }
}

fn free<'h, D: Design>(driver: &Driver<'h, D>, cache: CacheIndex, head: Head<'h>) {
    let freed = driver.free(cache, head.object, head.cpu);
    debug_assert_eq!(freed, Ok(()), "a head came from this very cache");
}
