//! The interface of a slab allocator design, and the state that all caches share.
//!
//! ```text
//!  Design = Allocate + Free     calls: what users do
//!         + Slots               slots: places of objects, for debugging and walks
//!         + Show                show: counters, usage, walks
//!         + Upkeep              upkeep: expiry, flush, shrink, fork
//!         + its names, geometry, tunables, and how a cache comes and goes
//! ```
//!
//! A design implements each part in the file that has the code. Designs with per-CPU state get `Allocate`
//! and `Free` from the module `front` and write its hooks.

mod calls;
mod env;
mod error;
mod head;
mod show;
mod slots;
mod upkeep;
mod usage;

use core::ops::RangeInclusive;
use core::ptr::NonNull;

use crate::era::Era;
use crate::geometry::{
    BootParams, CacheParams, DebugRules, Geometry, GeometryError, KmallocRules, MachineParams,
};
use crate::machine::Machine;
use crate::merge::MergeRules;
use crate::tunables::Table;

pub use crate::name::NAME_BYTES;
pub use calls::{Allocate, Free};
pub use env::Env;
pub use error::{Busy, CheckError, FreeError, SlabInconsistency};
pub use head::{CacheHead, CacheSpec, Constructor};
pub use show::Show;
pub use slots::{NoPlace, Place, Slots};
pub use upkeep::{REAP_INTERVAL_NS, Upkeep};
pub use usage::{CpuUsage, NodeUsage, Usage};

/// Properties of a design that its users ask about, instead of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Slabinfo shows the limits of CPUs' arrays (`limit`, `batchcount`, `sharedfactor`).
    pub arrays_in_slabinfo: bool,
    /// Every cache has a directory in sysfs.
    pub sysfs: bool,
    /// CPUs and nodes keep sheaves.
    pub sheaves: bool,
    /// Slabs hold objects of all caches, so an allocation searches lists of pages.
    pub shared_slabs: bool,
    /// No kernel has the design, which is for programs. Its releases are those whose rules it takes where it has none of
    /// its own.
    pub for_programs: bool,
    /// Free objects hold a link at most, which a trailer has room for: caches can be hardened ([`crate::harden`]).
    pub hardens: bool,
    /// First release with bulk calls of its own. Kernels before it, and designs without any, make single calls of them
    /// (facts 2.13).
    pub bulk_since: Option<Era>,
}

impl Features {
    /// True if a release has bulk calls of its own.
    #[must_use]
    pub fn has_bulk_calls(&self, era: Era) -> bool {
        self.bulk_since.is_some_and(|first| era >= first)
    }

    /// None of them.
    pub const NONE: Self = Self {
        arrays_in_slabinfo: false,
        sysfs: false,
        sheaves: false,
        shared_slabs: false,
        for_programs: false,
        hardens: false,
        bulk_since: None,
    };
}

/// One slab allocator design: the per-cache state and everything that can be done with it.
///
/// The methods take the cache's [`Env`]; callers go through [`crate::heap::Heap`], which keeps the
/// two together.
///
/// # Safety
///
/// [`Design::geometry`] and [`Design::kmalloc_rules`] give objects at least the size and alignment that are asked for.
/// [`Allocate`] hands out memory of the cache's slabs that no other user has until it is freed. It is as large and as
/// aligned as the cache's geometry says. [`Slots`] and [`Show`] name such memory only. All methods keep to what
/// [`Env`] gives them.
pub unsafe trait Design:
    Allocate + Free + Slots + Show + Upkeep + Send + Sync + 'static
{
    /// The name on the command line: `slub`, `slubq`.
    const NAME: &'static str;
    /// The tunables and the eras that have them.
    const TUNABLES: &'static Table;
    /// Releases of Linux that have the design.
    const RELEASES: RangeInclusive<Era>;
    /// One release of each generation of it, oldest first: what tests and tables go through.
    const ERAS: &'static [Era];
    /// True if a growing cache calls the kmalloc of its own heap, for arrays or off-slab indices.
    const GROWS_BY_KMALLOC: bool;
    /// Properties that users ask about.
    const FEATURES: Features;
    /// The era meant when none is given: one whose kernels go by the design's name.
    const DEFAULT_ERA: Era;

    /// Sizes, order and limits of a cache.
    ///
    /// # Errors
    ///
    /// [`GeometryError`] if the cache cannot exist.
    fn geometry(
        era: Era,
        machine: &MachineParams,
        boot: &BootParams,
        cache: &CacheParams,
    ) -> Result<Geometry, GeometryError>;

    /// The kmalloc caches of the design in this era. `None` if it has no such era.
    fn kmalloc_rules(era: Era) -> Option<&'static KmallocRules>;

    /// Rules for merging caches in this era; `None` if they never are.
    fn merge_rules(_era: Era) -> Option<&'static MergeRules> {
        None
    }

    /// Makes the state that the caches of a new heap share.
    fn share(era: Era) -> Self::Shared;

    /// State of a new cache. `None` if there is no room for it.
    ///
    /// # Safety
    ///
    /// `shared` is what [`Design::share`] made for the heap's release; it does not move and outlives the
    /// cache.
    unsafe fn create<M: Machine>(env: Env<'_, M>, shared: NonNull<Self::Shared>) -> Option<Self>;

    /// Returns the state's per-CPU slots. Only after [`Upkeep::flush`] and when no slab is left.
    ///
    /// # Safety
    ///
    /// The cache has no user left.
    unsafe fn release<M: Machine>(&self, env: Env<'_, M>);

    /// Layout and patterns that debugging writes into slots; `None` if the design has no debugging.
    fn debug_rules(era: Era) -> Option<DebugRules>;

    /// Value of a tunable or attribute by its sysfs name.
    fn attribute(&self, cache: &CacheHead, name: &str) -> Option<u64>;

    /// Sets a tunable while the cache is in use. `false` if the design has none of that name; the
    /// value has been checked against [`crate::tunables`].
    fn set_attribute<M: Machine>(&self, env: Env<'_, M>, name: &str, value: u64) -> bool;
}
