//! `quarry report`: one page of a sweep, or of outputs that commands printed with `--json`; and the pages of `--html`, which are
//! the same.
//!
//! A page is made of a command's JSON output alone, so that `quarry replay --html` and `quarry report` of what it printed agree.

mod regret;
pub(crate) mod sweep;
mod sweep_cases;
mod sweep_growth;
mod sweep_parts;
pub(crate) mod sweep_settings;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::bail;
use quarry_view::{Doc, View};

use crate::commands::diff;
use crate::commands::fields::outputs;
use crate::terminal::{self, Show};
use crate::{input, output};

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Folder of quarry sweep, or Parquet files of one; or outputs of replay, what-if, look, callers, run or reproduce with --json,
    /// of one command, packed with gzip or not; `-` reads stdin.
    #[arg(value_name = "DIR|FILE", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    page: output::PageArgs,
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

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let inputs: Vec<_> = args
        .files
        .iter()
        .map(|file| ("FILE", Some(file.as_path())))
        .collect();
    input::check_one_stdin(&inputs)?;
    args.page.check(false)?;
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
        return match args.page.is_asked() {
            true => args.page.write(&sweep::page(rows)?),
            false => {
                let show = Show {
                    hint: HINT,
                    ..Show::default()
                };
                terminal::print_view(&sweep::summary(rows)?, show)
            }
        };
    }
    let documents = args.files.iter().map(|path| {
        let content = diff::read(path)?;
        Ok(Doc {
            file: input::shown(path),
            content,
        })
    });
    let documents: Vec<Doc> = documents.collect::<anyhow::Result<_>>()?;
    let page = page(&documents)?;
    match args.page.is_asked() {
        true => args.page.write(&page),
        false => terminal::print_text(&summary(&documents, &page)),
    }
}

/// The page of outputs of one command.
fn page(documents: &[Doc]) -> anyhow::Result<View> {
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
        "replay" => quarry_lab::replay::view(documents),
        "replay --time" => quarry_lab::replay::timed::view(documents),
        "look" => quarry_lab::look::view(documents),
        "callers" => quarry_lab::callers::view(documents),
        "callers --taints" => quarry_lab::callers::taints::view(documents),
        "what-if" => quarry_lab::whatif::view(documents),
        "reproduce" if documents.len() > 1 => bail!(
            "a page has one output of reproduce; {} are given",
            documents.len()
        ),
        "reproduce" => quarry_reproduce::view(documents),
        "run --preload" => bail!("{} is of {command}, which has no page", first.file),
        command if command.starts_with("run ") => quarry_lab::experiments::view(documents),
        _ => bail!(
            "{} is of {command}, which has no page; replay, what-if, look, callers, run and reproduce have one",
            first.file
        ),
    };
    let mut page = page.with_origin(documents);
    page.explain(&meanings(command));
    Ok(page)
}

/// Meanings of the members of a command's output, by their paths.
fn meanings(command: &str) -> BTreeMap<String, String> {
    let is = |commands: &str| commands.split(", ").any(|of| of == command);
    let of_command = outputs().into_iter().filter(|(commands, _)| is(commands));
    let members = of_command.flat_map(|(_, members)| members);
    members
        .map(|member| (member.path, member.meaning))
        .collect()
}

/// The files and the finding, for a terminal.
fn summary(documents: &[Doc], page: &View) -> String {
    let mut text = String::new();
    for document in documents {
        let runs = match document.runs().len() {
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
        text += &format!("{}\n\n", terminal::wrap(sentence));
    }
    text + HINT
}

/// Last line of what is printed instead of a page.
const HINT: &str = "--html PAGE writes the tables and charts.\n";
