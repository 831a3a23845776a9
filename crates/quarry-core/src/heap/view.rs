//! A cache as everybody may see it: all but allocating, freeing and destroying.

use core::ptr::NonNull;

use super::{CacheBody, Heap};
use crate::debug::{self, Track};
use crate::design::{Busy, CacheHead, CheckError, CpuUsage, Design, Env, NodeUsage, Usage};
use crate::geometry::CacheFlags;
use crate::machine::{CpuId, Machine, NodeId, Topology};
use crate::name::Name;
use crate::rcu;
use crate::stats::{Stat, Stats};
use crate::sync::Ordering;
use crate::system::System;

/// Files in sysfs that tell a cache's debug flags.
const DEBUG_ATTRIBUTES: &[(&str, CacheFlags)] = &[
    ("sanity_checks", CacheFlags::CONSISTENCY),
    ("trace", CacheFlags::TRACE),
    ("red_zone", CacheFlags::RED_ZONE),
    ("poison", CacheFlags::POISON),
    ("store_user", CacheFlags::STORE_USER),
    ("failslab", CacheFlags::FAILSLAB),
];

/// A cache to look at, to set and to shrink.
///
/// [`Heap::for_each_cache`] shows caches whose owners may be about to destroy them. An object allocated then
/// would outlive its cache, so what the walk hands out cannot allocate:
///
/// ```compile_fail,E0599
/// # use quarry_core::{design::Design, heap::Heap, machine::Machine};
/// # fn demo<M: Machine, D: Design>(heap: &Heap<M, D>) {
/// heap.for_each_cache(|cache| drop(cache.alloc()));
/// # }
/// ```
pub struct CacheView<'h, M: Machine, D: Design> {
    pub(super) heap: &'h Heap<M, D>,
    pub(super) body: &'h CacheBody<D>,
}

impl<M: Machine, D: Design> Clone for CacheView<'_, M, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine, D: Design> Copy for CacheView<'_, M, D> {}

/// Objects that a [`DestroyError`] names.
const NAMED: usize = 8;

/// A cache was not destroyed, because it has live objects or was busy. The handle that the caller still
/// has, a copy, stays valid.
#[derive(Clone, Copy)]
pub struct DestroyError {
    name: Name,
    /// Objects that are still allocated.
    pub live: u64,
    /// CPUs whose private objects could not be seen because they were busy.
    pub busy_cpus: u32,
    /// Addresses of the first objects, and who allocated them.
    first: [Option<(usize, Option<Track>)>; NAMED],
}

impl DestroyError {
    pub(super) fn new(name: &str, busy_cpus: u32) -> Self {
        Self {
            name: Name::new(name),
            live: 0,
            busy_cpus,
            first: [None; NAMED],
        }
    }
}

impl core::fmt::Display for DestroyError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let name = self.name.as_str();
        if self.live == 0 {
            return write!(
                f,
                "cache {name}: {} CPUs are busy, try again",
                self.busy_cpus
            );
        }
        let objects = if self.live == 1 { "object" } else { "objects" };
        write!(f, "cache {name} still has {} {objects}:", self.live)?;
        for (address, track) in self.first.iter().flatten() {
            match track {
                Some(track) => write!(f, " {address:#x} allocated in {track};")?,
                None => write!(f, " {address:#x}")?,
            }
        }
        match self.live.saturating_sub(NAMED as u64) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

crate::error::debug_is_display!(DestroyError);

impl core::error::Error for DestroyError {}

impl<'h, M: Machine, D: Design> CacheView<'h, M, D> {
    pub(super) fn env(&self) -> Env<'h, M> {
        self.heap.env(&self.body.head)
    }

    /// The heap that has it.
    pub fn heap(&self) -> &'h Heap<M, D> {
        self.heap
    }

    /// Name, geometry and flags.
    pub fn head(&self) -> &'h CacheHead {
        &self.body.head
    }

    /// The name it was created with.
    pub fn name(&self) -> &'h str {
        self.body.head.name()
    }

    /// Empties per-CPU state and gives every empty slab back. Returns how many CPUs were busy and
    /// kept theirs.
    pub fn shrink(&self) -> u32 {
        self.drain_ring();
        rcu::settle(self.body.behind(), self.env());
        let busy = self.body.behind().shrink(self.env());
        debug::deliver(self.env());
        busy
    }

    /// Empties per-CPU state into the slabs. Returns how many CPUs were busy.
    pub fn flush(&self) -> u32 {
        self.drain_ring();
        rcu::settle(self.body.behind(), self.env());
        let busy = self.body.behind().flush(self.env());
        debug::deliver(self.env());
        busy
    }

    /// Counters; those of CPUs that are busy at this moment are missing.
    pub fn stats(&self) -> Stats {
        self.body.behind().stats(self.env())
    }

    /// Usage of the cache's memory. Costs time proportional to the pages ever used.
    pub fn usage(&self) -> Usage {
        let _pass = self.heap.system.pages.gate().enter(self.heap.machine());
        self.body.behind().usage(self.env())
    }

    /// One node's part of the usage. Costs at most as much as [`CacheView::usage`].
    pub fn node_usage(&self, node: NodeId) -> NodeUsage {
        if node.0 >= self.topology().nodes {
            return NodeUsage::default();
        }
        let _pass = self.heap.system.pages.gate().enter(self.heap.machine());
        self.body.behind().node_usage(self.env(), node)
    }

    /// One CPU's part: its counters and slabs; empty if the CPU is busy at this moment.
    pub fn cpu_usage(&self, cpu: CpuId) -> CpuUsage {
        if cpu.0 >= self.topology().cpus {
            return CpuUsage::default();
        }
        self.body.behind().cpu_usage(self.env(), cpu)
    }

    /// Sets a counter to 0. Returns how many CPUs were busy and kept theirs.
    pub fn clear_stat(&self, stat: Stat) -> u32 {
        self.body.behind().clear_stat(self.env(), stat)
    }

    /// True if kmalloc allocates from this cache.
    pub fn serves_kmalloc(&self) -> bool {
        let me = core::ptr::from_ref(self.body).cast_mut();
        // Relaxed: the address is compared and not followed.
        let System {
            classes,
            hardened_classes,
            ..
        } = &self.heap.system;
        let mut classes = classes.iter().chain(hardened_classes);
        classes.any(|class| class.load(Ordering::Relaxed) == me.cast())
    }

    /// CPUs and nodes of the machine.
    pub(crate) fn topology(&self) -> &'h Topology {
        self.heap.machine().topology()
    }

    /// Calls `f` for every allocated object, in address order. The cache may be in use: an object was
    /// allocated when its part of memory was looked at, and others may have freed it since. `f` may use
    /// the heap.
    ///
    /// # Errors
    ///
    /// [`Busy`] if a part of the cache could not be looked at; `f` has seen the objects in front of it.
    pub fn for_each_live(&self, mut f: impl FnMut(NonNull<u8>)) -> Result<(), Busy> {
        self.for_each_live_with_track(|object, _| f(object))
    }

    /// The same with who allocated the object, in caches with user tracking.
    ///
    /// # Errors
    ///
    /// As [`CacheView::for_each_live`].
    pub fn for_each_live_with_track(
        &self,
        mut f: impl FnMut(NonNull<u8>, Option<&Track>),
    ) -> Result<(), Busy> {
        /// Objects that are looked at while others wait; `f` is called for them afterwards.
        const BATCH: usize = 128;
        let env = self.env();
        let mut from = 0;
        loop {
            let mut batch = [None; BATCH];
            let mut count = 0;
            self.body
                .behind()
                .live_objects(env, from, true, &mut |slot| {
                    batch[count] = debug::live(env, slot);
                    count += usize::from(batch[count].is_some());
                    from = slot.addr().get() + 1;
                    count < BATCH
                })?;
            for (object, track) in batch.iter().flatten() {
                f(*object, track.as_ref());
            }
            if count < BATCH {
                return Ok(());
            }
        }
    }

    /// Number of objects that are allocated, or whose free is deferred. CPUs keep the free objects that they hold, which
    /// [`Usage::active_objs`] counts, too. Others wait meanwhile.
    ///
    /// # Errors
    ///
    /// [`Busy`] if a part of the cache could not be looked at.
    pub fn live(&self) -> Result<u64, Busy> {
        let env = self.env();
        let mut live = 0;
        self.body
            .behind()
            .live_objects(env, 0, false, &mut |slot| {
                live += u64::from(debug::live(env, slot).is_some());
                true
            })?;
        Ok(live)
    }

    /// Checks lists and counters. The cache may be in use: others wait meanwhile.
    ///
    /// # Errors
    ///
    /// The first contradiction, or that the cache was busy and was not looked at.
    pub fn check_consistency(&self) -> Result<(), CheckError> {
        self.body.behind().check_consistency(self.env())
    }

    /// Value of a tunable or attribute by its sysfs name.
    pub fn attribute(&self, name: &str) -> Option<u64> {
        if let Some((_, flag)) = DEBUG_ATTRIBUTES.iter().find(|(known, _)| *known == name) {
            return Some(u64::from(self.body.head.flags.contains(*flag)));
        }
        self.body.behind().attribute(&self.body.head, name)
    }

    /// Sets a tunable by its sysfs name. `false` if the design has no writable one of that name.
    /// Ranges are the caller's to check ([`Table::check`](crate::tunables::Table::check)).
    pub fn set_attribute(&self, name: &str, value: u64) -> bool {
        self.body.behind().set_attribute(self.env(), name, value)
    }

    /// Empties per-CPU state, gives every empty slab back, and checks that no object is left.
    ///
    /// # Errors
    ///
    /// [`DestroyError`] if objects are still allocated: its message names them.
    #[allow(
        clippy::result_large_err,
        reason = "it names objects, and there is no heap to box it in"
    )]
    pub fn check_unused(&self) -> Result<(), DestroyError> {
        debug::release(self.body.behind(), self.env());
        let mut error = DestroyError::new(self.name(), self.shrink());
        let walked = self.for_each_live_with_track(|object, track| {
            if let Some(place) = error.first.get_mut(error.live as usize) {
                *place = Some((object.addr().get(), track.copied()));
            }
            error.live += 1;
        });
        if error.live == 0 && walked.is_ok() && self.usage().slabs == 0 {
            return Ok(());
        }
        error.busy_cpus = error.busy_cpus.max(u32::from(walked.is_err()));
        Err(error)
    }
}
