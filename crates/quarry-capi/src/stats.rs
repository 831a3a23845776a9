//! Slabinfo, and the attributes of sysfs.

use core::ffi::{CStr, c_char, c_int};

use quarry::{SysfsError, TextOut};

use crate::text::Buffer;
use crate::{failed, heap, set_errno};

/// Writes slabinfo, the list of all caches, to a buffer: as much as fits, with a zero behind it.
///
/// Returns the length of the whole text without the zero, so that a buffer of one more byte holds it; the list may have
/// grown until then. `text` may be NULL if `bytes` is 0. -1, with errno, if there is no heap.
///
/// # Safety
///
/// The buffer has `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabinfo_read(text: *mut c_char, bytes: usize) -> isize {
    let Some(heap) = heap() else { return -1 };
    // SAFETY: the caller vouches for the buffer.
    let mut buffer = unsafe { Buffer::new(text, bytes) };
    match heap.write_slabinfo(&mut buffer) {
        Ok(()) => buffer.finish(),
        Err(_) => failed(libc::EBUSY) as isize,
    }
}

/// Writes slabinfo to a file descriptor. Returns 0, or -1 with errno.
#[unsafe(no_mangle)]
pub extern "C" fn slabinfo_write(fd: c_int) -> c_int {
    let Some(heap) = heap() else { return -1 };
    let mut out = TextOut::to(fd);
    match heap.write_slabinfo(&mut out) {
        // A failed write has left its reason.
        Ok(()) => out.flush().map_or(-1, |()| 0),
        Err(_) => -1,
    }
}

/// A string; `None`, with `EINVAL`, if it is null or not UTF-8.
///
/// # Safety
///
/// Null, or a string that lives as long as the result.
unsafe fn string<'a>(text: *const c_char) -> Option<&'a str> {
    let text = match text.is_null() {
        true => None,
        // SAFETY: the caller vouches for the string.
        false => unsafe { CStr::from_ptr(text) }.to_str().ok(),
    };
    if text.is_none() {
        set_errno(libc::EINVAL);
    }
    text
}

/// -1, for the reason of an error of sysfs.
#[cold]
fn refused(error: &SysfsError) -> c_int {
    failed(match error.errno_name() {
        "ENOENT" => libc::ENOENT,
        "EACCES" => libc::EACCES,
        "EBUSY" => libc::EBUSY,
        "ENOSYS" => libc::ENOSYS,
        "EIO" => libc::EIO,
        _ => libc::EINVAL,
    })
}

/// Reads an attribute of a cache, both by name, as from the file `/sys/kernel/slab/CACHE/ATTRIBUTE`. Of several caches of one
/// name it is the newest.
///
/// The buffer and the result are as for `slabinfo_read`. -1 and ENOENT if there is no such cache or attribute.
///
/// # Safety
///
/// The names are strings, and the buffer has `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slab_attribute_read(
    cache: *const c_char,
    attribute: *const c_char,
    text: *mut c_char,
    bytes: usize,
) -> isize {
    // SAFETY: the caller vouches for the string.
    let Some(wanted) = (unsafe { string(cache) }) else {
        return -1;
    };
    // SAFETY: the caller vouches for the string.
    let Some(attribute) = (unsafe { string(attribute) }) else {
        return -1;
    };
    let Some(heap) = heap() else { return -1 };
    let mut answer = None;
    heap.sysfs_caches(|cache| {
        if answer.is_none() && cache.name() == wanted {
            // SAFETY: the caller vouches for the buffer, which one call of this writes to.
            let mut buffer = unsafe { Buffer::new(text, bytes) };
            let read = cache.sysfs_read(attribute, &mut buffer);
            answer = Some(read.map(|()| buffer.finish()));
        }
    });
    match answer {
        Some(Ok(length)) => length,
        Some(Err(error)) => refused(&error) as isize,
        None => failed(libc::ENOENT) as isize,
    }
}

/// Writes a text to an attribute of a cache, as to its file in sysfs: sets a tunable, clears a counter, shrinks or
/// validates the cache. Returns 0, or -1 with errno: ENOENT if there is no such cache or attribute, EACCES if it is
/// read-only, EINVAL for a wrong value.
///
/// # Safety
///
/// The names and the text are strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slab_attribute_write(
    cache: *const c_char,
    attribute: *const c_char,
    text: *const c_char,
) -> c_int {
    // SAFETY: the caller vouches for the string.
    let Some(wanted) = (unsafe { string(cache) }) else {
        return -1;
    };
    // SAFETY: the caller vouches for the string.
    let Some(attribute) = (unsafe { string(attribute) }) else {
        return -1;
    };
    // SAFETY: the caller vouches for the string.
    let Some(text) = (unsafe { string(text) }) else {
        return -1;
    };
    let Some(heap) = heap() else { return -1 };
    let mut answer = None;
    heap.sysfs_caches(|cache| {
        if answer.is_none() && cache.name() == wanted {
            answer = Some(cache.sysfs_write(attribute, text));
        }
    });
    match answer {
        Some(Ok(())) => 0,
        Some(Err(error)) => refused(&error),
        None => failed(libc::ENOENT),
    }
}
