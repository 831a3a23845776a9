//! Rows of a sweep by case and setting.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use quarry_lab::ask::Figure;
use quarry_view::Grid;
use quarry_view::figure::{figure, unit};
use quarry_view::frame::FrameRow;

use super::regret::{self, Regret};

/// Axes on which a user chooses; the others are circumstances of a case, such as its CPUs.
const CHOICES: [&str; 7] = [
    "asked.release",
    "asked.design",
    "asked.page_size",
    "asked.debug",
    "design",
    "era",
    "page_size",
];

fn is_choice(axis: &str) -> bool {
    CHOICES.contains(&axis) || axis.starts_with("set.")
}

/// Rows of a sweep by case and setting. A case is an input with its circumstances.
pub(crate) struct Sweep<'a> {
    pub(crate) figure: Figure,
    /// Names of the cases.
    pub(crate) inputs: Vec<String>,
    /// Number of inputs; a case is one of them, with its circumstances.
    pub(crate) distinct: usize,
    /// Settings as axes.
    pub(crate) grid: Grid<'a, FrameRow<'a>>,
    /// Places on the axes of each setting.
    pub(crate) settings: Vec<Vec<usize>>,
    /// Rows by case and setting.
    pub(crate) rows: Vec<Vec<Option<FrameRow<'a>>>>,
    pub(crate) axes: Vec<String>,
    /// The figure by case and setting.
    pub(crate) values: Vec<Vec<Option<regret::Value>>>,
    /// Regrets of the settings that have a value for every case, the least first.
    pub(crate) regrets: Vec<Regret>,
}

impl<'a> Sweep<'a> {
    pub(crate) fn of(figure: Figure, rows: &'a [FrameRow<'a>], axes: &[String]) -> Self {
        let (choices, mut others): (Vec<&str>, Vec<&str>) = axes
            .iter()
            .map(String::as_str)
            .partition(|axis| is_choice(axis));
        others.insert(0, "input");
        let grid = Grid::by(rows, &choices, FrameRow::value);
        let cases = Grid::by(rows, &others, FrameRow::value);
        let (mut known_cases, mut known_settings) = (HashMap::new(), HashMap::new());
        let mut inputs: Vec<String> = Vec::new();
        let mut settings: Vec<Vec<usize>> = Vec::new();
        let mut cells = Vec::new();
        for ((row, of_case), (_, of_setting)) in cases.runs.iter().zip(&grid.runs) {
            let input = place(&mut known_cases, of_case);
            if input == inputs.len() {
                inputs.push(match cases.axes.is_empty() {
                    true => row.text("input").to_string(),
                    false => cases.whole_label(of_case),
                });
            }
            let setting = place(&mut known_settings, of_setting);
            if setting == settings.len() {
                settings.push(of_setting.clone());
            }
            cells.push((input, setting, **row));
        }
        let mut by_cell = vec![vec![None; settings.len()]; inputs.len()];
        for (input, setting, row) in cells {
            by_cell[input][setting] = Some(row);
        }
        let distinct: BTreeSet<&str> = rows.iter().map(|row| row.text("input")).collect();
        let value = |row: &Option<FrameRow<'_>>| row.and_then(|row| value_of(figure, row));
        let values = by_cell.iter().map(|of| of.iter().map(value).collect());
        let values: Vec<Vec<_>> = values.collect();
        Self {
            figure,
            inputs,
            distinct: distinct.len(),
            grid,
            settings,
            rows: by_cell,
            axes: axes.to_vec(),
            regrets: regret::regrets(&values),
            values,
        }
    }

    /// Word for a case: a host where each input is one.
    pub(crate) fn host(&self) -> &'static str {
        match self.inputs.len() == self.distinct {
            true => "host",
            false => "case",
        }
    }

    pub(crate) fn name(&self, setting: usize) -> String {
        match self.settings.len() {
            1 => "the settings asked for".to_string(),
            _ => self.grid.whole_label(&self.settings[setting]),
        }
    }

    /// The figure of a row with its bounds.
    pub(crate) fn value(&self, row: FrameRow<'_>) -> Option<regret::Value> {
        value_of(self.figure, row)
    }
}

fn value_of(figure: Figure, row: FrameRow<'_>) -> Option<regret::Value> {
    let middle = row.number(figure.column)?;
    let [low, high] = match figure.bounds {
        Some(names) => names.map(|name| row.number(name).unwrap_or(middle)),
        None => [middle; 2],
    };
    Some(regret::Value { low, middle, high })
}

/// The number of an item among those that are known: the next one if it is new.
fn place<T: Eq + Hash>(known: &mut HashMap<T, usize>, item: T) -> usize {
    let next = known.len();
    *known.entry(item).or_insert(next)
}

/// A quantity of the sweep's figure.
pub(crate) fn amount(sweep: &Sweep<'_>, value: f64) -> String {
    let name = sweep.figure.column;
    match unit(name) {
        "ns" => format!("{value:.1} ns"),
        "µs" => format!("{value:.2} µs"),
        _ => figure(name, value),
    }
}
