//! Frames and fragments with a filled part.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use quarry_core::pool::{Mapper, NoMapper};
#[cfg(feature = "io-uring")]
use quarry_host::values::give_values;

use super::{Fragment, Frame};

/// A [`Frame`] or [`Fragment`] with a filled part: what was received, or what is to be sent.
///
/// It derefs to the filled bytes and goes home when dropped, on whichever thread that is.
///
/// # Examples
///
/// ```
/// use quarry::{Buffer, Builder, PagePool, PoolParams, Slub};
///
/// let heap = Builder::<Slub>::new().memory_bytes(64 << 20).build()?.leak();
/// let mut pool = PagePool::new(heap.pages(), heap.era(), &PoolParams::default())?;
/// let mut frame = pool.alloc().ok_or("out of memory")?;
/// frame[..5].copy_from_slice(b"hello");
/// let buffer: Buffer = frame.filled(5);
/// assert_eq!(&buffer[..], b"hello");
/// assert_eq!(buffer.capacity(), 4096);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Buffer<H: Mapper = NoMapper> {
    memory: Memory<H>,
    filled: u32,
}

enum Memory<H: Mapper> {
    Frame(Frame<H>),
    Fragment(Fragment<H>),
}

impl<H: Mapper> Buffer<H> {
    /// Bytes of the frame or fragment, filled or not.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.all().len()
    }

    /// All of its memory.
    #[inline]
    pub(crate) fn all(&self) -> NonNull<[u8]> {
        match &self.memory {
            Memory::Frame(frame) => frame.memory(),
            Memory::Fragment(fragment) => fragment.memory(),
        }
    }

    fn new(memory: Memory<H>, filled: usize) -> Self {
        let buffer = Self {
            memory,
            filled: u32::try_from(filled).unwrap_or(u32::MAX),
        };
        let capacity = buffer.capacity();
        assert!(
            filled <= capacity,
            "{filled} bytes are more than the {capacity} of the buffer"
        );
        buffer
    }

    /// The frame, if it is not a fragment.
    ///
    /// # Errors
    ///
    /// Itself, if it is a fragment.
    pub fn into_frame(self) -> Result<Frame<H>, Self> {
        match self.memory {
            Memory::Frame(frame) => Ok(frame),
            memory => Err(Self { memory, ..self }),
        }
    }

    /// The frame, if it is not a fragment.
    #[cfg(feature = "io-uring")]
    pub(crate) fn frame(&self) -> Option<&Frame<H>> {
        match &self.memory {
            Memory::Frame(frame) => Some(frame),
            Memory::Fragment(_) => None,
        }
    }

    /// The buffer after a kernel wrote its first `bytes`; `None` if it has not as many.
    #[cfg(feature = "io-uring")]
    pub(crate) fn written(self, bytes: usize) -> Option<Self> {
        let all = self.all();
        if bytes > all.len() {
            return None;
        }
        // SAFETY: the block is mapped and its handle's alone, which this function has.
        unsafe { give_values(all.cast(), all.len()) };
        let filled = bytes as u32;
        Some(Self { filled, ..self })
    }
}

impl<H: Mapper> Deref for Buffer<H> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        let all: &[u8] = match &self.memory {
            Memory::Frame(frame) => frame,
            Memory::Fragment(fragment) => fragment,
        };
        &all[..self.filled as usize]
    }
}

impl<H: Mapper> DerefMut for Buffer<H> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        let all: &mut [u8] = match &mut self.memory {
            Memory::Frame(frame) => frame,
            Memory::Fragment(fragment) => fragment,
        };
        &mut all[..self.filled as usize]
    }
}

impl<H: Mapper> std::fmt::Debug for Buffer<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let filled = self.filled;
        match &self.memory {
            Memory::Frame(frame) => write!(f, "Buffer({filled} bytes in {frame:?})"),
            Memory::Fragment(fragment) => write!(f, "Buffer({filled} bytes in {fragment:?})"),
        }
    }
}

impl<H: Mapper> Frame<H> {
    /// The frame as a buffer whose first `bytes` are filled.
    ///
    /// # Panics
    ///
    /// If it has fewer bytes.
    #[must_use]
    pub fn filled(self, bytes: usize) -> Buffer<H> {
        Buffer::new(Memory::Frame(self), bytes)
    }
}

impl<H: Mapper> Fragment<H> {
    /// The fragment as a buffer whose first `bytes` are filled.
    ///
    /// # Panics
    ///
    /// If it has fewer bytes.
    #[must_use]
    pub fn filled(self, bytes: usize) -> Buffer<H> {
        Buffer::new(Memory::Fragment(self), bytes)
    }
}

impl<H: Mapper> AsRef<[u8]> for Buffer<H> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl<H: Mapper> AsRef<[u8]> for Frame<H> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl<H: Mapper> AsRef<[u8]> for Fragment<H> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// The filled bytes, without a copy: the memory goes home with the last handle to it.
///
/// # Examples
///
/// ```
/// use bytes::Bytes;
/// use quarry::{Builder, PagePool, PoolParams, Slub};
///
/// let heap = Builder::<Slub>::new().memory_bytes(64 << 20).build()?.leak();
/// let mut pool = PagePool::new(heap.pages(), heap.era(), &PoolParams::default())?;
/// let mut frame = pool.alloc().ok_or("out of memory")?;
/// frame[..5].copy_from_slice(b"hello");
/// let bytes = Bytes::from(frame.filled(5));
/// let tail = bytes.slice(1..);
/// drop(bytes);
/// assert_eq!(&tail[..], b"ello");
/// assert_eq!(pool.stats().inflight, 1, "a part keeps the frame");
/// drop(tail);
/// assert_eq!(pool.stats().inflight, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(feature = "bytes")]
impl<H: Mapper + Send + Sync> From<Buffer<H>> for bytes::Bytes {
    fn from(buffer: Buffer<H>) -> Self {
        Self::from_owner(buffer)
    }
}

/// All bytes of the frame, without a copy; [`Frame::filled`] limits them.
#[cfg(feature = "bytes")]
impl<H: Mapper + Send + Sync> From<Frame<H>> for bytes::Bytes {
    fn from(frame: Frame<H>) -> Self {
        Self::from_owner(frame)
    }
}

/// All bytes of the fragment, without a copy; [`Fragment::filled`] limits them.
#[cfg(feature = "bytes")]
impl<H: Mapper + Send + Sync> From<Fragment<H>> for bytes::Bytes {
    fn from(fragment: Fragment<H>) -> Self {
        Self::from_owner(fragment)
    }
}
