//! Sweeps: one question about many inputs under many settings, and tables of the answers.
#![forbid(unsafe_code)]

pub mod table;
