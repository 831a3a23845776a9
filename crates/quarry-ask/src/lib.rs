//! Questions, each described once.
//!
//! A question is a struct of typed values, declared with [`question!`]. Its fields are data ([`Field`]): every door reads
//! them, and none knows a field by name. From them come the command's options ([`clap`](crate::Asked)), a plan's keys, the
//! keywords of Python, and the text whose hash names an answer ([`canonical`]).
//!
//! ```
//! use std::path::Path;
//! use quarry_ask::{Axis, Door, PageBytes, cells, question, read};
//! use serde_json::json;
//!
//! question! {
//!     /// A question.
//!     pub struct Example {
//!         /// Page sizes.
//!         page_size: Axis<PageBytes>, value("BYTES");
//!         /// CPUs.
//!         cpus: Axis<u32>;
//!     }
//! }
//!
//! let given = json!({"page-size": ["4k", 65536], "cpus": "1..3"});
//! let asked: Example = read(&[(given.as_object().unwrap(), Path::new(""))], Door::Plan)?;
//! assert_eq!(asked.page_size.all(), [PageBytes(4096), PageBytes(65536)]);
//! assert_eq!(cells(&asked, |_| true).len(), 6);
//! # Ok::<(), String>(())
//! ```

#![forbid(unsafe_code)]

#[cfg(feature = "clap")]
mod clap;
mod field;
mod read;
mod slot;
mod stub;
#[cfg(test)]
mod tests;
mod value;

#[cfg(feature = "clap")]
pub use crate::clap::Asked;
pub use field::{Door, Field, Part, Rank, fields};
pub use read::{Layer, axes, canonical, cells, object, of, outer, plain, read, settings};
pub use serde_json::Value as Json;
pub use slot::{Axis, Listed, Parsed, Settings, Slot};
pub use stub::stub;
pub use value::{Bytes, DesignName, Kind, MachineFile, PageBytes, Release, Size, Time, Value};
