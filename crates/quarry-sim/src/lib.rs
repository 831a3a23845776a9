//! A deterministic virtual machine with any number of CPUs and nodes.
//!
//! One OS thread runs one [`VirtualMachine`]; its driver says on which virtual CPU the next
//! operation runs ([`VirtualMachine::run_on`]). Operations run to their end, one after the other,
//! so locks are never contended; what a real machine would do in between is made to happen on
//! purpose: try-locks fail by seed ([`Faults`]), which drives every fallback path.
//!
//! The machine counts what allocators do ([`Counters`]): calls, cache-line touches by kind, lock
//! acquisitions, frees on another CPU than the allocating one. Same input, same counts: nothing
//! here reads a clock, an address or a thread id. The clock stands still unless
//! [`VirtualMachine::advance_to`] moves it.
//!
//! With [`Config::time`] the CPUs have clocks of their own. [`VirtualMachine::run_cpus`] runs them side by
//! side: the same steps then take time, lines move between CPUs, and locks are waited for ([`time`]).
//! [`VirtualMachine::explore`] runs tasks side by side without time: a seed says who goes on at each step.
//!
//! ```
//! use quarry_core::{design::CacheSpec, era::Era, geometry::BootParams};
//! use quarry_core::{heap::Heap, machine::CpuId, slub::Slub};
//! use quarry_sim::{Config, VirtualMachine};
//!
//! let machine = VirtualMachine::new(Config { cpus: 64, ..Config::default() }).unwrap();
//! let heap = Heap::<_, Slub>::new(machine, Era::V6_18, BootParams::default()).unwrap();
//! let spec = CacheSpec::new("demo", 256);
//! let cache = heap.create_cache(&spec).unwrap();
//! heap.machine().run_on(CpuId(5));
//! let object = cache.alloc().unwrap();
//! heap.machine().run_on(CpuId(9));
//! // SAFETY: the object was allocated above and is not used any more.
//! unsafe { cache.free(object) }.unwrap();
//! assert_eq!(cache.usage().slabs, 1);
//! // SAFETY: there is no other handle to the cache.
//! unsafe { cache.destroy() }.unwrap();
//! ```

mod config;
mod counters;
pub mod driver;
mod explore;
mod guarded;
mod held;
mod machine;
mod memory;
mod pool;
mod rng;
pub mod sched;
mod step;
pub mod time;

pub use config::{Config, ConfigError, Faults, PAGE_BYTES, PAGES_MAX};
pub use counters::{Counters, Looks};
pub use explore::{Explore, Explored};
pub use machine::{Passage, VirtualMachine};
pub use pool::{LonePut, PoolDriver, PoolHome, PoolRef};
pub use rng::Rng;
pub use step::Step;
