//! Settings of a sweep, a line each, for the page and the terminal: growth of hosts, and regret.

use quarry_view::Form::{Count, Ratio, Share, Text};
use quarry_view::figure::titled;
use quarry_view::value::{number, text};
use quarry_view::{Cell, Level, Section, Spec, column};
use serde_json::{Value, json};

use super::regret::Regret;
use super::sweep_cases::Sweep;
use super::sweep_growth::{Change, Growth, changes};

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
    /// Cases that cannot have the setting.
    impossible: usize,
}

/// Changes of the hosts that can have the setting; of all if none can.
fn possible_first(changes: &[Change]) -> Vec<&Change> {
    let possible: Vec<&Change> = changes.iter().filter(|of| of.can_be).collect();
    match possible.is_empty() {
        true => changes.iter().collect(),
        false => possible,
    }
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
            growth: Growth::of(&possible_first(&changes(sweep, setting))),
            regret,
            best: sweep.values.iter().filter(is_best).count(),
            missing: sweep
                .values
                .iter()
                .filter(|of| of[setting].is_none())
                .count(),
            impossible: sweep
                .rows
                .iter()
                .filter(|of| of[setting].is_some_and(|row| !sweep.can_be(row)))
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

/// Settings of a sweep.
pub(crate) const SETTINGS: Spec = Spec {
    title: "Settings",
    rows: "",
    first: 20,
    columns: || {
        let growth = |name, about: &str, form| column(name, "", form).about(about).more();
        let regret = |name, about: &str, form| column(name, "", form).about(about);
        vec![
            growth("median", "Median of all changes.", Ratio).computed(|of| number(of, "median")),
            growth("most", "Greatest change.", Ratio).computed(|of| number(of, "most")),
            growth("host", "The one with the greatest change.", Text)
                .worded(|of| text(of, "host").to_string()),
            growth(
                "surely\ngrow",
                "Those that grow at the lower end of what is likely, too.",
                Count,
            )
            .computed(|of| number(of, "surely")),
            growth(
                "may\ngrow",
                "Those that grow at the upper end of what is likely.",
                Count,
            )
            .computed(|of| number(of, "maybe")),
            regret(
                "worst, %",
                "Most above the best setting of the same case, of all cases.",
                Share,
            )
            .computed(|of| number(of, "worst")),
            regret("in", "The case with the worst regret.", Text)
                .worded(|of| text(of, "in").to_string()),
            regret(
                "mean, %",
                "Mean over the cases of what is above the best setting of each.",
                Share,
            )
            .computed(|of| number(of, "mean")),
            regret(
                "best of",
                "Cases in which the setting is the best, or as good.",
                Count,
            )
            .computed(|of| number(of, "best")),
            regret(
                "cannot\nhave it",
                "Cases whose architecture has no such pages; the setting has no regret then.",
                Count,
            )
            .computed(|of| number(of, "impossible").filter(|cases| *cases > 0.0))
            .rare(),
            regret(
                "missing",
                "Cases without a result; the setting has no regret then.",
                Count,
            )
            .computed(|of| number(of, "missing"))
            .rare(),
        ]
    },
};

/// Columns for all readers where hosts are compared with what they have now, and those for others then.
const OF_GROWTH: [&str; 5] = ["median", "most", "host", "surely grow", "may grow"];
const OF_REGRET: [&str; 4] = ["worst, %", "in", "mean, %", "best of"];

/// The settings, those with the least worst regret first. Of one without growth there is nothing to say.
pub(crate) fn section(sweep: &Sweep<'_>) -> Section {
    let section = Section::new(SETTINGS.title);
    let compares = sweep.figure.now.is_some();
    if sweep.settings.len() < 2 && !compares {
        return section;
    }
    let lines = lines(sweep).into_iter().map(|line| {
        let (growth, regret) = (line.growth.as_ref(), line.regret);
        let value = json!({
            "median": growth.map(|of| of.median_percent / 100.0),
            "most": growth.map(|of| of.most_percent / 100.0),
            "host": growth.map_or("-", |of| sweep.inputs[of.most].as_str()),
            "surely": growth.map(|of| of.surely),
            "maybe": growth.map(|of| of.maybe),
            "worst": regret.map(|of| of.worst_percent / 100.0),
            "in": regret.map_or("-", |of| sweep.inputs[of.worst_input].as_str()),
            "mean": regret.map(|of| of.mean_percent / 100.0),
            "best": line.best,
            "impossible": line.impossible,
            "missing": line.missing,
        });
        (sweep.grid.cells(&sweep.settings[line.setting]), value)
    });
    let lines: Vec<(Vec<Cell>, Value)> = lines.collect();
    let rows = lines.iter().map(|(cells, line)| (cells.clone(), line));
    let note =
        "what a setting needs beyond the best setting of the same case. By the worst in per cent.";
    let note = format!("Regret in {}: {note}", titled(sweep.figure.column));
    let mut table = SETTINGS.led(sweep.grid.columns(), rows).noted(note);
    for column in &mut table.columns {
        let name = column.plain();
        if compares && OF_REGRET.contains(&name.as_str()) {
            column.level = Level::More;
        } else if OF_GROWTH.contains(&name.as_str()) {
            column.level = Level::First;
        }
        if name == "host" {
            column.name = sweep.host().into();
        }
    }
    section.with(table)
}
