//! `quarry report`: one page of a sweep, or of outputs that commands printed with `--json`; and the pages of `--html`, which are
//! the same.
//!
//! A page is made of a command's JSON output alone, so that `quarry replay --html` and `quarry report` of what it printed agree.

mod facts;
mod grid;
mod look;
mod regret;
mod replay;
mod reproduce;
mod runs;
pub(crate) mod sweep;
mod sweep_growth;
mod sweep_parts;
mod sweep_settings;
mod what_if;

use std::path::PathBuf;

use anyhow::bail;
use quarry_report::Page;
use serde_json::Value;

use crate::{diff, input, output};

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Folder of quarry sweep, or Parquet files of one; or outputs of replay, what-if, look, run or reproduce with --json,
    /// of one command, packed with gzip or not; `-` reads stdin.
    #[arg(value_name = "DIR|FILE", required = true)]
    files: Vec<PathBuf>,
    /// Write a page with tables and charts, which needs no network; - for stdout. Without it the finding is printed.
    #[arg(long, value_name = "PAGE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    force: output::Force,
}

const EXAMPLES: &str = "\
Runs of several files are compared on one page: put releases, settings or machines
next to each other. Looks are a series, in the order of the files.

The page of a sweep has the hosts that grow most, with bounds; the figure over the
axes of the plan; the setting with the least regret, which is what it needs beyond
the best setting of each input; and the cells that failed.

Exit codes:
  0 done; 1 a file cannot be read, or is no output that has a page, or no sweep;
  2 wrong usage

Examples:
  quarry replay --json > a.json
  quarry report a.json --html a.html
  quarry replay --set slub_max_order=1 --json > b.json
  quarry report a.json b.json --html both.html
  quarry report monday.json tuesday.json --html looks.html
  quarry report fleet/ --html fleet.html
  quarry report a.json";

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let inputs: Vec<_> = args
        .files
        .iter()
        .map(|file| ("FILE", Some(file.as_path())))
        .collect();
    input::check_one_stdin(&inputs)?;
    if let Some(path) = &args.html {
        output::check_page(path, false, args.force)?;
    }
    let is_sweep = |path: &&PathBuf| sweep::is_sweep(path);
    if let Some(of_sweep) = args.files.iter().find(is_sweep) {
        if let Some(other) = args.files.iter().find(|path| !is_sweep(path)) {
            bail!(
                "{} is of a sweep and {} is not; a page has one sweep, or outputs of one command",
                of_sweep.display(),
                input::shown(other)
            );
        }
        let rows = sweep::read(&args.files)?;
        return match &args.html {
            Some(path) => output::write_to(path, &sweep::page(&rows)?.html(), args.force),
            None => output::print_text(&format!("{}\n{HINT}", sweep::text(&rows)?)),
        };
    }
    let documents = args.files.iter().map(|path| {
        let content = diff::read(path)?;
        Ok(Document {
            file: input::shown(path),
            content,
        })
    });
    let documents: Vec<Document> = documents.collect::<anyhow::Result<_>>()?;
    let page = page(&documents)?;
    match &args.html {
        Some(path) => output::write_to(path, &page.html(), args.force),
        None => output::print_text(&summary(&documents, &page)),
    }
}

/// An output of a command.
pub(crate) struct Document {
    /// File, as messages and tables name it.
    pub(crate) file: String,
    /// Fields.
    pub(crate) content: Value,
}

impl Document {
    fn command(&self) -> &str {
        self.content["command"].as_str().unwrap_or_default()
    }

    /// Runs of the output.
    fn runs(&self) -> impl Iterator<Item = &Value> {
        self.content["runs"].as_array().into_iter().flatten()
    }

    /// Sentence of the command about its result; `None` in outputs of older versions.
    fn finding(&self) -> Option<&str> {
        self.content["finding"].as_str()
    }
}

/// The page of an output that is not in a file.
pub(crate) fn page_of(content: Value) -> anyhow::Result<Page> {
    let file = String::new();
    page(&[Document { file, content }])
}

/// The page of outputs of one command.
fn page(documents: &[Document]) -> anyhow::Result<Page> {
    let [first, rest @ ..] = documents else {
        bail!("no file is given");
    };
    let command = first.command();
    if let Some(other) = rest.iter().find(|other| other.command() != command) {
        bail!(
            "{} is of {command} and {} of {}; a page has outputs of one command",
            first.file,
            other.file,
            other.command()
        );
    }
    let page = match command {
        "replay" | "replay --time" => replay::page(documents),
        "look" => look::page(documents),
        "what-if" => what_if::page(documents),
        "reproduce" => reproduce::page(documents)?,
        command if command.starts_with("run ") => runs::page(documents),
        _ => bail!(
            "{} is of {command}, which has no page; replay, what-if, look, run and reproduce have one",
            first.file
        ),
    };
    Ok(page.with(facts::section(documents)).made_of(documents))
}

/// The last line of all pages.
trait MadeOf {
    fn made_of(self, documents: &[Document]) -> Self;
}

impl MadeOf for Page {
    fn made_of(mut self, documents: &[Document]) -> Self {
        let mut versions: Vec<&str> = documents
            .iter()
            .filter_map(|document| document.content["quarry"]["version"].as_str())
            .collect();
        versions.dedup();
        let files: Vec<&str> = documents
            .iter()
            .map(|document| document.file.as_str())
            .collect();
        let of = match files.join(", ") {
            files if files.is_empty() => String::new(),
            files => format!(" of {files}"),
        };
        let command = documents.first().map_or("", Document::command);
        self.footer = format!("quarry {} {command}{of}", versions.join(", "));
        self
    }
}

/// The files and the finding, for a terminal.
fn summary(documents: &[Document], page: &Page) -> String {
    let mut text = String::new();
    for document in documents {
        let runs = match document.runs().count() {
            0 => String::new(),
            1 => ", 1 run".to_string(),
            more => format!(", {more} runs"),
        };
        text += &format!(
            "{}: output of quarry {}{runs}\n",
            document.file,
            document.command()
        );
    }
    text += "\n";
    for sentence in page.findings.iter().chain(&page.warnings) {
        text += &format!("{}\n\n", output::wrap(sentence));
    }
    text + HINT
}

/// Last line of what is printed instead of a page.
const HINT: &str = "--html PAGE writes the tables and charts.\n";

/// A name for each of several files, without its folder where the names differ; a single file needs none.
fn short_names(documents: &[Document]) -> Vec<String> {
    if documents.len() == 1 {
        return vec![String::new()];
    }
    input::without_folders(documents.iter().map(|document| document.file.as_str()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn files_of_one_name_keep_their_folders() {
        let names = |files: &[&str]| {
            let documents = files.iter().map(|file| Document {
                file: (*file).to_string(),
                content: json!({}),
            });
            short_names(&documents.collect::<Vec<_>>())
        };
        assert_eq!(names(&["x/a.json", "y/b.json"]), ["a.json", "b.json"]);
        assert_eq!(names(&["x/a.json", "y/a.json"]), ["x/a.json", "y/a.json"]);
    }
}
