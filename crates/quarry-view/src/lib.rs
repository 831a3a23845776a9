//! Answers as people and programs read them.
//!
//! ```text
//!   report ── Frame: typed columns by its type ──────────> Parquet, Arrow, comma-separated values
//!     JSON ── Doc ── Spec: columns by path ── View ──────> terminal, page
//! ```
//!
//! [`frame`] makes typed columns of any report. A [`Spec`] names members of an answer as columns of a table, with their forms; a
//! [`View`] is what was found, in sentences, tables and charts. It is made of a [`Doc`], an answer as JSON, so that one of a
//! file is shown as that of a command. Renderers know no answer, and `quarry explain` reads the same columns.
#![forbid(unsafe_code)]

mod chance;
mod chart;
mod column;
mod doc;
pub mod figure;
pub mod frame;
mod grid;
mod table;
pub mod units;
pub mod value;
mod view;

pub use chance::is_chance;
pub use chart::{Axis, Bar, Cells, Chart, Drawing, Frame, Kind, Line, LineKind, Range, Scale};
pub use column::{Column, Form, Level, Spec, column};
pub use doc::{Doc, file_name, headed, runs, short_names, without_folders};
pub use grid::{Grid, GridAxis, IDENTITY, plain};
pub use table::{Cell, Row, Table, Tone};
pub use view::{Part, Section, View, meaning};

/// Items by what they have in common, in the order in which each of that comes first.
#[must_use]
pub fn grouped<K: PartialEq, T>(items: impl Iterator<Item = (K, T)>) -> Vec<(K, Vec<T>)> {
    let mut groups: Vec<(K, Vec<T>)> = Vec::new();
    for (key, item) in items {
        match groups.iter_mut().find(|(other, _)| *other == key) {
            Some((_, group)) => group.push(item),
            None => groups.push((key, vec![item])),
        }
    }
    groups
}
