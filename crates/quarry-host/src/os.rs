//! System calls and files. None of them allocates; those on allocation paths keep `errno`.

use core::ffi::CStr;
use core::ptr::NonNull;

use quarry_core::machine::RawRange;

/// `MEMBARRIER_CMD_QUERY` of `linux/membarrier.h`.
const QUERY: libc::c_int = 0;
/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ` of `linux/membarrier.h`.
const PRIVATE_EXPEDITED_RSEQ: libc::c_int = 1 << 7;
/// `MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ`.
const REGISTER_PRIVATE_EXPEDITED_RSEQ: libc::c_int = 1 << 8;
/// `MEMBARRIER_CMD_FLAG_CPU`.
const FLAG_CPU: libc::c_int = 1;

/// Spins before a waiter gives up its CPU.
pub(crate) const SPINS: u32 = 128;
/// Waits of a remote acquisition before it sleeps instead of yielding.
const YIELDS: u32 = 2048;
/// One sleep; a few hundred of them outlast the time slices of several preempting threads.
const SLEEP_NS: libc::c_long = 100_000;

/// The calling thread's `errno`.
pub(crate) fn errno() -> i32 {
    // SAFETY: the C library gives each thread a valid `errno` location.
    let location = unsafe { libc::__errno_location() };
    // SAFETY: the location is valid, and only the calling thread uses it.
    unsafe { *location }
}

/// Runs `f` and puts `errno` back as it was (H3).
pub(crate) fn keeping_errno<R>(f: impl FnOnce() -> R) -> R {
    let before = errno();
    let result = f();
    // SAFETY: the C library gives each thread a valid `errno` location.
    let location = unsafe { libc::__errno_location() };
    // SAFETY: the location is valid, and only the calling thread uses it.
    unsafe { *location = before };
    result
}

fn membarrier(command: libc::c_int, flags: libc::c_int, cpu: libc::c_int) -> Result<i32, i32> {
    if cfg!(miri) {
        return Err(libc::ENOSYS);
    }
    keeping_errno(|| {
        // SAFETY: membarrier takes three integers and touches no memory of the caller.
        let status = unsafe { libc::syscall(libc::SYS_membarrier, command, flags, cpu) };
        i32::try_from(status)
            .ok()
            .filter(|&status| status >= 0)
            .ok_or_else(errno)
    })
}

/// Checks that the kernel can restart the sequences of the process's threads. The permission for it is asked for with the
/// first barrier: in a process with several threads it takes a grace period of the kernel's, some 10 ms.
pub(crate) fn check_rseq_barrier() -> Result<(), i32> {
    let commands = membarrier(QUERY, 0, 0)?;
    let needed = PRIVATE_EXPEDITED_RSEQ | REGISTER_PRIVATE_EXPEDITED_RSEQ;
    if commands & needed == needed {
        Ok(())
    } else {
        Err(libc::EINVAL)
    }
}

/// Returns after every sequence that was in flight on `cpu`, or on any CPU, has committed or will restart, with a
/// full memory barrier on both sides.
pub(crate) fn rseq_barrier(cpu: Option<u32>) -> Result<(), i32> {
    let (flags, cpu) = cpu.map_or((0, 0), |cpu| (FLAG_CPU, cpu as libc::c_int));
    let barrier = || membarrier(PRIVATE_EXPEDITED_RSEQ, flags, cpu);
    let done = match barrier() {
        // The first barrier of the process, or of a forked child that did not inherit the permission.
        Err(libc::EPERM) => {
            membarrier(REGISTER_PRIVATE_EXPEDITED_RSEQ, 0, 0).and_then(|_| barrier())
        }
        other => other,
    };
    done.map(|_| ())
}

/// `AT_RSEQ_FEATURE_SIZE` of `linux/auxvec.h`.
const RSEQ_FEATURE_SIZE: libc::c_ulong = 27;

/// Bytes of a thread's area that the kernel has fields in; 0 if it does not say (before Linux 6.3).
pub(crate) fn rseq_feature_bytes() -> u32 {
    if cfg!(miri) {
        return 0;
    }
    // SAFETY: getauxval takes an integer and reads what the kernel gave the process.
    let bytes = keeping_errno(|| unsafe { libc::getauxval(RSEQ_FEATURE_SIZE) });
    u32::try_from(bytes).unwrap_or(0)
}

/// The running CPU by the kernel's report.
pub(crate) fn current_cpu() -> Option<u32> {
    if cfg!(miri) {
        return None;
    }
    // SAFETY: sched_getcpu takes nothing.
    let cpu = keeping_errno(|| unsafe { libc::sched_getcpu() });
    u32::try_from(cpu).ok()
}

/// One more than the highest number of a CPU on which the calling thread may run; 0 if the system does not say.
pub(crate) fn allowed_cpus_end() -> u32 {
    let mut words = [0_u64; quarry_core::machine::MAX_CPUS as usize / 64];
    if cfg!(miri) {
        return 0;
    }
    // The bare system call returns the number of bytes it filled; the library's function takes sets of 1024 CPUs.
    // SAFETY: the array is valid for writes of its size.
    let bytes = keeping_errno(|| unsafe {
        libc::syscall(
            libc::SYS_sched_getaffinity,
            0,
            size_of_val(&words),
            words.as_mut_ptr(),
        )
    });
    let words = &words[..usize::try_from(bytes)
        .map_or(0, |bytes| bytes / 8)
        .min(words.len())];
    let last = words.iter().rposition(|&word| word != 0);
    last.map_or(0, |at| 64 * (at as u32 + 1) - words[at].leading_zeros())
}

/// The calling thread's number, as `ps -L` shows it.
pub(crate) fn task() -> u32 {
    if cfg!(miri) {
        return 1;
    }
    // SAFETY: gettid takes nothing.
    let task = keeping_errno(|| unsafe { libc::syscall(libc::SYS_gettid) });
    task as u32
}

/// Nanoseconds of the system's monotonic clock; 0 if it has none.
pub(crate) fn monotonic_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the structure is valid for writes.
    let told = keeping_errno(|| unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) });
    if told == 0 {
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    } else {
        0
    }
}

/// Blocks all signals for the calling thread; its mask before.
pub(crate) fn block_signals() -> libc::sigset_t {
    // SAFETY: all-zero is a valid set.
    let (mut all, mut old) = unsafe { core::mem::zeroed::<(libc::sigset_t, libc::sigset_t)>() };
    if !cfg!(miri) {
        // SAFETY: the set is valid for writes.
        unsafe { libc::sigfillset(&raw mut all) };
        // SAFETY: both sets outlive the call.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut old) };
    }
    old
}

/// Gives the calling thread the mask that [`block_signals`] returned.
pub(crate) fn restore_signals(old: &libc::sigset_t) {
    if !cfg!(miri) {
        // SAFETY: the set outlives the call; nothing is written through a null pointer.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, old, core::ptr::null_mut()) };
    }
}

/// Advice on mapped memory; the `errno` of a refusal.
///
/// # Safety
///
/// The range is part of a mapping of the caller's. If the advice discards its contents, no code needs
/// them any more.
pub(crate) unsafe fn advise(range: RawRange, advice: libc::c_int) -> Result<(), i32> {
    if cfg!(miri) {
        return Err(libc::ENOSYS);
    }
    keeping_errno(|| {
        // SAFETY: by the caller's contract at most memory changes that no code uses.
        let status = unsafe { libc::madvise(range.base.as_ptr().cast(), range.bytes, advice) };
        if status == 0 { Ok(()) } else { Err(errno()) }
    })
}

/// `MPOL_PREFERRED` of `linux/mempolicy.h`.
const MPOL_PREFERRED: libc::c_int = 1;
/// Bits of a set of nodes: as many as any kernel has nodes.
pub(crate) const NODE_MASK_BITS: u32 = 1024;

/// Makes the system take the memory of a range from a node as long as that has any.
pub(crate) fn prefer_node(range: RawRange, node: u32) -> Result<(), i32> {
    let mut mask = [0_u64; NODE_MASK_BITS as usize / 64];
    match mask.get_mut(node as usize / 64) {
        Some(word) if !cfg!(miri) => *word = 1 << (node % 64),
        _ => return Err(libc::ENOSYS),
    }
    // The kernel looks at one bit less than the number that it gets.
    let bits = libc::c_ulong::from(NODE_MASK_BITS) + 1;
    keeping_errno(|| {
        // SAFETY: the policy of a mapping changes none of its contents; the mask outlives the call
        // and has the bits that are announced.
        let status = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                range.base.as_ptr(),
                range.bytes,
                MPOL_PREFERRED,
                mask.as_ptr(),
                bits,
                0,
            )
        };
        if status == 0 { Ok(()) } else { Err(errno()) }
    })
}

/// Bytes of the system's page.
pub(crate) fn page_bytes() -> usize {
    sysconf(libc::_SC_PAGESIZE).unwrap_or(4096)
}

/// A new mapping of zero-filled memory, of a multiple of the system's page.
pub(crate) fn map(bytes: usize) -> Option<NonNull<u8>> {
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no memory in use.
    let map = keeping_errno(|| unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    });
    NonNull::new(map.cast()).filter(|_| map != libc::MAP_FAILED)
}

/// [`map`], aligned to a power of two above the system's page, `page`.
pub(crate) fn map_aligned(bytes: usize, align: usize, page: usize) -> Option<NonNull<u8>> {
    let slack = align - page;
    let wide = map(bytes.checked_add(slack)?)?;
    let before = wide.addr().get().next_multiple_of(align) - wide.addr().get();
    // SAFETY: the mapping has `slack` bytes more than `bytes`, and `before` is no more than those.
    let start = unsafe { wide.byte_add(before) };
    // SAFETY: as above; at its end at most.
    let end = unsafe { start.byte_add(bytes) };
    for (part, bytes) in [(wide, before), (end, slack - before)] {
        if bytes > 0 {
            // SAFETY: a part of the mapping just made that no caller gets.
            unsafe { unmap(part, bytes) };
        }
    }
    Some(start)
}

/// Maps a zero-filled block at a multiple of `align`, a page at least, between two guards that cannot be accessed.
pub(crate) fn map_guarded(bytes: usize, align: usize, guard: usize) -> Option<NonNull<u8>> {
    let whole = bytes.checked_add(align)?.checked_add(guard)?;
    // The block begins `align` bytes behind the start; what is more than a guard in front of it goes back.
    let start = match align > guard {
        true => map_aligned(whole, align, guard)?,
        false => map(whole)?,
    };
    let spare = align - guard;
    // SAFETY: inside the mapping, which is `align` bytes and a guard longer than the block.
    let front = unsafe { start.byte_add(spare) };
    // SAFETY: as above.
    let block = unsafe { start.byte_add(align) };
    // SAFETY: as above; the last guard ends the mapping.
    let behind = unsafe { block.byte_add(bytes) };
    for place in [front, behind] {
        let place = place.as_ptr().cast();
        // SAFETY: pages of the mapping made just now, which no code knows.
        let closed = keeping_errno(|| unsafe { libc::mprotect(place, guard, libc::PROT_NONE) });
        if closed != 0 {
            // SAFETY: as above.
            unsafe { unmap(start, whole) };
            return None;
        }
    }
    if spare > 0 {
        // SAFETY: as above.
        unsafe { unmap(start, spare) };
    }
    Some(block)
}

/// Closes pages of the caller's to all accesses, or opens them again; `false` if the system refuses.
pub(crate) fn protect(address: usize, bytes: usize, closed: bool) -> bool {
    let access = match closed {
        true => libc::PROT_NONE,
        false => libc::PROT_READ | libc::PROT_WRITE,
    };
    let address = core::ptr::with_exposed_provenance_mut(address);
    // SAFETY: who uses closed pages is ended by a signal, which is no access to memory.
    keeping_errno(|| unsafe { libc::mprotect(address, bytes, access) }) == 0
}

/// [`remap`] of a block of [`map_guarded`], to one with new guards. Its pages move.
///
/// # Safety
///
/// As for [`remap`]; the block has guards of this length.
pub(crate) unsafe fn remap_guarded(
    block: NonNull<u8>,
    old: usize,
    new: usize,
    guard: usize,
) -> Option<NonNull<u8>> {
    if cfg!(miri) {
        return None;
    }
    let to = map_guarded(new, page_bytes(), guard)?;
    let kept = old.min(new);
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    let (from, at) = (block.as_ptr().cast(), to.as_ptr().cast::<libc::c_void>());
    // SAFETY: the new place is a mapping made just now, which no code knows; by the caller's contract no other code has the
    // old address. What the block has beyond `kept` is unmapped.
    let moved = keeping_errno(|| unsafe { libc::mremap(from, old, kept, flags, at) });
    if moved == libc::MAP_FAILED {
        // SAFETY: the first guard is in front of the block.
        let start = unsafe { to.byte_sub(guard) };
        // SAFETY: as above; no code knows the mapping.
        unsafe { unmap(start, new + 2 * guard) };
        return None;
    }
    for place in [-(guard as isize), old as isize] {
        // SAFETY: a guard of the old block, whose pages have moved.
        let start = unsafe { block.byte_offset(place) };
        // SAFETY: as above.
        unsafe { unmap(start, guard) };
    }
    Some(to)
}

/// A number that is hard to guess: the system's random bytes, or the clock where it has none yet.
#[must_use]
pub fn secret() -> u64 {
    let mut secret = monotonic_ns();
    if !cfg!(miri) {
        let place = core::ptr::from_mut(&mut secret).cast();
        // SAFETY: the number's bytes can be written. What is not written stays as it is.
        keeping_errno(|| unsafe { libc::getrandom(place, size_of::<u64>(), libc::GRND_NONBLOCK) });
    }
    secret
}

/// Ends a mapping. What the system refuses to unmap stays mapped.
///
/// # Safety
///
/// The range is a mapping of the caller's that no code uses any more.
pub(crate) unsafe fn unmap(start: NonNull<u8>, bytes: usize) {
    // SAFETY: by the caller's contract the memory has no user left.
    keeping_errno(|| unsafe { libc::munmap(start.as_ptr().cast(), bytes) });
}

/// Changes a mapping's length, at another address if it has to; `None` and no change if the system refuses.
///
/// # Safety
///
/// The range is a whole mapping of the caller's, who alone uses it, and from then on the result alone if there is one.
pub(crate) unsafe fn remap(start: NonNull<u8>, old: usize, new: usize) -> Option<NonNull<u8>> {
    if cfg!(miri) {
        return None;
    }
    // SAFETY: by the caller's contract no other code has the old address.
    let map = keeping_errno(|| unsafe {
        libc::mremap(start.as_ptr().cast(), old, new, libc::MREMAP_MAYMOVE)
    });
    NonNull::new(map.cast()).filter(|_| map != libc::MAP_FAILED)
}

/// Bytes of a mapping that are in memory; `None` if the system does not say.
pub(crate) fn resident_bytes(range: RawRange) -> Option<usize> {
    const STEP: usize = 2048;
    let page = sysconf(libc::_SC_PAGESIZE).filter(|_| !cfg!(miri))?;
    let mut states = [0_u8; STEP];
    let mut resident = 0;
    for start in (0..range.bytes).step_by(STEP * page) {
        let bytes = (range.bytes - start).min(STEP * page);
        // SAFETY: `start` is inside the range.
        let address = unsafe { range.base.byte_add(start) };
        // SAFETY: the range is mapped, and there is a byte for each of its pages in the array.
        let status = keeping_errno(|| unsafe {
            libc::mincore(address.as_ptr().cast(), bytes, states.as_mut_ptr())
        });
        if status != 0 {
            return None;
        }
        let states = &states[..bytes.div_ceil(page)];
        resident += states.iter().filter(|&&state| state & 1 == 1).count() * page;
    }
    Some(resident)
}

/// Lets others run: a spin hint at first, then the rest of the time slice.
pub(crate) fn pause(attempt: u32) {
    if attempt < SPINS {
        core::hint::spin_loop();
    } else {
        // SAFETY: sched_yield takes nothing, and always succeeds on Linux.
        unsafe { libc::sched_yield() };
    }
}

/// As [`pause`], for waits that must outlast a preempted holder: sleeps in the end.
pub(crate) fn pause_long(attempt: u32) {
    if attempt < YIELDS || cfg!(any(miri, not(target_pointer_width = "64"))) {
        return pause(attempt);
    }
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: SLEEP_NS,
    };
    let no_rest = core::ptr::null_mut::<libc::timespec>();
    // The bare system call, because the library's function is a cancellation point.
    // SAFETY: `time` outlives the call; the kernel does not write through a null pointer.
    keeping_errno(|| unsafe { libc::syscall(libc::SYS_nanosleep, &raw const time, no_rest) });
}

/// True if there is a file or folder of this name.
pub(crate) fn exists(path: &CStr) -> bool {
    // SAFETY: the path is a C string that outlives the call.
    !cfg!(miri) && unsafe { libc::access(path.as_ptr(), libc::F_OK) == 0 }
}

/// Reads the head of a file into `buffer`; the text, or `None` if there is no such file.
pub(crate) fn read_file<'a>(path: &CStr, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    // SAFETY: the path is a C string that outlives the call.
    let file = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if file < 0 {
        return None;
    }
    // SAFETY: the buffer is valid for writes of its length; `file` is open.
    let length = unsafe { libc::read(file, buffer.as_mut_ptr().cast(), buffer.len()) };
    // SAFETY: `file` was opened above and is closed once.
    unsafe { libc::close(file) };
    buffer.get(..usize::try_from(length).ok()?)
}

/// A number from `sysconf`.
pub(crate) fn sysconf(name: libc::c_int) -> Option<usize> {
    // SAFETY: sysconf takes an integer and touches no memory of the caller.
    let value = unsafe { libc::sysconf(name) };
    usize::try_from(value).ok().filter(|&value| value > 0)
}

/// Bytes of address space that the process may have (`ulimit -v`); `None` for any.
pub(crate) fn address_space_limit() -> Option<usize> {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    if cfg!(miri) {
        return None;
    }
    // SAFETY: the structure is valid for writes.
    let status = unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
    let limited = status == 0 && limit.rlim_cur != libc::RLIM_INFINITY;
    usize::try_from(limit.rlim_cur).ok().filter(|_| limited)
}

/// True if an environment variable is set to exactly `value`.
pub(crate) fn env_is(name: &CStr, value: &CStr) -> bool {
    // SAFETY: `name` is a C string; nothing else happens to the environment meanwhile, or the
    // program has a race of its own (`setenv` is not thread-safe).
    let found = unsafe { libc::getenv(name.as_ptr()) };
    if found.is_null() {
        return false;
    }
    // SAFETY: getenv returned a C string.
    unsafe { CStr::from_ptr(found) == value }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `MPOL_F_ADDR` of `linux/mempolicy.h`.
    const MPOL_F_ADDR: libc::c_int = 2;

    #[test]
    #[cfg_attr(miri, ignore = "no memory policies")]
    fn a_range_prefers_the_node_that_it_was_told() {
        const BYTES: usize = 1 << 16;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let map = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(map, libc::MAP_FAILED);
        let range = RawRange {
            base: NonNull::new(map.cast()).expect("a mapping"),
            bytes: BYTES,
        };
        match prefer_node(range, 0) {
            // A kernel without NUMA, or a sandbox: machines go on without the policy.
            Err(libc::ENOSYS | libc::EPERM) => {}
            told => {
                assert_eq!(told, Ok(()));
                let (mut mode, mut mask) = (0, [0_u64; 16]);
                // SAFETY: both results have room for what the call writes.
                let status = unsafe {
                    libc::syscall(
                        libc::SYS_get_mempolicy,
                        &raw mut mode,
                        &raw mut mask,
                        size_of_val(&mask) * 8,
                        map,
                        MPOL_F_ADDR,
                    )
                };
                assert_eq!((status, mode, mask[0]), (0, MPOL_PREFERRED, 1));
                assert_eq!(
                    prefer_node(range, 63),
                    Err(libc::EINVAL),
                    "no computer has this node"
                );
            }
        }
        assert_eq!(prefer_node(range, NODE_MASK_BITS), Err(libc::ENOSYS));
        assert_eq!(resident_bytes(range), Some(0));
        // SAFETY: the mapping is this function's.
        unsafe { range.base.as_ptr().write(1) };
        assert!(resident_bytes(range).is_some_and(|bytes| bytes > 0 && bytes <= BYTES));
        // SAFETY: as above; the test needs no contents.
        assert_eq!(unsafe { advise(range, libc::MADV_DONTNEED) }, Ok(()));
        assert_eq!(resident_bytes(range), Some(0));
        // SAFETY: the mapping is not used any more.
        unsafe { libc::munmap(map, BYTES) };
    }
}
