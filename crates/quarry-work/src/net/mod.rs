//! The network side of workloads: which objects a message takes, by release.

mod sizes;

pub use sizes::{DataFrom, NetRules, SendSizes};
