//! Memory for calls that come before a heap can be chosen or while one is made.
//!
//! The dynamic linker and the constructors of other libraries may call `malloc` before the environment is there, and what
//! makes a heap may call it, too (`dlsym`). Such blocks come one behind the other from a static, with their length in
//! front, and are never reused.

use core::cell::UnsafeCell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Enough for the emergency pool of a C++ library, which is the largest that is known, several times over.
const BYTES: usize = 1 << 20;
/// In front of each block: its length.
const HEADER: usize = 16;

#[repr(align(4096))]
struct Arena(UnsafeCell<[u8; BYTES]>);

// SAFETY: each block is handed out once (`NEXT` only grows), and only its owner and reads of its header touch it.
unsafe impl Sync for Arena {}

static ARENA: Arena = Arena(UnsafeCell::new([0; BYTES]));
/// Bytes that are handed out.
static NEXT: AtomicUsize = AtomicUsize::new(0);

fn base() -> NonNull<u8> {
    NonNull::from(&ARENA.0).cast()
}

/// A zero-filled block, aligned to a power of two, 16 at least; `None` when the arena is used up.
pub(crate) fn alloc(bytes: usize, align: usize) -> Option<NonNull<u8>> {
    let align = align.max(HEADER);
    let mut next = NEXT.load(Ordering::Relaxed);
    loop {
        let address = base().addr().get().checked_add(next + HEADER)?;
        let start = address.checked_next_multiple_of(align)? - base().addr().get();
        let end = start.checked_add(bytes)?.checked_next_multiple_of(HEADER)?;
        if end > BYTES {
            return None;
        }
        match NEXT.compare_exchange(next, end, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {
                // SAFETY: below `end`, which is inside the arena.
                let block = unsafe { base().byte_add(start) };
                let header = header(block);
                // SAFETY: the bytes in front of `start` are this block's since `NEXT` was moved, and aligned as it is.
                unsafe { header.write(bytes) };
                return Some(block);
            }
            Err(now) => next = now,
        }
    }
}

fn header(block: NonNull<u8>) -> NonNull<usize> {
    // SAFETY: blocks begin a header behind the arena's start at least.
    unsafe { block.byte_sub(HEADER) }.cast()
}

/// True if an address is in the arena.
#[inline(always)]
pub(crate) fn owns(block: NonNull<u8>) -> bool {
    block.addr().get().wrapping_sub(base().addr().get()) < BYTES
}

/// Length of a block; `None` for an address outside of the arena.
pub(crate) fn size(block: NonNull<u8>) -> Option<usize> {
    let offset = block.addr().get().wrapping_sub(base().addr().get());
    if !(HEADER..BYTES).contains(&offset) || !offset.is_multiple_of(HEADER) {
        return None;
    }
    // SAFETY: inside the arena, which is initialised and aligned as blocks are; `alloc` wrote the word if the address is a
    // block's.
    Some(unsafe { header(block).read() })
}
