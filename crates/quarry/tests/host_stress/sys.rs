//! Calls of the operating system, and numbers that look random.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Numbers that look random (xorshift64*).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.next() as usize % n
    }
}

/// CPUs that this process may use.
pub(crate) fn allowed_cpus() -> Vec<usize> {
    // SAFETY: all-zero is a valid, empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is valid for writes of its size.
    let status = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) };
    assert_eq!(status, 0);
    // SAFETY: the numbers are below CPU_SETSIZE, the bits of the set.
    let allowed = |&cpu: &usize| unsafe { libc::CPU_ISSET(cpu, &set) };
    (0..libc::CPU_SETSIZE as usize).filter(allowed).collect()
}

/// Moves a thread (0: the calling one) to a CPU.
pub(crate) fn pin(thread: libc::pid_t, cpu: usize) {
    // SAFETY: all-zero is a valid, empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `allowed_cpus` gave a number below CPU_SETSIZE.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the set is valid for reads of its size. A thread that has ended is an error that
    // does not matter.
    unsafe { libc::sched_setaffinity(thread, size_of_val(&set), &raw const set) };
}

/// The calling thread's number in the system.
pub(crate) fn thread_number() -> libc::pid_t {
    // SAFETY: gettid takes nothing.
    unsafe { libc::syscall(libc::SYS_gettid) as libc::pid_t }
}

/// Sends SIGPROF to one thread of this process.
pub(crate) fn signal(thread: libc::pid_t) {
    // SAFETY: getpid takes nothing.
    let process = unsafe { libc::getpid() };
    // SAFETY: a thread that has ended is an error that does not matter.
    unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGPROF) };
}

/// Has SIGPROF handled by `handler`.
pub(crate) fn handle_signal(handler: extern "C" fn(libc::c_int)) {
    // SAFETY: all-zero is a valid `sigaction`: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the action is complete; the handlers only use atomics and the heap.
    let status = unsafe { libc::sigaction(libc::SIGPROF, &raw const action, null_mut()) };
    assert_eq!(status, 0);
}

/// Sends SIGPROF to running threads each `us` microseconds of CPU time; 0 stops it.
pub(crate) fn profile_timer(us: libc::suseconds_t) {
    let period = libc::timeval {
        tv_sec: 0,
        tv_usec: us,
    };
    let timer = libc::itimerval {
        it_interval: period,
        it_value: period,
    };
    // SAFETY: the timer outlives the call.
    unsafe { libc::setitimer(libc::ITIMER_PROF, &raw const timer, null_mut()) };
}

/// Forks; the child runs `f` and ends with its answer.
pub(crate) fn fork(f: impl FnOnce() -> libc::c_int) -> libc::pid_t {
    // SAFETY: the child uses nothing but the heap, which rests during forks, and leaves by
    // `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let code = f();
        // SAFETY: ends the child without running destructors.
        unsafe { libc::_exit(code) }
    }
    assert!(child > 0, "fork failed");
    child
}

/// Waits for a child, and kills it when the time is over. Its status; `None` if it was killed.
pub(crate) fn wait(child: libc::pid_t, limit: Duration) -> Option<libc::c_int> {
    let start = Instant::now();
    let mut status = 0;
    loop {
        // SAFETY: `status` is valid for writes.
        let waited = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) };
        if waited == child {
            return Some(status);
        }
        if start.elapsed() > limit {
            // SAFETY: the child has not been waited for, so the number is still its own.
            unsafe { libc::kill(child, libc::SIGKILL) };
            // SAFETY: `status` is valid for writes.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            return None;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Tells threads to stop, also when a test fails: else their scope would wait for them.
pub(crate) struct Stop<'a>(pub(crate) &'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
