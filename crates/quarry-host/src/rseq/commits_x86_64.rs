//! Whole operations that commit with one store, for x86-64.
//!
//! Taking the lock word, changing a list and freeing the word are six stores for an allocation and
//! its bookkeeping; these sequences do the same with two or three, because the change itself is
//! the commit. They look at the lock word and take no effect while it is held, so code that holds
//! it never sees them.
//!
//! Each block follows the shape of [`super::arch`]: labels 2 (descriptor), 3 (arm), 4 (start), 5
//! (end), 6 (failure), 7 (abort). The commit is the last instruction. Inputs are read only, outputs
//! are made anew after a restart. A restart between them repeats some: the store to the object's
//! link (the caller owns the object); the store to the stack's free entry (no code reads it); and the
//! counter, which may thus run ahead by one per restart.
//!
//! Memory order (S1 to S3 of `quarry_core::machine`): x86-64 makes a CPU's stores visible in program
//! order, so the commit is a release, and a CPU that reads the top sees the entry. No plain store
//! of another processor does that, so only x86-64 has these sequences; elsewhere the machine has no steps.
//!
//! A pointer read from the slot is only followed while the sequence is not interrupted, so it
//! cannot have been handed out meanwhile.

use core::arch::asm;
use core::ptr::NonNull;

use quarry_core::machine::{ListLayout, SlotLock, StackLayout};

use super::ABORTS;
use crate::machine::HostMachine;

/// The common part of all sequences. `$slot` and `$slot32` are the register that holds the slot's
/// address, `$fail` is where a failure jumps to and `$failure` what stands there.
macro_rules! frame {
    ([$($body:literal,)*], $slot:literal, $slot32:literal, $fail:literal, [$($failure:literal,)*],
     $machine:expr, $area:expr, $slot0:expr, $shift:expr, $by_id:ident, { $($operand:tt)* }) => {
        asm!(
            ".pushsection .data.rel.ro.quarry_rseq, \"aw\", @progbits",
            ".balign 32",
            "2:",
            ".long 0, 0",
            ".quad 4f, 5f - 4f, 7f",
            ".popsection",
            "3:",
            concat!("lea ", $slot, ", [rip + 2b]"),
            concat!("mov qword ptr fs:[{area} + 8], ", $slot),
            "4:",
            ".if {by_id}",
            // An area that is not registered has the id 0, which is another thread's.
            "cmp dword ptr fs:[{area} + 4], 0",
            concat!("jl ", $fail),
            concat!("mov ", $slot32, ", dword ptr fs:[{area} + 24]"),
            ".else",
            concat!("mov ", $slot32, ", dword ptr fs:[{area} + 4]"),
            ".endif",
            concat!("cmp ", $slot32, ", dword ptr [{machine} + {cpus}]"),
            concat!("jae ", $fail),
            concat!("shl ", $slot, ", {shift}"),
            concat!("add ", $slot, ", qword ptr [{slot0}]"),
            concat!("cmp dword ptr [", $slot, "], 0"),
            concat!("jne ", $fail),
            $($body,)*
            "5:",
            ".pushsection .text.unlikely.quarry_rseq, \"ax\", @progbits",
            $($failure,)*
            // `ud1` with the signature as displacement: traps if it is ever reached.
            ".byte 0x0f, 0xb9, 0x3d",
            ".long 0x53053053",
            "7:",
            concat!("mov ", $slot, ", qword ptr [rip + {aborts}@GOTPCREL]"),
            concat!("lock inc qword ptr [", $slot, "]"),
            "jmp 3b",
            ".popsection",
            area = in(reg) $area,
            by_id = const $by_id as u32,
            machine = in(reg) core::ptr::from_ref($machine),
            cpus = const HostMachine::CPUS_AT,
            slot0 = in(reg) core::ptr::from_ref($slot0),
            shift = const $shift,
            aborts = sym ABORTS,
            $($operand)*
            options(nostack),
        )
    };
}

/// A sequence with a result, which is 0 if it fails.
macro_rules! pop {
    ([$($body:literal,)*], $machine:expr, $area:expr, $slot0:expr, $shift:expr, $by_id:ident, $result:ident,
     { $($operand:tt)* }) => {
        frame!(
            [$($body,)*],
            "{slot}", "{slot:e}", "6f", ["6:", "xor {result:e}, {result:e}", "jmp 5b",],
            $machine, $area, $slot0, $shift, $by_id,
            { slot = out(reg) _, result = out(reg) $result, $($operand)* }
        )
    };
}

/// A sequence without a result: a failure returns `false` from the function. A block that may leave
/// can have no outputs, so its scratch registers are fixed: r11 for the slot, r9 and r10.
macro_rules! push {
    ([$($body:literal,)*], $machine:expr, $area:expr, $slot0:expr, $shift:expr, $by_id:ident,
     { $($operand:tt)* }) => {
        frame!(
            [$($body,)*],
            "r11", "r11d", "{failed}", [],
            $machine, $area, $slot0, $shift, $by_id,
            {
                failed = label { return false; },
                out("r9") _,
                out("r10") _,
                out("r11") _,
                $($operand)*
            }
        )
    };
}

/// Takes the first object off the running CPU's list; null if that cannot be done in one step.
///
/// # Safety
///
/// As for [`try_lock`](super::try_lock), whose `area` is the machine's for `BY_ID`; the slots are
/// laid out as `L` says; every object on their lists holds the address of the next one, or null, `link` bytes from its start.
#[inline(always)]
pub(crate) unsafe fn pop_list<L: ListLayout, const SHIFT: u32, const BY_ID: bool>(
    machine: &HostMachine,
    area: isize,
    slot0: &NonNull<SlotLock>,
    link: usize,
) -> *mut u8 {
    let result: *mut u8;
    // SAFETY: by the caller's contract area, slots and links are there. The stores go to the
    // area's `rseq_cs`, and to counter and head of a slot that is this CPU's and not locked; the
    // kernel restarts the sequence if that may have changed.
    unsafe {
        pop!(
            [
                "mov {result}, qword ptr [{slot} + {head}]",
                "test {result}, {result}",
                "jz 6f",
                "mov {next}, qword ptr [{result} + {link}]",
                "inc qword ptr [{slot} + {pops}]",
                "mov qword ptr [{slot} + {head}], {next}",
            ],
            machine, area, slot0, SHIFT, BY_ID, result,
            {
                head = const L::HEAD,
                pops = const L::POPS,
                link = in(reg) link,
                next = out(reg) _,
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
pub(crate) unsafe fn push_list<L: ListLayout, const SHIFT: u32, const BY_ID: bool>(
    machine: &HostMachine,
    area: isize,
    slot0: &NonNull<SlotLock>,
    link: usize,
    owner: u32,
    object: *mut u8,
) -> bool {
    // SAFETY: as in `pop_list`; the store to the object's link is the caller's to make.
    unsafe {
        push!(
            [
                "cmp dword ptr [r11 + {owner_at}], {owner:e}",
                "jne {failed}",
                "mov r10, qword ptr [r11 + {head}]",
                "cmp r10, {object}",
                "je {failed}",
                "mov qword ptr [{object} + {link}], r10",
                "inc qword ptr [r11 + {pushes}]",
                "mov qword ptr [r11 + {head}], {object}",
            ],
            machine, area, slot0, SHIFT, BY_ID,
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
    true
}

/// Takes the newest entry off the running CPU's stack; null if that cannot be done in one step. The next entry, mostly
/// the next to be taken, is prefetched for writing: of a stack with one entry, whatever lies in front of it.
///
/// # Safety
///
/// As for [`try_lock`](super::try_lock); the slots are laid out as `L` says, and the word in front of the oldest entry may
/// be read.
#[inline(always)]
pub(crate) unsafe fn pop_stack<L: StackLayout, const SHIFT: u32, const BY_ID: bool>(
    machine: &HostMachine,
    area: isize,
    slot0: &NonNull<SlotLock>,
) -> *mut u8 {
    const { assert!(!L::NARROW, "no step takes narrow entries") }
    let result: *mut u8;
    // SAFETY: as in `pop_list`; entries below the top are filled. A prefetch never faults.
    unsafe {
        pop!(
            [
                "mov {top}, qword ptr [{slot} + {top_at}]",
                "cmp {top}, qword ptr [{slot} + {base}]",
                "je 6f",
                "mov {result}, qword ptr [{top} - 8]",
                "mov {next}, qword ptr [{top} - 16]",
                "inc qword ptr [{slot} + {pops}]",
                "sub {top}, 8",
                "prefetchw [{next}]",
                "mov qword ptr [{slot} + {top_at}], {top}",
            ],
            machine, area, slot0, SHIFT, BY_ID, result,
            {
                top_at = const L::TOP,
                base = const L::BASE,
                pops = const L::POPS,
                top = out(reg) _,
                next = out(reg) _,
            }
        );
    }
    result
}

/// Puts an object on the running CPU's stack if there is room and the newest entry is another.
/// `false` if that cannot be done in one step.
///
/// # Safety
///
/// As for [`pop_stack`]; the word in front of the oldest entry may be read, and the object fits in an
/// entry.
#[inline(always)]
pub(crate) unsafe fn push_stack<L: StackLayout, const SHIFT: u32, const BY_ID: bool>(
    machine: &HostMachine,
    area: isize,
    slot0: &NonNull<SlotLock>,
    object: *mut u8,
) -> bool {
    if L::NARROW {
        // SAFETY: the caller gave slots of this layout, whose entries at the top are inside the stack's room and free; the
        // object's address fits in half a word, as the caller says. The kernel restarts what is interrupted.
        unsafe {
            push!(
                [
                    "mov r10, qword ptr [r11 + {top_at}]",
                    "cmp r10, qword ptr [r11 + {limit}]",
                    "jae {failed}",
                    "cmp dword ptr [r10 - 4], {object:e}",
                    "je {failed}",
                    "mov dword ptr [r10], {object:e}",
                    "inc qword ptr [r11 + {pushes}]",
                    "add r10, 4",
                    "mov qword ptr [r11 + {top_at}], r10",
                ],
                machine, area, slot0, SHIFT, BY_ID,
                {
                    top_at = const L::TOP,
                    limit = const L::LIMIT,
                    pushes = const L::PUSHES,
                    object = in(reg) object,
                }
            );
        }
        return true;
    }
    // SAFETY: as in `pop_list`; the entry at the top is inside the stack's room and free.
    unsafe {
        push!(
            [
                "mov r10, qword ptr [r11 + {top_at}]",
                "cmp r10, qword ptr [r11 + {limit}]",
                "jae {failed}",
                "cmp qword ptr [r10 - 8], {object}",
                "je {failed}",
                "mov qword ptr [r10], {object}",
                "inc qword ptr [r11 + {pushes}]",
                "add r10, 8",
                "mov qword ptr [r11 + {top_at}], r10",
            ],
            machine, area, slot0, SHIFT, BY_ID,
            {
                top_at = const L::TOP,
                limit = const L::LIMIT,
                pushes = const L::PUSHES,
                object = in(reg) object,
            }
        );
    }
    true
}
