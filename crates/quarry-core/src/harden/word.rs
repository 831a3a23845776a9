//! The secret word behind an object.

use core::ptr::NonNull;

use crate::sync::Ordering;

/// In the state of a free object; the rest are the bytes that are filled.
pub(super) const FREE: u64 = 1 << 63;
/// Odd, so that the product loses nothing; its bits are those of the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// State of an object by its word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// In use; the bytes of the request.
    Used(usize),
    /// Free; the bytes that are filled.
    Free(usize),
    /// The word is none, or was written to.
    Broken,
}

/// The hash of an object's address: its word in state 0.
#[inline(always)]
pub(super) const fn hash(secret: u64, object: usize) -> u64 {
    (object as u64 ^ secret).wrapping_mul(SPREAD)
}

/// The state that a word holds, as a number: at most `usable` for an object in use.
///
/// # Safety
///
/// The word is readable memory and aligned. It may be one that others write to, in single stores.
#[inline(always)]
pub(super) unsafe fn load(word: NonNull<u8>, secret: u64, object: usize) -> u64 {
    // SAFETY: readable and aligned, as the caller says; all of the allocator's accesses to it are atomic.
    let word = unsafe { core::sync::atomic::AtomicU64::from_ptr(word.as_ptr().cast()) };
    word.load(Ordering::Relaxed) ^ hash(secret, object)
}

/// Writes a state.
///
/// # Safety
///
/// The word is that of a slot whose object is the caller's.
#[inline(always)]
pub(super) unsafe fn store(word: NonNull<u8>, secret: u64, object: usize, state: u64) {
    // SAFETY: inside a slot and aligned; all of the allocator's accesses to it are atomic.
    let word = unsafe { core::sync::atomic::AtomicU64::from_ptr(word.as_ptr().cast()) };
    word.store(state ^ hash(secret, object), Ordering::Relaxed);
}

/// The meaning of what [`load`] returned.
#[inline(always)]
pub(super) const fn state(number: u64, usable: usize) -> State {
    if number <= usable as u64 {
        State::Used(number as usize)
    } else if number ^ FREE <= usable as u64 {
        State::Free((number ^ FREE) as usize)
    } else {
        State::Broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_of_one_place_and_one_secret() {
        let mut memory = [0_u64; 2];
        let word = NonNull::from(&mut memory[0]).cast::<u8>();
        let read = |secret, object| {
            // SAFETY: the test's own word.
            state(unsafe { load(word, secret, object) }, 100)
        };
        // SAFETY: as above.
        unsafe { store(word, 7, 0x1000, 100) };
        assert_eq!(read(7, 0x1000), State::Used(100));
        assert_eq!(read(7, 0x1010), State::Broken);
        assert_eq!(read(8, 0x1000), State::Broken);
        // SAFETY: as above.
        unsafe { store(word, 7, 0x1000, FREE | 24) };
        assert_eq!(read(7, 0x1000), State::Free(24));
    }
}
