//! The sequence for x86-64.
//!
//! Registers: `area` (distance of `struct rseq` from `fs`), `cpus`, `slot0` are read only, so a
//! restart finds them as they were. `offset` holds in turn the descriptor's address, the slot's
//! number and its offset; everything in it is made anew after a restart.
//!
//! | label | meaning |
//! |---|---|
//! | 2 | descriptor: version, flags, start, length, abort address |
//! | 3 | arm; restarts come here |
//! | 4 | start |
//! | 5 | end, right behind the committing store |
//! | 6 | failure: answers [`FAILED`](super::FAILED) |
//! | 7 | abort: behind the signature, counts, and restarts |
//!
//! This processor does not reorder loads with later loads. The last holder freed the word with a Release
//! store, so what follows the sequence sees everything that the holder wrote before.

use core::arch::asm;

use super::ABORTS;

/// This target has a sequence.
pub(super) const BUILT: bool = true;
/// It also has one by the concurrency id, whose users this processor's memory order keeps in order (`slot_index`).
pub(super) const BUILT_BY_ID: bool = true;

macro_rules! sequence {
    ($arm:literal, $area:expr, $cpus:expr, $slot0:expr, $shift:expr, $by_id:expr) => {{
        let offset: usize;
        asm!(
            ".pushsection .data.rel.ro.quarry_rseq, \"aw\", @progbits",
            ".balign 32",
            "2:",
            ".long 0, 0",
            ".quad 4f, 5f - 4f, 7f",
            ".popsection",
            "3:",
            "lea {offset}, [rip + 2b]",
            $arm,
            "4:",
            ".if {by_id}",
            // An area that is not registered has the id 0, which is another thread's.
            "cmp dword ptr fs:[{area} + 4], 0",
            "jl 6f",
            "mov {offset:e}, dword ptr fs:[{area} + 24]",
            ".else",
            "mov {offset:e}, dword ptr fs:[{area} + 4]",
            ".endif",
            "cmp {offset:e}, {cpus:e}",
            "jae 6f",
            "shl {offset}, {shift}",
            "cmp dword ptr [{slot0} + {offset}], 0",
            "jne 6f",
            "mov dword ptr [{slot0} + {offset}], 1",
            "5:",
            ".pushsection .text.unlikely.quarry_rseq, \"ax\", @progbits",
            "6:",
            "mov {offset}, -1",
            "jmp 5b",
            // `ud1` with the signature as displacement: traps if it is ever reached.
            ".byte 0x0f, 0xb9, 0x3d",
            ".long 0x53053053",
            "7:",
            "mov {offset}, qword ptr [rip + {aborts}@GOTPCREL]",
            "lock inc qword ptr [{offset}]",
            "jmp 3b",
            ".popsection",
            area = in(reg) $area,
            cpus = in(reg) $cpus,
            slot0 = in(reg) $slot0,
            shift = const $shift,
            by_id = const $by_id as u32,
            aborts = sym ABORTS,
            offset = out(reg) offset,
            options(nostack),
        );
        offset
    }};
}

/// Takes the word of the running CPU, or of the thread's concurrency id: the offset of its slot from
/// `slot0`, or [`FAILED`](super::FAILED).
///
/// # Safety
///
/// `area` is as [`find`](super::find) returned it, and the kernel keeps concurrency ids if they are asked for. For each
/// number below `cpus` there is a lock word at `slot0 + (number << SHIFT)`, taken by `protocol` and sequences of
/// the same `BY_ID` only (H1, H5).
#[inline(always)]
pub(crate) unsafe fn try_lock<const SHIFT: u32, const BY_ID: bool>(
    area: isize,
    cpus: u32,
    slot0: *mut u32,
) -> usize {
    // SAFETY: by the caller's contract the area and the word are there. The only stores go to the
    // area's `rseq_cs`, which belongs to the thread, and to the word: from 0 to 1, without another
    // thread between: the kernel restarts the sequence otherwise. The descriptor names the bounds
    // of this very copy of the block.
    unsafe {
        sequence!(
            "mov qword ptr fs:[{area} + 8], {offset}",
            area,
            cpus,
            slot0,
            SHIFT,
            BY_ID
        )
    }
}

/// As [`try_lock`] without arming, so that nothing restarts it: the negative control.
///
/// # Safety
///
/// As for [`try_lock`]; and the word must protect nothing.
#[cfg(feature = "negative-controls")]
pub(crate) unsafe fn try_lock_unarmed<const SHIFT: u32, const BY_ID: bool>(
    area: isize,
    cpus: u32,
    slot0: *mut u32,
) -> usize {
    // SAFETY: as in `try_lock`; that the store may hit a word in use is what the caller wants.
    unsafe { sequence!("nop", area, cpus, slot0, SHIFT, BY_ID) }
}

/// A word of the calling thread's area, `AT` bytes from its start.
///
/// # Safety
///
/// `area` is the distance of a `struct rseq` from the thread pointer, as the C library reports it, and `AT` names a word
/// of its first 32 bytes.
#[inline(always)]
unsafe fn word<const AT: usize>(area: isize) -> u32 {
    let word: u32;
    // SAFETY: by the caller's contract the area is there; the load has no effect.
    unsafe {
        asm!(
            "mov {word:e}, dword ptr fs:[{area} + {at}]",
            area = in(reg) area,
            at = const AT,
            word = lateout(reg) word,
            options(nostack, preserves_flags, readonly),
        );
    }
    word
}

/// The CPU number in the calling thread's area; above `i32::MAX` if it is not registered.
///
/// # Safety
///
/// `area` is the distance of a `struct rseq` from the thread pointer, as the C library reports it.
#[inline(always)]
pub(crate) unsafe fn cpu_id(area: isize) -> u32 {
    // SAFETY: the caller vouches for the area.
    unsafe { word::<4>(area) }
}

/// The concurrency id in the calling thread's area; 0 if it is not registered.
///
/// # Safety
///
/// As for [`cpu_id`].
#[inline(always)]
pub(crate) unsafe fn concurrency_id(area: isize) -> u32 {
    // SAFETY: the caller vouches for the area.
    unsafe { word::<24>(area) }
}

/// True if the sequence that the calling thread armed last is still in its area. The low half of its address says so.
///
/// # Safety
///
/// As for [`cpu_id`].
#[inline(always)]
pub(crate) unsafe fn is_armed(area: isize) -> bool {
    // SAFETY: the caller vouches for the area.
    unsafe { word::<8>(area) != 0 }
}

/// The thread pointer: not 0, and different for all threads alive.
#[inline(always)]
pub(crate) fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: the ABI keeps the thread pointer's own address in the word that it points at.
    unsafe {
        asm!(
            "mov {pointer}, qword ptr fs:[0]",
            pointer = lateout(reg) pointer,
            options(nostack, preserves_flags, readonly),
        );
    }
    pointer
}
