//! Pages that need no network: a finding, tables that sort, and charts with hover and zoom.
//!
//! [`html`] makes one file of a [`View`], with the scripts and styles inside. Charts are specifications of
//! [Vega-Lite](https://vega.github.io/vega-lite/), which the page embeds (`vega/`); a page without such charts is without it. The
//! browser may load nothing: the page says so itself in a content security policy. [`html_beside`] takes the library from a file
//! beside it, which many pages of a folder share.
//!
//! [`View`]: quarry_view::View
//!
//! ```
//! use quarry_view::{Axis, Cell, Chart, Column, Line, Section, Table, View};
//!
//! let mut table = Table::new([Column::text("design"), Column::number("peak")]);
//! table.row([Cell::text("slub"), Cell::number("2 KiB", 2048.0)]);
//! let line = Line::new("slub", [(0.0, 1.0), (1.0, 2.0)]);
//! let chart = Chart::lines("memory", Axis::linear("seconds"), Axis::linear("KiB"), vec![line]);
//! let section = Section::new("Memory").with(table).with(chart);
//! let view = View::new("Memory of slub").finding("slub needs 2 KiB.").with(section);
//! assert!(quarry_report::html(&view).starts_with("<!DOCTYPE html>"));
//! ```
#![forbid(unsafe_code)]

mod chart;
mod page;
mod spec;
mod table;

pub use page::{LIBRARY, html, html_beside, library};
