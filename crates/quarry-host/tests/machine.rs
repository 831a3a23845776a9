//! The machine's promises one by one, in each mode.

use std::error::Error;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use quarry_core::machine::{
    CpuId, Cpus as _, DESCRIPTOR_BYTES, LockClass, Locks as _, Memory as _, PERCPU_FREE,
    PERCPU_OWNER, PERCPU_QUIESCED, PERCPU_REMOTE, RawLock, RawRange, Readers as _, Reentered,
    SlotLock, Slots as _, Steps as _, Threads as _,
};
use quarry_host::{
    Builder, HostError, HostMachine, Mode, RseqUnavailable, SlotIndex, SlotIndexUnavailable,
};

fn small() -> Builder {
    HostMachine::builder()
        .memory_bytes(1 << 22)
        .meta_bytes(1 << 20)
}

/// A small machine with sequences, where the computer has them, one by concurrency ids, and one without.
fn machines() -> impl Iterator<Item = HostMachine> {
    let modes = [Mode::Auto, Mode::Fallback];
    modes
        .into_iter()
        .map(|mode| small().mode(mode).build().unwrap())
        .chain([by_id()])
}

fn by_id() -> HostMachine {
    let builder = small().slot_index(SlotIndex::ConcurrencyId);
    builder.build().unwrap()
}

/// `AT_RSEQ_FEATURE_SIZE`.
fn feature_bytes() -> u32 {
    if cfg!(miri) {
        return 0;
    }
    // SAFETY: reads what the kernel gave the process.
    unsafe { libc::getauxval(27) as u32 }
}

/// True if slots of `machine`, for which ids were wanted, go by ids; they must if the kernel says that it keeps ids.
fn has_ids(machine: &HostMachine) -> bool {
    let in_use = machine.slot_index().in_use == SlotIndex::ConcurrencyId;
    let expected = cfg!(target_arch = "x86_64")
        && feature_bytes() >= 28
        && machine.mode() == Mode::Rseq
        && machine.topology().nodes == 1;
    assert_eq!(in_use, expected, "{:?}", machine.slot_index());
    in_use
}

fn slot0(machine: &HostMachine) -> NonNull<SlotLock> {
    machine.ranges().percpu.base.cast()
}

fn slot(machine: &HostMachine, cpu: CpuId) -> &SlotLock {
    // SAFETY: the CPU is one of the machine's, so the word is in the per-CPU range.
    let slot = unsafe { slot0(machine).byte_add((cpu.0 as usize) << HostMachine::PERCPU_SHIFT) };
    // SAFETY: the range is zero-filled, a free word, and lives as long as the machine.
    unsafe { slot.as_ref() }
}

fn try_lock(machine: &HostMachine) -> Option<&SlotLock> {
    // SAFETY: `slot0` is CPU 0's place in the per-CPU range.
    let slot = unsafe { machine.percpu_try_lock(slot0(machine)) }?;
    // SAFETY: the slot lives as long as the machine.
    Some(unsafe { slot.as_ref() })
}

fn cpus(machine: &HostMachine) -> impl Iterator<Item = CpuId> + use<> {
    (0..machine.topology().cpus).map(CpuId)
}

/// A push has to release its entry to readers on other CPUs (S3 of `quarry_core::machine`): plain stores
/// do that on x86-64 alone.
#[test]
fn steps_exist_only_where_stores_keep_their_order() {
    for machine in machines() {
        let ordered = cfg!(all(target_arch = "x86_64", target_os = "linux", not(miri)));
        let expected = ordered && machine.mode() == Mode::Rseq;
        assert_eq!(machine.has_steps(), expected, "{:?}", machine.mode());
    }
}

#[test]
fn impossible_configurations_are_refused() {
    for bytes in [0, 1, 4095, 8192, 32768, 131_072] {
        assert_eq!(
            small().page_size(bytes).build().unwrap_err(),
            HostError::PageSize { bytes }
        );
    }
    for (memory_bytes, meta_bytes) in [(0, 1), (1, 0), (usize::MAX, 1), (1, usize::MAX)] {
        let error = HostMachine::builder()
            .memory_bytes(memory_bytes)
            .meta_bytes(meta_bytes)
            .build();
        assert_eq!(
            error.unwrap_err(),
            HostError::Size {
                memory_bytes,
                meta_bytes
            }
        );
    }
    for cpus in [0, 4097] {
        assert_eq!(
            small().cpus(cpus).build().unwrap_err(),
            HostError::Cpus { cpus }
        );
    }
    // More than address spaces of 48 bits have, and no more pages than there are numbers.
    let error = HostMachine::builder()
        .memory_bytes((1 << 48) - (1 << 26))
        .page_size(1 << 16)
        .build()
        .unwrap_err();
    assert!(matches!(error, HostError::AddressSpace { bytes, .. } if bytes > 1 << 48));
    assert!(error.to_string().contains("memory_bytes"), "{error}");
    for page_bytes in [4096, 16384, 65536] {
        let limit = page_bytes * ((1 << 32) - (1 << 10));
        let memory_bytes = limit + 1;
        let with = |bytes| {
            let builder = HostMachine::builder().page_size(page_bytes);
            builder.memory_bytes(bytes).meta_bytes(1).build()
        };
        let refused = HostError::Memory {
            memory_bytes,
            limit,
        };
        assert_eq!(with(memory_bytes).unwrap_err(), refused);
        let error = refused.to_string();
        assert!(error.starts_with(&format!(
            "memory_bytes is {memory_bytes}: the limit is {limit}"
        )));
        // The limit itself is none but the system's.
        match with(limit) {
            Ok(machine) => assert_eq!(machine.ranges().pages.bytes, limit),
            Err(error) => assert!(matches!(error, HostError::AddressSpace { .. }), "{error}"),
        }
    }
}

#[test]
fn ranges_are_disjoint_aligned_and_zero() {
    for page_bytes in [4096, 16384, 65536] {
        let machine = HostMachine::builder()
            .memory_bytes((5 << 20) + 1)
            .meta_bytes(1)
            .page_size(page_bytes)
            .build()
            .unwrap();
        let ranges = *machine.ranges();
        let block = page_bytes << 10;
        assert_eq!(machine.topology().page_size(), page_bytes);
        assert_eq!(ranges.pages.base.addr().get() % block, 0);
        assert_eq!(
            ranges.pages.bytes,
            ((5 << 20) + 1_usize).next_multiple_of(block)
        );
        assert_eq!(
            ranges.descriptors.bytes,
            ranges.pages.bytes / page_bytes * DESCRIPTOR_BYTES
        );
        assert_eq!(
            ranges.percpu.bytes,
            (machine.topology().cpus as usize) << 22
        );
        let mut all = [ranges.pages, ranges.descriptors, ranges.meta, ranges.percpu];
        for RawRange { base, bytes } in all {
            assert_eq!(base.addr().get() % page_bytes, 0);
            // SAFETY: the first byte of the range.
            assert_eq!(unsafe { base.read() }, 0);
            // SAFETY: the last byte of the range.
            let last = unsafe { base.add(bytes - 1) };
            // SAFETY: as above; no other code uses the range.
            unsafe { last.write(1) };
        }
        all.sort_by_key(|range| range.base);
        for pair in all.windows(2) {
            assert!(pair[0].base.addr().get() + pair[0].bytes <= pair[1].base.addr().get());
        }
    }
}

/// Without a sequence since its sleep a thread was away, with one it was not: unless the kernel came between the two.
#[test]
fn a_sleep_is_seen_until_the_next_sequence() {
    for machine in machines() {
        let has_slept = || {
            thread::sleep(std::time::Duration::from_millis(1));
            machine.was_away()
        };
        assert_eq!(has_slept(), machine.mode() == Mode::Rseq);
        let stayed = (0..100).any(|_| {
            try_lock(&machine).into_iter().for_each(SlotLock::release);
            !machine.was_away()
        });
        assert!(stayed, "{:?}", machine.mode());
    }
}

#[test]
fn a_word_is_taken_once() {
    for machine in machines() {
        // The thread may move in between, so only what holds after a move is checked.
        let held: Vec<_> = (0..100).filter_map(|_| try_lock(&machine)).collect();
        assert!(!held.is_empty() && held.len() <= machine.topology().cpus as usize);
        assert!(
            held.iter()
                .all(|slot| slot.word().load(Relaxed) == PERCPU_OWNER)
        );
        held.iter().for_each(|slot| slot.release());
        assert!(try_lock(&machine).is_some());
    }
}

#[test]
fn words_other_than_free_are_refused() {
    for machine in machines() {
        for value in [PERCPU_OWNER, PERCPU_REMOTE, PERCPU_QUIESCED, 77] {
            cpus(&machine).for_each(|cpu| slot(&machine, cpu).word().store(value, Relaxed));
            assert!(try_lock(&machine).is_none());
            assert!(cpus(&machine).all(|cpu| slot(&machine, cpu).word().load(Relaxed) == value));
        }
    }
}

#[test]
fn remote_acquisition_takes_free_words_and_gives_up_on_held_ones() {
    for machine in machines() {
        for cpu in cpus(&machine) {
            assert!(machine.percpu_lock_remote(slot(&machine, cpu), cpu));
            assert_eq!(slot(&machine, cpu).word().load(Relaxed), PERCPU_REMOTE);
        }
        assert!(try_lock(&machine).is_none());
        assert!(!machine.percpu_lock_remote(slot(&machine, CpuId(0)), CpuId(0)));
        for cpu in cpus(&machine) {
            slot(&machine, cpu).release();
            assert_eq!(slot(&machine, cpu).word().load(Relaxed), PERCPU_FREE);
        }
        assert!(try_lock(&machine).is_some());
    }
}

#[test]
fn operations_keep_errno() {
    for machine in machines() {
        // SAFETY: the C library gives each thread a valid `errno` location.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: as above.
        unsafe { errno.write(77) };
        let cpu = machine.current_cpu();
        assert!(machine.percpu_lock_remote(slot(&machine, cpu), cpu));
        assert!(!machine.percpu_lock_remote(slot(&machine, cpu), cpu));
        machine.pause(1_000_000);
        // SAFETY: as above.
        assert_eq!(unsafe { errno.read() }, 77);
    }
}

#[test]
fn spin_locks_know_their_owner() {
    for machine in machines() {
        let lock = RawLock::new();
        let class = LockClass::Region;
        assert_eq!(machine.lock(&lock, class), Ok(()));
        assert_eq!(lock.owner(), machine.thread_id());
        assert_eq!(machine.lock(&lock, class), Err(Reentered));
        assert!(!machine.try_lock(&lock, class));
        // SAFETY: taken above.
        unsafe { machine.unlock(&lock, class) };
        assert!(machine.try_lock(&lock, class));
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                assert_ne!(machine.thread_id(), 0);
                let other = machine.thread_id() != lock.owner();
                (machine.lock(&lock, class), other)
            });
            // SAFETY: taken above.
            unsafe { machine.unlock(&lock, class) };
            assert!(matches!(waiter.join(), Ok((Ok(()), true))));
        });
        assert_ne!(lock.owner(), 0);
    }
}

#[test]
fn spin_locks_exclude() {
    for machine in machines() {
        let lock = RawLock::new();
        let mut count = 0_u64;
        let count_at = &raw mut count as usize;
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        machine.lock(&lock, LockClass::Zone).unwrap();
                        let count = core::ptr::with_exposed_provenance_mut::<u64>(count_at);
                        // SAFETY: only the holder of the lock touches the number.
                        unsafe { *count += 1 };
                        // SAFETY: taken above.
                        unsafe { machine.unlock(&lock, LockClass::Zone) };
                    }
                });
            }
        });
        assert_eq!(count, 80_000);
    }
}

#[test]
fn threads_on_cpus_that_are_not_served_get_nothing() {
    let machine = small().cpus(1).build().unwrap();
    assert_eq!(machine.topology().nodes, 1);
    if machine.mode() == Mode::Fallback {
        // All threads share the one slot, whichever CPU they are on.
        try_lock(&machine).unwrap().release();
        return;
    }
    for _ in 0..10_000 {
        if let Some(slot) = try_lock(&machine) {
            assert_eq!(
                slot as *const SlotLock,
                slot0(&machine).as_ptr().cast_const()
            );
            slot.release();
        }
        assert_eq!(machine.current_cpu(), CpuId(0));
    }
}

#[test]
fn the_mode_has_a_reason() {
    let machine = small().mode(Mode::Fallback).build().unwrap();
    assert_eq!(machine.fallback_reason(), Some(RseqUnavailable::Chosen));
    let machine = small().build().unwrap();
    assert_eq!(
        machine.mode() == Mode::Fallback,
        machine.fallback_reason().is_some()
    );
    assert_eq!(
        machine.rseq_abi().is_none(),
        machine.mode() == Mode::Fallback
    );
    match small().mode(Mode::Rseq).build() {
        Ok(machine) => assert_eq!(machine.fallback_reason(), None),
        Err(error) => {
            let reason = error
                .source()
                .expect("the reason is the source")
                .to_string();
            assert!(error.to_string().contains(&reason), "{error}");
        }
    }
}

/// Started by [`the_environment_switches_to_the_fallback`] with changed variables.
#[test]
#[ignore = "part of another test"]
fn report_mode() {
    let machine = small().build().unwrap();
    println!(
        "mode={:?} reason={:?} abi={:?}",
        machine.mode(),
        machine.fallback_reason(),
        machine.rseq_abi()
    );
}

#[test]
fn the_environment_switches_to_the_fallback() {
    let report = |name: &str, value: &str| {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "report_mode", "--nocapture"])
            .env(name, value)
            .output()
            .unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(report("QUARRY_RSEQ", "0").contains("mode=Fallback reason=Some("));
    assert!(report("GLIBC_TUNABLES", "glibc.pthread.rseq=0").contains("mode=Fallback"));
}

/// No thread has to announce that a grace period is over.
#[test]
fn a_grace_period_ends_by_itself() {
    for machine in machines() {
        let reader = machine.rcu_read_lock();
        let cookie = machine.rcu_cookie();
        assert!(!machine.rcu_elapsed(cookie), "a section runs");
        drop(reader);
        assert!(machine.rcu_elapsed(cookie));
        let child = machine.rcu_read_lock();
        // SAFETY: the section reads nothing.
        unsafe { machine.forget_readers() };
        assert!(
            machine.rcu_elapsed(machine.rcu_cookie()),
            "a child has no readers"
        );
        drop(child);
    }
}

#[test]
fn the_slot_index_has_a_reason() {
    let slots = small().build().unwrap().slot_index();
    assert_eq!((slots.in_use, slots.reason), (SlotIndex::Cpu, None));
    let builder = small().slot_index(SlotIndex::ConcurrencyId);
    let machine = builder.mode(Mode::Fallback).build().unwrap();
    assert!(!has_ids(&machine));
    let chosen = SlotIndexUnavailable::NoSequences(RseqUnavailable::Chosen);
    assert_eq!(machine.slot_index().reason, Some(chosen));
    let machine = by_id();
    let slots = machine.slot_index();
    assert_eq!(slots.wanted, SlotIndex::ConcurrencyId);
    assert_eq!(has_ids(&machine), slots.reason.is_none(), "{slots:?}");
}

/// CPUs where the calling thread may run.
fn allowed_cpus() -> Vec<usize> {
    // SAFETY: all-zero is a valid, empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is valid for writes of its size.
    let status = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) };
    assert_eq!(status, 0);
    // SAFETY: the numbers are below CPU_SETSIZE, the bits of the set.
    let allowed = |&cpu: &usize| unsafe { libc::CPU_ISSET(cpu, &set) };
    (0..libc::CPU_SETSIZE as usize).filter(allowed).collect()
}

fn run_on(cpu: usize) {
    // SAFETY: all-zero is a valid, empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `allowed_cpus` gave a number below CPU_SETSIZE.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the set is valid for reads of its size.
    let status = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
    assert_eq!(status, 0);
}

/// Runs `f` in a child of a fork, which has one thread, and returns its answer; at most 255.
fn in_a_child(f: impl FnOnce() -> usize) -> usize {
    // SAFETY: the child runs `f` and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let code = f().min(255) as i32;
        // SAFETY: ends the child without running destructors.
        unsafe { libc::_exit(code) }
    }
    let mut status = -1;
    // SAFETY: `status` is valid for writes.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "{status:#x}");
    libc::WEXITSTATUS(status) as usize
}

/// Number of slots that the calling thread takes when it runs on each of these CPUs, twice.
fn slots_on(machine: &HostMachine, cpus: &[usize]) -> usize {
    let mut seen: Vec<*const SlotLock> = Vec::new();
    for &cpu in cpus.iter().chain(cpus) {
        run_on(cpu);
        if let Some(slot) = try_lock(machine) {
            slot.release();
            if !seen.contains(&core::ptr::from_ref(slot)) {
                seen.push(slot);
            }
        }
    }
    seen.len()
}

/// A process of one thread works in one slot, wherever it runs; by CPU numbers in as many as it ran on.
#[test]
#[cfg_attr(miri, ignore = "no CPUs to choose from")]
fn a_thread_alone_has_one_slot_on_all_cpus() {
    let allowed = allowed_cpus();
    let allowed = &allowed[..allowed.len().min(8)];
    assert!(
        allowed.len() > 1,
        "one CPU shows nothing: --skip a_thread_alone_has_one_slot_on_all_cpus"
    );
    let by_cpu = small().build().unwrap();
    assert_eq!(in_a_child(|| slots_on(&by_cpu, allowed)), allowed.len());
    let machine = by_id();
    let expected = if has_ids(&machine) { 1 } else { allowed.len() };
    assert_eq!(in_a_child(|| slots_on(&machine, allowed)), expected);
    let current = in_a_child(|| {
        let mut ids = allowed.iter().map(|&cpu| {
            run_on(cpu);
            machine.current_cpu()
        });
        let first = ids.next();
        ids.filter(|&id| Some(id) != first).count()
    });
    assert_eq!(current, expected - 1);
}

/// Slots beyond the number of threads that run at once are never needed.
#[test]
#[cfg_attr(miri, ignore = "no CPUs to choose from")]
fn a_machine_of_one_slot_serves_a_thread_alone_on_all_cpus() {
    let machine = small().slot_index(SlotIndex::ConcurrencyId).cpus(1);
    let machine = machine.build().unwrap();
    let allowed = allowed_cpus();
    let served = in_a_child(|| {
        let served = allowed.iter().filter(|&&cpu| {
            run_on(cpu);
            try_lock(&machine).inspect(|slot| slot.release()).is_some()
        });
        served.count()
    });
    if has_ids(&machine) {
        assert_eq!(served, allowed.len().min(255));
    } else {
        assert!(served >= usize::from(allowed.contains(&0)), "{served}");
    }
}

/// The id of an area that is not registered is 0, which is another thread's: such a thread gets no slot.
#[test]
#[cfg_attr(miri, ignore = "no areas")]
fn a_thread_without_an_area_has_no_slot() {
    let machines = [small().build().unwrap(), by_id()];
    has_ids(&machines[1]);
    let with_sequences = |machine: &&HostMachine| machine.mode() == Mode::Rseq;
    let machines: Vec<_> = machines.iter().filter(with_sequences).collect();
    if machines.is_empty() {
        // The fallback needs no area.
        assert!(small().build().unwrap().fallback_reason().is_some());
        return;
    }
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            for machine in &machines {
                try_lock(machine).expect("a slot").release();
            }
            unregister_area();
            for machine in &machines {
                assert!(try_lock(machine).is_none(), "{:?}", machine.slot_index());
                assert!(machine.current_cpu().0 < machine.topology().cpus);
            }
        });
        thread.join().unwrap();
    });
}

/// Takes the calling thread's area back from the kernel.
fn unregister_area() {
    const UNREGISTER: i32 = 1;
    const SIGNATURE: u32 = if cfg!(target_arch = "x86_64") {
        0x5305_3053
    } else {
        0xd428_bc00
    };
    // SAFETY: the name is a C string.
    let offset = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()) };
    assert!(!offset.is_null(), "machines with sequences found it");
    // SAFETY: the C library's constant of this name is a `ptrdiff_t`.
    let offset = unsafe { offset.cast::<isize>().read() };
    let machine = small().build().unwrap();
    // The thread pointer, as machines name threads.
    let area = machine.thread_id().wrapping_add_signed(offset);
    // The size must be that of the registration, which is the C library's secret.
    let done = (32..=1024_u32).any(|bytes| {
        // SAFETY: ends the kernel's use of the area, or changes nothing.
        unsafe { libc::syscall(libc::SYS_rseq, area, bytes, UNREGISTER, SIGNATURE) == 0 }
    });
    assert!(done, "the kernel does not give the area back");
}
