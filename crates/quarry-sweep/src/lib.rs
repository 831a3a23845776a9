//! Sweeps: one question about many inputs under many settings, with rows of the answers in a folder of Parquet files.
//!
//! # Idea
//!
//! A [`Plan`] is a cross product: every input with every value of every axis. [`Sweep::of`] examines the inputs, and makes a
//! [`Cell`] of each combination. A cell is known by a hash of all that its answer depends on: the content of the input, the
//! settings, the seed and the version. [`Chunk`]s are cells that follow each other, of some seconds each; they are the same
//! on every machine. A chunk needs nothing but its own text and the files of its inputs, so a thread, a process or a task of
//! a cluster runs it, and its rows are the same bytes. [`Folder`] keeps them.
//!
//! ```text
//!   plan ──> Sweep: inputs x settings ──> cells ──> chunks ──> Chunk::run ──> Part ──> Folder
//!              names, digests               ids                threads, processes, cluster   part-*.parquet
//! ```
//!
//! # What is kept
//!
//! Each chunk leaves `part-ID.parquet`, and with [`Sweep::caches`] `caches-ID.parquet`. They appear when they are whole. A
//! run looks at the ids in them and leaves these cells out, so a run that was killed goes on where it was. What a cell
//! took is in `costs-ID.parquet`, apart from the rows, since it differs from run to run.
//!
//! # Errors
//!
//! A cell that fails is a row with its error. Only what concerns all cells is a [`SweepError`].
#![forbid(unsafe_code)]

mod answer;
mod cell;
mod error;
mod execute;
mod folder;
mod inputs;
mod plan;
mod rows;
mod shard;
mod status;
mod sweep;
pub mod table;
mod version;

pub use answer::{Here, Part};
pub use cell::{Asked, Cell, Chunk};
pub use error::SweepError;
pub use execute::{Left, Options, Outcome, free_bytes};
pub use folder::{Done, Folder, Mark, Merged};
pub use inputs::{Input, Inputs, bytes_digest, digest, input_names};
pub use plan::Plan;
pub use rows::{ASK_KEY, VERSION_KEY};
pub use shard::Shard;
pub use status::Status;
pub use sweep::{Estimate, Sweep};
pub use version::version;
