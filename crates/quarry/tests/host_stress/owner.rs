//! Live objects, which have their owner's number over their whole length.

use std::ptr::NonNull;

/// The allocator that an object came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A cache, by its place in the world's list.
    Cache(usize),
    /// `kmalloc`.
    Kmalloc,
}

/// An object with an owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) object: NonNull<u8>,
    pub(crate) bytes: usize,
    pub(crate) source: Source,
    pub(crate) token: u64,
}

// SAFETY: an owned object may go to another thread; the owner has all of it.
unsafe impl Send for Held {}

/// The value that a word of an object must have.
fn word(token: u64, address: usize, index: usize) -> u64 {
    match index {
        0 => token,
        1 => token ^ address as u64,
        _ => (token ^ index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15),
    }
}

impl Held {
    fn words(&self) -> impl Iterator<Item = (NonNull<u64>, u64)> + use<> {
        let (object, token) = (self.object, self.token);
        (0..self.bytes / 8).map(move |index| {
            // SAFETY: the object has `bytes` bytes.
            let place = unsafe { object.cast::<u64>().add(index) };
            (place, word(token, object.addr().get(), index))
        })
    }

    /// Takes possession: writes the number everywhere.
    pub(crate) fn fill(&self) {
        for (place, value) in self.words() {
            // SAFETY: the object is at least word-aligned and belongs to the caller. Volatile, so
            // that a second owner's writes are not reasoned away.
            unsafe { place.write_volatile(value) };
        }
    }

    /// True if the number is still everywhere.
    pub(crate) fn whole(&self) -> bool {
        self.words().all(|(place, value)| {
            // SAFETY: as in `fill`.
            unsafe { place.read_volatile() == value }
        })
    }

    /// Gives possession up: a second owner sees this.
    pub(crate) fn mark_dead(&self) {
        // SAFETY: as in `fill`; objects have at least one word.
        unsafe { self.object.cast::<u64>().write_volatile(u64::MAX) };
    }
}
