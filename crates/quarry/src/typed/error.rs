//! Reasons for which a cache or an object is not made.

use quarry_core::heap::CreateError;
use quarry_core::name::NameError;

/// The reason for which a [`Cache`](crate::Cache) was not made.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CacheError {
    /// The name is none for a cache.
    Name(NameError),
    /// The type is aligned to more than a page.
    Alignment {
        /// Alignment of the type in bytes.
        align: usize,
        /// Page size of the heap in bytes.
        page_size: usize,
    },
    /// The process has all typed caches that it can have.
    TooMany,
    /// The heap of the process, which statics use, cannot be made: [`Kmalloc::heap`](crate::Kmalloc::heap) says why.
    Process,
    /// The heap has no room, or the design no geometry.
    Create(CreateError),
}

impl std::fmt::Display for CacheError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(error) => error.fmt(f),
            Self::Alignment { align, page_size } => write!(
                f,
                "a type aligned to {align} bytes in a heap with pages of {page_size}: choose a larger \
                 page size"
            ),
            Self::TooMany => write!(
                f,
                "the process has {} caches: destroy some",
                super::entry::ENTRIES
            ),
            Self::Process => {
                f.write_str("the heap of the process cannot be made: `Kmalloc::heap` says why")
            }
            Self::Create(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CacheError {}

/// There is no memory for an object. Has the value that it was for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AllocError<T>(pub T);

impl<T> std::fmt::Display for AllocError<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the heap has no memory for an object of type {}: free some, or build it with more \
             `memory_bytes`",
            std::any::type_name::<T>()
        )
    }
}

impl<T> std::error::Error for AllocError<T> {}

quarry_core::debug_is_display!(CacheError);

impl<T> std::fmt::Debug for AllocError<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}
