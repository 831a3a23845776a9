//! Rows of a sweep by case and setting.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use quarry_lab::ask::Figure;
use quarry_snapshot::page_sizes;
use quarry_view::frame::FrameRow;
use quarry_view::{Grid, is_chance};

use super::regret::{self, Regret};

/// Axes on which a user chooses; the others are circumstances of a case, such as its CPUs.
const CHOICES: [&str; 6] = [
    "asked.release",
    "asked.design",
    "asked.page_size",
    "asked.debug",
    "design",
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
    /// Rows by case and setting, of several seeds the first.
    pub(crate) rows: Vec<Vec<Option<FrameRow<'a>>>>,
    /// All rows, those of every seed.
    pub(crate) all: &'a [FrameRow<'a>],
    pub(crate) axes: Vec<String>,
    /// The figure by case and setting, of several seeds its mean.
    pub(crate) values: Vec<Vec<Option<regret::Value>>>,
    /// Regrets of the settings that every case can have and has a value for, the least first.
    pub(crate) regrets: Vec<Regret>,
}

impl<'a> Sweep<'a> {
    pub(crate) fn of(figure: Figure, rows: &'a [FrameRow<'a>], axes: &[String]) -> Self {
        let rows_of_all = rows;
        let (choices, mut others): (Vec<&str>, Vec<&str>) = axes
            .iter()
            .map(String::as_str)
            .partition(|axis| is_choice(axis));
        others.insert(0, "input");
        // Seeds are no cases of their own.
        others.retain(|axis| !is_chance(axis));
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
        let mut by_cell = vec![vec![Vec::new(); settings.len()]; inputs.len()];
        for (input, setting, row) in cells {
            by_cell[input][setting].push(row);
        }
        let distinct: BTreeSet<&str> = rows.iter().map(|row| row.text("input")).collect();
        let mean = |rows: &Vec<FrameRow<'_>>| over_seeds(figure, rows);
        let values = by_cell.iter().map(|of| of.iter().map(mean).collect());
        let values: Vec<Vec<_>> = values.collect();
        let first = |rows: &Vec<FrameRow<'a>>| rows.first().copied();
        let rows = by_cell.iter().map(|of| of.iter().map(first).collect());
        let rows: Vec<Vec<Option<FrameRow<'a>>>> = rows.collect();
        // A setting that a host cannot have is none to choose.
        let chosen = rows.iter().zip(&values).map(|(rows, values)| {
            let of = rows.iter().zip(values);
            of.map(|(row, value)| value.filter(|_| row.is_none_or(|row| can_be(figure, row))))
                .collect()
        });
        let chosen: Vec<Vec<_>> = chosen.collect();
        Self {
            figure,
            inputs,
            distinct: distinct.len(),
            grid,
            settings,
            rows,
            all: rows_of_all,
            axes: axes.to_vec(),
            regrets: regret::regrets(&chosen),
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

    /// False for a setting that the host of a row cannot have.
    pub(crate) fn can_be(&self, row: FrameRow<'_>) -> bool {
        can_be(self.figure, row)
    }

    /// The figure of a row with its bounds.
    pub(crate) fn value(&self, row: FrameRow<'_>) -> Option<regret::Value> {
        value_of(self.figure, row)
    }
}

/// False for pages that no kernel of the host's architecture has. A figure that is compared with nothing is of a load, which
/// may run on any machine.
fn can_be(figure: Figure, row: FrameRow<'_>) -> bool {
    let (Some(_), Some(pages)) = (figure.now, row.number("page_size")) else {
        return true;
    };
    page_sizes(row.text("input.architecture"))
        .is_none_or(|sizes| sizes.iter().any(|size| *size as f64 == pages))
}

/// The mean of a figure over rows of several seeds, with the ends of all; `None` without any.
pub(crate) fn over_seeds(figure: Figure, rows: &[FrameRow<'_>]) -> Option<regret::Value> {
    let values = rows.iter().filter_map(|row| value_of(figure, *row));
    let values: Vec<regret::Value> = values.collect();
    let sum: f64 = values.iter().map(|value| value.middle).sum();
    let all = || values.iter();
    (!values.is_empty()).then(|| regret::Value {
        low: all().map(|value| value.low).fold(f64::INFINITY, f64::min),
        middle: sum / values.len() as f64,
        high: all()
            .map(|value| value.high)
            .fold(f64::NEG_INFINITY, f64::max),
    })
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
