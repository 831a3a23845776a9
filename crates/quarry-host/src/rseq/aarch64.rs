//! The sequence for aarch64 (assembled, not yet run on a computer of that kind).
//!
//! Registers: `area` (distance of `struct rseq` from `tpidr_el0`), `cpus`, `slot0` are read only,
//! so a restart finds them as they were; `thread`, `slot`, `word` and `offset` are made anew. `x16`
//! and `x17` are given up because the linker may use them to reach the abort handler.
//!
//! | label | meaning |
//! |---|---|
//! | 2 | descriptor: version, flags, start, length, abort address |
//! | 3 | arm; restarts come here |
//! | 4 | start |
//! | 5 | end, right behind the committing store |
//! | 6 | failure: answers [`FAILED`](super::FAILED); in line, for a conditional branch is short |
//! | 7 | abort: behind the signature, counts (8), and restarts |
//!
//! The word is loaded with acquire; the Release store that frees it is the partner.
//!
//! `asm/aarch64.s` is this block with registers filled in, for assembling and running it alone;
//! `tests/listing.rs` compares the two.

use core::arch::asm;

use super::ABORTS;

/// This target has a sequence.
pub(super) const BUILT: bool = true;
/// None by the concurrency id: its users run on different CPUs, and this processor keeps their accesses in order
/// only if the kernel's own barriers do, which its interface does not promise.
pub(super) const BUILT_BY_ID: bool = false;

macro_rules! sequence {
    ($arm:literal, $area:expr, $cpus:expr, $slot0:expr, $shift:expr) => {{
        let offset: usize;
        asm!(
            ".pushsection .data.rel.ro.quarry_rseq, \"aw\", @progbits",
            ".balign 32",
            "2:",
            ".long 0, 0",
            ".quad 4f, 5f - 4f, 7f",
            ".popsection",
            "3:",
            "mrs {thread}, tpidr_el0",
            "add {thread}, {thread}, {area}",
            "adrp {offset}, 2b",
            "add {offset}, {offset}, :lo12:2b",
            $arm,
            "4:",
            "ldr {offset:w}, [{thread}, #4]",
            "cmp {offset:w}, {cpus:w}",
            "b.hs 6f",
            "lsl {offset}, {offset}, #{shift}",
            "add {slot}, {slot0}, {offset}",
            "ldar {word:w}, [{slot}]",
            "cbnz {word:w}, 6f",
            "mov {word:w}, #1",
            "str {word:w}, [{slot}]",
            "5:",
            "b 9f",
            "6:",
            "mov {offset}, #-1",
            "9:",
            ".pushsection .text.unlikely.quarry_rseq, \"ax\", @progbits",
            ".balign 4",
            // `brk #0x45e0`: traps if it is ever reached.
            ".inst 0xd428bc00",
            "7:",
            "adrp x16, :got:{aborts}",
            "ldr x16, [x16, :got_lo12:{aborts}]",
            "8:",
            "ldxr x17, [x16]",
            "add x17, x17, #1",
            "stxr {word:w}, x17, [x16]",
            "cbnz {word:w}, 8b",
            "b 3b",
            ".popsection",
            area = in(reg) $area,
            cpus = in(reg) $cpus,
            slot0 = in(reg) $slot0,
            shift = const $shift,
            aborts = sym ABORTS,
            offset = out(reg) offset,
            thread = out(reg) _,
            slot = out(reg) _,
            word = out(reg) _,
            out("x16") _,
            out("x17") _,
            options(nostack),
        );
        offset
    }};
}

/// Takes the running CPU's word: the offset of its slot from `slot0`, or
/// [`FAILED`](super::FAILED), as always with `BY_ID`.
///
/// # Safety
///
/// `area` is as [`find`](super::find) returned it. For each CPU below `cpus` there is a lock word
/// at `slot0 + (cpu << SHIFT)`, taken by sequences and `protocol` only (H1).
#[inline(always)]
pub(crate) unsafe fn try_lock<const SHIFT: u32, const BY_ID: bool>(
    area: isize,
    cpus: u32,
    slot0: *mut u32,
) -> usize {
    if BY_ID {
        return super::FAILED;
    }
    // SAFETY: by the caller's contract the area and the word are there. The only stores go to the
    // area's `rseq_cs`, which belongs to the thread, and to the word: from 0 to 1, without another
    // thread between: the kernel restarts the sequence otherwise. The descriptor names the bounds
    // of this very copy of the block.
    unsafe { sequence!("str {offset}, [{thread}, #8]", area, cpus, slot0, SHIFT) }
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
    if BY_ID {
        return super::FAILED;
    }
    // SAFETY: as in `try_lock`; that the store may hit a word in use is what the caller wants.
    unsafe { sequence!("nop", area, cpus, slot0, SHIFT) }
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
            "mrs {thread}, tpidr_el0",
            "add {thread}, {thread}, {area}",
            "ldr {word:w}, [{thread}, #{at}]",
            area = in(reg) area,
            at = const AT,
            thread = out(reg) _,
            word = out(reg) word,
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

/// Never knows an id.
///
/// # Safety
///
/// None is needed; the other targets' function is unsafe.
#[inline(always)]
pub(crate) unsafe fn concurrency_id(_: isize) -> u32 {
    u32::MAX
}

/// The thread pointer: not 0, and different for all threads alive.
#[inline(always)]
pub(crate) fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: reading the register has no effect.
    unsafe {
        asm!(
            "mrs {pointer}, tpidr_el0",
            pointer = lateout(reg) pointer,
            options(nostack, preserves_flags, nomem),
        );
    }
    pointer
}
