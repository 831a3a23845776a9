//! Parts of the stress test of whole heaps.

pub(crate) mod broken;
pub(crate) mod forks;
pub(crate) mod owner;
pub(crate) mod pages;
pub(crate) mod storm;
pub(crate) mod sys;
pub(crate) mod worker;
pub(crate) mod world;
