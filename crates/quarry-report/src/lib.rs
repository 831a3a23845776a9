//! Pages that need no network: a finding, tables that sort, and charts with hover and zoom.
//!
//! A [`Page`] is plain data: sections of texts, [`Table`]s and [`Chart`]s. [`Page::html`] makes one file of it, with the
//! scripts and styles inside. Charts are specifications of [Vega-Lite](https://vega.github.io/vega-lite/), which the page
//! embeds (`vega/`); a page without charts is without it. The browser may load nothing: the page says so itself in a
//! content security policy.
//!
//! ```
//! use quarry_report::{Axis, Cell, Chart, Column, Line, Page, Section, Table};
//!
//! let mut table = Table::new([Column::text("design"), Column::number("peak")]);
//! table.row([Cell::text("slub"), Cell::number("2 KiB", 2048.0)]);
//! let line = Line::new("slub", [(0.0, 1.0), (1.0, 2.0)]);
//! let chart = Chart::lines("memory", Axis::linear("seconds"), Axis::linear("KiB"), &[line]);
//! let section = Section::new("Memory").with(table).with(chart);
//! let page = Page::new("Memory of slub").finding("slub needs 2 KiB.").with(section);
//! assert!(page.html().starts_with("<!DOCTYPE html>"));
//! ```
#![forbid(unsafe_code)]

mod chart;
mod page;
mod spec;
mod table;

pub use chart::{Axis, Bar, Chart, Line, LineKind, Range};
pub use page::{Page, Part, Section};
pub use table::{Cell, Column, Row, Table, Tone};
