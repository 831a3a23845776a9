//! Answers as people and programs read them.
//!
//! [`frame`] has typed columns, made of any report by its type, for Parquet, Arrow and comma-separated values. [`rows`] names
//! the figures of a table of runs, [`units`] prints numbers.
#![forbid(unsafe_code)]

pub mod frame;
pub mod rows;
pub mod units;
