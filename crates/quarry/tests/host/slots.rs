//! Slots by concurrency id, as a heap has them.

use quarry::kernel::machine::Cpus as _;
use quarry::{Builder, HostHeap, Mode, SlotIndex, Slub};

fn heap(slot_index: SlotIndex) -> HostHeap<Slub> {
    let builder = Builder::<Slub>::new().memory_bytes(64 << 20);
    builder.slot_index(slot_index).build().expect("a heap")
}

/// CPUs where the calling thread may run, at most eight.
fn allowed_cpus() -> Vec<usize> {
    // SAFETY: all-zero is a valid, empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is valid for writes of its size.
    let status = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) };
    assert_eq!(status, 0);
    // SAFETY: the numbers are below CPU_SETSIZE, the bits of the set.
    let allowed = |&cpu: &usize| unsafe { libc::CPU_ISSET(cpu, &set) };
    let allowed = (0..libc::CPU_SETSIZE as usize).filter(allowed);
    allowed.take(8).collect()
}

/// Allocates and frees on each CPU, in a child of a fork, which has one thread. Returns the number of slabs that CPUs have.
fn cpu_slabs_of_a_thread_on(cpus: &[usize], heap: &HostHeap<Slub>) -> i32 {
    let cache = heap
        .create_cache(&quarry::CacheSpec::new("moving", 192))
        .expect("a cache");
    // SAFETY: the child uses the heap, which rests during forks, and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        for _ in 0..2 {
            for &cpu in cpus {
                // SAFETY: all-zero is a valid, empty set.
                let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
                // SAFETY: the number is below CPU_SETSIZE.
                unsafe { libc::CPU_SET(cpu, &mut set) };
                // SAFETY: the set is valid for reads of its size.
                unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
                if let Some(object) = cache.alloc() {
                    // SAFETY: allocated just now, and not used.
                    let _ = unsafe { cache.free(object) };
                }
            }
        }
        let slabs = cache.usage().cpu_slabs as i32;
        // SAFETY: ends the child without running destructors.
        unsafe { libc::_exit(slabs) }
    }
    let mut status = -1;
    // SAFETY: `status` is valid for writes.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "{status:#x}");
    libc::WEXITSTATUS(status)
}

#[test]
fn a_thread_alone_has_one_slab_on_all_cpus() {
    let cpus = allowed_cpus();
    assert!(
        cpus.len() > 1,
        "one CPU shows nothing: --skip a_thread_alone_has_one_slab_on_all_cpus"
    );
    let all = cpus.len() as i32;
    assert_eq!(cpu_slabs_of_a_thread_on(&cpus, &heap(SlotIndex::Cpu)), all);
    let heap = heap(SlotIndex::ConcurrencyId);
    let machine = heap.machine();
    // SAFETY: reads what the kernel gave the process; 27 is AT_RSEQ_FEATURE_SIZE.
    let feature_bytes = unsafe { libc::getauxval(27) };
    let ids = cfg!(target_arch = "x86_64")
        && feature_bytes >= 28
        && machine.mode() == Mode::Rseq
        && machine.topology().nodes == 1;
    let slots = machine.slot_index();
    assert_eq!(slots.in_use == SlotIndex::ConcurrencyId, ids, "{slots:?}");
    assert_eq!(
        cpu_slabs_of_a_thread_on(&cpus, &heap),
        if ids { 1 } else { all }
    );
}
