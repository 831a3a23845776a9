//! Configuration of a [`HostMachine`].

use quarry_core::machine::{MAX_CPUS, Slots as _, Topology};

use crate::error::HostError;
use crate::huge::HugePages;
use crate::machine::{HostMachine, Mode};
use crate::memory::{Layout, Memory};
use crate::numa::Nodes;
use crate::rseq::{self, RseqUnavailable};
use crate::{os, topology};

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
    memory_bytes: usize,
    meta_bytes: usize,
    page_bytes: usize,
    mode: Mode,
    cpus: Option<u32>,
    huge_pages: HugePages,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            memory_bytes: 16 << 30,
            meta_bytes: 1 << 30,
            page_bytes: 4096,
            mode: Mode::Auto,
            cpus: None,
            huge_pages: HugePages::System,
        }
    }
}

impl Builder {
    /// Address space that the page allocator may hand out, rounded up to 2^10 pages; default
    /// 16 GiB. Only what is touched costs memory.
    #[must_use]
    pub const fn memory_bytes(mut self, bytes: usize) -> Self {
        self.memory_bytes = bytes;
        self
    }

    /// Address space for the allocators' own structures, rounded up to 2^10 pages; default 1 GiB.
    #[must_use]
    pub const fn meta_bytes(mut self, bytes: usize) -> Self {
        self.meta_bytes = bytes;
        self
    }

    /// Page size of the page allocator: 4096 (default), 16384 or 65536 bytes, a multiple of the
    /// operating system's.
    #[must_use]
    pub const fn page_size(mut self, bytes: usize) -> Self {
        self.page_bytes = bytes;
        self
    }

    /// How per-CPU words are taken; default [`Mode::Auto`].
    #[must_use]
    pub const fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Serves only CPUs below `cpus`; default all possible ones. With restartable sequences,
    /// threads on other CPUs then find no per-CPU state at all.
    #[must_use]
    pub const fn cpus(mut self, cpus: u32) -> Self {
        self.cpus = Some(cpus);
        self
    }

    /// Which of the operating system's pages are behind the memory; default
    /// [`HugePages::System`]. What is in use, [`HostMachine::huge_pages`] tells.
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

    /// Reserves the memory and decides the mode.
    ///
    /// # Errors
    ///
    /// [`HostError`] tells which setting cannot be had and what to do about it.
    pub fn build(self) -> Result<HostMachine, HostError> {
        let page_shift = self.page_shift()?;
        let cpus = self.cpus.unwrap_or_else(topology::possible_cpus);
        if cpus == 0 || cpus > MAX_CPUS {
            return Err(HostError::Cpus { cpus });
        }
        let percpu_bytes = (cpus as usize) << HostMachine::PERCPU_SHIFT;
        let layout = Some(self)
            .filter(|wish| wish.memory_bytes > 0 && wish.meta_bytes > 0)
            .and_then(|wish| {
                Layout::new(wish.memory_bytes, wish.meta_bytes, page_shift, percpu_bytes)
            })
            .ok_or(HostError::Size {
                memory_bytes: self.memory_bytes,
                meta_bytes: self.meta_bytes,
            })?;
        let area = self.area()?;
        let memory = Memory::reserve(&layout, self.huge_pages)?;
        let nodes = Nodes::of_this_computer(cpus);
        let topology = Topology {
            cpus,
            nodes: nodes.in_use().nodes,
            page_shift,
            cache_line: topology::cache_line(),
        };
        Ok(HostMachine::new(area, topology, nodes, memory))
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

    /// Where the threads' registered areas are, or why the fallback is used.
    fn area(&self) -> Result<Result<isize, RseqUnavailable>, HostError> {
        match self.mode {
            Mode::Fallback => Ok(Err(RseqUnavailable::Chosen)),
            Mode::Rseq => rseq::find().map(Ok).map_err(HostError::Rseq),
            Mode::Auto if os::env_is(c"QUARRY_RSEQ", c"0") => Ok(Err(RseqUnavailable::Switched)),
            Mode::Auto => Ok(rseq::find()),
        }
    }
}
