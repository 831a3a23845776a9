//! The only place that knows whether atomics are the processor's or the model checker's.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Atomics in zero-filled memory, which no model has.
pub(crate) use core::sync::atomic::{AtomicU8, AtomicU16};

/// Between two `SeqCst` accesses of one thread: the model checker takes those for `AcqRel` and
/// orders only fences, so models need one where the language does not.
#[inline(always)]
pub(crate) fn model_fence() {
    #[cfg(loom)]
    loom::sync::atomic::fence(Ordering::SeqCst);
}
