//! A heap with its caches, and what its users find wrong.

use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use quarry::kernel::design::{CheckError, Design};
use quarry::kernel::heap::Cache;
use quarry::kernel::machine::Machine;
use quarry::{CacheSpec, FreeError, Heap, Stat};

use super::owner::{Held, Source};
use super::storm;

/// Names and sizes of the caches. The first is only used by single operations, whose counters are
/// compared in the end.
const CACHES: [(&str, u32); 5] = [
    ("stress-exact", 64),
    ("stress-16", 16),
    ("stress-192", 192),
    ("stress-1000", 1000),
    ("stress-4096", 4096),
];
/// The cache whose frees are deferred.
const DEFERRED: usize = 2;
/// Places for objects that handlers leave for one another.
const STASH: usize = 16;

/// A mailbox between workers.
pub(crate) type Mailbox = Mutex<Vec<Held>>;

/// See the module's documentation.
pub(crate) struct World<M: Machine, D: Design> {
    pub(crate) heap: &'static Heap<M, D>,
    pub(crate) caches: Vec<Cache<'static, M, D>>,
    pub(crate) mailboxes: Vec<Mailbox>,
    /// Objects of the first cache that handlers exchange.
    stash: [AtomicUsize; STASH],
    serial: AtomicU64,
    allocs: AtomicU64,
    frees: AtomicU64,
    /// Allocations that failed, by threads and by handlers.
    pub(crate) thread_misses: AtomicU64,
    pub(crate) handler_misses: AtomicU64,
    pub(crate) clashes: AtomicU64,
    complaint: Mutex<Option<String>>,
}

impl<M: Machine + Send + Sync, D: Design> World<M, D> {
    pub(crate) fn leak(heap: &'static Heap<M, D>) -> &'static Self {
        let cache = |(name, object_size)| {
            heap.create_cache(&CacheSpec {
                sheaf_capacity: 32,
                ..CacheSpec::new(name, object_size)
            })
        };
        let caches = CACHES.map(|spec| cache(spec).unwrap()).to_vec();
        heap.make_kmalloc_caches().unwrap();
        Box::leak(Box::new(Self {
            heap,
            caches,
            mailboxes: (0..8)
                .map(|_| Mutex::new(Vec::with_capacity(256)))
                .collect(),
            stash: [const { AtomicUsize::new(0) }; STASH],
            serial: AtomicU64::new(1),
            allocs: AtomicU64::new(0),
            frees: AtomicU64::new(0),
            thread_misses: AtomicU64::new(0),
            handler_misses: AtomicU64::new(0),
            clashes: AtomicU64::new(0),
            complaint: Mutex::new(None),
        }))
    }

    /// The first thing that was found wrong. Not for handlers.
    pub(crate) fn complaint(&self) -> Option<String> {
        let clashes = self.clashes.load(Relaxed);
        let text = self.complaint.lock().unwrap().clone();
        text.or((clashes > 0).then(|| format!("{clashes} clashes")))
    }

    fn wrong(&self, in_handler: bool, what: &str, held: &Held, error: Option<FreeError>) {
        self.clashes.fetch_add(1, Relaxed);
        if !in_handler && let Ok(mut complaint) = self.complaint.try_lock() {
            // The run is over, and a message needs the C library's malloc (`Place::enter`).
            storm::leave();
            let text = || format!("{what}: {held:?} {error:?}");
            complaint.get_or_insert_with(text);
        }
    }

    pub(crate) fn own(&self, object: NonNull<u8>, bytes: usize, source: Source) -> Held {
        let held = Held {
            object,
            bytes,
            source,
            token: self.serial.fetch_add(1, Relaxed) << 8 | 0xa5,
        };
        held.fill();
        held
    }

    /// Bytes of a cache's objects, as asked for.
    pub(crate) fn bytes(number: usize) -> usize {
        CACHES[number].1 as usize
    }

    /// One object of a cache.
    pub(crate) fn alloc(&self, number: usize, in_handler: bool) -> Option<Held> {
        if number == 0 {
            self.allocs.fetch_add(1, Relaxed);
        }
        let found = self.caches[number].alloc();
        self.note_miss(found.is_none(), in_handler);
        Some(self.own(found?, Self::bytes(number), Source::Cache(number)))
    }

    pub(crate) fn kmalloc(&self, bytes: usize) -> Option<Held> {
        let found = self.heap.kmalloc(bytes, None);
        self.note_miss(found.is_none(), false);
        Some(self.own(found?, bytes, Source::Kmalloc))
    }

    pub(crate) fn note_miss(&self, missed: bool, in_handler: bool) {
        let misses = if in_handler {
            &self.handler_misses
        } else {
            &self.thread_misses
        };
        misses.fetch_add(u64::from(missed), Relaxed);
    }

    /// Checks an object that is about to be freed.
    pub(crate) fn check(&self, held: &Held, in_handler: bool) {
        if !held.whole() {
            self.wrong(in_handler, "not the owner's", held, None);
        }
        held.mark_dead();
    }

    pub(crate) fn free(&self, held: Held, in_handler: bool) {
        self.check(&held, in_handler);
        let freed = match held.source {
            Source::Cache(DEFERRED) if !in_handler => {
                // SAFETY: the owner gives the object up, and no other code knows it.
                match unsafe { self.caches[DEFERRED].free_rcu(held.object) } {
                    // SAFETY: as above; it was not noted.
                    Err(FreeError::NoRoom) => unsafe { self.caches[DEFERRED].free(held.object) },
                    deferred => deferred,
                }
            }
            Source::Cache(number) => {
                if number == 0 {
                    self.frees.fetch_add(1, Relaxed);
                }
                // SAFETY: the owner gives the object up.
                unsafe { self.caches[number].free(held.object) }
            }
            // SAFETY: as above.
            Source::Kmalloc => unsafe { self.heap.kfree(held.object) },
        };
        if let Err(error) = freed {
            self.wrong(in_handler, "free", &held, Some(error));
        }
    }

    /// Checks and frees objects of one cache.
    pub(crate) fn free_bulk(&self, number: usize, batch: &mut [Option<NonNull<u8>>]) {
        // SAFETY: the owner has given the objects up.
        let freed = unsafe { self.caches[number].free_bulk(batch) };
        if let Err(error) = freed
            && let Some(object) = batch.iter().flatten().next()
        {
            let held = Held {
                object: *object,
                bytes: 0,
                source: Source::Cache(number),
                token: 0,
            };
            self.wrong(false, "free_bulk", &held, Some(error));
        }
    }

    /// Work of a signal handler: a pair, and at times an object for another handler.
    pub(crate) fn handler(&self, dice: u64) {
        let number = dice as usize % self.caches.len();
        if let Some(held) = self.alloc(number, true) {
            self.free(held, true);
        }
        if dice & 0x300 == 0
            && let Some(held) = self.alloc(0, true)
        {
            let place = &self.stash[(dice >> 16) as usize % STASH];
            // AcqRel: passes the object's contents on.
            let old = place.swap(
                held.object.expose_provenance().get(),
                std::sync::atomic::Ordering::AcqRel,
            );
            self.free_stashed(old);
        }
    }

    fn free_stashed(&self, address: usize) {
        let Some(object) = NonNull::new(std::ptr::with_exposed_provenance_mut::<u8>(address))
        else {
            return;
        };
        // SAFETY: stashed objects are whole, and the thread that swapped the address out owns it.
        let token = unsafe { object.cast::<u64>().read_volatile() };
        let (bytes, source) = (Self::bytes(0), Source::Cache(0));
        let held = Held {
            object,
            bytes,
            source,
            token,
        };
        self.free(held, true);
    }

    /// Walks over a cache that is in use: it may be busy, never inconsistent.
    pub(crate) fn check_now(&self, cache: &Cache<'static, M, D>) {
        if let Err(CheckError::Inconsistent(found)) = cache.check_consistency() {
            self.clashes.fetch_add(1, Relaxed);
            let mut complaint = self.complaint.lock().unwrap();
            complaint.get_or_insert_with(|| format!("{}: {found}", cache.name()));
        }
    }

    /// Frees the objects in mailboxes and stash. No other code is at work.
    pub(crate) fn empty(&self) {
        for mailbox in &self.mailboxes {
            let letters = std::mem::take(&mut *mailbox.lock().unwrap());
            letters.into_iter().for_each(|held| self.free(held, false));
        }
        for place in &self.stash {
            self.free_stashed(place.swap(0, Relaxed));
        }
    }

    /// Checks that everything has been freed, and that the counters agree.
    pub(crate) fn check_end(&self, aborts: u64) {
        assert_eq!(self.thread_misses.load(Relaxed), 0, "allocations failed");
        // CPUs keep their main sheaf for as long as the cache has sheaves.
        self.heap.for_each_cache(|cache| {
            cache.set_attribute("sheaf_capacity", 0);
        });
        // Some designs keep objects of their own in the general caches.
        for _ in 0..4 {
            self.heap.for_each_cache(|cache| {
                cache.shrink();
            });
        }
        self.heap.for_each_cache(|cache| {
            let name = cache.name();
            cache
                .check_consistency()
                .unwrap_or_else(|error| panic!("{name}: {error}"));
        });
        // What caches keep for themselves in others.
        self.heap.for_each_cache(|cache| {
            cache.shrink();
        });
        self.heap.for_each_cache(|cache| {
            let name = cache.name();
            cache
                .for_each_live(|object| panic!("{name}: {object:p} was lost"))
                .expect("at rest");
        });
        let stats = self.caches[0].stats();
        let sum = |stats: &quarry::Stats, a, b| stats.get(a) + stats.get(b);
        let allocs = sum(&stats, Stat::AllocFastpath, Stat::AllocSlowpath);
        let frees = sum(&stats, Stat::FreeFastpath, Stat::FreeSlowpath);
        // Single steps may count once more per restart; calls that fail in a handler count in some
        // eras only.
        let missed = self.handler_misses.load(Relaxed);
        // Sheaves of 6.18 are filled and flushed by calls that count like those of users.
        let exact = stats.get(Stat::AllocCpuSheaf) == 0;
        for (counted, made) in [
            (allocs, self.allocs.load(Relaxed)),
            (frees, self.frees.load(Relaxed)),
        ] {
            assert!(
                !exact || (made - missed..=made + aborts).contains(&counted),
                "{counted} of {made}, {missed} missed"
            );
        }
        for &cache in &self.caches {
            // SAFETY: the other threads have ended.
            unsafe { cache.destroy() }.unwrap();
        }
        self.heap.for_each_cache(|cache| {
            assert_eq!(cache.shrink(), 0);
            assert_eq!(cache.usage().slabs, 0, "{}", cache.name());
        });
        let census = self.heap.pages().check_consistency().unwrap();
        assert_eq!((census.slab, census.large, census.allocated), (0, 0, 0));
    }
}
