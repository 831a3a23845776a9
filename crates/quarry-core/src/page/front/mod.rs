//! The calls of the page allocator, on the per-CPU lists first.
//!
//! `fast.rs` has the short ways of single blocks and `stepped.rs` those of bulk calls; `alloc.rs`, `free.rs` and
//! `bulk.rs` have all others. `owned.rs` and `refs.rs` are the handles that free their block.

mod alloc;
mod bulk;
mod fast;
mod free;
mod owned;
mod refs;
mod stepped;

pub use owned::OwnedBlock;
pub use refs::SharedBlock;
