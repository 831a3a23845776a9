//! Every allocation and free of the program, in a file (`QUARRY_RECORD`), for `quarry run --preload --record`.
//!
//! # Idea
//!
//! [`Recorded`] is a heap around the chosen one, which notes each call. A note is a record of 32 bytes; its place in the
//! file is a number that one atomic addition gives, so that the order of the records is one order of the calls of all
//! threads. A block is noted before it is freed and after it was allocated, so no two owners of an address overlap. The
//! file is mapped in windows, each when its first record comes.
//!
//! The file is opened by its path for each window and closed again: a program may close all descriptors, or count on the
//! number of its next one. Windows are never unmapped, and the file is not cut: other threads may write when the process
//! ends. So zeros are no records, at the end or where a thread had a number and was stopped before it wrote. Where the
//! file cannot grow any more, calls are counted as lost.
//!
//! A child of a fork begins a file of its own, as addresses of the two processes are no longer the same blocks.

use core::cell::UnsafeCell;
use core::fmt::Write as _;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use quarry::{Error, FreeError, ThreadLock};

use crate::heaps::{self, Heap};
use crate::output::{Output, Path};
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
/// Records of a window: 32 MiB of the file.
const WINDOW: usize = 1 << 20;
/// Windows at most: 64 GiB.
const WINDOWS: usize = 2048;

/// Path of this process's file; empty before it begins. Only changed while the process has one thread that records.
static PATH: PathCell = PathCell(UnsafeCell::new(None));

struct PathCell(UnsafeCell<Option<Path>>);

// SAFETY: `begin` writes it before the first record of a process, when no other thread reads it: at the choice of the heap,
// or in a child of a fork, which has one thread.
unsafe impl Sync for PathCell {}

/// Records that have a place, the head included.
static NEXT: AtomicUsize = AtomicUsize::new(0);
static WINDOW_OF: [AtomicPtr<Record>; WINDOWS] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; WINDOWS];
static GROWING: ThreadLock = ThreadLock::new();

/// Bytes of a window.
const WINDOW_BYTES: usize = WINDOW * size_of::<Record>();

/// The window of a record, mapped now if it is not. `None` if the file does not grow.
fn window(number: usize) -> Option<NonNull<Record>> {
    let place = WINDOW_OF.get(number)?;
    // Acquire: pairs with the Release below.
    if let Some(window) = NonNull::new(place.load(Ordering::Acquire)) {
        return Some(window);
    }
    if !GROWING.take() {
        // A signal handler that interrupted the mapping: its call is not recorded.
        return None;
    }
    let window = NonNull::new(place.load(Ordering::Relaxed)).or_else(|| map(number));
    if let Some(window) = window {
        place.store(window.as_ptr(), Ordering::Release);
    }
    GROWING.give_back();
    window
}

/// Maps a window of the file, which grows for it.
fn map(number: usize) -> Option<NonNull<Record>> {
    // SAFETY: `begin` has written it (see `PathCell`).
    let path = unsafe { &*PATH.0.get() }.as_ref()?;
    let start = libc::off_t::try_from(number * WINDOW_BYTES).ok()?;
    let end = start.checked_add(libc::off_t::try_from(WINDOW_BYTES).ok()?)?;
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_CLOEXEC;
    // SAFETY: a C string.
    let file = unsafe { libc::open(path.as_ptr(), flags, 0o644) };
    if file < 0 {
        return None;
    }
    // SAFETY: takes numbers.
    let grown = unsafe { libc::ftruncate(file, end) } == 0;
    let window = match grown {
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
        true => unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                WINDOW_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file,
                start,
            )
        },
        false => libc::MAP_FAILED,
    };
    // SAFETY: opened above.
    unsafe { libc::close(file) };
    NonNull::new(window.cast()).filter(|_| window != libc::MAP_FAILED)
}

fn write(record: Record) {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let Some(window) = window(number / WINDOW) else {
        lose();
        return;
    };
    // SAFETY: the window has this many records, which are aligned in it.
    let place = unsafe { window.add(number % WINDOW) };
    // SAFETY: the addition gave the number to this call alone.
    unsafe { place.write(record) };
}

/// Counts a call that is not recorded, in the second record, which is none: its time is 0.
fn lose() {
    let window = WINDOW_OF[0].load(Ordering::Relaxed);
    if let Some(window) = NonNull::new(window) {
        let second = window.as_ptr().wrapping_add(1);
        // SAFETY: the first window has a second record.
        let place = unsafe { &raw mut (*second).address };
        // SAFETY: the word is aligned, and after `begin` only this function uses it.
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

    fn write_slabinfo(&'static self, out: &mut Output) -> core::fmt::Result {
        self.heap().write_slabinfo(out)
    }

    fn write_report(&'static self, out: &mut Output) -> core::fmt::Result {
        self.heap().write_report(out)
    }
}

/// Begins the file of this process. `false` if it cannot be made.
///
/// # Safety
///
/// No other thread of the process records.
pub(crate) unsafe fn begin(prefix: &str) -> bool {
    // SAFETY: takes nothing.
    let process = unsafe { libc::getpid() };
    let Some(path) = Path::new(format_args!("{prefix}.{process}")) else {
        return false;
    };
    // A file of this name is a former program's of this process.
    // SAFETY: a C string. That there is none is as good.
    unsafe { libc::unlink(path.as_ptr()) };
    // SAFETY: the caller says that no other thread is here.
    unsafe { *PATH.0.get() = Some(path) };
    // SAFETY: takes a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    // SAFETY: takes a number.
    let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    write(Record {
        time_ns: MAGIC,
        address: u64::try_from(page).unwrap_or(4096),
        bytes: process as u64,
        cpu: u32::try_from(cpus).unwrap_or(1),
        thread: size_of::<Record>() as u32,
    });
    // The second one has the calls that were lost, and the program's name.
    let mut name = [0_u8; 16];
    // SAFETY: the call writes 16 bytes at most.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let (bytes, rest) = (&name[..8], &name[8..]);
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word.copy_from_slice(bytes);
        u64::from_ne_bytes(word)
    };
    let rest = word(rest);
    write(Record {
        time_ns: 0,
        address: 0,
        bytes: word(bytes),
        cpu: rest as u32,
        thread: (rest >> 32) as u32,
    });
    !WINDOW_OF[0].load(Ordering::Relaxed).is_null()
}

/// In the child of a fork: a file of its own.
pub(crate) extern "C" fn begin_in_child() {
    let Some(prefix) = heaps::variable(c"QUARRY_RECORD") else {
        return;
    };
    for place in &WINDOW_OF {
        place.store(core::ptr::null_mut(), Ordering::Relaxed);
    }
    NEXT.store(0, Ordering::Relaxed);
    // A thread that the child does not have may have been growing the file.
    GROWING.give_back();
    // SAFETY: the child has one thread.
    if !unsafe { begin(prefix) } {
        // A failure to write has nowhere to be reported.
        let _ = writeln!(
            Output::errors(),
            "libquarry_malloc: no recording: cannot write {prefix}.*"
        );
    }
}
