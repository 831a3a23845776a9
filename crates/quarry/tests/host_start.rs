//! Costs of a heap's start. A process of its own: the kernel's permission to restart sequences is the process's.

use quarry::{Cache, HostHeap, Mode};

/// Page faults of the calling thread so far.
fn faults() -> i64 {
    // SAFETY: all-zero is a valid `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is valid for writes.
    let status = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    assert_eq!(status, 0);
    usage.ru_minflt
}

/// True if the process has asked for the permission to restart sequences, for which a process with several threads
/// waits some 10 ms.
fn may_restart_sequences() -> bool {
    // MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ with MEMBARRIER_CMD_FLAG_CPU.
    // SAFETY: membarrier takes three integers and touches no memory of the caller.
    let status = unsafe { libc::syscall(libc::SYS_membarrier, 1 << 7, 1, 0) };
    status == 0
}

#[test]
fn a_default_heap_touches_little_and_waits_for_nothing() {
    let first = HostHeap::new().expect("a heap");
    let before = faults();
    let heap = HostHeap::new().expect("a heap");
    let start = faults() - before;
    assert!(
        start <= 16,
        "{start} page faults at the start of a heap of 16 GiB"
    );
    let cache = Cache::new(&heap, "number").expect("a cache");
    drop(cache.alloc(1_u64));
    assert!(!may_restart_sequences());
    assert_eq!(cache.shrink(), 0);
    // Another CPU's state was looked at.
    let restarts = heap.machine().mode() == Mode::Rseq;
    assert_eq!(may_restart_sequences(), restarts);
    drop(first);
}
