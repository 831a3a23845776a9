//! Tracepoints in binary form: what tracefs says of their fields, and samples by these formats.
//!
//! ```text
//!   events/kmem/*/format --> Format --> Decoder --sample bytes--> RawEvent
//! ```
//!
//! Samples come in the pages of a tracing ring ([`RingPage`]); those of all CPUs are merged by time.

mod decode;
mod flags;
pub(crate) mod footer;
mod format;
pub(crate) mod merge;
pub(crate) mod names;
mod rcu;
mod ring;
pub(crate) mod stacks;

pub use decode::Decoder;
pub use format::{Field, Format, FormatProblem};
pub use ring::{RingLayout, RingPage};
