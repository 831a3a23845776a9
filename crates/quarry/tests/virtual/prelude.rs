//! Names that most tests use.

pub(crate) use crate::model::by_number::ByNumber as _;
pub(crate) use crate::model::cases::{case_count, check_property, each};
pub(crate) use crate::model::interrupts::Interrupted;
pub(crate) use crate::model::page_script::page_scripts;
pub(crate) use crate::model::scenario::{
    Object, Pages, VirtualCache, VirtualHeap, block_of, boot, boot_pages, cache_of, check_empty,
    configured_pages, destroy, free, give, give_bulk, give_later, give_pages, grace_period, kfree,
    live, locks_taken, node_of, on, reap_at, shrink_all, sized, small, stat, stats, take,
    take_pages, two_nodes,
};
pub(crate) use crate::model::script::scripts;
pub(crate) use crate::model::setup::{Setup, setups};
pub(crate) use crate::model::steps::Stepping;
pub(crate) use crate::model::{Check, design_tests, ensure, ensure_eq};
pub(crate) use quarry_core::debug::{CallSite, SlubDebug};
pub(crate) use quarry_core::design::{CacheSpec, Design, FreeError};
pub(crate) use quarry_core::era::Era;
pub(crate) use quarry_core::for_all_designs;
pub(crate) use quarry_core::geometry::{BootParams, CacheFlags, FreelistPlace};
pub(crate) use quarry_core::heap::{CreateError, Heap};
pub(crate) use quarry_core::machine::{Access, CpuId, Line, LockClass, Machine, NodeId, Work};
pub(crate) use quarry_core::page::{
    AllocOptions, MAX_ORDER, MigrateType, MinFree, PageAllocator, PageConfig, PageError, PageKind,
    PcpStock, Pfn, ZoneLayout,
};
pub(crate) use quarry_core::pool::{
    CACHE_PAGES, Mapper, PoolError, PoolOwner, PoolParams, PoolState, Put, REFILL_PAGES,
};
pub(crate) use quarry_core::sheaf::SheafCache;
pub(crate) use quarry_core::slab::SlabCache;
pub(crate) use quarry_core::slub::Slub;
pub(crate) use quarry_core::slubq::Slubq;
pub(crate) use quarry_core::stats::Stat;
pub(crate) use quarry_sim::{LonePut, Rng, VirtualMachine};
pub(crate) use std::cell::{Cell, RefCell};
pub(crate) use std::collections::{BTreeMap, BTreeSet};
pub(crate) use std::ptr::NonNull;
pub(crate) use std::rc::Rc;
