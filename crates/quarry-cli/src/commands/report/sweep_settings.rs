//! Settings of a sweep, a line each, for the page and the terminal: growth of hosts, and regret.

use quarry_view::{Cell, Column, Section, Table, Tone};

use super::regret::Regret;
use super::sweep_cases::{Sweep, amount};
use super::sweep_growth::{Growth, changes};
use crate::output;
use crate::units::count;
use quarry_view::figure::titled;
use quarry_view::plain;

/// Settings that the terminal's table has at most: more are a matter for the page.
const PRINTED: usize = 30;
/// Rows of the page's table that are shown at first.
const SHOWN: usize = 20;

/// A setting over all cases.
struct Line<'a> {
    setting: usize,
    growth: Option<Growth>,
    /// None where a case has no result.
    regret: Option<&'a Regret>,
    /// Cases in which no other setting needs less.
    best: usize,
    /// Cases without a result.
    missing: usize,
}

/// All settings: those with the least worst regret first, then those without one.
fn lines<'a>(sweep: &'a Sweep<'_>) -> Vec<Line<'a>> {
    let of = |setting: usize, regret: Option<&'a Regret>| {
        let is_best = |of: &&Vec<Option<super::regret::Value>>| {
            let all = of.iter().flatten().map(|value| value.middle);
            let least = all.fold(f64::INFINITY, f64::min);
            of[setting].is_some_and(|value| value.middle <= least)
        };
        Line {
            setting,
            growth: Growth::of(&changes(sweep, setting).iter().collect::<Vec<_>>()),
            regret,
            best: sweep.values.iter().filter(is_best).count(),
            missing: sweep
                .values
                .iter()
                .filter(|of| of[setting].is_none())
                .count(),
        }
    };
    let has_regret = |setting: &usize| sweep.regrets.iter().any(|of| of.setting == *setting);
    let without = (0..sweep.settings.len()).filter(|setting| !has_regret(setting));
    let with = sweep
        .regrets
        .iter()
        .map(|regret| of(regret.setting, Some(regret)));
    with.chain(without.map(|setting| of(setting, None)))
        .collect()
}

fn percent(value: f64) -> String {
    format!("{value:+.1} %")
}

/// The page's section.
pub(crate) fn section(sweep: &Sweep<'_>) -> Section {
    let section = Section::new("Settings by regret");
    if sweep.settings.len() < 2 {
        return section;
    }
    let growth = [
        Column::number("median").about("Median of all changes."),
        Column::number("most").about("Greatest change."),
        Column::text(sweep.host()).about("The one with the greatest change."),
        Column::number("surely grow").about("Those that grow at the lower bound, too."),
        Column::number("may grow").about("Those that grow at the upper bound."),
    ];
    let compares = sweep.figure.now.is_some();
    let regret = [
        Column::number("worst regret")
            .about("Most above the best setting of the same case, of all cases."),
        Column::number("worst, %"),
        Column::text("in"),
        Column::number("mean regret")
            .about("Mean over the cases of what is above the best setting of each."),
        Column::number("mean, %"),
        Column::number("best of").about("Cases in which the setting is the best, or as good."),
        Column::number("missing").about("Cases without a result; the setting has no regret then."),
    ];
    let note = "Regret: what a setting needs beyond the best setting of the same case. By the worst in per cent.";
    let columns = sweep.grid.columns().into_iter();
    let columns = columns.chain(growth.into_iter().filter(|_| compares));
    let mut table = Table::new(columns.chain(regret)).noted(note).shown(SHOWN);
    for line in lines(sweep) {
        let mut cells = sweep.grid.cells(&sweep.settings[line.setting]);
        if compares {
            let percent = |value: f64| (percent(value), value);
            let number = |value: usize| (count(value as u64), value as f64);
            let of = line.growth.as_ref();
            let host = of.map_or("-", |of| sweep.inputs[of.most].as_str());
            cells.extend([
                Cell::maybe(of.map(|of| percent(of.median_percent))),
                Cell::maybe(of.map(|of| percent(of.most_percent))),
                Cell::text(host),
                Cell::maybe(of.map(|of| number(of.surely))),
                Cell::maybe(of.map(|of| number(of.maybe))),
            ]);
        }
        let amount = |value: fn(&Regret) -> f64| {
            Cell::maybe(line.regret.map(|of| (amount(sweep, value(of)), value(of))))
        };
        let percent = |value: fn(&Regret) -> f64| {
            Cell::maybe(
                line.regret
                    .map(|of| (format!("{:.1}", value(of)), value(of))),
            )
        };
        let worst = line
            .regret
            .map_or("-", |of| sweep.inputs[of.worst_input].as_str());
        let missing = Cell::number(line.missing.to_string(), line.missing as f64);
        cells.extend([
            amount(|of| of.worst),
            percent(|of| of.worst_percent),
            Cell::text(worst),
            amount(|of| of.mean),
            percent(|of| of.mean_percent),
            Cell::number(line.best.to_string(), line.best as f64),
            match line.missing {
                0 => missing,
                _ => missing.tone(Tone::Bad),
            },
        ]);
        table.row(cells);
    }
    section.with(table)
}

/// A table for the terminal: growth where hosts are compared with what they have now, else regret.
pub(crate) fn text(sweep: &Sweep<'_>) -> String {
    let compares = sweep.figure.now.is_some();
    let host = sweep.host();
    let (figures, last, about): (&[&str], _, _) = if compares {
        let about = format!(
            "Change of slab memory. surely: {host}s that grow at the lower bound, too; maybe: those that grow at the upper one."
        );
        let figures = &["median", "most", "surely", "maybe"];
        (figures, format!("{host} with most, %"), about)
    } else {
        let about = format!(
            "Regret in {}: what a setting needs beyond the best setting of the same case.",
            titled(sweep.figure.column)
        );
        let figures = &["worst", "mean", "best of"];
        (figures, "worst in".to_string(), about)
    };
    let axes = &sweep.grid.axes;
    let names: Vec<String> = axes.iter().map(|axis| plain(&axis.name)).collect();
    let names = names.iter().map(String::as_str);
    let header: Vec<&str> = names
        .chain(figures.iter().copied())
        .chain([last.as_str()])
        .collect();
    let of_text = axes.iter().enumerate().filter(|(_, axis)| !axis.is_number);
    let of_text: Vec<usize> = of_text
        .map(|(at, _)| at)
        .chain([header.len() - 1])
        .collect();
    let mut table = output::table(&header, &of_text);
    let all = lines(sweep);
    for line in all.iter().take(PRINTED) {
        let places = axes.iter().zip(&sweep.settings[line.setting]);
        let of = places.map(|(axis, place)| axis.text(*place));
        let none = || vec!["-".to_string(); figures.len()];
        let (figures, input) = match (compares, &line.growth, line.regret) {
            (true, Some(of), _) => (
                vec![
                    percent(of.median_percent),
                    percent(of.most_percent),
                    count(of.surely as u64),
                    count(of.maybe as u64),
                ],
                Some(of.most),
            ),
            (false, _, Some(of)) => (
                vec![
                    percent(of.worst_percent),
                    percent(of.mean_percent),
                    count(line.best as u64),
                ],
                Some(of.worst_input),
            ),
            _ => (none(), None),
        };
        let input = input.map_or("-", |at| sweep.inputs[at].as_str());
        table.add_row(of.chain(figures).chain([input.to_string()]));
    }
    let more = match all.len().saturating_sub(PRINTED) {
        0 => String::new(),
        more => format!("{} more settings are on the page.\n", count(more as u64)),
    };
    format!("{table}\n{}\n{more}", output::wrap(&about))
}
