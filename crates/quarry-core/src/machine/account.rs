//! Accounting: an allocator's accesses and work, reported to the machine.
//!
//! Accessors of the structures call the free functions, the algorithms do not: taking a slot reports it, so
//! does changing a list of pages, reading or replacing a slab's word. Locks and slots have words that the
//! machine itself reads and writes, so it accounts those.
//!
//! The free functions are the only callers of the machine's hooks. Building with
//! `--cfg quarry_no_accounting` leaves them out altogether, which is how `cargo xtask accounting`
//! shows that on a real machine they cost no instruction.

use super::{Access, Accounting, Line, Work};

/// Reports an access to a whole `T`.
#[inline(always)]
pub(crate) fn access<M: Accounting, T>(machine: &M, line: Line, access: Access, at: *const T) {
    access_run(machine, line, access, at, 1);
}

/// Reports an access to `count` adjacent values; nothing for 0.
#[inline(always)]
#[cfg_attr(quarry_no_accounting, allow(unused_variables))]
pub(crate) fn access_run<M: Accounting, T>(
    machine: &M,
    line: Line,
    access: Access,
    at: *const T,
    count: usize,
) {
    #[cfg(not(quarry_no_accounting))]
    if count > 0 {
        machine.access(at.cast(), count * size_of::<T>(), access, line);
    }
}

/// Reports that allocations looked at the free lists of a zone: the first of them at `lists`, those that follow out
/// of the same block at one each.
#[inline(always)]
#[cfg_attr(quarry_no_accounting, allow(unused_variables))]
pub(crate) fn looked<M: Accounting>(machine: &M, lists: u32, blocks: u32) {
    #[cfg(not(quarry_no_accounting))]
    machine.looked(lists, blocks);
}

/// Reports work.
#[inline(always)]
#[cfg_attr(quarry_no_accounting, allow(unused_variables))]
pub(crate) fn work<M: Accounting>(machine: &M, work: Work) {
    #[cfg(not(quarry_no_accounting))]
    machine.work(work);
}
