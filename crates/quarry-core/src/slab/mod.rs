//! SLAB.
pub mod geometry;
