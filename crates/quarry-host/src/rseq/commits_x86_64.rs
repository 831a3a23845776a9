//! Whole operations that commit with one store, for x86-64.
//!
//! Taking the lock word, changing a list and freeing the word are six stores for an allocation and
//! its bookkeeping; these sequences do the same with two or three, because the change itself is
//! the commit. They look at the lock word and take no effect while it is held, so code that holds
//! it never sees them.
//!
//! Each block follows the shape of [`super::arch`]: labels 2 (descriptor), 3 (arm), 4 (start),
//! 5 (end), 6 (failure), 7 (abort). Inputs are read only, outputs are made anew after a restart.
//! What may happen twice when a restart falls between them: the store to the object's link (the
//! caller owns the object), the store to the stack's free entry (nobody reads it), and the
//! counter, which may thus run ahead by one per restart.
//!
//! A pointer read from the slot is only followed while the sequence is not interrupted, so it
//! cannot have been handed out meanwhile.

use core::arch::asm;
use core::ptr::NonNull;

use quarry_core::machine::{ListLayout, SlotLock, StackLayout};

use super::ABORTS;

macro_rules! sequence {
    ([$($body:literal,)*], $area:expr, $cpus:expr, $slot0:expr, $shift:expr,
     $slot:ident, $result:ident, { $($operand:tt)* }) => {
        asm!(
            ".pushsection .data.rel.ro.quarry_rseq, \"aw\", @progbits",
            ".balign 32",
            "2:",
            ".long 0, 0",
            ".quad 4f, 5f - 4f, 7f",
            ".popsection",
            "3:",
            "lea {slot}, [rip + 2b]",
            "mov qword ptr fs:[{area} + 8], {slot}",
            "4:",
            "mov {slot:e}, dword ptr fs:[{area} + 4]",
            "cmp {slot:e}, dword ptr [{cpus}]",
            "jae 6f",
            "shl {slot}, {shift}",
            "add {slot}, qword ptr [{slot0}]",
            "cmp dword ptr [{slot}], 0",
            "jne 6f",
            $($body,)*
            "5:",
            ".pushsection .text.unlikely.quarry_rseq, \"ax\", @progbits",
            "6:",
            "xor {result:e}, {result:e}",
            "jmp 5b",
            // `ud1` with the signature as displacement: traps if it is ever reached.
            ".byte 0x0f, 0xb9, 0x3d",
            ".long 0x53053053",
            "7:",
            "mov {slot}, qword ptr [rip + {aborts}@GOTPCREL]",
            "lock inc qword ptr [{slot}]",
            "jmp 3b",
            ".popsection",
            area = in(reg) $area,
            cpus = in(reg) core::ptr::from_ref($cpus),
            slot0 = in(reg) core::ptr::from_ref($slot0),
            shift = const $shift,
            aborts = sym ABORTS,
            slot = out(reg) $slot,
            result = out(reg) $result,
            $($operand)*
            options(nostack),
        )
    };
}

/// Takes the first object off the running CPU's list; null if that cannot be done in one step.
///
/// # Safety
///
/// As for [`try_lock`](super::try_lock); the slots are laid out as `L` says, and every object on
/// their lists holds the address of the next one, or null, at `link` bytes from its start.
#[inline(always)]
pub(crate) unsafe fn pop_list<L: ListLayout, const SHIFT: u32>(
    area: isize,
    cpus: &u32,
    slot0: &NonNull<SlotLock>,
    link: usize,
) -> *mut u8 {
    let result: *mut u8;
    let _slot: usize;
    let _next: usize;
    // SAFETY: by the caller's contract area, slots and links are there. The stores go to the
    // area's `rseq_cs`, and to the counter and the head of a slot that belongs to this CPU and is
    // not locked; the kernel restarts the sequence if that may have changed.
    unsafe {
        sequence!(
            [
                "mov {result}, qword ptr [{slot} + {head}]",
                "test {result}, {result}",
                "jz 6f",
                "mov {next}, qword ptr [{result} + {link}]",
                "inc qword ptr [{slot} + {pops}]",
                "mov qword ptr [{slot} + {head}], {next}",
            ],
            area, cpus, slot0, SHIFT, _slot, result,
            {
                head = const L::HEAD,
                pops = const L::POPS,
                link = in(reg) link,
                next = out(reg) _next,
            }
        );
    }
    result
}

/// Puts an object on the running CPU's list if that list is `owner`'s and does not begin with the
/// object. `false` if that cannot be done in one step.
///
/// # Safety
///
/// As for [`pop_list`]; the caller owns the object.
#[inline(always)]
pub(crate) unsafe fn push_list<L: ListLayout, const SHIFT: u32>(
    area: isize,
    cpus: &u32,
    slot0: &NonNull<SlotLock>,
    link: usize,
    owner: u32,
    object: *mut u8,
) -> bool {
    let result: usize;
    let _slot: usize;
    // SAFETY: as in `pop_list`; the store to the object's link is the caller's to make.
    unsafe {
        sequence!(
            [
                "cmp dword ptr [{slot} + {owner_at}], {owner:e}",
                "jne 6f",
                "mov {result}, qword ptr [{slot} + {head}]",
                "cmp {result}, {object}",
                "je 6f",
                "mov qword ptr [{object} + {link}], {result}",
                "mov {result:e}, 1",
                "inc qword ptr [{slot} + {pushes}]",
                "mov qword ptr [{slot} + {head}], {object}",
            ],
            area, cpus, slot0, SHIFT, _slot, result,
            {
                head = const L::HEAD,
                owner_at = const L::OWNER,
                pushes = const L::PUSHES,
                link = in(reg) link,
                owner = in(reg) owner,
                object = in(reg) object,
            }
        );
    }
    result != 0
}

/// Takes the newest entry off the running CPU's stack; null if that cannot be done in one step.
/// The counter of pops is the commit.
///
/// # Safety
///
/// As for [`try_lock`](super::try_lock); the slots are laid out as `L` says.
#[inline(always)]
pub(crate) unsafe fn pop_stack<L: StackLayout, const SHIFT: u32>(
    area: isize,
    cpus: &u32,
    slot0: &NonNull<SlotLock>,
) -> *mut u8 {
    let result: *mut u8;
    let _slot: usize;
    let (_pops, _filled): (u64, u64);
    // SAFETY: as in `pop_list`; entries above the floor are filled.
    unsafe {
        sequence!(
            [
                "mov {pops}, qword ptr [{slot} + {pops_at}]",
                "mov {filled}, qword ptr [{slot} + {pushes_at}]",
                "sub {filled}, {pops}",
                "cmp {filled}, qword ptr [{slot} + {floor}]",
                "je 6f",
                "mov {result}, qword ptr [{slot} + {entries}]",
                "mov {result}, qword ptr [{result} + 8 * {filled} - 8]",
                "inc {pops}",
                "mov qword ptr [{slot} + {pops_at}], {pops}",
            ],
            area, cpus, slot0, SHIFT, _slot, result,
            {
                floor = const L::FLOOR,
                entries = const L::ENTRIES,
                pops_at = const L::POPS,
                pushes_at = const L::PUSHES,
                pops = out(reg) _pops,
                filled = out(reg) _filled,
            }
        );
    }
    result
}

/// Puts an object on the running CPU's stack if there is room and the newest entry is another.
/// `false` if that cannot be done in one step. The counter of pushes is the commit.
///
/// # Safety
///
/// As for [`pop_stack`]; the word in front of the oldest entry may be read.
#[inline(always)]
pub(crate) unsafe fn push_stack<L: StackLayout, const SHIFT: u32>(
    area: isize,
    cpus: &u32,
    slot0: &NonNull<SlotLock>,
    object: *mut u8,
) -> bool {
    let result: usize;
    let _slot: usize;
    let (_pushes, _filled): (u64, u64);
    // SAFETY: as in `pop_list`; the entry below the ceiling is inside the stack's room and free.
    unsafe {
        sequence!(
            [
                "mov {pushes}, qword ptr [{slot} + {pushes_at}]",
                "mov {filled}, {pushes}",
                "sub {filled}, qword ptr [{slot} + {pops_at}]",
                "cmp {filled}, qword ptr [{slot} + {ceiling}]",
                "je 6f",
                "mov {result}, qword ptr [{slot} + {entries}]",
                "cmp qword ptr [{result} + 8 * {filled} - 8], {object}",
                "je 6f",
                "mov qword ptr [{result} + 8 * {filled}], {object}",
                "mov {result:e}, 1",
                "inc {pushes}",
                "mov qword ptr [{slot} + {pushes_at}], {pushes}",
            ],
            area, cpus, slot0, SHIFT, _slot, result,
            {
                ceiling = const L::CEILING,
                entries = const L::ENTRIES,
                pops_at = const L::POPS,
                pushes_at = const L::PUSHES,
                object = in(reg) object,
                pushes = out(reg) _pushes,
                filled = out(reg) _filled,
            }
        );
    }
    result != 0
}
