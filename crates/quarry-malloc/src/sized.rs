//! Frees that name the size of the block: C23's, and the operators of C++14, whose sizes the C++ library drops.

use core::ffi::{CStr, c_void};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, Ordering};

use quarry::Caller;

use crate::family::{free, heap_of, refused};
use crate::heaps;

/// `free_sized` of C23.
///
/// # Safety
///
/// As for `free`; the block was asked for with this size.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn free_sized(block: *mut c_void, bytes: usize) {
    let Some(block) = NonNull::new(block.cast()) else {
        return;
    };
    let Some(heap) = heap_of(block) else { return };
    // SAFETY: the caller vouches that the block has no user left.
    if unsafe { heap.free_sized(block, bytes) }.is_err() {
        refused("free_sized", block);
    }
}

/// `free_aligned_sized` of C23, which refuses a block that is not aligned so. Its size is not looked at: blocks with an
/// alignment may be much larger than their request.
///
/// # Safety
///
/// As for [`free_sized`]; the block was asked for with this alignment.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn free_aligned_sized(block: *mut c_void, align: usize, bytes: usize) {
    if !align.is_power_of_two() || !block.addr().is_multiple_of(align) {
        heaps::give_up(format_args!(
            "free_aligned_sized: {block:p} is not aligned to {align}"
        ));
    }
    // Hardened heaps know the request.
    match heaps::is_hardened() {
        // SAFETY: the caller vouches for the block.
        true => unsafe { free_sized(block, bytes) },
        // SAFETY: as above.
        false => unsafe { free(block) },
    }
}

type Delete = unsafe extern "C" fn(*mut c_void, usize);

/// A sized operator of C++: the C++ library's, or a function of this library that it would come to.
struct Operator {
    /// A [`Delete`].
    target: AtomicPtr<()>,
    /// The operators of the same kind without a size, and the sized one.
    names: [&'static CStr; 3],
}

/// `operator delete(void*, size_t)`.
static OBJECT: Operator = Operator {
    target: AtomicPtr::new(resolve_object as *mut ()),
    names: [c"_Znwm", c"_ZdlPv", c"_ZdlPvm"],
};
/// `operator delete[](void*, size_t)`.
static ARRAY: Operator = Operator {
    target: AtomicPtr::new(resolve_array as *mut ()),
    names: [c"_Znam", c"_ZdaPv", c"_ZdaPvm"],
};

impl Operator {
    /// # Safety
    ///
    /// As for the operator.
    #[inline(always)]
    unsafe fn call(&self, block: *mut c_void, bytes: usize) {
        let target = self.target.load(Ordering::Relaxed);
        // SAFETY: only functions of this type are stored.
        let target = unsafe { core::mem::transmute::<*mut (), Delete>(target) };
        // SAFETY: the caller vouches for the block.
        unsafe { target(block, bytes) }
    }

    /// Chooses the function. A program may have operators of its own for some: then the C++ library's is called, as it would
    /// be without this library.
    #[cold]
    fn resolve(&self) {
        let [new, plain, sized] = self.names;
        // SAFETY: takes a name.
        let next = unsafe { libc::dlsym(libc::RTLD_NEXT, sized.as_ptr()) };
        let file_of = |place: *mut c_void| Caller::at(place.addr()).file_start();
        let library = file_of(next);
        let is_own = |name: &CStr| {
            // SAFETY: takes a name.
            let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            file_of(found) != library
        };
        let target = if !next.is_null() && (is_own(new) || is_own(plain)) {
            next.cast()
        } else if heaps::is_hardened() {
            free_sized as *mut ()
        } else {
            free_any as *mut ()
        };
        self.target.store(target, Ordering::Relaxed);
    }
}

unsafe extern "C" fn resolve_object(block: *mut c_void, bytes: usize) {
    OBJECT.resolve();
    // SAFETY: the caller vouches for the block.
    unsafe { OBJECT.call(block, bytes) };
}

unsafe extern "C" fn resolve_array(block: *mut c_void, bytes: usize) {
    ARRAY.resolve();
    // SAFETY: the caller vouches for the block.
    unsafe { ARRAY.call(block, bytes) };
}

/// `free`, whatever the size.
unsafe extern "C" fn free_any(block: *mut c_void, _bytes: usize) {
    // SAFETY: the caller vouches for the block.
    unsafe { free(block) };
}

/// `operator delete(void*, size_t)` of C++14.
///
/// # Safety
///
/// As for `free`.
#[unsafe(export_name = "_ZdlPvm")]
pub(crate) unsafe extern "C" fn delete_sized(block: *mut c_void, bytes: usize) {
    // SAFETY: the caller vouches for the block.
    unsafe { OBJECT.call(block, bytes) };
}

/// `operator delete[](void*, size_t)` of C++14.
///
/// # Safety
///
/// As for `free`.
#[unsafe(export_name = "_ZdaPvm")]
pub(crate) unsafe extern "C" fn delete_array_sized(block: *mut c_void, bytes: usize) {
    // SAFETY: the caller vouches for the block.
    unsafe { ARRAY.call(block, bytes) };
}
