//! The report that a process leaves behind at its end, for `quarry run --preload`: one JSON object.
//!
//! It is written when the library is finalised, that is by `exit` and by the return of `main`. A process that ends by
//! `_exit` or a signal leaves none, which the reader says.

use core::fmt::{self, Write as _};
use core::sync::atomic::{AtomicU32, Ordering};

use quarry::kernel::machine::Cpus as _;
use quarry::{Design, HostHeap, Mode, Stat, TextOut};

use crate::heaps;
use crate::path::Path;

/// Forks of this process that it survived as the parent.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// A heap's memory in bytes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Totals {
    /// Memory of pages that the heap has from the system.
    pub(crate) resident: usize,
    /// The part of it that is free in the page allocator, never more.
    pub(crate) free: usize,
    /// Blocks that are mappings of their own.
    pub(crate) blocks: usize,
    /// Their memory.
    pub(crate) mapped: usize,
}

impl Totals {
    pub(crate) fn of<D: Design>(heap: &HostHeap<D>) -> Self {
        let residency = heap.pages().residency();
        let shift = heap.machine().topology().page_shift;
        let (blocks, mapped) = heap.machine().mapped_blocks();
        let resident = residency.resident();
        Self {
            resident: (resident as usize) << shift,
            free: (residency.resident_free.min(resident) as usize) << shift,
            blocks,
            mapped,
        }
    }
}

/// Writes what a heap has, as members of a JSON object.
pub(crate) fn write_heap<D: Design>(heap: &HostHeap<D>, out: &mut TextOut) -> fmt::Result {
    let totals = Totals::of(heap);
    let (large, large_freed) = heap.large_counts();
    let mode = match heap.machine().mode() {
        Mode::Rseq => "rseq",
        _ => "fallback",
    };
    write!(
        out,
        "\"design\": \"{}@{}\", \"mode\": \"{mode}\"",
        D::NAME,
        heap.era()
    )?;
    write!(
        out,
        ", \"resident\": {}, \"free\": {}, \"mapped_blocks\": {}, \"mapped\": {}",
        totals.resident, totals.free, totals.blocks, totals.mapped
    )?;
    write!(
        out,
        ", \"large\": {large}, \"large_freed\": {large_freed}, \"caches\": ["
    )?;
    let page = heap.machine().topology().page_size() as u64;
    let (mut separator, mut result) = ("", Ok(()));
    heap.for_each_cache(|cache| {
        let usage = cache.usage();
        let stats = cache.stats();
        // A walk over the objects, which is refused under the list's lock if another thread waits for that.
        let mut live = 0_u64;
        let counted = cache.for_each_live(|_| live += 1).is_ok();
        let object = cache.head().geometry().layout.object_size;
        result = result.and_then(|()| {
            write!(
                out,
                "{separator}{{\"name\": \"{}\", \"object_size\": {object}, \"slabs\": {}, \"slab_bytes\": {}, \
                 \"objects\": {}, \"active\": {}, \"partial_slabs\": {}, \"shared_bytes\": {}",
                cache.name(),
                usage.slabs,
                usage.pages * page,
                usage.num_objs,
                usage.active_objs,
                usage.partial_slabs,
                usage.shared_bytes
            )?;
            if counted {
                write!(out, ", \"live\": {live}")?;
            }
            for stat in [
                Stat::AllocFastpath,
                Stat::AllocSlowpath,
                Stat::FreeFastpath,
                Stat::FreeSlowpath,
                Stat::CpuSlotBusy,
            ] {
                write!(out, ", \"{}\": {}", stat.name(), stats.get(stat))?;
            }
            write!(out, "}}")
        });
        separator = ", ";
    });
    result?;
    write!(out, "]")
}

/// Second field of `/proc/self/statm`, in bytes: memory of the process now.
fn resident_now() -> Option<usize> {
    let mut text = [0_u8; 128];
    // SAFETY: a C string.
    let file = unsafe {
        libc::open(
            c"/proc/self/statm".as_ptr(),
            libc::O_RDONLY | libc::O_CLOEXEC,
        )
    };
    if file < 0 {
        return None;
    }
    // SAFETY: the buffer has these bytes.
    let read = unsafe { libc::read(file, text.as_mut_ptr().cast(), text.len()) };
    // SAFETY: opened above.
    unsafe { libc::close(file) };
    let text = core::str::from_utf8(text.get(..usize::try_from(read).ok()?)?).ok()?;
    let pages: usize = text.split(' ').nth(1)?.parse().ok()?;
    // SAFETY: takes a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Some(pages * usize::try_from(page).ok()?)
}

/// Writes the report to `path` and the process's number.
fn write(path: &str) -> fmt::Result {
    // SAFETY: takes nothing.
    let process = unsafe { libc::getpid() };
    let name = Path::new(format_args!("{path}.{process}")).ok_or(fmt::Error)?;
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC;
    // SAFETY: a C string: its last byte is 0.
    let file = unsafe { libc::open(name.as_ptr(), flags, 0o644) };
    if file < 0 {
        return Err(fmt::Error);
    }
    let mut out = TextOut::to(file);
    let written = write!(
        out,
        "{{\"pid\": {process}, \"forks\": {}, ",
        FORKS.load(Ordering::Relaxed)
    )
    .and_then(|()| match resident_now() {
        Some(bytes) => write!(out, "\"rss\": {bytes}, "),
        None => Ok(()),
    })
    .and_then(|()| match heaps::chosen() {
        Some(heap) => heap.write_report(&mut out),
        None => Ok(()),
    })
    .and_then(|()| writeln!(out, "}}"))
    .and_then(|()| out.flush());
    // SAFETY: opened above.
    unsafe { libc::close(file) };
    written
}

extern "C" fn count_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

extern "C" fn forget_forks() {
    FORKS.store(0, Ordering::Relaxed);
}

/// Counts the forks of this process from now on. Without memory for the handlers they are not counted.
pub(crate) fn count_forks() {
    if heaps::variable(c"QUARRY_REPORT").is_some() {
        // SAFETY: the functions live as long as the library, which is never unloaded.
        let _ = unsafe { libc::pthread_atfork(None, Some(count_fork), Some(forget_forks)) };
    }
}

/// Writes the report that the environment asks for.
pub(crate) fn write_wanted() {
    if let Some(path) = heaps::variable(c"QUARRY_REPORT")
        && write(path).is_err()
    {
        // A failure to write has nowhere to be reported.
        let _ = writeln!(
            TextOut::errors(),
            "libquarry_malloc: no report: cannot write {path}.*"
        );
    }
}
