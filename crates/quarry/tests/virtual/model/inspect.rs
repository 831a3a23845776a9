//! Heaps whose slabinfo and sysfs attributes are looked at.

use std::ptr::NonNull;

use quarry_core::design::{CacheSpec, Design};
use quarry_core::era::Era;
use quarry_core::geometry::CacheFlags;
use quarry_core::heap::{Cache, Heap};
use quarry_core::machine::CpuId;
use quarry_sim::VirtualMachine;

use super::setup::Setup;

pub(crate) const CPUS: u32 = 4;
pub(crate) const NODES: u32 = 2;

pub(crate) fn heap<D: Design>(era: Era) -> Heap<VirtualMachine, D> {
    let setup = Setup {
        cpus: CPUS,
        nodes: NODES,
        ..Setup::default()
    };
    Heap::new(setup.machine(), era, setup.boot()).unwrap()
}

pub(crate) fn cache<'h, D: Design>(
    heap: &'h Heap<VirtualMachine, D>,
    name: &str,
    object_size: u32,
) -> Cache<'h, VirtualMachine, D> {
    let spec = CacheSpec {
        flags: CacheFlags::RECLAIM,
        ..CacheSpec::new(name, object_size)
    };
    heap.create_cache(&spec).unwrap()
}

/// Allocates on all CPUs and frees half of the objects, most on another CPU; gives the others.
pub(crate) fn use_it<D: Design>(
    machine: &VirtualMachine,
    cache: &Cache<'_, VirtualMachine, D>,
) -> Vec<NonNull<u8>> {
    let mut kept = Vec::new();
    for n in 0..3000 {
        machine.run_on(CpuId(n % CPUS));
        kept.push(cache.alloc().unwrap());
    }
    for n in 0..1500 {
        machine.run_on(CpuId((n / 3) % CPUS));
        // A stride that visits all slabs.
        let object = kept.swap_remove(n as usize * 7 % kept.len());
        // SAFETY: the object is this cache's, and no other code knows it.
        unsafe { cache.free(object) }.unwrap();
    }
    kept
}

pub(crate) fn read<D: Design>(cache: &Cache<'_, VirtualMachine, D>, name: &str) -> String {
    let mut text = String::new();
    if let Err(error) = cache.sysfs_read(name, &mut text) {
        panic!("{name}: {error}");
    }
    text
}
