//! The kernel's `kmem_cache`, `kmalloc` and page pools for programs in C and C++, on one heap of the process.
//!
//! The functions have the kernel's names and meaning; `include/quarry.h` declares them, made of this source by `cbindgen`.
//! Each converts its arguments, calls [`quarry`], and converts the answer.
//!
//! | module | content |
//! |---|---|
//! | [`gfp`] | flags of requests |
//! | [`cache`] | `kmem_cache_*` |
//! | [`kmalloc`] | `kmalloc` and `kvmalloc` with their families |
//! | [`pool`] | `page_pool_*` |
//! | [`stats`] | slabinfo and the attributes of sysfs |
//! | `text` | texts to callers' buffers and to descriptors |
//!
//! # Errors
//!
//! A function that fails says so by its result and `errno`. A free of what is no object, or is free already, changes
//! nothing; it is reported on the standard error output, with address, cache and slab. As in the kernel, the fast paths
//! do not notice an address inside an object, nor a second free that others came after.
//!
//! `QUARRY_SLUB_DEBUG` in the environment switches debugging on, by the letters of `slub_debug`: `FZPU` for all caches,
//! `FZ,kmalloc-*` for some. `QUARRY_HARDENED=1` takes all measures of [`quarry::Hardening`], a list such as `check,fill`
//! some: then the first mistake is reported and ends the process.
//!
//! # Panics
//!
//! No panic crosses the border: the functions are `extern "C"`, so one would end the process with a message. None is
//! expected anywhere; allocations and frees have none at all.

#![allow(non_camel_case_types, reason = "types have the kernel's names")]

pub mod cache;
pub mod gfp;
pub mod kmalloc;
pub mod pool;
pub mod stats;
mod text;

use core::ffi::CStr;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, Ordering};

use quarry::{
    Builder, CallSite, Caller, DefaultDesign, Error, Hardening, HostHeap, LibraryReports,
    ProcessHeap,
};

static HEAP: ProcessHeap = ProcessHeap::configured(debugging);

/// The caches that the environment names for debugging, and their letters.
fn debug_letters() -> Option<&'static str> {
    // SAFETY: the name is a string.
    let letters = unsafe { libc::getenv(c"QUARRY_SLUB_DEBUG".as_ptr()) };
    if letters.is_null() {
        return None;
    }
    // SAFETY: the C library gives strings. This one is read while the heap is made; a program that changes its
    // environment on another thread meanwhile breaks the rules of `getenv`.
    unsafe { CStr::from_ptr(letters) }.to_str().ok()
}

static REPORTS: LibraryReports = LibraryReports::new("libquarry");

/// The measures against mistakes that the environment asks for. A wish that cannot be read ends the process: it would go on
/// without.
fn hardening() -> Hardening {
    // SAFETY: the name is a string.
    let list = unsafe { libc::getenv(c"QUARRY_HARDENED".as_ptr()) };
    if list.is_null() {
        return Hardening::NONE;
    }
    // SAFETY: as in `debug_letters`.
    let list = unsafe { CStr::from_ptr(list) }.to_str().unwrap_or("?");
    Hardening::parse(list).unwrap_or_else(|error| {
        text::report(format_args!("libquarry: QUARRY_HARDENED: {error}"));
        // SAFETY: ends the process.
        unsafe { libc::abort() }
    })
}

/// Page pools note the code that takes their frames.
static NOTES: AtomicBool = AtomicBool::new(false);

/// The code of the program that makes the call, where the environment asks for it: this takes microseconds.
#[inline(always)]
fn site() -> CallSite {
    match NOTES.load(Ordering::Relaxed) {
        true => Caller::site(),
        false => CallSite::UNKNOWN,
    }
}

/// Takes the measures and switches the debugging on that the environment asks for.
fn debugging(builder: Builder<DefaultDesign>) -> Builder<DefaultDesign> {
    let builder = REPORTS.hardened(builder, hardening());
    let builder = builder.reporter(|report| REPORTS.write(report));
    let letters = debug_letters();
    let owners = letters.and_then(|letters| letters.split([',', ';']).next());
    NOTES.store(
        owners.is_some_and(|letters| letters.contains(['U', 'u'])),
        Ordering::Relaxed,
    );
    match letters {
        Some(letters) => builder.slub_debug(letters),
        None => builder,
    }
}

/// Makes the heap before the program has threads, so that no fork of another thread finds it half made. If it cannot be
/// made, the first use tries again.
extern "C" fn begin() {
    if let Err(error) = HEAP.get() {
        match debug_letters() {
            Some(letters) => text::report(format_args!(
                "libquarry: there is no heap: {error} (QUARRY_SLUB_DEBUG={letters})"
            )),
            None => text::report(format_args!("libquarry: there is no heap: {error}")),
        }
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

#[cold]
fn set_errno(errno: libc::c_int) {
    // SAFETY: takes nothing, and gives the address of the calling thread's variable.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the C library's variable, which only this thread uses.
    unsafe { *place = errno };
}

/// Null, for the reason given.
#[cold]
fn null<T>(errno: libc::c_int) -> *mut T {
    set_errno(errno);
    null_mut()
}

/// -1, for the reason given.
#[cold]
fn failed(errno: libc::c_int) -> libc::c_int {
    set_errno(errno);
    -1
}

/// The heap of the process; `None`, with `errno`, if it cannot be made.
#[inline(always)]
fn heap() -> Option<&'static HostHeap> {
    match HEAP.get() {
        Ok(heap) => Some(heap),
        Err(error) => no_heap(&error),
    }
}

#[cold]
fn no_heap<T>(error: &Error) -> Option<T> {
    set_errno(match error {
        Error::Fork(_) => libc::EAGAIN,
        Error::Debug(_) => libc::EINVAL,
        _ => libc::ENOMEM,
    });
    None
}
