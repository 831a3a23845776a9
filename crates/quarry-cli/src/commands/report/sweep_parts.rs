//! Sections of a sweep's page: hosts by growth, curves, a map of two axes, failed cells.

use std::collections::{BTreeMap, BTreeSet};

use quarry_view::figure::{figure, on_axis, titled};
use quarry_view::frame::FrameRow;
use quarry_view::{Axis, Cell, Chart, Column, Part, Range, Section, Table, Tone};
use quarry_view::{Grid, is_chance, plain};

use super::sweep_cases::{Sweep, over_seeds};
use super::sweep_growth::{Change, changes as changes_by, greatest};
use crate::units::signed;

/// Inputs that are an axis of their own in charts; of more there are means.
const OWN_LINES: usize = 4;
/// Hosts in a chart and in a table.
const CHARTED: usize = 20;
const LISTED: usize = 300;
/// Rows that are shown at first.
const SHOWN: usize = 20;
/// Settings that have a chart or a column each.
const SETTINGS: usize = 12;

const MIB: f64 = 1_048_576.0;

/// Hosts by their growth.
pub(crate) fn hosts(sweep: &Sweep<'_>) -> Section {
    let host = sweep.host();
    let mut section = Section::new(format!("Growth of {host}s"));
    let Some((greatest, changes)) = greatest(sweep).filter(|(_, changes)| changes.len() > 1) else {
        return section;
    };
    let settings: Vec<usize> = (0..sweep.settings.len()).take(SETTINGS).collect();
    let by_setting: Vec<Vec<Change>> = settings
        .iter()
        .map(|setting| changes_by(sweep, *setting))
        .collect();
    let all = || by_setting.iter().flatten().map(Change::percent);
    let range = [
        all().fold(f64::INFINITY, f64::min),
        all().fold(f64::NEG_INFINITY, f64::max),
    ];
    let charts = settings.iter().zip(&by_setting).map(|(setting, changes)| {
        let percents: Vec<f64> = changes.iter().map(Change::percent).collect();
        Chart::distribution(
            &sweep.name(*setting),
            Axis::linear("change, %"),
            &format!("{host}s"),
            &percents,
            range,
        )
        .small()
    });
    section = section.with(Part::Charts(charts.collect()));
    let ranges = changes.iter().take(CHARTED).map(|change| Range {
        name: sweep.inputs[change.input].clone(),
        low: change.low / MIB,
        middle: change.middle / MIB,
        high: change.high / MIB,
    });
    let title = format!("Most growth with {}", sweep.name(greatest));
    let ranges: Vec<Range> = ranges.collect();
    section = section.with(Chart::ranges(
        &title,
        Axis::linear("MiB more"),
        ranges,
        Some(("no change", 0.0)),
    ));
    let mut columns = vec![
        Column::text(host),
        Column::text("release"),
        Column::number("memory"),
        Column::number("CPUs"),
        Column::number("now"),
    ];
    for setting in &settings {
        let name = sweep.name(*setting);
        columns.push(Column::number(name.clone()).about("Change, low to high in brackets."));
        columns.push(Column::number(format!("{name}, %")).more());
    }
    let mut table = Table::new(columns).shown(SHOWN);
    if changes.len() > LISTED {
        table = table.noted(format!(
            "{LISTED} of {} {host}s, those that grow most; the Parquet files have all.",
            changes.len()
        ));
    }
    for change in changes.iter().take(LISTED) {
        let of = |name: &str| {
            let mut rows = sweep.rows[change.input].iter().flatten();
            rows.next().map(|row| row.value(name))
        };
        let number = |name: &str, print: fn(f64) -> String| {
            let value = of(name).and_then(|value| value.as_f64());
            Cell::maybe(value.map(|value| (print(value), value)))
        };
        let release = of("input.release").and_then(|value| value.as_str().map(str::to_string));
        let mut cells = vec![
            Cell::text(&sweep.inputs[change.input]),
            Cell::text(release.unwrap_or_else(|| "-".to_string())),
            number("input.memory_bytes", |bytes| figure("bytes", bytes)),
            number("input.cpus", |cpus| format!("{cpus:.0}")),
            Cell::number(figure("bytes", change.now), change.now),
        ];
        for of in &by_setting {
            let change = of.iter().find(|of| of.input == change.input);
            cells.push(Cell::maybe(change.map(|of| {
                let [low, middle, high] =
                    [of.low, of.middle, of.high].map(|bytes| signed(bytes as i128));
                let mark = if of.can_be { "" } else { "; it cannot have it" };
                (format!("{middle} ({low} to {high}{mark})"), of.middle)
            })));
            cells.push(Cell::maybe(
                change.map(|of| (format!("{:+.1}", of.percent()), of.percent())),
            ));
        }
        table.row(cells);
    }
    section.with(table)
}

/// The figure over the plan's axes: of few inputs for each, of many their mean.
pub(crate) fn curves(sweep: &Sweep<'_>) -> Section {
    let figure = sweep.figure;
    let section = Section::new("Over the axes of the plan");
    let has_seeds = sweep.axes.iter().any(|axis| is_chance(axis));
    let mut names: Vec<&str> = sweep.axes.iter().map(String::as_str).collect();
    names.retain(|name| !is_chance(name));
    let ends = ["least", "most"].map(|end| format!("{end}.{}", figure.column));
    let ends = [ends[0].as_str(), ends[1].as_str()];
    let mut bounds = if has_seeds { Some(ends) } else { figure.bounds };
    let all = || sweep.rows.iter().flatten().flatten().copied();
    let inputs: BTreeSet<&str> = all().map(|row| row.text("input")).collect();
    let setting = |names: &[&str], row: FrameRow<'_>| -> Vec<String> {
        let values = names.iter().map(|name| row.value(name).to_string());
        values.collect()
    };
    let mut note = String::new();
    // Rows, with the means of the figure and its bounds that they stand for.
    let rows: Vec<(FrameRow<'_>, BTreeMap<&str, f64>)> = if inputs.len() <= OWN_LINES {
        names.push("input");
        let groups = match has_seeds {
            true => quarry_view::grouped(sweep.all.iter().map(|row| (setting(&names, *row), *row))),
            false => all().map(|row| (Vec::new(), vec![row])).collect(),
        };
        if has_seeds {
            note = "Means over seeds, with the least and the most.".to_string();
        }
        let groups = groups.iter();
        groups
            .filter_map(|(_, rows)| {
                let seeds = over_seeds(figure, rows).filter(|_| has_seeds);
                let means = seeds.map(|of| {
                    let [least, most] = ends;
                    [(figure.column, of.middle), (least, of.low), (most, of.high)]
                });
                Some((*rows.first()?, means.into_iter().flatten().collect()))
            })
            .collect()
    } else {
        bounds = figure.bounds;
        let groups = quarry_view::grouped(all().map(|row| (setting(&names, row), row)));
        // Means of other inputs cannot be compared.
        let by_group = groups.iter().map(|(_, rows)| {
            let inputs = rows.iter().map(|row| row.text("input"));
            inputs.collect::<BTreeSet<&str>>()
        });
        let by_group: Vec<_> = by_group.collect();
        let is_whole = |input: &&str| by_group.iter().all(|of| of.contains(*input));
        let whole: BTreeSet<&str> = inputs.iter().copied().filter(is_whole).collect();
        if whole.is_empty() {
            return section
                .text("No input has all settings, so that their means cannot be compared.");
        }
        note = format!("Means over {} inputs that have all settings.", whole.len());
        let means = groups.iter().filter_map(|(_, rows)| {
            let of = rows.iter().filter(|row| whole.contains(row.text("input")));
            let of: Vec<&FrameRow<'_>> = of.collect();
            let mean = |name: &'static str| {
                let sum: f64 = of.iter().filter_map(|row| row.number(name)).sum();
                (name, sum / of.len() as f64)
            };
            let means = std::iter::once(figure.column)
                .chain(figure.bounds.into_iter().flatten())
                .map(mean);
            Some((**of.first()?, means.collect()))
        });
        means.collect()
    };
    if rows.len() < 2 {
        return section;
    }
    let grid = Grid::by(&rows, &names, |(row, _), name| row.value(name));
    let mut charts = grid.charts_by(figure.column, bounds, |(row, means), name| {
        means.get(name).copied().or_else(|| row.number(name))
    });
    let section = match charts.len() {
        0 => return section,
        1 => section.with(charts.remove(0)),
        _ => section
            .with(Part::Heading(titled(figure.column)))
            .with(Part::Charts(charts)),
    };
    if note.is_empty() {
        section
    } else {
        section.note(note)
    }
}

/// Two axes as a map, tunables first. Of further axes it has the values of the setting with the least regret: a mean over
/// them would mix designs, which do not all have the same tunables.
pub(crate) fn heat(sweep: &Sweep<'_>) -> Section {
    let mut axes: Vec<usize> = (0..sweep.grid.axes.len()).collect();
    axes.sort_by_key(|at| {
        let axis = &sweep.grid.axes[*at];
        (!axis.name.starts_with("set."), !axis.is_number, *at)
    });
    let section = Section::new("Two axes");
    let ([x, y, others @ ..], Some(best)) = (axes.as_slice(), sweep.regrets.first()) else {
        return section;
    };
    let best = &sweep.settings[best.setting];
    let is_shown = |places: &Vec<usize>| others.iter().all(|at| places[*at] == best[*at]);
    let name = sweep.figure.column;
    let mut sums = BTreeMap::new();
    for of in &sweep.rows {
        for (places, row) in sweep.settings.iter().zip(of) {
            if let Some(value) = row
                .filter(|_| is_shown(places))
                .and_then(|row| sweep.value(row))
            {
                let sum = sums.entry((places[*x], places[*y])).or_insert((0.0, 0_u32));
                *sum = (sum.0 + on_axis(name, value.middle), sum.1 + 1);
            }
        }
    }
    let cells = sums
        .iter()
        .map(|((x, y), (sum, count))| (*x, *y, sum / f64::from(*count)));
    let cells: Vec<(usize, usize, f64)> = cells.collect();
    if cells.len() < 3 {
        return section;
    }
    let axis = |at: usize| {
        let axis = &sweep.grid.axes[at];
        Axis::names(
            plain(&axis.name),
            (0..axis.values.len()).map(|value| axis.text(value)),
        )
    };
    let title = format!(
        "{} by {} and {}",
        titled(name),
        plain(&sweep.grid.axes[*x].name),
        plain(&sweep.grid.axes[*y].name)
    );
    let of = match others {
        [] => String::new(),
        others => format!(" with {}", sweep.grid.label(best, others)),
    };
    let chart = Chart::heat(&title, axis(*x), axis(*y), &titled(name), cells);
    section.with(chart.noted(format!("Means over all cases{of}.")))
}

/// Inputs with cells that failed, a line for each error of each.
pub(crate) fn failures(failed: &[FrameRow<'_>]) -> Section {
    let section = Section::new("Failed cells");
    if failed.is_empty() {
        return section;
    }
    let columns = [
        Column::text("input"),
        Column::number("cells"),
        Column::text("error"),
    ];
    let mut table = Table::new(columns).shown(SHOWN);
    let mut groups: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for row in failed {
        *groups
            .entry((row.text("input"), row.text("error")))
            .or_default() += 1;
    }
    for ((input, error), cells) in groups.iter().take(LISTED) {
        table.row([
            Cell::text(*input),
            Cell::number(cells.to_string(), *cells as f64),
            Cell::text(*error).tone(Tone::Bad),
        ]);
    }
    if groups.len() > LISTED {
        table = table.noted(format!("{LISTED} of {} inputs with errors.", groups.len()));
    }
    section.with(table)
}
