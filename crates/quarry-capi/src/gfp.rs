//! Flags of requests.

use core::ffi::c_uint;

/// Flags of a request for memory: `GFP_KERNEL` or `GFP_ATOMIC`, with `__GFP_ZERO` if it is to be zero-filled.
pub type gfp_t = c_uint;

/// An ordinary request.
pub const GFP_KERNEL: gfp_t = 1;
/// A request that must not wait. No request waits for memory here, so it is served as `GFP_KERNEL` is.
pub const GFP_ATOMIC: gfp_t = 2;
/// The memory is to be zero-filled, up to the size that `ksize` tells.
pub const __GFP_ZERO: gfp_t = 4;

/// True if all flags are known; else `errno` is `EINVAL`.
#[inline(always)]
pub(crate) fn known(flags: gfp_t) -> bool {
    let known = flags & !(GFP_KERNEL | GFP_ATOMIC | __GFP_ZERO) == 0;
    if !known {
        crate::set_errno(libc::EINVAL);
    }
    known
}

/// True if memory is to be zero-filled.
#[inline(always)]
pub(crate) fn zeroes(flags: gfp_t) -> bool {
    flags & __GFP_ZERO != 0
}
