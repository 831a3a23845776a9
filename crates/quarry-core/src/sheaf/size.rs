//! Sheaves whose capacity follows misses, within a budget of the heap.
//!
//! A *miss* is a trip to the barn or to slabs: the CPU's two sheaves were too small for what it did. After a number of them new sheaves of the cache hold twice as much, and CPUs change theirs at
//! their next misses. What a sheaf holds beyond a new cache's is taken from the heap's budget for as long as it
//! lives; without budget it is as small as a new cache's. A cache without a miss between two looks, which
//! reaping takes, halves its capacity, and what its sheaves hold and its empty slabs go back.

use super::Kind;
use super::geometry::{Capacity, SheafEra};
use super::stats::Stats;
use super::types::{Sheaf, Sheaves, Sizes};
use crate::design::{Env, Upkeep as _};
use crate::machine::Machine;
use crate::sync::{AtomicU8, AtomicU32, AtomicU64, Ordering};

impl Sizes {
    pub(super) fn new(era: &'static SheafEra) -> Self {
        let rules = match &era.capacity {
            Capacity::Misses(sizing) => Some(sizing),
            Capacity::Asked | Capacity::BySize(_) => None,
        };
        Self {
            rules,
            is_set: AtomicU8::new(0),
            misses: AtomicU32::new(0),
            misses_seen: AtomicU32::new(0),
            shrunk_at: AtomicU32::new(0),
            looked_ns: AtomicU64::new(0),
        }
    }
}

impl<K: Kind> Sheaves<K> {
    /// Notes a miss; the capacity grows after some.
    pub(super) fn missed<M: Machine>(&self, env: Env<'_, M>) {
        let Some(rules) = self.sizes.rules else {
            return;
        };
        // Relaxed: a number, which may be late.
        let misses = self.sizes.misses.fetch_add(1, Ordering::Relaxed) + 1;
        if !misses.is_multiple_of(rules.misses) {
            return;
        }
        let (now, most) = (self.capacity(), rules.most(env.cache.geometry.layout.size));
        let is_set = self.sizes.is_set.load(Ordering::Relaxed) != 0;
        if !is_set && now > 0 && now < most {
            let next = (now * 2).min(most);
            let (capacity, relaxed) = (&self.capacity, Ordering::Relaxed);
            if capacity
                .compare_exchange(now, next, relaxed, relaxed)
                .is_ok()
            {
                self.limit_barn(env);
            }
        }
    }

    /// Limits the barn's full sheaves to its bytes.
    pub(super) fn limit_barn<M: Machine>(&self, env: Env<'_, M>) {
        if let Some(rules) = self.sizes.rules {
            let size = env.cache.geometry.layout.size;
            let sheaf_bytes = self.capacity().max(1).saturating_mul(size);
            let full = rules.barn_bytes / sheaf_bytes;
            self.barn_full.store(full, Ordering::Relaxed);
        }
    }

    /// True for a sheaf that has less than half of what new ones have: in a barn it would stay, and serve others as badly.
    pub(super) fn is_small(&self, sheaf: &Sheaf) -> bool {
        self.sizes.rules.is_some() && sheaf.capacity() < self.capacity() / 2
    }

    /// An empty sheaf in the place of one that is smaller than new ones.
    pub(super) fn right_sized<M: Machine>(
        &self,
        env: Env<'_, M>,
        empty: Sheaf,
        stats: &mut Stats,
    ) -> Sheaf {
        if self.sizes.rules.is_none() || empty.capacity() >= self.capacity() {
            return empty;
        }
        let capacity = self.granted(env);
        if capacity <= empty.capacity() {
            self.give_up(env, capacity);
            return empty;
        }
        match self.sheaf_of(env, capacity, stats) {
            Some(new) => {
                self.free_sheaf(env, empty, stats);
                new
            }
            None => empty,
        }
    }

    /// True if an empty sheaf of this capacity is worth keeping.
    pub(super) fn keeps(&self, capacity: u32) -> bool {
        match self.sizes.rules {
            Some(_) => capacity <= self.capacity(),
            None => capacity == self.capacity(),
        }
    }

    /// Objects that a new sheaf may have: the cache's capacity if the heap's budget has room for it.
    pub(super) fn granted<M: Machine>(&self, env: Env<'_, M>) -> u32 {
        let (capacity, first) = (self.capacity(), env.cache.geometry.sheaf_capacity);
        let Some(rules) = self.sizes.rules.filter(|_| capacity > first) else {
            return capacity;
        };
        let bytes = self.grown_bytes(env, capacity);
        let budget = rules.budget_bytes * u64::from(env.machine().topology().cpus);
        let grown = &env.system.grown_bytes;
        // Relaxed: a number; what it limits is ordered by itself.
        if grown.fetch_add(bytes, Ordering::Relaxed) + bytes <= budget {
            return capacity;
        }
        grown.fetch_sub(bytes, Ordering::Relaxed);
        first
    }

    /// Gives back what a sheaf of this capacity has of the budget.
    pub(super) fn give_up<M: Machine>(&self, env: Env<'_, M>, capacity: u32) {
        if self.sizes.rules.is_some() {
            let bytes = self.grown_bytes(env, capacity);
            env.system.grown_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Bytes of objects that a sheaf holds beyond a new cache's.
    fn grown_bytes<M: Machine>(&self, env: Env<'_, M>, capacity: u32) -> u64 {
        let grown = capacity.saturating_sub(env.cache.geometry.sheaf_capacity);
        u64::from(grown) * u64::from(env.cache.geometry.layout.size)
    }

    /// Takes back half of what a cache without misses holds, at most once in a while.
    pub(super) fn look_at_misses<M: Machine>(&self, env: Env<'_, M>, now_ns: u64) {
        let Some(rules) = self.sizes.rules else {
            return;
        };
        let (sizes, relaxed) = (&self.sizes, Ordering::Relaxed);
        let looked = sizes.looked_ns.load(relaxed);
        if now_ns.saturating_sub(looked) < rules.look_ns {
            return;
        }
        // One of several threads takes the look.
        let taken = sizes
            .looked_ns
            .compare_exchange(looked, now_ns, relaxed, relaxed);
        let misses = sizes.misses.load(relaxed);
        if taken.is_err() || sizes.misses_seen.swap(misses, relaxed) != misses {
            return;
        }
        let (capacity, first) = (self.capacity(), env.cache.geometry.sheaf_capacity);
        let shrinks = capacity > first && sizes.is_set.load(relaxed) == 0;
        // What is held then came back by the hits of one refill, which is a miss; so once is enough.
        if sizes.shrunk_at.swap(misses, relaxed) == misses && !shrinks {
            return;
        }
        if shrinks {
            self.capacity.store((capacity / 2).max(first), relaxed);
            self.limit_barn(env);
        }
        self.shrink(env);
    }
}
