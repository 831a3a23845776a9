//! Children of forks that come while another thread is the first to use what a process makes once. A process of its own:
//! it makes nothing but in children.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use quarry::{Builder, CallSite, Hardening, Kmalloc, LazyCache, ProcessHeap, Slub};

static NUMBERS: LazyCache<u64> = LazyCache::new("number");
static HEAP: ProcessHeap<Slub> = ProcessHeap::configured(|builder: Builder<Slub>| {
    stop_at(1);
    builder
});

/// Its first uses make a secret, rings and the first mapping between guards, too.
static HARDENED: ProcessHeap<Slub> = ProcessHeap::configured(|builder| {
    stop_at(1);
    builder.hardened(Hardening::ALL)
});

/// The place at which a thread stops until a fork is over: 1 in the heap's settings, 2 before handlers of forks are installed.
static STOP: AtomicU32 = AtomicU32::new(0);
const STOPPED: u32 = 3;
const FORKED: u32 = 4;

fn stop_at(place: u32) {
    let order = Ordering::SeqCst;
    if STOP.compare_exchange(place, STOPPED, order, order).is_ok() {
        while STOP.load(order) == STOPPED {
            thread::yield_now();
        }
    }
}

type Handler = Option<unsafe extern "C" fn()>;

/// The C library's function under `pthread_atfork`, which this program has in its place.
#[unsafe(no_mangle)]
extern "C" fn __register_atfork(
    prepare: Handler,
    parent: Handler,
    child: Handler,
    library: *mut c_void,
) -> c_int {
    stop_at(2);
    // SAFETY: the name is a C string.
    let real = unsafe { libc::dlsym(libc::RTLD_NEXT, c"__register_atfork".as_ptr()) };
    type Real = extern "C" fn(Handler, Handler, Handler, *mut c_void) -> c_int;
    // SAFETY: the function of this name has this type.
    let real: Real = unsafe { std::mem::transmute(real) };
    real(prepare, parent, child, library)
}

/// Forks, and runs `f` in the child, which is killed if it takes long. Its status.
fn in_child(f: impl FnOnce() -> bool) -> c_int {
    // SAFETY: the caller has one thread, or what the child uses is made to be used there.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: takes a number.
        unsafe { libc::alarm(20) };
        let code = i32::from(!f());
        // SAFETY: ends the child without destructors.
        unsafe { libc::_exit(code) }
    }
    let mut status = -1;
    // SAFETY: the status is valid for writes.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}

/// True if all can be used.
fn works() -> bool {
    let heap = HEAP.kvmalloc(100, 8).is_some() && Kmalloc::heap().is_ok();
    let hardened = HARDENED.get().is_ok_and(|heap| {
        let block = |bytes| heap.kvmalloc_hardened(bytes, 8, CallSite::UNKNOWN);
        // SAFETY: the blocks have no user.
        let free = |block| unsafe { heap.kvfree(block) }.is_ok();
        [100, 1_000_000]
            .map(block)
            .into_iter()
            .all(|block| block.is_some_and(free))
    });
    heap && hardened && NUMBERS.alloc(7).is_ok_and(|number| *number == 7)
}

#[test]
fn a_thread_that_stops_in_the_first_use_stops_no_child() {
    for place in [1, 2] {
        let status = in_child(|| {
            STOP.store(place, Ordering::SeqCst);
            thread::scope(|scope| {
                let first = scope.spawn(works);
                while STOP.load(Ordering::SeqCst) != STOPPED {
                    thread::yield_now();
                }
                let status = in_child(works);
                STOP.store(FORKED, Ordering::SeqCst);
                status == 0 && first.join().is_ok_and(|works| works)
            })
        });
        assert_eq!(status, 0, "stopped at {place}");
    }
}

#[test]
fn children_use_what_threads_are_making() {
    for round in 0..100 {
        let status = in_child(|| {
            thread::scope(|scope| {
                let threads = [(); 2].map(|()| scope.spawn(works));
                let forked = (0..8).all(|_| in_child(works) == 0);
                forked
                    && threads
                        .map(thread::ScopedJoinHandle::join)
                        .into_iter()
                        .all(|works| works.is_ok_and(|works| works))
            })
        });
        assert_eq!(status, 0, "round {round}");
    }
}
