//! Objects and pages that a process's memory and files need of the kernel, by their kinds.
//!
//! Sizes are those of 6.18 (`/sys/kernel/slab/NAME/{object_size,align,hwcache_align,destroy_by_rcu}`, 2026-11-30).

use quarry_core::design::CacheSpec;
use quarry_core::geometry::CacheFlags;
use quarry_core::page::MigrateType;

/// Kind of an object or a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `vm_area_struct`: a mapping.
    VmArea,
    /// `maple_node`: a node of the tree of mappings.
    MapleNode,
    /// `anon_vma`: a mapping's anonymous pages.
    AnonVma,
    /// `anon_vma_chain`: a link from a mapping to one of them.
    AnonVmaChain,
    /// `filp`: an open file.
    File,
    /// `lsm_file_cache`: what security modules note of one.
    FileSecurity,
    /// `names_cache`: a path while it is looked up.
    PathName,
    /// A page of a process, filled with zeros.
    ZeroedPage,
    /// A page of a process, filled from a page of a file.
    CopiedPage,
    /// A page of page tables.
    PageTable,
    /// A page that lists pages to be freed when translations are gone.
    FreeList,
}

/// Source of a kind's objects.
pub(crate) enum Source {
    /// A cache of this kind's own.
    Cache(CacheSpec<'static>),
    /// The page allocator.
    Pages(MigrateType),
}

impl Kind {
    /// All of them.
    pub(crate) const ALL: [Self; 11] = [
        Self::VmArea,
        Self::MapleNode,
        Self::AnonVma,
        Self::AnonVmaChain,
        Self::File,
        Self::FileSecurity,
        Self::PathName,
        Self::ZeroedPage,
        Self::CopiedPage,
        Self::PageTable,
        Self::FreeList,
    ];

    /// Source of its objects.
    pub(crate) fn source(self) -> Source {
        let of = |name, bytes, align, flags| {
            Source::Cache(CacheSpec {
                align,
                flags,
                ..CacheSpec::new(name, bytes)
            })
        };
        let line = CacheFlags::HWCACHE_ALIGN;
        let stays = CacheFlags::RCU;
        match self {
            Self::VmArea => Source::Cache(CacheSpec {
                sheaf_capacity: SHEAF,
                flags: line.union(stays),
                ..CacheSpec::new("vm_area_struct", 192)
            }),
            Self::MapleNode => Source::Cache(CacheSpec {
                sheaf_capacity: SHEAF,
                align: 256,
                ..CacheSpec::new("maple_node", 256)
            }),
            Self::AnonVma => of("anon_vma", 96, 0, stays.union(CacheFlags::CTOR)),
            Self::AnonVmaChain => of("anon_vma_chain", 64, 0, CacheFlags::NONE),
            Self::File => of("filp", 184, 0, line.union(stays)),
            Self::FileSecurity => of("lsm_file_cache", 24, 0, CacheFlags::NONE),
            Self::PathName => of("names_cache", 4096, 0, line),
            Self::ZeroedPage | Self::CopiedPage => Source::Pages(MigrateType::Movable),
            Self::PageTable | Self::FreeList => Source::Pages(MigrateType::Unmovable),
        }
    }
}

/// Objects of a sheaf that caches of the tree of mappings ask for (`sheaf_capacity`).
const SHEAF: u32 = 32;

/// Request of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// A call into the kernel begins, or a fault.
    Enter,
    /// Work outside of the allocators, in cycles.
    Work(u32),
    /// One more object of a kind.
    Alloc(Kind),
    /// The process's oldest object of a kind is freed.
    Free(Kind),
    /// The same when all that look at it now have finished: after a grace period.
    FreeLater(Kind),
}
