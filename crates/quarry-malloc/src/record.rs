//! Every allocation and free of the program, in a file (`QUARRY_RECORD`), for `quarry run --preload --record`.
//!
//! # Idea
//!
//! [`Recorded`] is a heap around the chosen one, which notes each call. A note is a record of 32 bytes; its place in the
//! file is a number that one atomic addition gives, so that the order of the records is one order of the calls of all
//! threads. A block is noted before it is freed and after it was allocated, so no two owners of an address overlap. The
//! file is mapped in windows, each when its first record comes; they double up to [`LARGEST`].
//!
//! A store into a mapping ends the process by a signal if the disk has no block for it. So the blocks of a window are
//! reserved before it is mapped. Without them, the calls of this window are counted as lost.
//!
//! Windows are never unmapped, and the file is not cut: other threads may write when the process ends. So zeros are no
//! records, at the end or where a thread had a number and was stopped before it wrote.
//!
//! # Processes
//!
//! A child begins a file of its own with its first call, as addresses of the two processes are no longer the same blocks.
//! It may be made by system calls that run no handlers of forks. So the numbers and the windows are in memory that the
//! system empties in every child ([`State`]).
//!
//! A program may close all descriptors, go to another root or folder, and drop its rights. The folder and the file are kept
//! open at numbers that programs seldom use, and opened by their paths again if the program has closed them.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::fmt::Write as _;
use core::mem::MaybeUninit;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use quarry::{Error, FreeError, TextOut, ThreadLock};

use crate::heaps::Heap;
use crate::path::Path;
use crate::report::Totals;

/// One call, or the head of the file. The layout is the file's.
#[derive(Clone, Copy)]
#[repr(C)]
struct Record {
    /// Nanoseconds of the monotonic clock, never 0; of the head: [`MAGIC`].
    time_ns: u64,
    /// The block.
    address: u64,
    /// Bytes that were asked for; 0 for a free.
    bytes: u64,
    cpu: u32,
    thread: u32,
}

/// First word of a file: `QRYMALC1` in the order of a little-endian machine's bytes.
const MAGIC: u64 = u64::from_le_bytes(*b"QRYMALC1");
/// Records before the first call.
const HEAD: usize = 2;
/// Records of the first window, 64 KiB: programs have many processes with few calls.
const FIRST: usize = 1 << 11;
/// Records of the largest window: 32 MiB of the file.
const LARGEST: usize = 1 << 20;
/// Number of windows, for 64 GiB at most.
const WINDOWS: usize = 2048 + (LARGEST / FIRST).ilog2() as usize;

/// The recording of one process. Zeros, which a child begins with, are one that has not begun.
struct State {
    /// Calls that have a place.
    next: AtomicUsize,
    /// Null if no record of the window came yet; dangling if the file has no room for it.
    windows: [AtomicPtr<Record>; WINDOWS],
    growing: ThreadLock,
}

/// Null before [`begin`], and if it fails.
static STATE: AtomicPtr<State> = AtomicPtr::new(null_mut());

/// The folder of the files, and the beginning of their names.
static PLACE: PlaceCell = PlaceCell(UnsafeCell::new(None));

struct PlaceCell(UnsafeCell<Option<(Path, Path)>>);

// SAFETY: `begin` writes it before `STATE`, without which no thread reads it.
unsafe impl Sync for PlaceCell {}

/// A descriptor that the program does not know of: it may close it, and open another file under its number.
struct Kept {
    number: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
}

static FOLDER: Kept = Kept::new();
/// The file of this process, or in a child that has not begun its own, its parent's.
static FILE: Kept = Kept::new();

impl Kept {
    const fn new() -> Self {
        Self {
            number: AtomicI32::new(-1),
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
        }
    }

    /// Device and inode behind a descriptor.
    fn identity(number: c_int) -> Option<(u64, u64)> {
        let mut status = MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the structure is valid for writes.
        if unsafe { libc::fstat(number, status.as_mut_ptr()) } != 0 {
            return None;
        }
        // SAFETY: the call succeeded, and wrote it.
        let status = unsafe { status.assume_init() };
        Some((status.st_dev, status.st_ino))
    }

    /// The descriptor, if the program has left it.
    fn get(&self) -> Option<c_int> {
        let number = self.number.load(Ordering::Relaxed);
        let kept = (
            self.device.load(Ordering::Relaxed),
            self.inode.load(Ordering::Relaxed),
        );
        (Self::identity(number)? == kept).then_some(number)
    }

    /// Keeps a descriptor that was just opened, at a number that programs seldom use.
    fn keep(&self, opened: c_int) -> Option<c_int> {
        let (device, inode) = Self::identity(opened)?;
        let least = limit(libc::RLIMIT_NOFILE).min(1024) / 4 * 3;
        // SAFETY: takes numbers.
        let moved = unsafe { libc::fcntl(opened, libc::F_DUPFD_CLOEXEC, least as c_int) };
        let number = match moved {
            -1 => opened,
            moved => {
                // SAFETY: opened by the caller.
                unsafe { libc::close(opened) };
                moved
            }
        };
        self.number.store(number, Ordering::Relaxed);
        self.device.store(device, Ordering::Relaxed);
        self.inode.store(inode, Ordering::Relaxed);
        Some(number)
    }
}

/// A limit of the process.
fn limit(resource: libc::__rlimit_resource_t) -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the structure is valid for writes.
    unsafe { libc::getrlimit(resource, &raw mut limit) };
    limit.rlim_cur
}

/// The file of this process; a new one with its first window.
fn file(is_new: bool) -> Option<c_int> {
    if let (false, Some(file)) = (is_new, FILE.get()) {
        return Some(file);
    }
    // SAFETY: `begin` wrote it before `STATE`, which the caller has.
    let (folder, name) = unsafe { &*PLACE.0.get() }.as_ref()?;
    let folder = FOLDER.get().or_else(|| {
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
        // SAFETY: a C string.
        FOLDER.keep(unsafe { libc::open(folder.as_ptr(), flags) })
    })?;
    // SAFETY: takes nothing.
    let name = Path::new(format_args!("{}.{}", name.as_str(), unsafe {
        libc::getpid()
    }))?;
    let mut flags = libc::O_RDWR | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    if is_new {
        if let Some(parents) = FILE.get() {
            // SAFETY: this library opened it.
            unsafe { libc::close(parents) };
        }
        // A file of this name is a former program's of this process.
        // SAFETY: a C string. That there is none is as good.
        unsafe { libc::unlinkat(folder, name.as_ptr(), 0) };
        flags |= libc::O_CREAT | libc::O_EXCL;
    }
    // SAFETY: a C string.
    FILE.keep(unsafe { libc::openat(folder, name.as_ptr(), flags, 0o644) })
}

/// Reserves blocks of the file.
fn reserve(file: c_int, start: libc::off_t, bytes: libc::off_t) -> bool {
    let end = start
        .checked_add(bytes)
        .and_then(|end| u64::try_from(end).ok());
    // Beyond it, the system would send a signal.
    if end.is_none_or(|end| end > limit(libc::RLIMIT_FSIZE)) {
        return false;
    }
    loop {
        // Where the file system has no such call, the C library writes to each block.
        // SAFETY: takes numbers.
        match unsafe { libc::posix_fallocate(file, start, bytes) } {
            libc::EINTR => {}
            error => return error == 0,
        }
    }
}

/// First record and length of the window that a record is in, and the window's number.
fn window_of(record: usize) -> (usize, usize, usize) {
    let length = (1 << record.max(1).ilog2()).clamp(FIRST, LARGEST);
    let first = record & !(length - 1);
    let number = first / length + (length / FIRST).ilog2() as usize;
    (first, length, number)
}

/// Maps a window of the file, which grows for it.
fn map(first: usize, length: usize) -> Option<NonNull<Record>> {
    let start = libc::off_t::try_from(first * size_of::<Record>()).ok()?;
    let bytes = length * size_of::<Record>();
    let file = file(first == 0)?;
    if !reserve(file, start, libc::off_t::try_from(bytes).ok()?) {
        return None;
    }
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
    let window = unsafe { libc::mmap(null_mut(), bytes, access, libc::MAP_SHARED, file, start) };
    let window = NonNull::new(window.cast()).filter(|_| window != libc::MAP_FAILED)?;
    if first == 0 {
        for (at, record) in head().into_iter().enumerate() {
            // SAFETY: the first window has these records, which are aligned in it.
            let place = unsafe { window.add(at) };
            // SAFETY: no other thread has the window yet.
            unsafe { place.write(record) };
        }
    }
    Some(window)
}

/// Says that this process is not recorded.
fn refuse(why: &str) {
    // SAFETY: `begin` wrote it, in the thread that calls this or before `STATE`.
    let (folder, name) = match unsafe { &*PLACE.0.get() } {
        Some((folder, name)) => (folder.as_str(), name.as_str()),
        None => ("", ""),
    };
    // A failure to write has nowhere to be reported.
    let _ = writeln!(
        TextOut::errors(),
        "libquarry_malloc: QUARRY_RECORD={folder}{name}: {why}; this process is not recorded"
    );
}

/// Maps the window of a record if no other thread has. `errno` stays.
#[cold]
fn grow(state: &State, (first, length, number): (usize, usize, usize)) -> *mut Record {
    // SAFETY: the C library gives each thread a valid variable.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut mask = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is valid for writes.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // No handler of this thread waits for the lock, and none interrupts the reservation again and again.
    // SAFETY: `sigfillset` wrote the one set, and the other is valid for writes.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), mask.as_mut_ptr()) };
    let place = &state.windows[number];
    if state.growing.take() {
        if place.load(Ordering::Relaxed).is_null() {
            let window = map(first, length);
            if window.is_none() && first == 0 {
                refuse("cannot write it");
            }
            // Release: publishes the head.
            place.store(
                window.unwrap_or(NonNull::dangling()).as_ptr(),
                Ordering::Release,
            );
        }
        state.growing.give_back();
    }
    // SAFETY: `pthread_sigmask` wrote it.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask.as_ptr(), null_mut()) };
    // SAFETY: as above.
    unsafe { *errno = before };
    place.load(Ordering::Relaxed)
}

/// The window of that number if the file has it.
fn mapped(window: *mut Record) -> Option<NonNull<Record>> {
    NonNull::new(window).filter(|window| *window != NonNull::dangling())
}

fn write(record: Record) {
    let state = NonNull::new(STATE.load(Ordering::Relaxed));
    // SAFETY: `begin` stored a state that stays for good.
    let Some(state) = state.map(|state| unsafe { state.as_ref() }) else {
        return;
    };
    let number = HEAD + state.next.fetch_add(1, Ordering::Relaxed);
    let extent = window_of(number);
    // Acquire: pairs with the Release in `grow`.
    let window = match state.windows.get(extent.2) {
        Some(place) => place.load(Ordering::Acquire),
        None => NonNull::dangling().as_ptr(),
    };
    let window = match window.is_null() {
        true => grow(state, extent),
        false => window,
    };
    let Some(window) = mapped(window) else {
        lose(state);
        return;
    };
    // SAFETY: the window has this many records, which are aligned in it.
    let place = unsafe { window.add(number - extent.0) };
    // SAFETY: the addition gave the number to this call alone.
    unsafe { place.write(record) };
}

/// Counts a call that is not recorded, in the second record, which is none: its time is 0.
fn lose(state: &State) {
    if let Some(window) = mapped(state.windows[0].load(Ordering::Acquire)) {
        let second = window.as_ptr().wrapping_add(1);
        // SAFETY: the first window has a second record.
        let place = unsafe { &raw mut (*second).address };
        // SAFETY: the word is aligned, and once the window is stored only this function uses it.
        unsafe { AtomicU64::from_ptr(place) }.fetch_add(1, Ordering::Relaxed);
    }
}

/// Bytes of a request as its class has to have them: an alignment above that of all blocks makes it larger.
fn rounded(bytes: usize, align: usize) -> usize {
    match align {
        0..=16 => bytes,
        _ => bytes.checked_next_multiple_of(align).unwrap_or(bytes),
    }
}

fn note(block: NonNull<u8>, bytes: usize) {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the structure is valid for writes.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    // SAFETY: takes nothing.
    let cpu = unsafe { libc::sched_getcpu() };
    // SAFETY: takes nothing.
    let thread = unsafe { libc::gettid() };
    write(Record {
        time_ns: (time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64).max(1),
        address: block.addr().get() as u64,
        bytes: bytes as u64,
        cpu: u32::try_from(cpu).unwrap_or(0),
        thread: thread as u32,
    });
}

/// The chosen heap, with every call noted.
pub(crate) struct Recorded(pub(crate) fn() -> &'static dyn Heap);

impl Recorded {
    fn heap(&self) -> &'static dyn Heap {
        (self.0)()
    }
}

impl Heap for Recorded {
    fn alloc(&'static self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        let block = self.heap().alloc(bytes, align)?;
        note(block, rounded(bytes, align));
        Some(block)
    }

    fn alloc_zeroed(&'static self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        let block = self.heap().alloc_zeroed(bytes, align)?;
        note(block, rounded(bytes, align));
        Some(block)
    }

    unsafe fn free(&'static self, block: NonNull<u8>) -> Result<(), FreeError> {
        note(block, 0);
        // SAFETY: the caller vouches that the block has no user left.
        unsafe { self.heap().free(block) }
    }

    unsafe fn free_sized(&'static self, block: NonNull<u8>, bytes: usize) -> Result<(), FreeError> {
        note(block, 0);
        // SAFETY: the caller vouches that the block has no user left.
        unsafe { self.heap().free_sized(block, bytes) }
    }

    fn check(&'static self) {
        self.heap().check();
    }

    unsafe fn resize(
        &'static self,
        block: NonNull<u8>,
        bytes: usize,
        align: usize,
    ) -> Result<Option<NonNull<u8>>, FreeError> {
        let before = self.heap().size(block);
        note(block, 0);
        // SAFETY: the caller vouches for the block.
        match unsafe { self.heap().resize(block, bytes, align) } {
            Ok(Some(new)) => {
                note(new, rounded(bytes, align));
                Ok(Some(new))
            }
            refused => {
                // It stays, of a size that only the heap knows now.
                note(block, before.unwrap_or(1));
                refused
            }
        }
    }

    fn size(&'static self, block: NonNull<u8>) -> Option<usize> {
        self.heap().size(block)
    }

    fn trim(&'static self, keep: usize) -> bool {
        self.heap().trim(keep)
    }

    fn make(&'static self) -> Result<(), Error> {
        self.heap().make()
    }

    fn is_made(&self) -> bool {
        self.heap().is_made()
    }

    fn totals(&'static self) -> Totals {
        self.heap().totals()
    }

    fn write_slabinfo(&'static self, out: &mut TextOut) -> core::fmt::Result {
        self.heap().write_slabinfo(out)
    }

    fn write_report(&'static self, out: &mut TextOut) -> core::fmt::Result {
        self.heap().write_report(out)
    }
}

/// The first records of a file.
fn head() -> [Record; HEAD] {
    // SAFETY: takes nothing.
    let process = unsafe { libc::getpid() };
    // SAFETY: takes a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    // SAFETY: takes a number.
    let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    let first = Record {
        time_ns: MAGIC,
        address: u64::try_from(page).unwrap_or(4096),
        bytes: process as u64,
        cpu: u32::try_from(cpus).unwrap_or(1),
        thread: size_of::<Record>() as u32,
    };
    // The second one has the calls that were lost, and the program's name.
    let mut name = [0_u64; 2];
    // SAFETY: the call writes 16 bytes at most.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let second = Record {
        time_ns: 0,
        address: 0,
        bytes: name[0],
        cpu: name[1] as u32,
        thread: (name[1] >> 32) as u32,
    };
    [first, second]
}

/// Records from now on, in files whose paths begin with `prefix`. What prevents it is printed.
///
/// # Safety
///
/// The process has one thread, and has not begun.
pub(crate) unsafe fn begin(prefix: &str) {
    let mut here = [0_u8; libc::PATH_MAX as usize];
    // SAFETY: the buffer has these bytes.
    let got = unsafe { libc::getcwd(here.as_mut_ptr().cast(), here.len()) };
    let here = core::ffi::CStr::from_bytes_until_nul(&here);
    let here = here.ok().filter(|_| !got.is_null());
    let here = here.and_then(|here| here.to_str().ok()).unwrap_or(".");
    let (folder, name) = prefix.rsplit_once('/').unwrap_or((".", prefix));
    let folder = match prefix.starts_with('/') {
        true => Path::new(format_args!("{folder}/")),
        false => Path::new(format_args!("{here}/{folder}/")),
    };
    // SAFETY: the caller says that there is no other thread.
    unsafe { *PLACE.0.get() = folder.zip(Path::new(format_args!("{name}"))) };
    let (access, bytes) = (libc::PROT_READ | libc::PROT_WRITE, size_of::<State>());
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
    let state = unsafe { libc::mmap(null_mut(), bytes, access, kind, -1, 0) };
    // SAFETY: the mapping is this function's; a failed one is refused.
    if unsafe { libc::madvise(state, bytes, libc::MADV_WIPEONFORK) } != 0 {
        refuse("needs Linux 4.14");
        return;
    }
    STATE.store(state.cast(), Ordering::Relaxed);
    // SAFETY: a new mapping is zeros, which are a state's, and stays for good.
    let state = unsafe { &*state.cast::<State>() };
    grow(state, window_of(0));
}
