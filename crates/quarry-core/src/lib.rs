//! The Linux kernel's slab and page allocators over an abstract machine; no_std, no alloc.
//!
//! One idea carries the crate: an allocator does not know whether its machine is real. Everything
//! it needs to know about CPUs, locks and memory comes through [`machine::Machine`]. So the same
//! code is a process's allocator (`quarry-host`), runs on any number of simulated CPUs
//! (`quarry-sim`), and is driven by model checkers in tests.
//!
//! Layers, bottom up; nothing imports upward:
//!
//! | layer | module |
//! |---|---|
//! | the seam: CPUs, per-CPU try-locks, locks, memory, accounting | [`machine`] |
//! | page descriptors, zones, buddy lists, per-CPU page lists, bulk | [`page`] |
//! | pools of pages that one CPU receives into and all CPUs return | [`pool`] |
//! | what the caches of one heap hang on | [`system`] |
//! | what the designs' slabs and queues share | `slabs`, `queue` |
//! | what a heap's caches do against mistakes | [`debug`], [`harden`] |
//! | the designs, behind [`design::Design`], and the list of them | [`slab`], [`slob`], [`slub`], [`slubq`], [`sheaf`], [`magazine`], [`for_all_designs`] |
//! | named caches, and all that hangs together in one system | [`heap`] |
//! | what a heap shows: slabinfo, sysfs | [`inspect`] |
//!
//! [`era`], [`geometry`] and [`tunables`] are pure data and functions that every layer may use.
#![no_std]

#[cfg(any(test, loom))]
extern crate std;

mod array;
pub mod debug;
pub mod design;
mod designs;
pub mod era;
mod error;
mod front;
pub mod geometry;
pub mod harden;
pub mod heap;
pub mod inspect;
pub mod machine;
pub mod magazine;
pub mod merge;
pub mod name;
pub mod page;
pub mod pool;
mod protection;
mod queue;
mod rcu;
mod rest;
pub mod sheaf;
pub mod slab;
mod slabs;
pub mod slob;
pub mod slub;
pub mod slubq;
mod stack;
pub mod stats;
mod sync;
pub mod system;
pub mod tunables;
