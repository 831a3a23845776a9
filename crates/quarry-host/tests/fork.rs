//! Objects that rest during a fork.

use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;

use quarry_core::machine::{LockClass, Locks as _, RawLock};
use quarry_host::fork::{self, ForkError, ForkHooks, ForkNode};
use quarry_host::{HostMachine, Mode};

/// The list is the process's.
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
        let (node, object) = (ForkNode::new(), NonNull::from(&pair).cast::<()>());
        // SAFETY: removed below; the hooks fit the type.
        unsafe { fork::register(&node, object, HOOKS) }.unwrap();
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
        fork::unregister(&node).unwrap();
        assert_eq!(pair.seen.map(|seen| seen.into_inner()), [20, 20, 0]);
        assert_eq!(fork::unregister(&node), Err(ForkError::Unknown));
    }
}

#[test]
fn removed_objects_are_left_alone() {
    let _alone = ALONE.lock();
    let pair = Pair::new(Mode::Auto);
    let (node, object) = (ForkNode::new(), NonNull::from(&pair).cast::<()>());
    // SAFETY: removed in the next line.
    unsafe { fork::register(&node, object, HOOKS) }.unwrap();
    fork::unregister(&node).unwrap();
    assert!(holds_in_child(|| pair.seen[2].load(Relaxed) == 0));
    assert_eq!(pair.seen[0].load(Relaxed), 0);
}

#[test]
fn hooks_run_in_order_and_may_not_register() {
    static LOG: Mutex<Vec<(u8, usize)>> = Mutex::new(Vec::new());
    static UNUSED: ForkNode = ForkNode::new();
    fn log(step: u8, object: NonNull<()>) {
        assert_eq!(fork::unregister(&UNUSED), Err(ForkError::Busy));
        assert!(fork::is_own());
        LOG.lock().unwrap().push((step, object.addr().get()));
    }
    let hooks = ForkHooks {
        prepare: |object| log(0, object),
        parent: |object| log(1, object),
        child: |object| log(2, object),
    };
    let _alone = ALONE.lock();
    let places = [0_u64; 5];
    let objects = places
        .each_ref()
        .map(|place| NonNull::from(place).cast::<()>());
    let nodes = [const { ForkNode::new() }; 5];
    for (node, object) in nodes.iter().zip(objects) {
        // SAFETY: the hooks do not follow the address, and the nodes are removed below.
        unsafe { fork::register(node, object, hooks) }.unwrap();
        // SAFETY: refused.
        let again = unsafe { fork::register(node, object, hooks) };
        assert_eq!(again, Err(ForkError::Registered));
    }
    // The first, one in the middle and the last: what is left keeps its order.
    for removed in [2, 0, 4] {
        fork::unregister(&nodes[removed]).unwrap();
    }
    assert!(holds_in_child(|| true));
    let [_, first, _, last, _] = objects.map(|object| object.addr().get());
    assert_eq!(
        *LOG.lock().unwrap(),
        [(0, last), (0, first), (1, first), (1, last)]
    );
    assert!(!fork::is_own());
    fork::unregister(&nodes[1]).unwrap();
    fork::unregister(&nodes[3]).unwrap();
}

#[test]
fn any_number_of_objects_rest() {
    const OBJECTS: usize = 1000;
    static CALLS: [AtomicU32; 3] = [const { AtomicU32::new(0) }; 3];
    let _alone = ALONE.lock();
    let count = ForkHooks {
        prepare: |_| _ = CALLS[0].fetch_add(1, Relaxed),
        parent: |_| _ = CALLS[1].fetch_add(1, Relaxed),
        child: |_| _ = CALLS[2].fetch_add(1, Relaxed),
    };
    let nodes: Vec<_> = (0..OBJECTS).map(|_| ForkNode::new()).collect();
    for _ in 0..3 {
        for node in &nodes {
            // SAFETY: the hooks follow no address, and the nodes are removed below.
            unsafe { fork::register(node, NonNull::dangling(), count) }.unwrap();
        }
        assert!(holds_in_child(|| CALLS[2].load(Relaxed) as usize == OBJECTS));
        let calls = [0, 1, 2].map(|hook| CALLS[hook].swap(0, Relaxed) as usize);
        assert_eq!(calls, [OBJECTS, OBJECTS, 0]);
        thread::scope(|scope| {
            for some in nodes.chunks(OBJECTS / 8) {
                scope.spawn(move || {
                    some.iter().for_each(|node| fork::unregister(node).unwrap());
                });
            }
        });
    }
    assert!(holds_in_child(|| CALLS[2].load(Relaxed) == 0));
}
