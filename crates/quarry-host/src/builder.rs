//! Configuration of a [`HostMachine`].

use quarry_core::machine::{MAX_CPUS, Slots as _, Topology};

use crate::error::HostError;
use crate::huge::HugePages;
use crate::machine::{HostMachine, Mode};
use crate::memory::{Layout, Memory};
use crate::numa::Nodes;
use crate::rseq::{self, Found, RseqUnavailable};
use crate::slot_index::{SlotIndex, SlotIndexUse};
use crate::{os, topology};

/// Memory by default, where the computer has no more.
const MEMORY_BYTES: usize = 16 << 30;
/// Part of the address space that a process may have which its heap takes by default.
const LIMIT_PART: usize = 4;
/// Part of the memory that the structures get. The largest are those of SLUB+Q, a pointer and a bit for each
/// object of a slab's 8 bytes or more, and page pools' rings; most need a page for a cache.
const META_PART: usize = 16;
/// Structures of small heaps: room for a thousand caches.
const META_BYTES_MIN: usize = 8 << 20;

/// Most memory with pages of this size: page numbers have 32 bits, and memory comes in blocks of 2^10 pages.
const fn memory_limit(page_shift: u32) -> usize {
    ((1_usize << 32) - (1 << 10)) << page_shift
}

fn default_memory() -> usize {
    let limit = os::address_space_limit().map_or(usize::MAX, |bytes| bytes / LIMIT_PART);
    // As much as there is: what a heap cannot hand out fails although memory is free.
    let physical = os::sysconf(libc::_SC_PHYS_PAGES).map_or(0, |pages| pages * os::page_bytes());
    MEMORY_BYTES.max(physical).min(limit)
}

/// Configures a [`HostMachine`]; every setting has a default.
///
/// # Examples
///
/// ```
/// use quarry_core::machine::Cpus;
/// use quarry_host::{HostMachine, Mode};
///
/// let machine = HostMachine::builder()
///     .memory_bytes(64 << 20)
///     .page_size(16 << 10)
///     .mode(Mode::Fallback)
///     .build()?;
/// assert_eq!(machine.topology().page_size(), 16 << 10);
/// assert_eq!(machine.mode(), Mode::Fallback);
/// # Ok::<(), quarry_host::HostError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Builder {
    memory_bytes: Option<usize>,
    meta_bytes: Option<usize>,
    page_bytes: usize,
    mode: Mode,
    cpus: Option<u32>,
    huge_pages: HugePages,
    slot_index: SlotIndex,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            memory_bytes: None,
            meta_bytes: None,
            page_bytes: 4096,
            mode: Mode::Auto,
            cpus: None,
            huge_pages: HugePages::System,
            slot_index: SlotIndex::Cpu,
        }
    }
}

impl Builder {
    /// Memory that the page allocator may hand out, rounded up to 2^10 pages. By default 16 GiB, or what the computer has if
    /// that is more, or a quarter of the limit of the process's address space (`ulimit -v`) if that is less. Only what is
    /// touched costs memory. The limit is 2^32 - 2^10 pages, 16 TiB with pages of 4 KiB, and what the system's address space
    /// has room for.
    #[must_use]
    pub const fn memory_bytes(mut self, bytes: usize) -> Self {
        self.memory_bytes = Some(bytes);
        self
    }

    /// Address space for the allocators' own structures, rounded up to 2^10 pages; by default a 16th of the
    /// memory, 8 MiB at least.
    #[must_use]
    pub const fn meta_bytes(mut self, bytes: usize) -> Self {
        self.meta_bytes = Some(bytes);
        self
    }

    /// Page size of the page allocator: 4096 (default), 16384 or 65536 bytes, a multiple of the
    /// operating system's.
    #[must_use]
    pub const fn page_size(mut self, bytes: usize) -> Self {
        self.page_bytes = bytes;
        self
    }

    /// Sets the way to take per-CPU words; default [`Mode::Auto`].
    #[must_use]
    pub const fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Serves only CPUs below `cpus`, from 1 to [`MAX_CPUS`]; default all possible ones. With restartable sequences,
    /// threads on other CPUs then find no per-CPU state at all; by [`SlotIndex::ConcurrencyId`], threads
    /// beyond as many that run at once.
    #[must_use]
    pub const fn cpus(mut self, cpus: u32) -> Self {
        self.cpus = Some(cpus);
        self
    }

    /// Chooses the operating system's pages behind the memory; default
    /// [`HugePages::System`]. [`HostMachine::huge_pages`] reports those in use.
    ///
    /// ```
    /// use quarry_host::{HostMachine, HugePages};
    ///
    /// let machine = HostMachine::builder()
    ///     .memory_bytes(64 << 20)
    ///     .huge_pages(HugePages::Transparent)
    ///     .build()?;
    /// let pages = machine.huge_pages();
    /// if let Some(reason) = pages.reason {
    ///     println!("{:?} instead of {:?}: {reason}", pages.in_use, pages.wanted);
    /// }
    /// # Ok::<(), quarry_host::HostError>(())
    /// ```
    #[must_use]
    pub const fn huge_pages(mut self, huge_pages: HugePages) -> Self {
        self.huge_pages = huge_pages;
        self
    }

    /// Chooses the number by which threads find their slots of per-CPU state; default [`SlotIndex::Cpu`].
    /// [`HostMachine::slot_index`] reports the one in use.
    ///
    /// ```
    /// use quarry_host::{HostMachine, SlotIndex};
    ///
    /// let machine = HostMachine::builder()
    ///     .memory_bytes(64 << 20)
    ///     .slot_index(SlotIndex::ConcurrencyId)
    ///     .build()?;
    /// let slots = machine.slot_index();
    /// match slots.reason {
    ///     None => assert_eq!(slots.in_use, SlotIndex::ConcurrencyId),
    ///     Some(reason) => println!("slots go by CPU numbers: {reason}"),
    /// }
    /// # Ok::<(), quarry_host::HostError>(())
    /// ```
    #[must_use]
    pub const fn slot_index(mut self, slot_index: SlotIndex) -> Self {
        self.slot_index = slot_index;
        self
    }

    /// Reserves the memory and decides the mode.
    ///
    /// # Errors
    ///
    /// [`HostError`] names the setting that is not available, and a remedy.
    pub fn build(self) -> Result<HostMachine, HostError> {
        let page_shift = self.page_shift()?;
        let cpus = self.cpus.unwrap_or_else(|| topology::possible_cpus("/sys"));
        if cpus == 0 || cpus > MAX_CPUS {
            return Err(HostError::Cpus { cpus });
        }
        let percpu_bytes = (cpus as usize) << HostMachine::PERCPU_SHIFT;
        let limit = memory_limit(page_shift);
        let memory_bytes = self
            .memory_bytes
            .unwrap_or_else(|| default_memory().min(limit));
        let default_meta = (memory_bytes / META_PART).max(META_BYTES_MIN);
        let meta_bytes = self.meta_bytes.unwrap_or(default_meta);
        let layout = Some((memory_bytes, meta_bytes))
            .filter(|(memory, meta)| *memory > 0 && *meta > 0)
            .and_then(|(memory, meta)| Layout::new(memory, meta, page_shift, percpu_bytes))
            .ok_or(HostError::Size {
                memory_bytes,
                meta_bytes,
            })?;
        if memory_bytes > limit {
            return Err(HostError::Memory {
                memory_bytes,
                limit,
            });
        }
        let found = self.area()?;
        let memory = Memory::reserve(&layout, self.huge_pages)?;
        let nodes = Nodes::of_this_computer(cpus);
        let topology = Topology {
            cpus,
            nodes: nodes.in_use().nodes,
            page_shift,
            cache_line: topology::cache_line(),
        };
        let slot_index = SlotIndexUse::of_this_computer(self.slot_index, &found, topology.nodes);
        Ok(HostMachine::new(found, slot_index, topology, nodes, memory))
    }

    fn page_shift(&self) -> Result<u32, HostError> {
        let bytes = self.page_bytes;
        if ![4096, 16384, 65536].contains(&bytes) {
            return Err(HostError::PageSize { bytes });
        }
        let system_bytes = os::sysconf(libc::_SC_PAGESIZE).unwrap_or(4096);
        if !bytes.is_multiple_of(system_bytes) {
            return Err(HostError::PageSizeBelowSystem {
                bytes,
                system_bytes,
            });
        }
        Ok(bytes.trailing_zeros())
    }

    /// The threads' registered areas, or the reason for the fallback.
    fn area(&self) -> Result<Result<Found, RseqUnavailable>, HostError> {
        match self.mode {
            Mode::Fallback => Ok(Err(RseqUnavailable::Chosen)),
            Mode::Rseq => rseq::find().map(Ok).map_err(HostError::Rseq),
            Mode::Auto if os::env_is(c"QUARRY_RSEQ", c"0") => Ok(Err(RseqUnavailable::Switched)),
            Mode::Auto => Ok(rseq::find()),
        }
    }
}
