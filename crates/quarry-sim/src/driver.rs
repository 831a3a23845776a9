//! Driving a heap without `unsafe`: objects are handed out, counted and freed, never looked into.
//!
//! Freeing an object is unsafe because other code might still use its memory. A driver that replays
//! events has no use for the memory, so here an object is an opaque [`ObjectRef`]:
//!
//! * **D1** An [`ObjectRef`] comes from an allocation of its driver's heap and from nowhere else;
//!   it can be neither copied nor made. The heap is private to the driver.
//! * **D2** It gives no access to the object's memory, and freeing consumes it.
//! * **D3** Its lifetime `'h` is that of one call of [`drive`], and invariant: an object of one
//!   heap is not accepted by another.
//!
//! ```
//! use quarry_core::{design::CacheSpec, era::Era, geometry::BootParams};
//! use quarry_core::{machine::CpuId, slub::Slub};
//! use quarry_sim::{Config, driver};
//!
//! let frees = driver::drive::<Slub, _>(
//!     Config { cpus: 2, ..Config::default() },
//!     Era::V6_18,
//!     BootParams::default(),
//!     |driver| {
//!         let spec = CacheSpec::new("demo", 256);
//!         let cache = driver.create_cache(&spec).unwrap();
//!         let object = driver.alloc(cache).unwrap();
//!         driver.run_on(CpuId(1));
//!         driver.free(cache, object, CpuId(0)).unwrap();
//!         driver.machine().counters().cross_cpu_frees
//!     },
//! );
//! assert_eq!(frees.unwrap(), 1);
//! ```
//!
//! [`Driver::pages`] gives the page allocator, on which page pools are made. A page is a number that any code can
//! make, so freeing one is unsafe there as well; [`Driver::alloc_pages`] gives receipts for blocks, as above for
//! objects. [`LonePut`](crate::LonePut) has safe puts into pools.
//!
//! ```
//! use quarry_core::{era::Era, geometry::BootParams, machine::CpuId, slub::Slub};
//! use quarry_core::pool::{PoolOwner, PoolParams, Put};
//! use quarry_sim::{Config, LonePut, driver};
//!
//! let config = Config { cpus: 2, ..Config::default() };
//! let era = Era::V6_18;
//! driver::drive::<Slub, _>(config, era, BootParams::default(), |driver| {
//!     let mut rx0 = PoolOwner::create(driver.pages(), era, &PoolParams::default()).unwrap();
//!     let pool = rx0.handle();
//!     let page = rx0.alloc().unwrap();
//!     // The packet is consumed on another CPU.
//!     driver.run_on(CpuId(1));
//!     assert_eq!(pool.lone_put(page), Ok(Put::Ring));
//!     assert_eq!(pool.stats().ring, 1);
//! })
//! .unwrap();
//! ```

mod pages;
mod view;

pub use pages::PageRef;
pub use view::CacheView;

use std::cmp::Ordering;
use std::fmt::Write;
use std::marker::PhantomData;
use std::ptr::NonNull;

use quarry_core::debug::SlubDebug;
use quarry_core::design::{CacheSpec, Design, FreeError};
use quarry_core::era::Era;
use quarry_core::geometry::BootParams;
use quarry_core::heap::{Cache, CreateError, Heap};
use quarry_core::inspect::{PageFile, PageFileError, SlabinfoError};
use quarry_core::machine::{Access, Accounting as _, CpuId, Cpus as _, NodeId};
use quarry_core::page::{PageAllocator, PageConfig, SYSCTLS};

use crate::config::{Config, ConfigError};
use crate::machine::VirtualMachine;

/// Makes `'h` invariant (D3).
type Brand<'h> = PhantomData<fn(&'h ()) -> &'h ()>;

/// Reason for which there is no heap to drive.
#[derive(Debug)]
pub enum SetupError {
    /// There is no such machine.
    Config(ConfigError),
    /// The machine cannot hold the heap.
    Create(CreateError),
}

impl std::fmt::Display for SetupError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Create(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SetupError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Config(error) => error.source(),
            Self::Create(error) => error.source(),
        }
    }
}

/// An allocated object of a driver's heap: a receipt to free it with.
#[derive(Debug)]
pub struct ObjectRef<'h> {
    address: NonNull<u8>,
    brand: Brand<'h>,
}

impl<'h> ObjectRef<'h> {
    fn new(address: NonNull<u8>) -> Self {
        Self {
            address,
            brand: PhantomData,
        }
    }

    /// The order of the objects in memory: the objects of a slab are next to each other.
    #[must_use]
    pub fn by_address(&self, other: &Self) -> Ordering {
        self.address.cmp(&other.address)
    }
}

/// One of a driver's caches, by the order of their creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheIndex(pub u16);

/// Most caches that a driver can name.
pub const CACHES_MAX: usize = 1 << 16;

/// Drives one heap; lives inside one call of [`drive`].
pub struct Driver<'h, D: Design> {
    heap: &'h Heap<VirtualMachine, D>,
    caches: Vec<Cache<'h, VirtualMachine, D>>,
}

/// Makes a machine with a heap and its kmalloc caches, and lets `f` drive it.
///
/// # Errors
///
/// [`SetupError`] if the machine or the heap cannot be made.
pub fn drive<D: Design, R>(
    config: Config,
    era: Era,
    boot: BootParams,
    f: impl for<'h> FnOnce(&mut Driver<'h, D>) -> R,
) -> Result<R, SetupError> {
    drive_pages(config, &PageConfig::new(era), boot, None, f)
}

/// [`drive`] with a page allocator that is set up in another way, and debugging for the caches that a setting names.
///
/// # Errors
///
/// As [`drive`].
pub fn drive_pages<D: Design, R>(
    config: Config,
    pages: &PageConfig,
    boot: BootParams,
    debug: Option<SlubDebug>,
    f: impl for<'h> FnOnce(&mut Driver<'h, D>) -> R,
) -> Result<R, SetupError> {
    let machine = VirtualMachine::new(config).map_err(SetupError::Config)?;
    let heap = Heap::with_pages(machine, pages, boot).map_err(SetupError::Create)?;
    let set = heap.set_slub_debug(debug);
    set.map_err(|error| SetupError::Create(error.into()))?;
    heap.make_kmalloc_caches().map_err(SetupError::Create)?;
    let mut driver = Driver {
        heap: &heap,
        caches: Vec::new(),
    };
    Ok(f(&mut driver))
}

impl<'h, D: Design> Driver<'h, D> {
    /// The machine, for its counters.
    #[must_use]
    pub fn machine(&self) -> &VirtualMachine {
        self.heap.machine()
    }

    /// Prepares the heap: nothing that `f` does is counted, or takes time.
    pub fn uncounted<R>(&mut self, f: impl FnOnce(&mut Self) -> R) -> R {
        let heap = self.heap;
        heap.machine().uncounted(|| f(self))
    }

    /// The cache of this name that was made last.
    #[must_use]
    pub fn find_cache(&self, name: &str) -> Option<CacheIndex> {
        let at = self.caches.iter().rposition(|cache| cache.name() == name)?;
        u16::try_from(at).ok().map(CacheIndex)
    }

    /// The heap's page allocator, to allocate and free pages, count references to them and make
    /// page pools. It refuses to free what is the heap's or a pool's, so D1 holds.
    #[must_use]
    pub fn pages(&self) -> &'h PageAllocator<VirtualMachine> {
        self.heap.pages()
    }

    /// Lets all CPUs, one after the other, do the kernel's periodic work at `now_ns` of the machine's clock, such as
    /// expiring idle queues ([`Heap::reap`]). What follows runs on the last of them.
    pub fn reap(&mut self, now_ns: u64) {
        self.machine().advance_to(now_ns);
        for cpu in 0..self.heap.machine().topology().cpus {
            self.run_on(CpuId(cpu));
            self.heap.reap();
        }
    }

    /// Lets the running CPU alone do that work, by its own clock.
    pub fn reap_here(&self) {
        self.heap.reap();
    }

    /// The operations that follow run on this CPU.
    ///
    /// # Panics
    ///
    /// If the machine has no such CPU.
    #[inline(always)]
    pub fn run_on(&self, cpu: CpuId) {
        self.heap.machine().run_on(cpu);
    }

    /// Makes a cache.
    ///
    /// # Errors
    ///
    /// [`CreateError`]; `NoRoom` also if there are [`CACHES_MAX`] already.
    pub fn create_cache(&mut self, spec: &CacheSpec<'_>) -> Result<CacheIndex, CreateError> {
        let index = u16::try_from(self.caches.len()).map_err(|_| CreateError::NoRoom)?;
        self.caches.push(self.heap.create_cache(spec)?);
        Ok(CacheIndex(index))
    }

    /// Allocates an object. `None` when memory is exhausted.
    ///
    /// # Panics
    ///
    /// If [`Driver::create_cache`] has not returned this index.
    #[inline(always)]
    pub fn alloc(&self, cache: CacheIndex) -> Option<ObjectRef<'h>> {
        self.caches[usize::from(cache.0)]
            .alloc()
            .map(ObjectRef::new)
    }

    /// Allocates an object, on a node if memory is available there (`kmem_cache_alloc_node()`). `None` when memory is
    /// exhausted.
    ///
    /// # Panics
    ///
    /// If [`Driver::create_cache`] has not returned this index.
    pub fn alloc_node(&self, cache: CacheIndex, node: NodeId) -> Option<ObjectRef<'h>> {
        self.caches[usize::from(cache.0)]
            .alloc_node(node)
            .map(ObjectRef::new)
    }

    /// Tells the machine that an object's first bytes were filled with zeros for its user.
    #[inline(always)]
    pub fn zero(&self, object: &ObjectRef<'h>, bytes: u32) {
        self.machine().zero(object.address.as_ptr(), bytes as usize);
    }

    /// The object's user accesses some of its bytes. Tells the machine only.
    pub fn use_object(&self, object: &ObjectRef<'h>, at: u32, bytes: u32, access: Access) {
        let at = object.address.as_ptr().wrapping_add(at as usize);
        self.machine().use_memory(at, bytes as usize, access);
    }

    /// The object's user copies bytes into it from a buffer of its own. Tells the machine only.
    pub fn copy_in(&self, object: &ObjectRef<'h>, at: u32, bytes: u32) {
        let at = object.address.as_ptr().wrapping_add(at as usize);
        self.machine().fill_memory(at, bytes as usize);
    }

    /// The object's user copies bytes from it into a buffer of its own. Tells the machine only.
    pub fn copy_out(&self, object: &ObjectRef<'h>, at: u32, bytes: u32) {
        let at = object.address.as_ptr().wrapping_add(at as usize);
        self.machine().copy(at, bytes as usize);
    }

    /// Frees an object that `allocated_on` allocated. If it is refused, it stays allocated.
    ///
    /// # Errors
    ///
    /// [`FreeError`], for example if the object is another cache's.
    ///
    /// # Panics
    ///
    /// If [`Driver::create_cache`] has not returned this index.
    #[inline(always)]
    pub fn free(
        &self,
        cache: CacheIndex,
        object: ObjectRef<'h>,
        allocated_on: CpuId,
    ) -> Result<(), FreeError> {
        self.heap.machine().note_free(allocated_on);
        let cache = &self.caches[usize::from(cache.0)];
        // SAFETY: no code uses the object: it is this heap's (D1, D3), no user ever had access to
        // its memory, and the only receipt for it is consumed here (D2).
        unsafe { cache.free(object.address) }
    }

    /// Frees an object that `allocated_on` allocated after a grace period ([`Self::grace_period`]), in the design's own way. A
    /// later call, or [`Self::reap_here`], frees it. If there is no room to note it, it stays allocated.
    ///
    /// # Errors
    ///
    /// The object, if it is refused.
    ///
    /// # Panics
    ///
    /// If [`Driver::create_cache`] has not returned this index.
    pub fn free_rcu(
        &self,
        cache: CacheIndex,
        object: ObjectRef<'h>,
        allocated_on: CpuId,
    ) -> Result<(), ObjectRef<'h>> {
        self.heap.machine().note_free(allocated_on);
        let cache = &self.caches[usize::from(cache.0)];
        // SAFETY: as in `free`; the receipt is given back only if the object is still allocated.
        let freed = unsafe { cache.free_rcu(object.address) };
        freed.map_err(|_| object)
    }

    /// A grace period ends: what [`Self::free_rcu`] was given so far may be freed.
    pub fn grace_period(&self) {
        // SAFETY: no code has ever access to the memory of an object (D2), so none reads one that was given up.
        unsafe { self.heap.machine().grace_period() };
    }

    /// Release whose rules hold.
    #[must_use]
    pub fn era(&self) -> Era {
        self.heap.era()
    }

    /// Allocates n objects in one call. `None` when memory is exhausted; no object is allocated then.
    ///
    /// # Panics
    ///
    /// If [`Driver::create_cache`] has not returned this index.
    #[must_use]
    pub fn alloc_bulk(&self, cache: CacheIndex, n: usize) -> Option<Vec<ObjectRef<'h>>> {
        if !D::FEATURES.has_bulk_calls(self.heap.era()) {
            let mut objects: Vec<_> = (0..n).map_while(|_| self.alloc(cache)).collect();
            if objects.len() == n {
                return Some(objects);
            }
            let freed = self.free_bulk(cache, &mut objects, self.machine().current_cpu());
            debug_assert_eq!(freed, Ok(()), "the objects came from this very cache");
            return None;
        }
        let mut slots = vec![None; n];
        let all = self.caches[usize::from(cache.0)].alloc_bulk(&mut slots);
        all.then(|| slots.into_iter().flatten().map(ObjectRef::new).collect())
    }

    /// Frees objects that `allocated_on` allocated, in one call. Those that are refused stay allocated and in the list.
    ///
    /// # Errors
    ///
    /// The first [`FreeError`].
    ///
    /// # Panics
    ///
    /// If [`Driver::create_cache`] has not returned this index.
    pub fn free_bulk(
        &self,
        cache: CacheIndex,
        objects: &mut Vec<ObjectRef<'h>>,
        allocated_on: CpuId,
    ) -> Result<(), FreeError> {
        if !D::FEATURES.has_bulk_calls(self.heap.era()) {
            let mut first = Ok(());
            for object in std::mem::take(objects) {
                let address = object.address;
                if let Err(error) = self.free(cache, object, allocated_on) {
                    first = first.and(Err(error));
                    objects.push(ObjectRef::new(address));
                }
            }
            return first;
        }
        let objects_freed = objects.drain(..).map(|object| {
            self.machine().note_free(allocated_on);
            Some(object.address)
        });
        let mut slots: Vec<Option<NonNull<u8>>> = objects_freed.collect();
        let cache = &self.caches[usize::from(cache.0)];
        // SAFETY: the objects are this heap's (D1, D3) and no user has access to their memory; the receipts of those that are
        // freed end here (D2).
        let freed = unsafe { cache.free_bulk(&mut slots) };
        objects.extend(slots.into_iter().flatten().map(ObjectRef::new));
        freed
    }

    /// Allocates at least `bytes` bytes. `None` when memory is exhausted or there is no such block.
    #[inline(always)]
    pub fn kmalloc(&self, bytes: u32) -> Option<ObjectRef<'h>> {
        self.heap.kmalloc(bytes as usize, None).map(ObjectRef::new)
    }

    /// [`Driver::kmalloc`] on a node, if memory is available there (`kmalloc_node()`).
    pub fn kmalloc_node(&self, bytes: u32, node: NodeId) -> Option<ObjectRef<'h>> {
        let object = self.heap.kmalloc(bytes as usize, Some(node));
        object.map(ObjectRef::new)
    }

    /// Frees an object of any cache or of kmalloc, which `allocated_on` allocated.
    ///
    /// # Errors
    ///
    /// [`FreeError`]; the object then stays allocated.
    #[inline(always)]
    pub fn kfree(&self, object: ObjectRef<'h>, allocated_on: CpuId) -> Result<(), FreeError> {
        self.heap.machine().note_free(allocated_on);
        // SAFETY: the object is this heap's (D1, D3), no user has access to its memory, and its only receipt ends here (D2).
        unsafe { self.heap.kfree(object.address) }
    }

    /// The cache that serves kmallocs of this size; `None` if no cache does.
    #[must_use]
    pub fn kmalloc_cache(&self, bytes: u32) -> Option<CacheView<'h, D>> {
        let cache = self.heap.kmalloc_cache(bytes as usize)?;
        Some(CacheView::new(*cache))
    }

    /// The node whose memory an object is in; `None` of an address that is no page's.
    #[must_use]
    pub fn node_of(&self, object: &ObjectRef<'h>) -> Option<NodeId> {
        let pages = self.heap.pages();
        pages.node_of(pages.pfn_of(object.address)?)
    }

    /// Pages that are slabs now, of all caches.
    #[inline(always)]
    #[must_use]
    pub fn slab_pages(&self) -> u64 {
        self.heap.pages().slab_pages()
    }

    /// Number of the page that an object begins in. A block of the page allocator begins at a page
    /// whose number is a multiple of its pages.
    #[must_use]
    pub fn page_of(&self, object: &ObjectRef<'h>) -> Option<u32> {
        Some(self.heap.pages().pfn_of(object.address)?.0)
    }

    /// Bytes taken for the allocators' own structures, per-CPU slots included.
    #[must_use]
    pub fn overhead_bytes(&self) -> usize {
        self.heap.pages().overhead_bytes()
    }

    /// Calls `f` for every cache, kmalloc's included, newest first.
    pub fn for_each_cache(&self, mut f: impl FnMut(CacheView<'_, D>)) {
        self.heap.for_each_cache(|cache| f(CacheView::new(cache)));
    }

    /// Writes what `/proc/slabinfo` would show.
    ///
    /// # Errors
    ///
    /// [`SlabinfoError`].
    pub fn write_slabinfo(&self, out: &mut impl Write) -> Result<(), SlabinfoError> {
        self.heap.write_slabinfo(out)
    }

    /// Writes what a file of `/proc` about pages would show.
    ///
    /// # Errors
    ///
    /// [`PageFileError`].
    pub fn write_page_file(
        &self,
        file: PageFile,
        out: &mut impl Write,
    ) -> Result<(), PageFileError> {
        self.heap.pages().write_page_file(file, out)
    }

    /// The page allocator's sysctls with their values, as in `/proc/sys/vm`.
    pub fn sysctls(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let known = SYSCTLS.of(self.heap.era());
        known.filter_map(|known| Some((known.name, self.heap.pages().sysctl(known.name)?)))
    }

    /// Calls `f` for every cache that has a folder in `/sys/kernel/slab`, newest first.
    pub fn sysfs_caches(&self, mut f: impl FnMut(CacheView<'_, D>)) {
        self.heap.sysfs_caches(|cache| f(CacheView::new(cache)));
    }

    /// A cache by its index.
    #[must_use]
    pub fn cache(&self, index: CacheIndex) -> Option<CacheView<'h, D>> {
        let cache = *self.caches.get(usize::from(index.0))?;
        Some(CacheView::new(*cache))
    }
}

#[cfg(test)]
mod tests {
    use quarry_core::slab::SlabCache;
    use quarry_core::slub::Slub;
    use quarry_core::slubq::Slubq;

    use super::*;

    fn fill_and_empty<D: Design>() {
        let config = Config {
            cpus: 4,
            memory_bytes: 64 << 20,
            ..Config::default()
        };
        let slabs = drive::<D, _>(config, D::DEFAULT_ERA, BootParams::default(), |driver| {
            let spec = CacheSpec::new("t", 100);
            let cache = driver.create_cache(&spec).unwrap();
            let mut objects = Vec::new();
            for i in 0..5000u32 {
                driver.run_on(CpuId(i % 4));
                objects.push((driver.alloc(cache).unwrap(), CpuId(i % 4)));
                objects.push((driver.kmalloc(i * 3 + 1).unwrap(), CpuId(i % 4)));
            }
            assert!(driver.slab_pages() > 100);
            for (i, (object, cpu)) in objects.into_iter().enumerate() {
                driver.run_on(CpuId(i as u32 / 7 % 4));
                driver.kfree(object, cpu).unwrap();
            }
            let mut pages = 0;
            driver.for_each_cache(|cache| {
                cache.check_consistency().unwrap();
                pages += cache.usage().pages;
            });
            assert_eq!(pages, driver.slab_pages());
            driver.cache(cache).unwrap().usage().slabs
        });
        assert!(slabs.unwrap() < 100);
    }

    #[test]
    fn the_page_count_follows_the_caches() {
        fill_and_empty::<SlabCache>();
        fill_and_empty::<Slub>();
        fill_and_empty::<Slubq>();
    }

    #[test]
    fn an_object_of_another_cache_is_refused() {
        // Before 4.3 a bulk call is single ones.
        for era in [Era::V4_2, Era::V6_1] {
            refused_in(era);
        }
    }

    fn refused_in(era: Era) {
        let done = drive::<Slub, _>(Config::default(), era, BootParams::default(), |driver| {
            let spec = |name| CacheSpec::new(name, 64);
            let a = driver.create_cache(&spec("a")).unwrap();
            let b = driver.create_cache(&spec("b")).unwrap();
            let object = driver.alloc(a).unwrap();
            assert_eq!(driver.free(b, object, CpuId(0)), Err(FreeError::WrongCache));
            let mut objects = driver.alloc_bulk(a, 3).unwrap();
            objects.push(driver.alloc(b).unwrap());
            let freed = driver.free_bulk(a, &mut objects, CpuId(0));
            assert_eq!((freed, objects.len()), (Err(FreeError::WrongCache), 1));
            assert_eq!(driver.free_bulk(b, &mut objects, CpuId(0)), Ok(()));
            assert!(objects.is_empty());
        });
        done.unwrap();
    }
}
