//! Real machines as data, for virtual machines with clocks.
//!
//! A machine is a file: topology, caches, and what each access and each piece of work costs. Every cost has a source and
//! a range from low to high; one that no stored measurement backs is `unverified`. Nothing in these files is fitted to a
//! result of Quarry.
//!
//! ```
//! use quarry_core::era::Era;
//! use quarry_machines::{Draw, Machine};
//! use quarry_sim::Config;
//!
//! let machine = Machine::bundled("haswell-ep-2x12").unwrap();
//! let config = machine.config(12, Era::V4_13, &Draw::VALUES, 1, Config::default()).unwrap();
//! assert_eq!((config.cpus, config.nodes), (12, 1));
//! // The 13th is on its second socket.
//! let config = machine.config(13, Era::V4_13, &Draw::VALUES, 1, Config::default()).unwrap();
//! assert_eq!((config.cpus, config.nodes), (13, 2));
//! ```
//!
//! # A file
//!
//! ```toml
//! about = "2 x Intel Xeon E5-2680 v3 (Haswell-EP), 2.5 GHz, 12 cores each"
//! ghz = 2.5
//!
//! [topology]            # CPUs of a cluster share the last cache; sockets have clusters
//! sockets = 2
//! clusters = 1
//! cpus = 12
//! nodes = 2             # memory: one node a socket, or one for all
//! line_bytes = 64
//! source = "where this is from"
//!
//! [cache]               # l2 and llc may be left out
//! l1 = { bytes = 32768, ways = 8 }
//! llc = { bytes = 31457280, ways = 20, inclusive = true, hashed = true }
//!
//! [latency]             # every cost has one unit, a range and a source
//! l1 = { cycles = 4, low = 4, high = 5, source = "where this is from" }
//! dirty_cluster = { ns = 50, low = 44, high = 53, source = "from memory", unverified = true }
//!
//! [work]                # drain_object, unix_message, tcp_segment, micro_call, lru_page may be left out
//! # ...
//!
//! [network]             # may be left out: gigabit cards of 2010 (Machine::with_network)
//! interrupt_every = { ns = 20000, low = 20000, high = 20000, source = "ethtool -c" }
//! queues = { queues = 1, low = 1, high = 1, source = "/proc/interrupts" }
//! ```
//!
//! [`Key`] has all keys with their meaning.
#![forbid(unsafe_code)]

mod bundled;
mod cost;
mod defaults;
mod draw;
mod error;
mod file;
mod key;
mod machine;
mod model;
mod text;

pub use bundled::{BUNDLED, DEFAULT_MACHINE};
pub use cost::{Cost, Unit};
pub use draw::Draw;
pub use error::MachineError;
pub use key::Key;
pub use machine::{Cache, Caches, Machine, Topology};
