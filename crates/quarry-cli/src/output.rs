//! What goes to stdout, tables and JSON, and notes beside it.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::{self, BufWriter, IsTerminal, Write};

use anyhow::Context;
use comfy_table::{Cell, CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};
use quarry_core::era::Era;
use serde::Serialize;

/// Width of a table if neither `COLUMNS` nor a terminal gives one.
const WIDTH_DEFAULT: u16 = 100;

/// A line under the header and nothing else, so that a table can be searched and cut.
const STYLE: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// Columns of the output: `COLUMNS`, else the terminal's.
pub(crate) fn width() -> u16 {
    let from_env = std::env::var("COLUMNS")
        .ok()
        .and_then(|text| text.parse().ok());
    let from_terminal = || {
        let terminal = console_width()?;
        io::stdout().is_terminal().then_some(terminal)
    };
    from_env
        .or_else(from_terminal)
        .unwrap_or(WIDTH_DEFAULT)
        .max(40)
}

/// The terminal's width as the table library sees it.
fn console_width() -> Option<u16> {
    Table::new().width()
}

/// A table with a header; columns after the first are numbers unless `text_columns` names them.
pub(crate) fn table(header: &[&str], text_columns: &[usize]) -> Table {
    let mut table = Table::new();
    table
        .load_style(STYLE)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(width());
    table.set_header(header.iter().enumerate().map(|(column, name)| {
        let left = column == 0 || text_columns.contains(&column);
        Cell::new(name).set_alignment(alignment(left))
    }));
    for (index, column) in table.column_iter_mut().enumerate() {
        let left = index == 0 || text_columns.contains(&index);
        column.set_cell_alignment(alignment(left));
    }
    table
}

fn alignment(left: bool) -> CellAlignment {
    if left {
        CellAlignment::Left
    } else {
        CellAlignment::Right
    }
}

/// Writes to stdout and flushes.
pub(crate) fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    write(&mut out)
        .and_then(|()| out.flush())
        .context("cannot write to stdout")
}

/// Tells on stderr what the user may not expect.
pub(crate) fn note(text: &str) {
    // Nothing can be done if stderr is closed.
    let _ = writeln!(io::stderr().lock(), "quarry: note: {}", visible(text));
}

/// Tells on stderr what is uncertain about releases, once for each.
pub(crate) fn note_eras(eras: impl IntoIterator<Item = Era>) {
    for era in BTreeSet::from_iter(eras) {
        if let Some(text) = era.note() {
            note(&format!("Linux {era}: {text}"));
        }
    }
}

/// Lets a table grow beyond the width rather than break its cells.
pub(crate) fn unbroken(mut table: Table) -> Table {
    table.set_content_arrangement(ContentArrangement::Disabled);
    table
}

/// Writes tables and lines to stdout.
pub(crate) fn print_text(text: &str) -> anyhow::Result<()> {
    print(|out| {
        for line in text.trim_end().lines() {
            writeln!(out, "{}", visible(line.trim_end()))?;
        }
        Ok(())
    })
}

/// The shape of JSON outputs. A field that changes its meaning or goes away raises it; new fields do not.
const SCHEMA: u32 = 1;

/// What every JSON output has beside the command's own fields (docs/json.md).
#[derive(Serialize)]
struct Document<'a, B> {
    schema: u32,
    quarry: Producer,
    command: &'a str,
    #[serde(flatten)]
    body: B,
}

/// The program that made an output.
#[derive(Serialize)]
struct Producer {
    version: &'static str,
}

/// The fields of a command that has nothing but answers.
#[derive(Serialize)]
pub(crate) struct Runs<'a, R> {
    pub(crate) runs: &'a [R],
}

/// Writes a command's fields to stdout as one JSON object.
pub(crate) fn print_json(command: &str, body: &impl Serialize) -> anyhow::Result<()> {
    print_value(&Document {
        schema: SCHEMA,
        quarry: Producer {
            version: env!("CARGO_PKG_VERSION"),
        },
        command,
        body,
    })
}

/// Writes one JSON value to stdout.
pub(crate) fn print_value(value: &impl Serialize) -> anyhow::Result<()> {
    print(|out| {
        serde_json::to_writer_pretty(&mut *out, value)?;
        writeln!(out)
    })
}

/// The text with escapes in place of what changes a terminal: control characters, and those that change
/// the direction of writing. A trace's names may hold anything.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    let acts =
        |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::new();
    for c in text.chars() {
        if acts(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_on_a_terminal_is_shown() {
        assert_eq!(visible("a\u{1b}[2Jb\n"), "a\\u{1b}[2Jb\\n");
        assert_eq!(visible("x\u{202e}y"), "x\\u{202e}y");
        assert_eq!(visible("plain ä"), "plain ä");
    }
}
