//! Answers as JSON, CSV, pages and files.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use quarry_ask::{Field, Json, Kind, Part, fields, object};
use quarry_core::era::Era;
use quarry_machines::Machine;
use quarry_trace::{Existing, OutFile};
use quarry_view::frame::schema::{Member, meanings};
use quarry_view::frame::{Frame, Values};
use quarry_view::{Doc, View};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Map;

use crate::error::usage;
use crate::terminal::{note, print};

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

/// Writes a table as comma-separated values, these columns first.
pub(crate) fn print_csv(mut table: Frame, first: &[&str]) -> anyhow::Result<()> {
    table.lead(first);
    print(|out| {
        let names = table.fields().iter().map(|field| quoted(&field.name));
        writeln!(out, "{}", names.collect::<Vec<_>>().join(","))?;
        for row in 0..table.rows() {
            let cell = |column: &Values| match column.value(row) {
                Json::Null => String::new(),
                Json::String(text) => quoted(&text),
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
    /// The option, if it was given in another form.
    pub(crate) fn given(force: bool) -> Self {
        Self { force }
    }

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

/// Options of the page of an answer.
#[derive(Clone, clap::Args)]
pub(crate) struct Page {
    /// Write a page with tables and charts as well, which needs no network. `-` is stdout.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Put the library of charts into a file beside the page, once for all pages of a folder.
    #[arg(long, requires = "html")]
    assets: bool,
}

/// Options of commands whose answers have pages.
#[derive(clap::Args)]
pub(crate) struct PageArgs {
    #[command(flatten)]
    pub(crate) page: Page,
    #[command(flatten)]
    pub(crate) force: Force,
}

impl PageArgs {
    /// Refuses a page that cannot be written, before the work for it is done; `printed` is true if something else goes to
    /// stdout.
    pub(crate) fn check(&self, printed: bool) -> anyhow::Result<()> {
        let Some(path) = &self.page.html else {
            return Ok(());
        };
        if is_stdout(path) && self.page.assets {
            return Err(usage(
                "--assets puts a file beside the page; name a file for the page, not --html -",
            ));
        }
        if is_stdout(path) && printed {
            return Err(usage(
                "two outputs: --html - and --json (or --csv, --folded) both write to stdout; name a file for the page",
            ));
        }
        check_writable(path, self.force)
    }

    /// True if a page was asked for.
    pub(crate) fn is_asked(&self) -> bool {
        self.page.html.is_some()
    }

    /// True if the page goes to stdout.
    pub(crate) fn is_stdout(&self) -> bool {
        self.page.html.as_deref().is_some_and(is_stdout)
    }

    /// Writes the page of a view of outputs, if one was asked for.
    pub(crate) fn write_of(
        &self,
        view: &View,
        of: &[Doc],
        meanings: Meanings,
    ) -> anyhow::Result<()> {
        if !self.is_asked() {
            return Ok(());
        }
        let mut view = view.clone().with_origin(of);
        view.explain(&meanings());
        self.write(&view)
    }

    /// Writes the page of a view, if one was asked for.
    pub(crate) fn write(&self, view: &View) -> anyhow::Result<()> {
        let Some(path) = &self.page.html else {
            return Ok(());
        };
        if !self.page.assets {
            return write_to(path, quarry_report::html(view), self.force);
        }
        write_to(path, quarry_report::html_beside(view), self.force)?;
        let library = path.with_file_name(quarry_report::LIBRARY);
        match library.exists() {
            // Its name has the versions.
            true => Ok(()),
            false => write_to(&library, quarry_report::library(), self.force),
        }
    }
}

/// Writes to a file, which appears when it is complete, or to stdout for `-`.
pub(crate) fn write_to(path: &Path, content: impl AsRef<[u8]>, force: Force) -> anyhow::Result<()> {
    let content = content.as_ref();
    if is_stdout(path) {
        return print(|out| out.write_all(content));
    }
    let failed = || format!("cannot write {}", path.display());
    if is_stream(path) {
        return std::fs::write(path, content).with_context(failed);
    }
    let mut out = OutFile::create(path, force.existing())?;
    out.file().write_all(content).with_context(failed)?;
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
            "the trace and other output would both go to stdout; name a file for the trace",
        )),
        true if io::stdout().is_terminal() => Err(usage(
            "stdout is a terminal, which cannot show a trace; use a pipe, or name a file",
        )),
        _ => Ok(()),
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

/// Options as given, by the names of their fields (`quarry explain settings`): one value, or a list of those that hold all at
/// once. Axes that an answer runs whole are members of its runs.
#[derive(Clone, JsonSchema, Serialize)]
#[serde(transparent)]
pub(crate) struct Given(Map<String, Json>);

impl Given {
    /// The options of a question.
    pub(crate) fn of<Q: Part>(asked: &Q) -> Self {
        let mut given = object(asked, false);
        let fields = fields::<Q>().into_iter().filter(is_given);
        let members = fields.filter_map(|field| {
            let values = given.remove(field.name);
            let value = match is_list(&field) {
                true => values.unwrap_or_else(|| Json::Array(Vec::new())),
                false => values?.get(0)?.clone(),
            };
            Some((field.name.to_string(), value))
        });
        Self(members.collect())
    }

    /// Adds what a command says of an option beside its value.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.0.insert(name.to_string(), value.into());
        self
    }

    /// Tunables as they were given, in a line; empty if there are none.
    pub(crate) fn line(&self) -> String {
        let set = self.0.get("set").and_then(Json::as_array);
        let set = set.into_iter().flatten().filter_map(Json::as_str);
        let set: String = set.map(|text| format!(" --set {text}")).collect();
        match set.is_empty() {
            true => set,
            false => format!("settings:{set}\n"),
        }
    }

    /// Meanings of the members of a question.
    pub(crate) fn meanings<Q: Part>() -> impl Iterator<Item = Member> {
        let fields = fields::<Q>().into_iter().filter(is_given);
        fields.map(|field| Member {
            path: format!("settings.{}", field.name),
            meaning: field.about(),
        })
    }
}

/// True if all values hold at once.
fn is_list(field: &Field) -> bool {
    field.together || field.kind == Kind::Settings
}

/// True for options that runs have no member for.
fn is_given(field: &Field) -> bool {
    !field.is_mode && (!field.inner || is_list(field))
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

/// Finds the meanings of the members of an answer by their paths.
pub(crate) type Meanings = fn() -> BTreeMap<String, String>;

/// The view of a command's answer, written as a page if that was asked for.
pub(crate) fn viewed<B: Serialize + JsonSchema>(
    command: &str,
    body: &B,
    view: fn(&[Doc]) -> View,
    page: &PageArgs,
) -> anyhow::Result<View> {
    let doc = [doc(command, body)?];
    let view = view(&doc);
    page.write_of(&view, &doc, meanings::<B>)?;
    Ok(view)
}

/// Writes one JSON value to stdout.
pub(crate) fn print_value(value: &impl Serialize) -> anyhow::Result<()> {
    print(|out| {
        serde_json::to_writer_pretty(&mut *out, value)?;
        writeln!(out)
    })
}
