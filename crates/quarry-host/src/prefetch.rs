//! A hint to the processor, which has no intrinsic for "to be written" at the base level of x86-64.

/// Asks for the cache line of an address, to be written; whatever the address is, nothing happens
/// but that.
#[inline(always)]
pub(crate) fn for_write(address: *const u8) {
    // Every x86-64 processor knows the instruction, the oldest as one that does nothing.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint, which never faults and changes no memory, register or flag.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a hint too: it never faults and changes no memory, register or flag.
    unsafe {
        core::arch::asm!("prfm pstl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}
