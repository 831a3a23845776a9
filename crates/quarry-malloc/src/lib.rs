//! `malloc` on any of the kernel's slab allocators, for programs that are not rebuilt:
//! `LD_PRELOAD=libquarry_malloc.so QUARRY_DESIGN=slub PROGRAM`. The command `quarry run --preload` does it for several
//! designs in turn.
//!
//! # Idea
//!
//! Each design has a static heap; the first call that finds an environment chooses one of them for the rest of the
//! process. The functions are those of `malloc(3)`, `posix_memalign(3)`, `malloc_usable_size(3)`, `malloc_trim(3)` and
//! `mallinfo(3)`. C++'s operators are the C++ library's own, which call these and throw where they return null.
//!
//! | module | content |
//! |---|---|
//! | `family` | the functions that programs call |
//! | `heaps` | the designs' heaps, and the choice; those with measures against mistakes |
//! | `sized` | frees that name the size: C23, C++14 |
//! | `early` | memory for the calls from before the choice, and from inside the making of a heap |
//! | `record` | what the program allocates and frees, in a file (`QUARRY_RECORD`) |
//! | `report` | what a process leaves behind at its end (`QUARRY_REPORT`) |
//!
//! # Environment
//!
//! * `QUARRY_DESIGN`: a design, with a release after `@` if not its newest (`slub@5.9`); magazines by default.
//! * `QUARRY_HARDENED`: `1`, or a list of measures against mistakes ([`quarry::Hardening`], `docs/hardening.md`).
//! * `QUARRY_SLUB_DEBUG`: debugging by the letters of `slub_debug`, as `FZPU` for all classes; takes a lock for each call.
//! * `QUARRY_REPORT`: a file to write what the heap did to, when the process ends; its number is appended.
//! * `QUARRY_RECORD`: a file to write every allocation and free to; the process's number is appended. A process that cannot
//!   write it says so, and runs without.
//!
//! # Mistakes
//!
//! Freeing a pointer that is not allocated prints address, cache, slab and the calling code, and aborts, as glibc does. As in
//! the kernel, the fast paths do not notice an address inside a block, nor a second free that others came after: those are
//! looked for at the end of the process, and reported. Hardened heaps find them at the call.

mod early;
mod family;
mod heaps;
mod path;
mod record;
mod report;
mod sized;

/// Makes the heap before the program has threads, so that no fork of another thread finds it half made.
extern "C" fn begin() {
    if let Some(heap) = heaps::chosen()
        && let Err(error) = heap.make()
    {
        heaps::give_up(format_args!("the heap cannot be made: {error}"));
    }
    report::count_forks();
}

extern "C" fn end() {
    if let Some(heap) = heaps::chosen() {
        heap.check();
    }
    report::write_wanted();
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;
