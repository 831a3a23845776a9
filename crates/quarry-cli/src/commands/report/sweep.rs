//! The page of a sweep: growth of hosts, curves over the plan's axes, the setting with the least regret.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use quarry_designs::list;
use quarry_lab::ask::{Ask, Figure};
use quarry_sweep::table::{Column, Field, Kind, Table as Rows};
use quarry_sweep::{ASK_KEY, Folder, VERSION_KEY};
use quarry_view::View;
use quarry_view::frame::FrameRow;
use serde_json::Value;

use super::regret::{self, Regret};
use super::sweep_cases::Sweep;
use super::sweep_growth as growth;
use super::sweep_parts::{curves, failures, heat, hosts};
use super::sweep_settings;
use crate::units::counted;

/// True for what a sweep leaves: its folder, or a Parquet file.
pub(crate) fn is_sweep(path: &Path) -> bool {
    path.is_dir()
        || path
            .extension()
            .is_some_and(|extension| extension == "parquet")
}

/// The rows of a folder, or of Parquet files of one sweep.
pub(crate) fn read(paths: &[PathBuf]) -> anyhow::Result<Rows> {
    let mut all: Option<Rows> = None;
    for path in paths {
        let rows = match path.is_dir() {
            true => results(&Folder::open(path)?)?.with_context(|| {
                format!(
                    "{} has no rows of this version; quarry sweep --status says more",
                    path.display()
                )
            })?,
            false => of_file(path)?,
        };
        match &mut all {
            None => all = Some(rows),
            Some(all) if all.notes.get(ASK_KEY) != rows.notes.get(ASK_KEY) => {
                bail!(
                    "{} asks another question than the files before it",
                    path.display()
                );
            }
            Some(all) => all.append(rows),
        }
    }
    let all = all.context("no file is given")?;
    match all.rows() {
        0 => bail!("the sweep has no rows; quarry sweep --status says what is missing"),
        _ => Ok(all),
    }
}

/// Columns that every file of rows has.
const NAMED: [&str; 3] = ["cell", "status", "input"];
/// Columns that tell the runs of one cell apart; a design is named with its release.
const OF_RUNS: [&str; 3] = ["design", "page_size", "cpus"];

/// True for the columns that a page has: all others stay unread, as a fleet's rows are large.
fn is_read(name: &str) -> bool {
    let is_of = |figure: Figure| {
        let bounds = figure.bounds.into_iter().flatten();
        let mut columns = bounds.chain(figure.now).chain([figure.column]);
        columns.any(|column| column == name)
    };
    NAMED.contains(&name)
        || OF_RUNS.contains(&name)
        || name == "era"
        || name == "error"
        || name.starts_with("asked.")
        || name.starts_with("set.")
        || name.starts_with("input.")
        || Ask::all().any(|ask| is_of(ask.figure()))
}

/// Rows of a folder with the columns that a page has; `None` without any.
pub(crate) fn results(folder: &Folder) -> anyhow::Result<Option<Rows>> {
    Ok(folder.results(is_read)?)
}

/// The rows of a Parquet file.
fn of_file(path: &Path) -> anyhow::Result<Rows> {
    let failed = || path.display().to_string();
    let file = std::fs::File::open(path).with_context(failed)?;
    // Files of others may have columns that no table has.
    let rows = Rows::of_parquet(file, is_read).with_context(failed)?;
    if NAMED.iter().any(|name| rows.column(name).is_none()) {
        bail!(
            "{} has no rows of a sweep: give its folder, its results.parquet or its files part-*.parquet",
            path.display()
        );
    }
    Ok(rows)
}

/// The figure that settings are judged by.
fn figure_of(rows: &Rows) -> anyhow::Result<Figure> {
    let ask = rows.notes.get(ASK_KEY);
    if let Some(ask) = ask.and_then(|name| Ask::parse(name).ok()) {
        return Ok(ask.figure());
    }
    // Another program wrote the rows. In simulated time there is memory, too, so that replays come after it.
    let mut known: Vec<Figure> = Ask::all().map(Ask::figure).collect();
    known.reverse();
    known.dedup();
    let found = known.iter().find(|it| rows.column(it.column).is_some());
    found.copied().with_context(|| {
        let names = list(known.iter().map(|it| it.column));
        format!("the rows have no figure to judge settings by: none of {names}")
    })
}

/// Rows that have a result, and those of cells that failed.
struct Cells<'a> {
    ok: Vec<FrameRow<'a>>,
    failed: Vec<FrameRow<'a>>,
    axes: Vec<String>,
}

impl<'a> Cells<'a> {
    fn of(rows: &'a Rows) -> Self {
        let all = (0..rows.rows()).map(|row| rows.row(row));
        let (ok, failed): (Vec<_>, Vec<_>) = all.partition(|row| row.text("status") == "ok");
        let axes = axes(rows, &ok);
        Self { ok, failed, axes }
    }

    /// The sweep of the rows; `None` if all cells failed.
    fn sweep(&self, rows: &Rows) -> anyhow::Result<Option<Sweep<'_>>> {
        if self.ok.is_empty() {
            return Ok(None);
        }
        Ok(Some(Sweep::of(figure_of(rows)?, &self.ok, &self.axes)))
    }
}

/// Sentences about the sweep, its size first.
fn findings(cells: &Cells<'_>, sweep: Option<&Sweep<'_>>) -> Vec<String> {
    let Some(sweep) = sweep else {
        return vec![format!(
            "All {} failed.",
            counted(cells.failed.len(), "cell")
        )];
    };
    let size = size(sweep, cells.ok.len(), &cells.failed);
    let found = growth::finding(sweep).into_iter();
    std::iter::once(size)
        .chain(growth::impossible(sweep))
        .chain(found)
        .chain(recommendation(sweep))
        .collect()
}

/// The findings, the hosts and the settings, for a terminal.
pub(crate) fn summary(rows: Rows) -> anyhow::Result<View> {
    let rows = with_names(rows);
    let cells = Cells::of(&rows);
    let sweep = cells.sweep(&rows)?;
    let mut view = View::new("Sweep");
    view.findings = findings(&cells, sweep.as_ref());
    let sections = sweep
        .iter()
        .flat_map(|sweep| [hosts(sweep), sweep_settings::section(sweep)]);
    Ok(sections.fold(view, View::with))
}

/// The page of the rows.
pub(crate) fn page(rows: Rows) -> anyhow::Result<View> {
    let rows = with_names(rows);
    let cells = Cells::of(&rows);
    let ask = rows.notes.get(ASK_KEY).map_or("", String::as_str);
    let mut page = View::new(match ask {
        "" => "Sweep".to_string(),
        ask => format!("Sweep of {ask}"),
    });
    page.footer = format!(
        "quarry {} sweep",
        rows.notes.get(VERSION_KEY).map_or("", String::as_str)
    );
    let failures = failures(&cells.failed);
    let sweep = cells.sweep(&rows)?;
    page.findings = findings(&cells, sweep.as_ref());
    let Some(sweep) = sweep else {
        return Ok(page.with(failures));
    };
    for section in [
        hosts(&sweep),
        curves(&sweep),
        heat(&sweep),
        sweep_settings::section(&sweep),
        failures,
    ] {
        page = page.with(section);
    }
    Ok(page)
}

/// The rows, with inputs without their folders where the names differ, and designs with their releases.
fn with_names(mut rows: Rows) -> Rows {
    if let (Some(_), Some(_)) = (rows.column("design"), rows.column("era")) {
        let all = (0..rows.rows()).map(|at| rows.row(at));
        let designs = all.map(|row| match (row.text("design"), row.text("era")) {
            ("", _) => None,
            (design, "") => Some(design.to_string()),
            (design, era) => Some(format!("{design}@{era}")),
        });
        let designs = Column::Text(designs.collect());
        rows.insert(0, Field::new("design", Kind::Text, ""), designs);
    }
    let names: Vec<&str> = (0..rows.rows())
        .map(|at| rows.row(at).text("input"))
        .collect();
    let distinct: BTreeSet<&str> = names.iter().copied().collect();
    let short = quarry_view::without_folders(distinct.iter().copied());
    let short: BTreeMap<&str, String> = distinct.into_iter().zip(short).collect();
    let names = names.iter().map(|name| Some(short[name].clone())).collect();
    rows.insert(0, Field::new("input", Kind::Text, ""), Column::Text(names));
    rows
}

/// Columns that tell cells of one input apart.
fn axes(rows: &Rows, ok: &[FrameRow<'_>]) -> Vec<String> {
    let names = rows.fields().iter().map(|field| field.name.clone());
    let mut axes: Vec<String> = names
        .filter(|name| name.starts_with("asked.") || name.starts_with("set."))
        .collect();
    // A cell may have several runs.
    for name in OF_RUNS {
        let key = |row: &FrameRow<'_>| -> Vec<Value> {
            let names = axes.iter().map(String::as_str).chain(["input"]);
            names.map(|name| row.value(name)).collect()
        };
        let mut seen = BTreeMap::new();
        let differs = ok.iter().any(|row| {
            let value = row.value(name);
            let known = seen
                .entry(format!("{:?}", key(row)))
                .or_insert_with(|| value.clone());
            *known != value
        });
        if differs && rows.column(name).is_some() {
            axes.push(name.to_string());
        }
    }
    axes
}

/// Size of the sweep, in a sentence.
fn size(sweep: &Sweep<'_>, ok: usize, failed: &[FrameRow<'_>]) -> String {
    let cases = match sweep.inputs.len() {
        same if same == sweep.distinct => String::new(),
        more => format!(" in {}", counted(more, "case")),
    };
    let inputs: BTreeSet<&str> = failed.iter().map(|row| row.text("input")).collect();
    let failures = match failed.len() {
        0 => "none failed".to_string(),
        some => format!(
            "{} of {} failed",
            counted(some, "cell"),
            counted(inputs.len(), "input")
        ),
    };
    format!(
        "{}{cases} under {}: {}; {failures}.",
        counted(sweep.distinct, "input"),
        counted(sweep.settings.len(), "setting"),
        counted(ok, "row")
    )
}

/// The setting with the least worst regret, the one with the least mean, and how certain that is.
fn recommendation(sweep: &Sweep<'_>) -> Option<String> {
    let Sweep {
        values, regrets, ..
    } = sweep;
    let [best, next, ..] = regrets.as_slice() else {
        return None;
    };
    let mean = regrets
        .iter()
        .min_by(|a, b| a.mean_percent.total_cmp(&b.mean_percent))?;
    let told = |of: &Regret| {
        format!(
            "at worst {:.1} % above the best setting of a case ({}), and {:.1} % in the mean",
            of.worst_percent, sweep.inputs[of.worst_input], of.mean_percent
        )
    };
    let mut text = match best.worst_percent {
        0.0 => format!("{} needs least in every case.", sweep.name(best.setting)),
        _ => format!(
            "{} has the least worst regret: {}.",
            sweep.name(best.setting),
            told(best)
        ),
    };
    if mean.setting != best.setting {
        text += &format!(
            " {} has the least mean regret: {}.",
            sweep.name(mean.setting),
            told(mean)
        );
    }
    if sweep.figure.bounds.is_none() {
        return Some(
            text + " The figures repeat exactly; other loads may order settings differently.",
        );
    }
    let overlaps = regret::overlaps(values, best.setting, next.setting);
    let next = sweep.name(next.setting);
    text += &match overlaps {
        0 => format!(" Its bounds do not overlap those of the next, {next}, in any case."),
        all if all == values.len() => {
            format!(
                " Its bounds overlap those of the next, {next}, in every case: the order of the two is not certain."
            )
        }
        some => format!(
            " Its bounds overlap those of the next, {next}, in {some} of {} cases: there the order is not certain.",
            values.len()
        ),
    };
    Some(text)
}
