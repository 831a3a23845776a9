//! Sheaves whose capacity follows misses, within a budget of the heap.
//!
//! A *miss* is a trip to the barn or to slabs: the CPU's two sheaves were too small for what it did. After a number of
//! them new sheaves of the cache hold twice as much, and CPUs change theirs at their next misses. What a sheaf holds
//! beyond a new cache's is taken from the heap's budget for as long as it lives; a capacity for which there is no
//! budget is halved until there is. A cache without a miss between two looks, which reaping takes, halves its
//! capacity and empties its barns. What CPUs have stays with them until their next miss.

use super::Kind;
use super::geometry::{Capacity, SheafEra};
use super::stats::Stats;
use super::types::{Sheaf, Sheaves, Sizes};
use crate::design::Env;
use crate::machine::Machine;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// A number that the cache changes by itself until a user sets it.
///
/// A bit of the same word says that one has, so that a change that meets a setting, even of the present number, fails.
pub(super) struct Setting(AtomicU32);

impl Setting {
    /// A user has set the number, which is in the bits below.
    const SET: u32 = 1 << 31;

    pub(super) fn new(value: u32) -> Self {
        Self(AtomicU32::new(value.min(!Self::SET)))
    }

    // Relaxed here and below: a number, which may be late.
    #[inline]
    pub(super) fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed) & !Self::SET
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed) & Self::SET != 0
    }

    /// Sets it for good.
    pub(super) fn set(&self, value: u32) {
        let value = value.min(!Self::SET);
        self.0.store(value | Self::SET, Ordering::Relaxed);
    }

    /// Changes it, unless it is set or is not `from` any more; true if it did.
    fn follow(&self, from: u32, to: u32) -> bool {
        let relaxed = Ordering::Relaxed;
        self.0.compare_exchange(from, to, relaxed, relaxed).is_ok()
    }
}

impl Sizes {
    pub(super) fn new(era: &'static SheafEra) -> Self {
        let rules = match &era.capacity {
            Capacity::Misses(sizing) => Some(sizing),
            Capacity::Asked | Capacity::BySize(_) => None,
        };
        Self {
            rules,
            misses: AtomicU32::new(0),
            misses_seen: AtomicU32::new(0),
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
        if now > 0 && now < most {
            self.follow(env, now, (now * 2).min(most));
        }
    }

    /// Changes the capacity, unless it is set by a user or another thread has changed it.
    fn follow<M: Machine>(&self, env: Env<'_, M>, from: u32, to: u32) {
        if self.capacity.follow(from, to) {
            self.limit_barn(env);
        }
    }

    /// Limits the barn's full sheaves to its bytes, unless a user has set their number.
    pub(super) fn limit_barn<M: Machine>(&self, env: Env<'_, M>) {
        let Some(rules) = self.sizes.rules else {
            return;
        };
        let size = env.cache.geometry.layout.size;
        loop {
            let (capacity, now) = (self.capacity(), self.barn_full.get());
            let sheaf_bytes = capacity.max(1).saturating_mul(size);
            // Threads that hand large objects to others need a barn, too.
            let full = (rules.barn_bytes / sheaf_bytes).max(rules.barn_sheaves);
            self.barn_full.follow(now, full);
            // Another thread may have changed the capacity, and limited the barn before this one did.
            if self.capacity() == capacity {
                return;
            }
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

    /// Objects that a new sheaf may have: the cache's capacity, less if the heap's budget has no room for it. The budget
    /// counts them until [`Sheaves::give_up`].
    pub(super) fn granted<M: Machine>(&self, env: Env<'_, M>) -> u32 {
        let (wanted, first) = (self.capacity(), env.cache.geometry.sheaf_capacity);
        let Some(rules) = self.sizes.rules else {
            return wanted;
        };
        let budget = rules.budget_bytes * u64::from(env.machine().topology().cpus);
        let (grown, relaxed) = (&env.system.grown_bytes, Ordering::Relaxed);
        let is_set = self.capacity.is_set();
        let mut capacity = wanted;
        loop {
            // Relaxed: a number; what it limits is ordered by itself.
            let bytes = self.grown_bytes(env, capacity);
            let all = grown.fetch_add(bytes, relaxed) + bytes;
            if is_set || capacity <= first || all <= budget {
                break;
            }
            grown.fetch_sub(bytes, relaxed);
            capacity = (capacity / 2).max(first);
        }
        if capacity < wanted {
            self.follow(env, wanted, capacity);
        }
        capacity
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

    /// Halves the capacity of a cache that has not missed since the last look, and frees what its barns hold, at most once
    /// in a while. CPUs' slots are not taken: it is a part of frees, whose caller may not wait, and holds the list of caches.
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
        if capacity > first {
            self.follow(env, capacity, (capacity / 2).max(first));
        }
        self.drain_barns(env);
    }
}
