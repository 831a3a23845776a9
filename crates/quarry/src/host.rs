//! Heaps on this process's own memory.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use quarry_core::debug::{Reporter, SlubDebug, SlubDebugError};
use quarry_core::design::Design;
use quarry_core::era::Era;
use quarry_core::geometry::{BootParams, Hardening};
use quarry_core::heap::{CreateError, Heap};
use quarry_core::machine::Cpus as _;
use quarry_core::magazine::Magazine;
use quarry_core::page::{PageConfig, TrimPolicy, Trimmed};
use quarry_host::fork::{self, Alone, ForkError, ForkHooks, ForkNode};
use quarry_host::{HostError, HostMachine, HugePages, MapArc, Mode, SlotIndex};

use crate::typed::{after_fork, before_fork, settle};

/// The design of heaps and caches by default: sheaves that grow where CPUs miss, and give back what is not used
/// ([`kernel::magazine`](crate::kernel::magazine)). `docs/speed.md` compares it with the kernel's designs.
pub type DefaultDesign = Magazine;

pub(crate) type RawHeap<D> = Heap<HostMachine, D>;

/// A heap on this process's memory and CPUs.
///
/// A process can have any number. A new one has touched some 30 KiB; the rest of its address space, 18 GiB by default
/// ([`Builder::memory_bytes`]), is a reservation that costs nothing. In a process with several threads, the first shrink,
/// fork or end of a cache waits some 10 ms, once, for the kernel's permission to stop sequences on other CPUs.
///
/// Clones share it. It lives as long as one of them, one of its typed caches ([`Cache`](crate::Cache)) or an
/// object of these; then its memory and address space go back to the system. What borrows the heap
/// (raw caches, blocks of pages, readers) ends before by its lifetime.
///
/// # Examples
///
/// ```
/// use quarry::{Cache, HostHeap};
///
/// let heap = HostHeap::new()?;
/// let numbers = Cache::new(&heap, "number")?;
/// drop(heap);
/// // The cache keeps the heap, and the object keeps both.
/// let number = numbers.alloc(1_u64)?;
/// drop(numbers);
/// assert_eq!(*number, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// What borrows from a heap does not outlive it:
///
/// ```compile_fail,E0505
/// # use quarry::HostHeap;
/// let heap = HostHeap::new().unwrap();
/// let block = heap.pages().alloc_owned(0).unwrap();
/// drop(heap);
/// drop(block);
/// ```
// Transparent: `ProcessHeap` has the address of one.
#[repr(transparent)]
pub struct HostHeap<D: Design = DefaultDesign>(ManuallyDrop<MapArc<Shared<D>>>);

impl<D: Design> Drop for HostHeap<D> {
    fn drop(&mut self) {
        // A heap that a handler of a fork drops stays, as the fork goes on with it.
        if !fork::is_own() {
            // SAFETY: dropped once, and not used any more.
            unsafe { ManuallyDrop::drop(&mut self.0) };
        }
    }
}

/// The state that all handles to a heap share.
struct Shared<D: Design> {
    /// Registered with [`fork`] by its address.
    heap: ManuallyDrop<RawHeap<D>>,
    node: ForkNode,
    merges: bool,
}

impl<D: Design> Drop for Shared<D> {
    fn drop(&mut self) {
        // Waits for a fork that is under way. If it is this thread's own the heap was never registered: `HostHeap::drop`
        // keeps others.
        let _ = fork::unregister(&self.node);
        // SAFETY: dropped once; no handle is left, and no hook knows it any more.
        unsafe { ManuallyDrop::drop(&mut self.heap) };
    }
}

impl HostHeap {
    /// A heap of the default design with all defaults; [`Builder`] has the settings, and the other designs.
    ///
    /// # Errors
    ///
    /// As [`Builder::build`].
    pub fn new() -> Result<Self, Error> {
        Builder::new().build()
    }
}

impl<D: Design> HostHeap<D> {
    /// Keeps the heap until the process ends, for statics, raw caches without a borrow and page pools.
    #[must_use]
    pub fn leak(self) -> &'static Self {
        Box::leak(Box::new(self))
    }

    /// Gives the handle up as an address, which is its form.
    pub(crate) fn into_raw(self) -> NonNull<()> {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: taken once: `this` is neither used nor dropped any more.
        unsafe { ManuallyDrop::take(&mut this.0) }.into_raw()
    }

    /// The heap behind a handle that was given up for good.
    ///
    /// # Safety
    ///
    /// [`HostHeap::into_raw`] of a heap of this design returned the address, and no handle is made of it again.
    #[inline(always)]
    pub(crate) unsafe fn raw_of(heap: NonNull<()>) -> &'static RawHeap<D> {
        // SAFETY: the address is that of a reference, which is never dropped, as the caller says.
        &unsafe { MapArc::<Shared<D>>::as_static(heap) }.heap
    }

    /// True if caches may serve as others ([`BootParams::merge`]).
    pub(crate) fn merges(&self) -> bool {
        self.0.merges
    }

    /// [`Heap::trim`], and the mappings that [`HostMachine::keep_blocks`] kept: these are in none of the numbers.
    pub fn trim(&self, policy: TrimPolicy) -> Trimmed {
        self.machine().return_kept_blocks();
        RawHeap::trim(self, policy)
    }

    /// [`Heap::reap`], and the end of caches that only waited for busy CPUs when their last object was dropped
    /// ([`Owned`](crate::Owned)).
    pub fn reap(&self) {
        settle();
        RawHeap::reap(self);
    }
}

// A panic unwinds through a heap only in user code, which runs while no lock or slot is held: a heap is as whole
// afterwards as before.
impl<D: Design> UnwindSafe for HostHeap<D> {}
impl<D: Design> RefUnwindSafe for HostHeap<D> {}

impl<D: Design> Deref for HostHeap<D> {
    type Target = RawHeap<D>;

    #[inline]
    fn deref(&self) -> &RawHeap<D> {
        &self.0.heap
    }
}

impl<D: Design> Clone for HostHeap<D> {
    fn clone(&self) -> Self {
        Self(ManuallyDrop::new(MapArc::clone(&self.0)))
    }
}

impl<D: Design> std::fmt::Debug for HostHeap<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostHeap")
            .field("design", &D::NAME)
            .field("era", &self.era())
            .finish_non_exhaustive()
    }
}

/// The reason for which a heap was not built.
#[non_exhaustive]
pub enum Error {
    /// The machine was not built: sizes, mode, address space.
    Host(HostError),
    /// The heap did not fit the machine, or the design has no such era.
    Heap(CreateError),
    /// The heap could not be registered to rest during forks.
    Fork(ForkError),
    /// The debugging setting does not parse.
    Debug(SlubDebugError),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Host(error) => error.fmt(f),
            Self::Heap(error) => error.fmt(f),
            Self::Fork(error) => error.fmt(f),
            Self::Debug(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

quarry_core::debug_is_display!(Error);

/// Configures a [`HostHeap`]; every setting has a default.
///
/// # Examples
///
/// ```
/// use quarry::{Builder, Slub};
///
/// let heap = Builder::<Slub>::new().memory_bytes(64 << 20).build()?;
/// let object = heap.kmalloc(100).ok_or("out of memory")?;
/// // SAFETY: the object was allocated from this heap and is not used any more.
/// unsafe { heap.kfree(object) }?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Builder<D> {
    machine: quarry_host::Builder,
    era: Era,
    pub(crate) boot: BootParams,
    pages: Option<PageConfig>,
    debug: Option<&'static str>,
    reporter: Option<Reporter>,
    trim_above_bytes: Option<usize>,
    design: PhantomData<fn() -> D>,
}

impl<D: Design> Default for Builder<D> {
    fn default() -> Self {
        Self::new()
    }
}

impl<D: Design> Builder<D> {
    /// A configuration with all defaults: 16 GiB of memory at most, or as much as the computer has, less under `ulimit -v`
    /// ([`Builder::memory_bytes`]), 4 KiB pages, the design's [`Design::DEFAULT_ERA`].
    #[must_use]
    pub fn new() -> Self {
        Self {
            machine: HostMachine::builder(),
            era: D::DEFAULT_ERA,
            boot: BootParams::default(),
            pages: None,
            debug: None,
            reporter: None,
            trim_above_bytes: None,
            design: PhantomData,
        }
    }

    /// Memory that the heap may hand out, mappings of [`HostHeap::kvmalloc`] aside; only what is touched is used. It is
    /// rounded up to blocks of 1024 pages (4 MiB with pages of 4 KiB). By default
    /// 16 GiB, or what the computer has if that is more, or a quarter of the address space that `ulimit -v` leaves if that
    /// is less. A heap reserves address space for 9/8 of it, 8 MiB at least, and 4 MiB for each possible CPU. The limit is
    /// 2^32 - 2^10 pages (16 TiB with pages of 4 KiB), and what the system's address space has room for.
    #[must_use]
    pub fn memory_bytes(mut self, bytes: usize) -> Self {
        self.machine = self.machine.memory_bytes(bytes);
        self
    }

    /// Page size: 4096, 16384 or 65536 bytes, a multiple of the operating system's.
    #[must_use]
    pub fn page_size(mut self, bytes: usize) -> Self {
        self.machine = self.machine.page_size(bytes);
        self
    }

    /// Chooses the operating system's pages behind the heap's; [`HugePages::System`] by
    /// default. `heap.pages().machine().huge_pages()` reports those in use, and the reason if others
    /// were wanted.
    ///
    /// # Examples
    ///
    /// ```
    /// use quarry::{Builder, HugePages, Slub};
    ///
    /// let heap = Builder::<Slub>::new()
    ///     .memory_bytes(64 << 20)
    ///     .huge_pages(HugePages::Hugetlb)
    ///     .build()?;
    /// let pages = heap.pages().machine().huge_pages();
    /// match pages.reason {
    ///     None => assert_eq!(pages.in_use, HugePages::Hugetlb),
    ///     Some(reason) => println!("{:?} instead: {reason}", pages.in_use),
    /// }
    /// # Ok::<(), quarry::Error>(())
    /// ```
    #[must_use]
    pub fn huge_pages(mut self, huge_pages: HugePages) -> Self {
        self.machine = self.machine.huge_pages(huge_pages);
        self
    }

    /// Gives whole huge pages (2 MiB) of free memory back to the operating system whenever more than
    /// `bytes`, any number, are free; off by default. The rule in full: [`PageAllocator`](crate::PageAllocator)'s
    /// [`TrimPolicy`]. A heap whose memory goes through caches needs
    /// [`Heap::reap`](crate::Heap::reap) from time to time for it, as frees inside caches hold locks.
    /// [`Heap::trim`](crate::Heap::trim) gives memory back at once. Memory of the system's pool
    /// ([`HugePages::Hugetlb`]) is never given back.
    ///
    /// # Examples
    ///
    /// ```
    /// use quarry::{Builder, Slub, TrimPolicy};
    /// use quarry::kernel::machine::Cpus;
    ///
    /// let heap = Builder::<Slub>::new()
    ///     .memory_bytes(64 << 20)
    ///     .trim_above_bytes(8 << 20)
    ///     .build()?;
    /// let pages = heap.pages();
    /// let blocks: Vec<_> = (0..12).filter_map(|_| pages.alloc_owned(10)).collect();
    /// drop(blocks);
    /// // 12 blocks of 4 MiB were used; no more than 8 MiB stay with the heap.
    /// assert_eq!(pages.residency().resident_free * 4096, 8 << 20);
    /// assert_eq!(pages.residency().released * 4096, 40 << 20);
    ///
    /// let policy = TrimPolicy::huge_pages(pages.machine().topology(), 0);
    /// assert_eq!(heap.trim(policy).pages * 4096, 8 << 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn trim_above_bytes(mut self, bytes: usize) -> Self {
        self.trim_above_bytes = Some(bytes);
        self
    }

    /// Chooses the number by which threads find their slots of per-CPU state: that of the CPU by default, or
    /// the kernel's concurrency id ([`SlotIndex::ConcurrencyId`]). `heap.machine().slot_index()` reports the one in
    /// use, and the reason if another was wanted. By ids, the CPUs that statistics, reports and attributes name
    /// are ids.
    ///
    /// # Examples
    ///
    /// A program of few threads on many CPUs:
    ///
    /// ```
    /// use quarry::{Builder, SlotIndex, Slub};
    ///
    /// let heap = Builder::<Slub>::new()
    ///     .memory_bytes(64 << 20)
    ///     .slot_index(SlotIndex::ConcurrencyId)
    ///     .build()?;
    /// let slots = heap.machine().slot_index();
    /// match slots.reason {
    ///     None => assert_eq!(slots.in_use, SlotIndex::ConcurrencyId),
    ///     Some(reason) => println!("slots go by CPU numbers: {reason}"),
    /// }
    /// # Ok::<(), quarry::Error>(())
    /// ```
    #[must_use]
    pub fn slot_index(mut self, slot_index: SlotIndex) -> Self {
        self.machine = self.machine.slot_index(slot_index);
        self
    }

    /// Sets the way to lock per-CPU state.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.machine = self.machine.mode(mode);
        self
    }

    /// The kernel version whose rules the heap follows.
    #[must_use]
    pub fn era(mut self, era: Era) -> Self {
        self.era = era;
        self
    }

    /// Sets the page allocator up: zones, watermarks, lengths of holds;
    /// [`PageConfig::in_process`] of the heap's era by default. The configuration's era becomes the
    /// heap's; a later [`Builder::era`] changes it for both.
    ///
    /// With watermarks, allocations fail while memory is still free, and single pages take a longer
    /// way, because each looks at how much is left.
    ///
    /// [`ZoneLayout::Sized`](quarry_core::page::ZoneLayout::Sized) puts all zones on node 0: on a host
    /// with several nodes the memory is all bound there, and is remote to the CPUs of the others.
    ///
    /// # Examples
    ///
    /// ```
    /// use quarry::kernel::page::AllocOptions;
    /// use quarry::{Builder, Era, MinFree, PageConfig, Slub};
    ///
    /// // 4 MiB are kept back for those who must not fail.
    /// let heap = Builder::<Slub>::new()
    ///     .memory_bytes(64 << 20)
    ///     .page_config(PageConfig {
    ///         min_free: MinFree::Kbytes(4096),
    ///         ..PageConfig::in_process(Era::V6_18)
    ///     })
    ///     .build()?;
    /// let pages = heap.pages();
    /// while pages.alloc(0, None).is_some() {}
    /// let urgent = AllocOptions { no_watermarks: true, ..AllocOptions::default() };
    /// assert!(pages.alloc_with(&urgent).is_some());
    /// # Ok::<(), quarry::Error>(())
    /// ```
    #[must_use]
    pub fn page_config(mut self, config: PageConfig) -> Self {
        self.era = config.era;
        self.pages = Some(config);
        self
    }

    /// Boot parameters of the slab allocator.
    #[must_use]
    pub fn boot(mut self, boot: BootParams) -> Self {
        let (hardening, secret) = (self.boot.hardening, self.boot.secret);
        self.boot = boot;
        if boot.hardening == Hardening::NONE {
            (self.boot.hardening, self.boot.secret) = (hardening, secret);
        }
        self
    }

    /// Chooses the caches with debugging, as the kernel's `slub_debug` does: `FZPU` for all,
    /// `FZ,kmalloc-*;U,dentry` for some ([`SlubDebug`]).
    ///
    /// # Examples
    ///
    /// ```
    /// use quarry::{Builder, FreeError, Slub};
    ///
    /// let heap = Builder::<Slub>::new().slub_debug("FZPU").build()?;
    /// let object = heap.kmalloc(100).ok_or("out of memory")?;
    /// // SAFETY: the object has 128 bytes with its red zone, which this overruns on purpose.
    /// unsafe { object.add(100).write(1) };
    /// // SAFETY: the object is not used any more.
    /// assert_eq!(unsafe { heap.kfree(object) }, Err(FreeError::Corrupt));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn slub_debug(mut self, setting: &'static str) -> Self {
        self.debug = Some(setting);
        self
    }

    /// Sets the function that receives reports of mistakes; there is none by default. It runs on the
    /// thread that found the mistake and may use the heap.
    #[must_use]
    pub fn reporter(mut self, reporter: Reporter) -> Self {
        self.reporter = Some(reporter);
        self
    }

    /// Writes mistakes to the standard error output.
    #[must_use]
    pub fn report_to_stderr(self) -> Self {
        self.reporter(|report| {
            use std::io::Write;
            // A failure to write has nowhere to be reported.
            let _ = writeln!(std::io::stderr().lock(), "{report}");
        })
    }

    /// Makes the heap and brings it to rest around every later `fork`.
    ///
    /// # Errors
    ///
    /// [`Error`] names the setting that is not available.
    pub fn build(self) -> Result<HostHeap<D>, Error> {
        self.build_in(None)
    }

    /// [`Builder::build`], by the thread that has the list of what rests during forks if it is given.
    pub(crate) fn build_in(self, list: Option<&mut Alone<'_>>) -> Result<HostHeap<D>, Error> {
        let debug = self.debug.map(|text| SlubDebug::parse(text, self.era));
        let debug = debug.transpose().map_err(Error::Debug)?;
        let machine = self.machine.build().map_err(Error::Host)?;
        let config = PageConfig {
            era: self.era,
            ..self.pages.unwrap_or(PageConfig::in_process(self.era))
        };
        if self.boot.hardening.contains(Hardening::GUARD) {
            machine.guard_blocks();
        }
        let heap = Heap::with_pages(machine, &config, self.boot).map_err(Error::Heap)?;
        let topology = heap.pages().machine().topology();
        let policy = self.trim_above_bytes.map(|bytes| {
            let keep_pages = bytes as u64 >> topology.page_shift;
            TrimPolicy::huge_pages(topology, keep_pages)
        });
        heap.pages().set_auto_trim(policy);
        let set = heap.set_slub_debug(debug);
        set.map_err(|error| Error::Heap(error.into()))?;
        heap.set_reporter(self.reporter);
        let shared = MapArc::new(Shared {
            heap: ManuallyDrop::new(heap),
            node: ForkNode::new(),
            merges: self.boot.merge,
        })
        .map_err(Error::Host)?;
        let hooks = ForkHooks {
            prepare: prepare::<D>,
            parent: parent::<D>,
            child: child::<D>,
        };
        let heap = NonNull::from(&*shared.heap).cast();
        let registered = match list {
            // SAFETY: the hooks take a heap of this type, which is not moved out of `shared`, as the node is not. The heap is
            // dropped after `unregister` has removed it (`Shared::drop`), by no handler of a fork (`HostHeap::drop`). Hooks
            // register nothing.
            Some(list) => unsafe { list.register(&shared.node, heap, hooks) },
            // SAFETY: as above.
            None => unsafe { fork::register(&shared.node, heap, hooks) },
        };
        registered.map_err(Error::Fork)?;
        Ok(HostHeap(ManuallyDrop::new(shared)))
    }
}

/// See [`fork_misses`].
static FORK_MISSES: AtomicU64 = AtomicU64::new(0);

/// Returns the locks of heaps that forks so far could not have in time, plus the threads that gave up waiting
/// for a fork. A heap that was missed may be unusable in the child, which should only `exec` then.
#[must_use]
pub fn fork_misses() -> u64 {
    FORK_MISSES.load(Ordering::Relaxed)
}

/// # Safety
///
/// `heap` is a `RawHeap<D>` that lives.
unsafe fn prepare<D: Design>(heap: NonNull<()>) {
    // SAFETY: `Builder::build` registered the address of a heap of this type, and `Shared::drop` ends it only after
    // `unregister`.
    let heap = unsafe { heap.cast::<RawHeap<D>>().as_ref() };
    // First: what ends caches enters the gates that a fork closes.
    let alone = before_fork();
    // SAFETY: `parent` and `child` follow a fork, and forks exclude each other (`fork::register`).
    let missed = unsafe { heap.quiesce() };
    let held = heap.machine().hold_blocks();
    let missed = u64::from(missed) + u64::from(!alone) + u64::from(!held);
    FORK_MISSES.fetch_add(missed, Ordering::Relaxed);
}

/// # Safety
///
/// As for [`prepare`].
unsafe fn parent<D: Design>(heap: NonNull<()>) {
    // SAFETY: `Builder::build` registered the address of a heap of this type, and `Shared::drop` ends it only after
    // `unregister`.
    let heap = unsafe { heap.cast::<RawHeap<D>>().as_ref() };
    // SAFETY: `prepare` came before, on this thread.
    unsafe { heap.machine().release_blocks() };
    // SAFETY: as above.
    let missed = unsafe { heap.resume(false) };
    FORK_MISSES.fetch_add(u64::from(missed), Ordering::Relaxed);
    after_fork(false);
}

/// # Safety
///
/// As for [`prepare`].
unsafe fn child<D: Design>(heap: NonNull<()>) {
    // SAFETY: `Builder::build` registered the address of a heap of this type, and `Shared::drop` ends it only after
    // `unregister`.
    let heap = unsafe { heap.cast::<RawHeap<D>>().as_ref() };
    // SAFETY: a child has one thread, which relies on no section from before the fork
    // (`HostMachine::rcu_read_lock`).
    unsafe { heap.machine().forget_readers() };
    // SAFETY: `prepare` came before the fork.
    unsafe { heap.machine().release_blocks() };
    // SAFETY: as above.
    let missed = unsafe { heap.resume(true) };
    FORK_MISSES.fetch_add(u64::from(missed), Ordering::Relaxed);
    after_fork(true);
}
