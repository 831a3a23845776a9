//! The twin for targets without a sequence: the fallback is always chosen, so of these functions
//! only [`thread_pointer`] is ever called.

use super::FAILED;

/// This target has no sequence.
pub(super) const BUILT: bool = false;
/// Nor one by the concurrency id.
pub(super) const BUILT_BY_ID: bool = false;

/// Never takes a word.
///
/// # Safety
///
/// None is needed; the other targets' function is unsafe.
#[inline(always)]
pub(crate) unsafe fn try_lock<const SHIFT: u32, const BY_ID: bool>(
    _: isize,
    _: u32,
    _: *mut u32,
) -> usize {
    FAILED
}

/// Never takes a word.
///
/// # Safety
///
/// None is needed; the other targets' function is unsafe.
#[cfg(feature = "negative-controls")]
pub(crate) unsafe fn try_lock_unarmed<const SHIFT: u32, const BY_ID: bool>(
    _: isize,
    _: u32,
    _: *mut u32,
) -> usize {
    FAILED
}

/// Never knows the CPU.
///
/// # Safety
///
/// None is needed; the other targets' function is unsafe.
#[inline(always)]
pub(crate) unsafe fn cpu_id(_: isize) -> u32 {
    u32::MAX
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

/// No sequence is ever taken out of an area.
///
/// # Safety
///
/// None is needed; the other targets' function is unsafe.
#[inline(always)]
pub(crate) unsafe fn is_armed(_: isize) -> bool {
    true
}

/// An address of the calling thread's own: not 0, and different for all threads alive.
#[inline(always)]
pub(crate) fn thread_pointer() -> usize {
    std::thread_local! {
        static OWN: u64 = const { 0 };
    }
    // The variable needs no destructor, so it can be reached as long as the thread runs.
    OWN.with(|own| core::ptr::from_ref(own).addr())
}
