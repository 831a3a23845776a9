//! Objects that keep their state between users.
//!
//! A slab cache of the kernel constructs the objects of a slab once, and their users leave them in that state. Here the
//! objects stay allocated while they are idle, above the cache: on a lane for each CPU, and in a depot that lanes exchange
//! batches with (magazines, as in Bonwick's vmem paper of 2001). So no memory that slabs may give back holds a value, and
//! destructors run where any other code could.
//!
//! A lane is behind a try-lock. Who finds it taken, by a thread that was preempted, by the thread that a signal handler
//! interrupted or by one that a forked child has not, constructs an object or drops one instead of waiting.

use std::cell::UnsafeCell;
use std::fmt::{self, Debug};
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use quarry_core::design::Design;
use quarry_core::machine::Cpus as _;

use super::{AllocError, Cache, Owned};
use crate::DefaultDesign;

/// Idle objects on a lane at most.
const LANE: usize = 64;
/// Objects that go between a lane and the depot at once.
const BATCH: usize = LANE / 2;
/// Idle objects in the depot at most.
const DEPOT: usize = 1024;

/// Idle objects behind a try-lock.
#[repr(align(64))]
struct Lane<T, D: Design> {
    taken: AtomicBool,
    /// The length of `idle`, for those who do not have the lane.
    count: AtomicUsize,
    idle: UnsafeCell<Vec<Owned<T, D>>>,
}

// SAFETY: only the thread that took the lane reaches the objects, so sharing it moves objects between threads.
unsafe impl<T: Send, D: Design> Sync for Lane<T, D> {}

impl<T, D: Design> Lane<T, D> {
    fn new(room: usize) -> Self {
        Self {
            taken: AtomicBool::new(false),
            count: AtomicUsize::new(0),
            idle: UnsafeCell::new(Vec::with_capacity(room)),
        }
    }

    /// Runs `f`, which calls no users' code, on the objects; `None` if the lane is taken.
    #[inline]
    fn try_with<R>(&self, f: impl FnOnce(&mut Vec<Owned<T, D>>) -> R) -> Option<R> {
        // Acquire: pairs with the Release below.
        if self.taken.swap(true, Ordering::Acquire) {
            return None;
        }
        // SAFETY: the swap made this thread the only one that has the lane, and `f` has no way to this function.
        let idle = unsafe { &mut *self.idle.get() };
        let result = f(idle);
        self.count.store(idle.len(), Ordering::Relaxed);
        self.taken.store(false, Ordering::Release);
        Some(result)
    }
}

/// A cache whose objects are constructed once and keep their state between users: buffers keep their room, connections
/// their tables. [`Cache::with_constructor`] makes one.
///
/// The constructor runs when an allocation finds no idle object. `reset` runs when an object is given back. Idle objects
/// wait on the CPU, 64 at most, and up to 1024 in all CPUs' depot; what is beyond is dropped, as are all of them by
/// [`ConstructedCache::shrink`] and with the cache.
///
/// # Examples
///
/// ```
/// use quarry::{Cache, HostHeap};
///
/// let heap = HostHeap::new()?;
/// let lines = Cache::new(&heap, "line")?.with_constructor(|| String::with_capacity(4096), String::clear);
/// let mut line = lines.alloc()?;
/// line.push_str("a request");
/// drop(line);
/// // The next user finds it empty, with its room.
/// let line = lines.alloc()?;
/// assert_eq!((line.len(), line.capacity()), (0, 4096));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ConstructedCache<T, D: Design = DefaultDesign> {
    /// One for each possible CPU.
    lanes: Box<[Lane<T, D>]>,
    depot: Lane<T, D>,
    construct: Box<dyn Fn() -> T + Send + Sync>,
    reset: Box<dyn Fn(&mut T) + Send + Sync>,
    // Dropped last: the lanes' objects are of it.
    cache: Cache<T, D>,
}

// A panic of the constructor or of `reset` finds no lane taken, and the object that it left is dropped.
impl<T, D: Design> UnwindSafe for ConstructedCache<T, D> {}
impl<T, D: Design> RefUnwindSafe for ConstructedCache<T, D> {}

impl<T, D: Design> Cache<T, D> {
    /// Makes a cache whose objects are constructed once, and which `reset` brings back to what the next user expects.
    ///
    /// If one of the two panics, the panic goes on to the caller of [`ConstructedCache::alloc`], or from the drop of the
    /// object; the object is freed.
    #[must_use]
    pub fn with_constructor(
        self,
        construct: impl Fn() -> T + Send + Sync + 'static,
        reset: impl Fn(&mut T) + Send + Sync + 'static,
    ) -> ConstructedCache<T, D> {
        let cpus = self.heap().machine().topology().cpus;
        ConstructedCache {
            lanes: (0..cpus).map(|_| Lane::new(LANE)).collect(),
            depot: Lane::new(DEPOT),
            construct: Box::new(construct),
            reset: Box::new(reset),
            cache: self,
        }
    }
}

impl<T, D: Design> ConstructedCache<T, D> {
    /// Takes an idle object, or constructs one.
    ///
    /// # Errors
    ///
    /// [`AllocError`] if memory is exhausted.
    #[inline]
    #[track_caller]
    pub fn alloc(&self) -> Result<Constructed<'_, T, D>, AllocError<()>> {
        let object = match self.lane().try_with(Vec::pop).flatten() {
            Some(object) => object,
            None => self.alloc_slow()?,
        };
        Ok(Constructed {
            object: ManuallyDrop::new(object),
            cache: self,
        })
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn alloc_slow(&self) -> Result<Owned<T, D>, AllocError<()>> {
        let from_depot = self.lane().try_with(|idle| {
            let taken = self.depot.try_with(|depot| {
                let left = depot.len().saturating_sub(BATCH);
                idle.extend(depot.drain(left..));
            });
            taken.and_then(|()| idle.pop())
        });
        match from_depot.flatten() {
            Some(object) => Ok(object),
            None => {
                let made = self.cache.alloc_with(|| (self.construct)());
                made.map_err(|_| AllocError(()))
            }
        }
    }

    /// Takes an object back, unless there is no room for it.
    #[inline]
    fn keep(&self, object: Owned<T, D>) {
        let mut object = Some(object);
        let kept = self.lane().try_with(|idle| {
            if idle.len() < LANE {
                idle.extend(object.take());
            }
        });
        if object.is_some() && kept.is_some() {
            self.keep_in_depot(&mut object);
        }
        // What is left here is dropped, with no lane taken.
    }

    /// Moves a batch of a full lane to the depot, and then the object to the lane.
    #[cold]
    #[inline(never)]
    fn keep_in_depot(&self, object: &mut Option<Owned<T, D>>) {
        self.lane().try_with(|idle| {
            self.depot.try_with(|depot| {
                if idle.len() == LANE && depot.len() + BATCH <= DEPOT {
                    depot.extend(idle.drain(..BATCH));
                }
            });
            if idle.len() < LANE {
                idle.extend(object.take());
            }
        });
    }

    /// The running CPU's lane.
    #[inline]
    fn lane(&self) -> &Lane<T, D> {
        let cpu = self.cache.heap().machine().current_cpu();
        &self.lanes[cpu.0 as usize % self.lanes.len()]
    }

    fn all_lanes(&self) -> impl Iterator<Item = &Lane<T, D>> {
        self.lanes.iter().chain([&self.depot])
    }

    /// Number of idle objects; others may change it at any time.
    #[must_use]
    pub fn idle(&self) -> usize {
        let counts = self
            .all_lanes()
            .map(|lane| lane.count.load(Ordering::Relaxed));
        counts.sum()
    }

    /// Drops the idle objects and gives empty slabs back. Returns how many lanes and CPUs were busy and kept theirs.
    pub fn shrink(&self) -> u32 {
        let mut busy = 0;
        for lane in self.all_lanes() {
            let mut idle = Vec::with_capacity(if std::ptr::eq(lane, &self.depot) {
                DEPOT
            } else {
                LANE
            });
            let taken = lane.try_with(|objects| std::mem::swap(objects, &mut idle));
            busy += u32::from(taken.is_none());
            // Here, with no lane taken.
            drop(idle);
        }
        busy + self.cache.shrink()
    }

    /// The cache below, to look into it. What is allocated from it is not given back here.
    #[must_use]
    pub fn cache(&self) -> &Cache<T, D> {
        &self.cache
    }
}

impl<T, D: Design> Debug for ConstructedCache<T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConstructedCache")
            .field("idle", &self.idle())
            .field("cache", &self.cache)
            .finish()
    }
}

/// An object of a [`ConstructedCache`]; goes back when dropped, on whichever thread that is.
pub struct Constructed<'c, T, D: Design = DefaultDesign> {
    object: ManuallyDrop<Owned<T, D>>,
    cache: &'c ConstructedCache<T, D>,
}

impl<T, D: Design> Constructed<'_, T, D> {
    /// Takes the object out for good: it is dropped as any other, and not reset.
    #[must_use]
    pub fn detach(this: Self) -> Owned<T, D> {
        let mut this = ManuallyDrop::new(this);
        // SAFETY: taken once: `this` is neither used nor dropped any more.
        unsafe { ManuallyDrop::take(&mut this.object) }
    }
}

impl<T, D: Design> Drop for Constructed<'_, T, D> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: taken once, and `self` is not used any more. If `reset` panics, the object is dropped.
        let mut object = unsafe { ManuallyDrop::take(&mut self.object) };
        (self.cache.reset)(&mut object);
        self.cache.keep(object);
    }
}

impl<T, D: Design> Deref for Constructed<'_, T, D> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.object
    }
}

impl<T, D: Design> DerefMut for Constructed<'_, T, D> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.object
    }
}

impl<T: Debug, D: Design> Debug for Constructed<'_, T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostHeap;

    fn cache() -> ConstructedCache<u32> {
        let heap = HostHeap::new().expect("a heap");
        let cache = Cache::new(&heap, "constructed").expect("a cache");
        cache.with_constructor(|| 7, |_| ())
    }

    /// Keeps the calling thread on the CPU that runs it.
    fn stay() {
        // SAFETY: all-zero is a valid, empty set.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: takes nothing.
        let cpu = unsafe { libc::sched_getcpu() };
        // SAFETY: the number of a CPU is below the bits of the set.
        unsafe { libc::CPU_SET(usize::try_from(cpu).expect("a CPU"), &mut set) };
        // SAFETY: the set is valid for reads of its size.
        let status = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
        assert_eq!(status, 0);
    }

    /// On one CPU its lane and the depot keep objects until both are full.
    #[test]
    fn objects_are_kept_until_lane_and_depot_are_full() {
        let alone = || {
            stay();
            let cache = cache();
            let objects: Vec<_> = (0..DEPOT + 2 * LANE)
                .map(|_| cache.alloc().expect("memory"))
                .collect();
            for (before, object) in objects.into_iter().enumerate() {
                drop(object);
                assert_eq!(cache.idle(), (before + 1).min(DEPOT + LANE));
            }
        };
        // A thread of its own, as it stays on its CPU.
        std::thread::spawn(alone).join().expect("no panic");
    }

    /// Lanes that other threads have are counted, and keep what they have.
    #[test]
    fn a_shrink_counts_lanes_in_use() {
        let cache = cache();
        drop(cache.alloc().expect("memory"));
        let take = |taken| {
            let lanes = cache.all_lanes();
            lanes.for_each(|lane| lane.taken.store(taken, Ordering::Relaxed));
        };
        take(true);
        assert_eq!(cache.shrink() as usize, cache.lanes.len() + 1);
        assert_eq!(cache.idle(), 1);
        take(false);
        assert_eq!((cache.shrink(), cache.idle()), (0, 0));
    }

    #[test]
    fn caches_and_objects_are_shown() {
        let cache = cache();
        let object = cache.alloc().expect("memory");
        assert_eq!(format!("{object:?}"), "7");
        drop(object);
        assert!(format!("{cache:?}").starts_with("ConstructedCache { idle: 1, cache: Cache {"));
    }
}
