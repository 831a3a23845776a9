//! The virtual machine and its configuration.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::ptr::NonNull;

use quarry_core::machine::{
    Access, CpuId, DESCRIPTOR_BYTES, Line, LockClass, MAX_CPUS, MAX_NODES, Machine, PERCPU_FREE,
    PERCPU_OWNER, PERCPU_REMOTE, Ranges, RawLock, RawRange, Reentered, SlotLock, Topology, Work,
};
use quarry_core::page::MAX_ORDER;
use std::sync::atomic::Ordering;

use crate::counters::Counters;
use crate::memory::Mapping;
use crate::rng::Rng;

/// Address space for the allocators' own structures.
const META_BYTES: usize = 1 << 30;

/// Sizes in bytes that pages can have: those of x86-64, arm64 and ppc64 kernels.
pub const PAGE_BYTES: [u64; 3] = [4096, 16384, 65536];

/// Most pages of a machine: 8 TiB of 4 KiB pages, whose descriptors take 128 GiB of address space.
pub const PAGES_MAX: u64 = 1 << 31;

/// What a virtual machine looks like; [`Config::check`] tells whether it can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// CPUs, 1..=4096.
    pub cpus: u32,
    /// NUMA nodes, 1..=8 and at most one per CPU.
    pub nodes: u32,
    /// Bytes of a page: one of [`PAGE_BYTES`].
    pub page_bytes: u64,
    /// Bytes of memory, 1 to [`PAGES_MAX`] pages; rounded down to whole ones. Only what is used
    /// becomes resident.
    pub memory_bytes: u64,
    /// Bytes of a cache line: a power of two from 8 to 256.
    pub cache_line: u32,
    /// Try-locks that fail on purpose.
    pub faults: Option<Faults>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            cpus: 1,
            nodes: 1,
            page_bytes: 4096,
            memory_bytes: 16 << 30,
            cache_line: 64,
            faults: None,
        }
    }
}

impl Config {
    /// Refuses what cannot be, without asking the operating system for anything.
    ///
    /// # Errors
    ///
    /// Any [`ConfigError`] but [`ConfigError::Reserve`].
    pub fn check(&self) -> Result<(), ConfigError> {
        let Self {
            cpus,
            nodes,
            page_bytes,
            memory_bytes,
            cache_line,
            faults: _,
        } = *self;
        if cpus == 0 || cpus > MAX_CPUS {
            return Err(ConfigError::Cpus(cpus));
        }
        if nodes == 0 || nodes > cpus || nodes as usize > MAX_NODES {
            return Err(ConfigError::Nodes { nodes, cpus });
        }
        if !PAGE_BYTES.contains(&page_bytes) {
            return Err(ConfigError::PageBytes(page_bytes));
        }
        if !cache_line.is_power_of_two() || !(8..=256).contains(&cache_line) {
            return Err(ConfigError::CacheLine(cache_line));
        }
        if !(1..=PAGES_MAX).contains(&(memory_bytes / page_bytes)) {
            return Err(ConfigError::Memory {
                memory_bytes,
                page_bytes,
            });
        }
        Ok(())
    }
}

/// How often try-locks fail, as if somebody held them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// Decides which ones.
    pub seed: u64,
    /// Of 1000 attempts on the CPU's own slot.
    pub slot_per_mille: u16,
    /// Of 1000 attempts on another CPU's slot.
    pub remote_per_mille: u16,
}

/// Why a machine cannot be.
#[derive(Debug)]
pub enum ConfigError {
    /// The number of CPUs is out of range.
    Cpus(u32),
    /// The number of nodes is out of range.
    Nodes {
        /// Nodes asked for.
        nodes: u32,
        /// CPUs asked for.
        cpus: u32,
    },
    /// The page size is not one of [`PAGE_BYTES`].
    PageBytes(u64),
    /// The cache line is not a power of two from 8 bytes to 256.
    CacheLine(u32),
    /// There is not even one page of memory, or more than [`PAGES_MAX`] pages.
    Memory {
        /// Bytes asked for.
        memory_bytes: u64,
        /// Bytes of a page.
        page_bytes: u64,
    },
    /// The operating system refuses the address space.
    Reserve {
        /// Bytes asked for.
        bytes: u64,
        /// Its answer.
        source: std::io::Error,
    },
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cpus(cpus) => write!(f, "{cpus} CPUs: a machine has 1 to {MAX_CPUS}"),
            Self::Nodes { nodes, cpus } => write!(
                f,
                "{nodes} nodes with {cpus} CPUs: a machine has 1 to {MAX_NODES} nodes and at \
                 least one CPU in each"
            ),
            Self::PageBytes(bytes) => {
                write!(
                    f,
                    "page size {bytes}: valid sizes are 4096, 16384 and 65536 (4k, 16k, 64k)"
                )
            }
            Self::CacheLine(bytes) => {
                write!(
                    f,
                    "cache line of {bytes} bytes: it is a power of two from 8 to 256"
                )
            }
            Self::Memory {
                memory_bytes,
                page_bytes,
            } => {
                write!(
                    f,
                    "{memory_bytes} bytes of memory with pages of {page_bytes} bytes: a machine \
                     has 1 to 2^{} pages",
                    PAGES_MAX.ilog2()
                )?;
                if PAGE_BYTES.contains(page_bytes) {
                    let (least, most) = (page_bytes >> 10, (page_bytes * PAGES_MAX) >> 40);
                    write!(f, "; give it {least}k to {most}T")?;
                }
                Ok(())
            }
            Self::Reserve { bytes, source } => write!(
                f,
                "the operating system refuses to reserve {bytes} bytes of address space ({source}); \
                 ask for less memory or fewer CPUs, or raise the limit (ulimit -v)"
            ),
        }
    }
}

impl std::error::Error for ConfigError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Reserve { source, .. } => Some(source),
            _ => None,
        }
    }
}

struct Mappings {
    _pages: Mapping,
    _descriptors: Mapping,
    _meta: Mapping,
    _percpu: Mapping,
}

/// See the [crate's documentation](crate).
pub struct VirtualMachine {
    topology: Topology,
    ranges: Ranges,
    cpu: Cell<CpuId>,
    /// Grace periods so far.
    grace_periods: Cell<u64>,
    counters: UnsafeCell<Counters>,
    faults: Option<(Faults, RefCell<Rng>)>,
    _mappings: Mappings,
}

impl VirtualMachine {
    /// A machine whose memory nobody has used.
    ///
    /// # Errors
    ///
    /// [`ConfigError`].
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let Config {
            cpus,
            nodes,
            page_bytes,
            memory_bytes,
            cache_line,
            faults,
        } = config;
        let page_shift = page_bytes.trailing_zeros();
        let pages = memory_bytes >> page_shift;
        let reserve = |bytes: usize, dense: bool| {
            Mapping::new(bytes, dense).map_err(|source| ConfigError::Reserve {
                bytes: bytes as u64,
                source,
            })
        };
        // Slabs are naturally aligned like blocks of the buddy allocator, so the range starts at
        // a multiple of the largest block.
        let block = 1usize << (page_shift + MAX_ORDER);
        let page_range = (pages as usize) << page_shift;
        let mappings = Mappings {
            _pages: reserve(page_range + block, true)?,
            _descriptors: reserve(pages as usize * DESCRIPTOR_BYTES, true)?,
            _meta: reserve(META_BYTES, false)?,
            _percpu: reserve((cpus as usize) << Self::PERCPU_SHIFT, false)?,
        };
        let ranges = Ranges {
            pages: mappings
                ._pages
                .range(mappings._pages.aligned(block), page_range),
            descriptors: mappings
                ._descriptors
                .range(0, pages as usize * DESCRIPTOR_BYTES),
            meta: mappings._meta.range(0, META_BYTES),
            percpu: mappings
                ._percpu
                .range(0, (cpus as usize) << Self::PERCPU_SHIFT),
        };
        Ok(Self {
            topology: Topology {
                cpus,
                nodes,
                page_shift,
                cache_line,
            },
            ranges,
            cpu: Cell::new(CpuId(0)),
            grace_periods: Cell::new(0),
            counters: UnsafeCell::new(Counters::default()),
            faults: faults.map(|faults| (faults, RefCell::new(Rng::new(faults.seed)))),
            _mappings: mappings,
        })
    }

    /// The operations that follow run on this CPU.
    ///
    /// # Panics
    ///
    /// If the machine has no such CPU.
    #[inline]
    pub fn run_on(&self, cpu: CpuId) {
        assert!(
            cpu.0 < self.topology.cpus,
            "CPU {} of {}",
            cpu.0,
            self.topology.cpus
        );
        self.cpu.set(cpu);
    }

    /// Tells that every reader that runs now has finished: deferred frees made so far may be done.
    pub fn grace_period(&self) {
        self.grace_periods.set(self.grace_periods.get() + 1);
    }

    /// Tells that an object was freed that `allocated_on` had allocated.
    #[inline]
    pub fn note_free(&self, allocated_on: CpuId) {
        if allocated_on != self.cpu.get() {
            self.count(|counters| counters.cross_cpu_frees += 1);
        }
    }

    /// Counts so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.count(|counters| counters.clone())
    }

    /// Acquisitions of locks of a class so far; cheaper than all counters.
    #[inline]
    #[must_use]
    pub fn lock_count(&self, class: LockClass) -> u64 {
        self.count(|counters| counters.locks(class))
    }

    /// Does `f` without counting it: looking at a machine must not show in what it counts.
    pub fn uncounted<R>(&self, f: impl FnOnce() -> R) -> R {
        let before = self.counters();
        let result = f();
        self.count(|counters| *counters = before);
        result
    }

    /// Counts from zero again, after work that is not to be counted.
    pub fn reset_counters(&self) {
        self.count(|counters| *counters = Counters::default());
    }

    #[inline(always)]
    fn count<R>(&self, f: impl FnOnce(&mut Counters) -> R) -> R {
        // SAFETY: the machine is not `Sync` (it holds an `UnsafeCell`), and the closures of this
        // file neither keep the reference nor call back into the machine.
        f(unsafe { &mut *self.counters.get() })
    }

    #[inline]
    fn fails(&self, per_mille: impl FnOnce(&Faults) -> u16) -> bool {
        match &self.faults {
            None => false,
            Some((faults, rng)) => rng.borrow_mut().chance(per_mille(faults)),
        }
    }
}

// SAFETY: the four ranges are separate fresh mappings, zero-filled and unmapped only with the
// machine (M2), which holds them on the heap of the operating system, so moving the struct moves
// no range (M3). One thread runs the machine (it is not `Sync`) and operations do not overlap, so
// the words below are changed without interleaving: a word is taken only when free.
unsafe impl Machine for VirtualMachine {
    const PERCPU_SHIFT: u32 = 22;

    #[inline(always)]
    fn topology(&self) -> &Topology {
        &self.topology
    }

    #[inline(always)]
    fn ranges(&self) -> &Ranges {
        &self.ranges
    }

    #[inline(always)]
    fn current_cpu(&self) -> CpuId {
        self.cpu.get()
    }

    #[inline(always)]
    unsafe fn percpu_try_lock(&self, slot0: NonNull<SlotLock>) -> Option<NonNull<SlotLock>> {
        self.count(|counters| counters.slot_tries += 1);
        if self.fails(|faults| faults.slot_per_mille) {
            self.count(|counters| counters.slot_failures += 1);
            return None;
        }
        let offset = (self.cpu.get().0 as usize) << Self::PERCPU_SHIFT;
        // SAFETY: the caller's contract: CPU 0's word of a slot that lies at the same offset in
        // every CPU's area; `run_on` keeps the CPU in range.
        let lock = unsafe { slot0.byte_add(offset) };
        // SAFETY: as above; the word is atomic.
        let word = unsafe { lock.as_ref() }.word();
        if word.load(Ordering::Relaxed) != PERCPU_FREE {
            return None;
        }
        word.store(PERCPU_OWNER, Ordering::Relaxed);
        Some(lock)
    }

    fn percpu_lock_remote(&self, slot: &SlotLock, _cpu: CpuId) -> bool {
        self.count(|counters| counters.remote_tries += 1);
        if self.fails(|faults| faults.remote_per_mille)
            || slot.word().load(Ordering::Relaxed) != PERCPU_FREE
        {
            return false;
        }
        slot.word().store(PERCPU_REMOTE, Ordering::Relaxed);
        true
    }

    fn thread_id(&self) -> usize {
        1
    }

    fn rcu_cookie(&self) -> u64 {
        self.grace_periods.get() + 1
    }

    fn rcu_elapsed(&self, cookie: u64) -> bool {
        self.grace_periods.get() >= cookie
    }

    fn when(&self) -> u64 {
        self.count(|counters| counters.work(Work::Call))
    }

    fn pause(&self, _attempt: u32) {}

    #[inline(always)]
    fn lock(&self, lock: &RawLock, class: LockClass) -> Result<(), Reentered> {
        self.count(|counters| counters.add_lock(class));
        if lock.acquire(1) {
            Ok(())
        } else {
            Err(Reentered)
        }
    }

    #[inline(always)]
    fn try_lock(&self, lock: &RawLock, class: LockClass) -> bool {
        self.count(|counters| counters.add_lock(class));
        lock.acquire(1)
    }

    #[inline(always)]
    unsafe fn unlock(&self, lock: &RawLock, _class: LockClass) {
        lock.release();
    }

    unsafe fn release(&self, range: RawRange) -> bool {
        self.count(|counters| {
            counters.releases += 1;
            counters.released_bytes += range.bytes as u64;
        });
        // SAFETY: the pages are a mapping of this machine, and by the caller's contract unused.
        unsafe { Mapping::discard(range) }
    }

    #[inline(always)]
    fn touch(&self, line: Line, access: Access, _address: usize) {
        self.count(|counters| counters.add_touch(line, access));
    }

    #[inline(always)]
    fn work(&self, work: Work) {
        self.count(|counters| counters.add_work(work));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of a configuration; a machine is refused with the same words.
    fn refused(change: impl FnOnce(&mut Config)) -> String {
        let mut config = Config::default();
        change(&mut config);
        let checked = config.check().map_err(|error| error.to_string());
        let made = VirtualMachine::new(config).map(|_| ());
        assert_eq!(made.map_err(|error| error.to_string()), checked);
        checked.expect_err("a refusal")
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let cpus = refused(|config| config.cpus = MAX_CPUS + 1);
        assert_eq!(cpus, "4097 CPUs: a machine has 1 to 4096");
        let nodes = refused(|config| config.nodes = 2);
        assert!(nodes.starts_with("2 nodes with 1 CPUs"), "{nodes}");
        let nodes = refused(|config| (config.cpus, config.nodes) = (16, MAX_NODES as u32 + 1));
        assert!(nodes.starts_with("9 nodes with 16 CPUs"), "{nodes}");
        for bytes in [0, 1, 8192] {
            let pages = refused(|config| config.page_bytes = bytes);
            assert!(pages.starts_with(&format!("page size {bytes}: ")));
        }
        for bytes in [0, 4, 24, 512] {
            let line = refused(|config| config.cache_line = bytes);
            assert!(line.starts_with(&format!("cache line of {bytes} bytes")));
        }
    }

    #[test]
    fn memory_that_is_refused_is_told_what_there_can_be() {
        for (page_bytes, hint) in [
            (4096, "give it 4k to 8T"),
            (16384, "give it 16k to 32T"),
            (65536, "give it 64k to 128T"),
        ] {
            let config = |memory_bytes| Config {
                page_bytes,
                memory_bytes,
                ..Config::default()
            };
            for memory_bytes in [page_bytes, (PAGES_MAX + 1) * page_bytes - 1] {
                assert!(config(memory_bytes).check().is_ok(), "{memory_bytes}");
            }
            for memory_bytes in [page_bytes - 1, (PAGES_MAX + 1) * page_bytes, u64::MAX] {
                let text = refused(|it| *it = config(memory_bytes));
                let expected = format!("1 to 2^31 pages; {hint}");
                assert!(text.ends_with(&expected), "{text}");
            }
        }
        // Anybody may make such an error.
        for page_bytes in [0, 1, u64::MAX] {
            let error = ConfigError::Memory {
                memory_bytes: 1,
                page_bytes,
            };
            assert!(error.to_string().ends_with("1 to 2^31 pages"), "{error}");
        }
    }
}
