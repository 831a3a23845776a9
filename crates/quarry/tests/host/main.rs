//! The library on this process's own memory and CPUs, in tests that may run side by side.
//!
//! `host_stress` has those that use process-wide things, one at a time; `host_fork_order` has a process of its own,
//! because its handler of forks waits for its own test.

mod af_xdp;
mod allocator;
mod debug;
mod examples;
mod inspect;
mod memory;
mod page_config;
mod pool_stats;
mod rcu;
mod walks;
