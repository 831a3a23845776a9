//! Writing to stdout: tables, JSON and CSV; and notes on stderr.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;

use anyhow::Context;
use comfy_table::{Cell, CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};
use indicatif::{ProgressBar, ProgressStyle};
use quarry_core::era::Era;
use quarry_machines::Machine;

use quarry_trace::{Existing, OutFile};
use quarry_view::frame::schema::meanings;
use quarry_view::frame::{Frame, Values};
use quarry_view::{Doc, View};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::error::usage;

/// Width of a table if neither `COLUMNS` nor a terminal gives one.
const WIDTH_DEFAULT: u16 = 80;

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

/// A table of names and values, without a header.
pub(crate) fn card() -> Table {
    let mut table = Table::new();
    table
        .load_style(STYLE)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(width());
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

/// Writes a note to stderr, for results that may surprise.
pub(crate) fn note(text: &str) {
    // Nothing can be done if stderr is closed.
    let _ = writeln!(io::stderr().lock(), "quarry: note: {}", visible(text));
}

/// Notes on stderr what is uncertain about releases, once for each.
pub(crate) fn note_eras(eras: impl IntoIterator<Item = Era>) {
    for era in BTreeSet::from_iter(eras) {
        if let Some(text) = era.note() {
            note(&format!("Linux {era}: {text}"));
        }
    }
}

/// Notes on stderr what numbers of CPUs stand for that the machine itself does not have, once for each.
pub(crate) fn note_cpus(machine: &Machine, cpus: impl IntoIterator<Item = u32>) {
    let beyond = BTreeSet::from_iter(cpus);
    let beyond = beyond.into_iter().filter_map(|cpus| machine.beyond(cpus));
    beyond.for_each(|text| note(&text));
}

/// Settings as they were given, in a line; empty if there are none.
pub(crate) fn settings_line(settings: &[String]) -> String {
    match settings {
        [] => String::new(),
        some => format!("settings: --set {}\n", some.join(" --set ")),
    }
}

/// Lets a table grow beyond the width rather than break its cells.
fn unbroken(mut table: Table) -> Table {
    table.set_content_arrangement(ContentArrangement::Disabled);
    table
}

/// Tables of these rows, the header first, as wide as the output: columns that do not fit go to a table below it, which
/// begins with the first column again. A cell may have lines.
fn groups(rows: &[Vec<String>], text_columns: &[usize]) -> Vec<String> {
    let columns = rows.first().map_or(0, Vec::len);
    let width_of = |column: usize| {
        let lines = rows
            .iter()
            .filter_map(|row| row.get(column))
            .flat_map(|cell| cell.lines());
        // A space on both sides, and one between columns.
        lines.map(|line| line.chars().count()).max().unwrap_or(0) + 3
    };
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut taken = 0;
    for column in 1..columns {
        let wide = width_of(column);
        match groups.last_mut() {
            Some(group) if taken + wide <= usize::from(width()) + 1 => group.push(column),
            _ => {
                groups.push(vec![column]);
                taken = width_of(0);
            }
        }
        taken += wide;
    }
    let table_of = |group: &Vec<usize>| {
        let cells = |row: &Vec<String>| -> Vec<String> {
            let at = std::iter::once(0).chain(group.iter().copied());
            at.filter_map(|column| row.get(column).cloned()).collect()
        };
        let mut rows = rows.iter().map(cells);
        let header = rows.next().unwrap_or_default();
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        let text = |at: &usize| {
            group
                .get(at - 1)
                .is_some_and(|of| text_columns.contains(of))
        };
        let text: Vec<usize> = (1..=group.len()).filter(text).collect();
        let mut table = unbroken(table(&header, &text));
        table.add_rows(rows);
        table.to_string()
    };
    groups.iter().map(table_of).collect()
}

/// A run's title as the header of a column: what is in brackets has lines of its own.
pub(crate) fn column(title: &str) -> String {
    let Some((design, set)) = title.split_once(" (") else {
        return title.to_string();
    };
    let set = set.trim_end_matches(')').replace(' ', "\n");
    format!("{design}\n{set}")
}

/// A table that is never wider than the output: its columns go into tables below each other.
pub(crate) struct Grid {
    rows: Vec<Vec<String>>,
    text_columns: Vec<usize>,
}

/// A [`Grid`] with a header; columns after the first are numbers unless `text_columns` names them.
pub(crate) fn grid(header: &[&str], text_columns: &[usize]) -> Grid {
    Grid {
        rows: vec![header.iter().map(ToString::to_string).collect()],
        text_columns: text_columns.to_vec(),
    }
}

impl Grid {
    /// Adds a row with a cell for each column.
    pub(crate) fn add_row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }
}

impl fmt::Display for Grid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&groups(&self.rows, &self.text_columns).join("\n\n"))
    }
}

/// Breaks a sentence at words into lines as wide as the output, each indented as the first.
pub(crate) fn wrap(text: &str) -> String {
    let indent = text.len() - text.trim_start().len();
    let width = usize::from(width()).saturating_sub(indent);
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in words(text) {
        let after = line.chars().count() + 1 + word.chars().count();
        if !line.is_empty() && after > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&word);
    }
    lines.push(line);
    let indent = &text[..indent];
    format!("{indent}{}", lines.join(&format!("\n{indent}")))
}

/// Words of a text; a number keeps its groups of digits and its unit.
fn words(text: &str) -> Vec<String> {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "%", "CPUs"];
    let number = |word: &str| {
        word.chars()
            .all(|c| c.is_ascii_digit() || "+-.".contains(c))
    };
    let mut words: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let bare = word.trim_end_matches([',', ';', '.', ':', ')']);
        let digits = bare.len() == 3 && bare.chars().all(|c| c.is_ascii_digit());
        match words.last_mut() {
            Some(last)
                if (digits || UNITS.contains(&bare))
                    && number(last.rsplit(['(', ' ']).next().unwrap_or("a")) =>
            {
                last.push(' ');
                last.push_str(word);
            }
            _ => words.push(word.to_string()),
        }
    }
    words
}

/// Writes a table as comma-separated values, these columns first.
pub(crate) fn print_csv(mut table: Frame, first: &[&str]) -> anyhow::Result<()> {
    table.lead(first);
    print(|out| {
        let names = table.fields().iter().map(|field| quoted(&field.name));
        writeln!(out, "{}", names.collect::<Vec<_>>().join(","))?;
        for row in 0..table.rows() {
            let cell = |column: &Values| match column.value(row) {
                Value::Null => String::new(),
                Value::String(text) => quoted(&text),
                other => other.to_string(),
            };
            let cells: Vec<String> = table.columns().iter().map(cell).collect();
            writeln!(out, "{}", cells.join(","))?;
        }
        Ok(())
    })
}

/// A field of comma-separated values by RFC 4180.
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_string(),
    }
}

/// The option of commands that write files.
#[derive(Clone, Copy, clap::Args)]
pub(crate) struct Force {
    /// Replace output files that exist; without it they are kept, and the command is refused.
    #[arg(long)]
    force: bool,
}

impl Force {
    /// The fate of a file that has the name of an output.
    pub(crate) fn existing(self) -> Existing {
        match self.force {
            true => Existing::Replace,
            false => Existing::Keep,
        }
    }
}

/// Refuses a file that [`write_to`] could not write, before the work for it is done.
pub(crate) fn check_writable(path: &Path, force: Force) -> anyhow::Result<()> {
    if !is_stdout(path) && !is_stream(path) {
        OutFile::create(path, force.existing())?;
    }
    Ok(())
}

/// Refuses a page that cannot be written, before the work for it is done; `json` is true if that goes to stdout.
pub(crate) fn check_page(path: &Path, json: bool, force: Force) -> anyhow::Result<()> {
    if is_stdout(path) && json {
        return Err(usage(
            "--html - and --json both write to stdout; name a file for the page",
        ));
    }
    check_writable(path, force)
}

/// Writes to a file, which appears when it is complete, or to stdout for `-`.
pub(crate) fn write_to(path: &Path, text: &str, force: Force) -> anyhow::Result<()> {
    if is_stdout(path) {
        return print(|out| out.write_all(text.as_bytes()));
    }
    let failed = || format!("cannot write {}", path.display());
    if is_stream(path) {
        return std::fs::write(path, text).with_context(failed);
    }
    let mut out = OutFile::create(path, force.existing())?;
    out.file().write_all(text.as_bytes()).with_context(failed)?;
    out.commit()?;
    Ok(())
}

/// True for a device or a pipe, which holds nothing that could be replaced.
fn is_stream(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// True if an output file is stdout.
pub(crate) fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// Rejects a trace on stdout if that is a terminal, or has the JSON.
pub(crate) fn check_binary(path: &Path, json: bool) -> anyhow::Result<()> {
    match is_stdout(path) {
        true if json => Err(usage(
            "the trace and --json would both go to stdout; name a file with -o",
        )),
        true if io::stdout().is_terminal() => Err(usage(
            "stdout is a terminal, which cannot show a trace; use a pipe, or name a file with -o",
        )),
        _ => Ok(()),
    }
}

/// Writes tables to stderr, because stdout has the output itself.
pub(crate) fn beside(text: &str) {
    let mut stderr = io::stderr().lock();
    for line in text.trim_end().lines() {
        // Nothing can be done if stderr is closed.
        let _ = writeln!(stderr, "{}", visible(line.trim_end()));
    }
}

/// Writes tables and lines to stdout; sentences are broken at the output's width.
pub(crate) fn print_text(text: &str) -> anyhow::Result<()> {
    print(|out| {
        for line in text.trim_end().lines() {
            for line in fitting(line.trim_end()).lines() {
                writeln!(out, "{}", visible(line))?;
            }
            if line.trim().is_empty() {
                writeln!(out)?;
            }
        }
        Ok(())
    })
}

/// A line that fits the output. Rows of tables, whose cells have spaces between them, stay as they are.
fn fitting(line: &str) -> Cow<'_, str> {
    let row = line.trim_start().contains("   ");
    match line.chars().count() > usize::from(width()) && !row {
        true => Cow::Owned(wrap(line)),
        false => Cow::Borrowed(line),
    }
}

/// The shape of JSON outputs. A field that changes its meaning or goes away raises it; new fields do not.
pub(crate) const SCHEMA: u32 = 1;

/// Members of every JSON output, followed by the command's own.
#[derive(JsonSchema, Serialize)]
struct Document<'a, B> {
    /// 1: shape of the document. It rises when a field goes away or changes its meaning; new fields do not
    /// raise it.
    schema: u32,
    /// Program that made the output.
    quarry: Producer,
    /// Command that made the output.
    command: &'a str,
    /// Members of the command.
    #[serde(flatten)]
    body: B,
}

/// Program that made an output.
#[derive(JsonSchema, Serialize)]
struct Producer {
    /// Version of the program.
    version: &'static str,
}

/// A bar on stderr of how much is done, hidden unless that is a terminal: `replay [####] 3 of 8 events, 2 s left`.
pub(crate) fn progress_bar(name: &str, total: u64, what: &str) -> ProgressBar {
    let template =
        format!("{name} [{{bar:40}}] {{human_pos}} of {{human_len}} {what}, {{eta}} left");
    on_terminal(ProgressBar::new(total), &template)
}

/// The bar on stderr in this form, hidden unless that is a terminal.
pub(crate) fn on_terminal(bar: ProgressBar, template: &str) -> ProgressBar {
    match (
        io::stderr().is_terminal(),
        ProgressStyle::with_template(template),
    ) {
        (true, Ok(style)) => bar.with_style(style),
        // Templates are constants and names; if one were wrong the default style would do.
        (true, Err(_)) => bar,
        (false, _) => ProgressBar::hidden(),
    }
}

/// Settings as given.
#[derive(Clone, JsonSchema, Serialize)]
pub(crate) struct Asked {
    /// `--set`, as given.
    pub(crate) set: Vec<String>,
    /// `--at`, as given; left out by commands without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) at: Option<Vec<String>>,
    /// Heap of another machine on which runs began: the file that was given, or `bundled`; left out if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) heap: Option<String>,
}

impl Asked {
    /// Settings of a command that has tunables alone.
    pub(crate) fn tunables(set: &[String]) -> Self {
        Self {
            set: set.to_vec(),
            at: None,
            heap: None,
        }
    }
}

/// Members of a command that has nothing but answers.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Runs<'a, R> {
    /// Answers.
    pub(crate) runs: &'a [R],
}

impl<'a, B> Document<'a, B> {
    fn new(command: &'a str, body: B) -> Self {
        Self {
            schema: SCHEMA,
            quarry: Producer {
                version: env!("CARGO_PKG_VERSION"),
            },
            command,
            body,
        }
    }
}

/// Writes a command's fields to stdout as one JSON object.
pub(crate) fn print_json(command: &str, body: &impl Serialize) -> anyhow::Result<()> {
    print_value(&Document::new(command, body))
}

/// The document that [`print_json`] prints.
pub(crate) fn doc(command: &str, body: &impl Serialize) -> anyhow::Result<Doc> {
    Ok(Doc {
        file: String::new(),
        content: serde_json::to_value(Document::new(command, body))?,
    })
}

/// Writes the page of a view of what a command prints as JSON, whose members have meanings by their paths.
pub(crate) fn write_page(
    path: &Path,
    view: View,
    of: &[Doc],
    meanings: &BTreeMap<String, String>,
    force: Force,
) -> anyhow::Result<()> {
    let mut view = view.with_origin(of);
    view.explain(meanings);
    write_to(path, &quarry_report::html(&view), force)
}

/// The view of a command's answer, written as a page if that was asked for.
pub(crate) fn viewed<B: Serialize + JsonSchema>(
    command: &str,
    body: &B,
    view: fn(&[Doc]) -> View,
    html: Option<&Path>,
    force: Force,
) -> anyhow::Result<View> {
    let doc = [doc(command, body)?];
    let view = view(&doc);
    if let Some(path) = html {
        write_page(path, view.clone(), &doc, &meanings::<B>(), force)?;
    }
    Ok(view)
}

/// Writes one JSON value to stdout.
pub(crate) fn print_value(value: &impl Serialize) -> anyhow::Result<()> {
    print(|out| {
        serde_json::to_writer_pretty(&mut *out, value)?;
        writeln!(out)
    })
}

/// At most this many letters of a text; dots stand for the rest.
pub(crate) fn shortened(text: &str, chars: usize) -> String {
    if text.chars().count() <= chars {
        return text.to_string();
    }
    let kept = text.chars().take(chars.saturating_sub(3));
    format!("{}...", kept.collect::<String>())
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
