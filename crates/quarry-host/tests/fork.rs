//! Objects that rest during a fork.

use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;

use quarry_core::machine::{LockClass, Locks as _, RawLock};
use quarry_host::fork::{self, ForkError, ForkHooks, OBJECTS_MAX};
use quarry_host::{HostMachine, Mode};

/// The table is the process's.
static ALONE: Mutex<()> = Mutex::new(());

/// A lock and what it protects: two numbers that are equal when no code is at work.
struct Pair {
    machine: HostMachine,
    lock: RawLock,
    numbers: [AtomicU32; 2],
    seen: [AtomicU32; 3],
}

impl Pair {
    fn new(mode: Mode) -> Self {
        let machine = HostMachine::builder()
            .memory_bytes(1)
            .mode(mode)
            .build()
            .unwrap();
        let numbers = [AtomicU32::new(0), AtomicU32::new(0)];
        Self {
            machine,
            lock: RawLock::new(),
            numbers,
            seen: Default::default(),
        }
    }

    fn lock(&self) {
        self.machine.lock(&self.lock, LockClass::Zone).unwrap();
    }

    fn unlock(&self) {
        // SAFETY: called after `lock` by the same thread, or by its copy in the child.
        unsafe { self.machine.unlock(&self.lock, LockClass::Zone) };
    }

    fn step(&self) {
        self.lock();
        for number in &self.numbers {
            number.store(number.load(Relaxed) + 1, Relaxed);
            (0..20).for_each(|_| std::hint::spin_loop());
        }
        self.unlock();
        // A spin lock is not fair: the forking thread needs a moment at which it is free.
        thread::yield_now();
    }

    fn is_whole(&self) -> bool {
        self.numbers[0].load(Relaxed) == self.numbers[1].load(Relaxed)
    }
}

/// # Safety
///
/// `object` is a `Pair` that lives.
unsafe fn pair<'a>(object: NonNull<()>) -> &'a Pair {
    // SAFETY: the caller's contract.
    unsafe { object.cast::<Pair>().as_ref() }
}

const HOOKS: ForkHooks = ForkHooks {
    prepare: |object| {
        // SAFETY: the tests remove their objects before they end.
        let pair = unsafe { pair(object) };
        pair.lock();
        pair.seen[0].fetch_add(1, Relaxed);
    },
    parent: |object| {
        // SAFETY: as above.
        let pair = unsafe { pair(object) };
        pair.seen[1].fetch_add(1, Relaxed);
        pair.unlock();
    },
    child: |object| {
        // SAFETY: as above.
        let pair = unsafe { pair(object) };
        pair.seen[2].fetch_add(1, Relaxed);
        pair.unlock();
    },
};

/// Forks; whether `check` holds in the child.
fn holds_in_child(check: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child runs `check`, which uses no lock but those that the hooks handed over,
    // and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let code = i32::from(!check());
        // SAFETY: ends the child without running destructors.
        unsafe { libc::_exit(code) }
    }
    let mut status = -1;
    // SAFETY: `status` is valid for writes.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status == 0
}

#[test]
fn objects_rest_while_others_work() {
    let _alone = ALONE.lock();
    for mode in [Mode::Auto, Mode::Fallback] {
        let pair = Pair::new(mode);
        let object = NonNull::from(&pair).cast::<()>();
        // SAFETY: removed below; the hooks fit the type.
        unsafe { fork::register(object, HOOKS) }.unwrap();
        let stop = AtomicU32::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while stop.load(Relaxed) == 0 {
                        pair.step();
                    }
                });
            }
            for _ in 0..20 {
                let fine = holds_in_child(|| {
                    let whole = pair.is_whole() && pair.seen[2].load(Relaxed) == 1;
                    pair.step();
                    whole && pair.is_whole()
                });
                assert!(fine);
            }
            stop.store(1, Relaxed);
        });
        fork::unregister(object).unwrap();
        assert_eq!(pair.seen.map(|seen| seen.into_inner()), [20, 20, 0]);
        assert_eq!(fork::unregister(object), Err(ForkError::Unknown));
    }
}

#[test]
fn removed_objects_are_left_alone() {
    let _alone = ALONE.lock();
    let pair = Pair::new(Mode::Auto);
    let object = NonNull::from(&pair).cast::<()>();
    // SAFETY: removed in the next line.
    unsafe { fork::register(object, HOOKS) }.unwrap();
    fork::unregister(object).unwrap();
    assert!(holds_in_child(|| pair.seen[2].load(Relaxed) == 0));
    assert_eq!(pair.seen[0].load(Relaxed), 0);
}

#[test]
fn hooks_run_in_order_and_may_not_register() {
    static LOG: Mutex<Vec<(u8, usize)>> = Mutex::new(Vec::new());
    fn log(step: u8, object: NonNull<()>) {
        assert_eq!(fork::unregister(object), Err(ForkError::Busy));
        LOG.lock().unwrap().push((step, object.addr().get()));
    }
    let hooks = ForkHooks {
        prepare: |object| log(0, object),
        parent: |object| log(1, object),
        child: |object| log(2, object),
    };
    let _alone = ALONE.lock();
    let places = [0_u64; 3];
    let objects = places
        .each_ref()
        .map(|place| NonNull::from(place).cast::<()>());
    for object in objects {
        // SAFETY: the hooks do not follow the address.
        unsafe { fork::register(object, hooks) }.unwrap();
    }
    fork::unregister(objects[1]).unwrap();
    assert!(holds_in_child(|| true));
    let [first, _, last] = objects.map(|object| object.addr().get());
    assert_eq!(
        *LOG.lock().unwrap(),
        [(0, last), (0, first), (1, first), (1, last)]
    );
    fork::unregister(objects[0]).unwrap();
    fork::unregister(objects[2]).unwrap();
}

#[test]
fn the_table_is_bounded_and_reuses_places() {
    let _alone = ALONE.lock();
    let nothing = ForkHooks {
        prepare: |_| (),
        parent: |_| (),
        child: |_| (),
    };
    let places = [0_u8; OBJECTS_MAX + 1];
    let objects = places
        .each_ref()
        .map(|place| NonNull::from(place).cast::<()>());
    for _ in 0..3 {
        for &object in &objects[..OBJECTS_MAX] {
            // SAFETY: the hooks do nothing.
            unsafe { fork::register(object, nothing) }.unwrap();
        }
        // SAFETY: the hooks do nothing.
        let full = unsafe { fork::register(objects[OBJECTS_MAX], nothing) };
        assert_eq!(full, Err(ForkError::Full));
        for &object in &objects[..OBJECTS_MAX] {
            fork::unregister(object).unwrap();
        }
    }
}
