//! Tables and plots.

use schemars::JsonSchema;
use serde::Serialize;

use crate::results::{Arm, Results};

/// Origin of the numbers of a table or a plot.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize)]
pub struct Origin {
    /// Machine whose time is simulated (`quarry machines`); empty if there is none.
    pub machine: &'static str,
    /// Command that does such runs; empty if none does.
    pub command: &'static str,
}

impl Origin {
    /// Runs on a machine, which a command does as well.
    pub(crate) const fn of(machine: &'static str, command: &'static str) -> Self {
        Self { machine, command }
    }
}

/// A published number next to the simulated one.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct Row {
    /// Label.
    pub label: String,
    /// Published number; null if there is none.
    pub published: Option<f64>,
    /// Figure with all constants at their own values.
    pub measured: Option<f64>,
    /// The figure of a real kernel here that ran with the same settings; left out if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub real: Option<f64>,
    /// Least and most of the figure over all arms; null if only the values were run.
    pub band: Option<[f64; 2]>,
}

impl Row {
    /// A row of a figure in all arms.
    pub(crate) fn of(
        label: impl Into<String>,
        published: Option<f64>,
        results: &Results,
        figure: impl Fn(Arm<'_>) -> Option<f64>,
    ) -> Self {
        let (measured, band) = in_arms(results, figure);
        Self {
            label: label.into(),
            published,
            measured,
            real: None,
            band,
        }
    }

    /// The same next to what a real kernel here had.
    pub(crate) fn with_real(self, real: Option<f64>) -> Self {
        Self { real, ..self }
    }
}

/// A table of a thread.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct Table {
    /// Title.
    pub title: String,
    /// Unit of its numbers.
    pub unit: &'static str,
    /// Origin of the simulated numbers.
    pub origin: Origin,
    /// Rows.
    pub rows: Vec<Row>,
}

/// Kind of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LineKind {
    /// Simulated points.
    Simulated,
    /// Published points.
    Published,
    /// One simulated figure as a level to compare with.
    Level,
}

/// A line of a plot.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct Line {
    /// Name.
    pub name: String,
    /// Kind of the line.
    pub kind: LineKind,
    /// Pairs of x and y.
    pub points: Vec<(f64, f64)>,
    /// Pairs of x, and least and most over all arms, for points that ran in all of them.
    pub bands: Vec<(f64, [f64; 2])>,
}

impl Line {
    /// A line of figures that were found.
    pub(crate) fn simulated(
        name: impl Into<String>,
        results: &Results,
        places: &[u32],
        figure: impl Fn(Arm<'_>, u32) -> Option<f64>,
    ) -> Self {
        let (mut points, mut bands) = (Vec::new(), Vec::new());
        for place in places {
            let (measured, band) = in_arms(results, |arm| figure(arm, *place));
            let x = f64::from(*place);
            points.extend(measured.map(|y| (x, y)));
            bands.extend(band.map(|band| (x, band)));
        }
        Self {
            name: name.into(),
            kind: LineKind::Simulated,
            points,
            bands,
        }
    }

    /// A line of published numbers, where there are any; `subject` is the name of what was simulated.
    pub(crate) fn published(
        subject: &str,
        places: &[u32],
        number: impl Fn(u32) -> Option<f64>,
    ) -> Self {
        let points = places.iter();
        let points = points.filter_map(|place| Some((f64::from(*place), number(*place)?)));
        Self {
            name: format!("{subject}, published"),
            kind: LineKind::Published,
            points: points.collect(),
            bands: Vec::new(),
        }
    }

    /// A figure as a line from the first place to the last one.
    pub(crate) fn level(name: &str, places: &[u32], value: Option<f64>) -> Self {
        let ends = [places.first(), places.last()].into_iter().flatten();
        let ends = ends.filter_map(|place| Some((f64::from(*place), value?)));
        Self {
            name: name.to_string(),
            kind: LineKind::Level,
            points: ends.collect(),
            bands: Vec::new(),
        }
    }
}

/// A plot of a thread.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct Plot {
    /// Title.
    pub title: String,
    /// Label of the x axis.
    pub x: &'static str,
    /// True if the x axis is logarithmic.
    pub logarithmic: bool,
    /// Label of the y axis.
    pub y: &'static str,
    /// Origin of the simulated numbers.
    pub origin: Origin,
    /// Lines.
    pub lines: Vec<Line>,
}

/// A figure with the values, and its least and most if it ran in more arms.
fn in_arms(
    results: &Results,
    figure: impl Fn(Arm<'_>) -> Option<f64>,
) -> (Option<f64>, Option<[f64; 2]>) {
    let measured = figure(results.values());
    let figures: Vec<f64> = results.arms().filter_map(figure).collect();
    let more = measured.filter(|_| figures.len() > 1);
    (measured, more.map(|value| band(value, &figures)))
}

/// The least and the most of a value and figures.
pub(crate) fn band(value: f64, figures: &[f64]) -> [f64; 2] {
    let widen = |[low, high]: [f64; 2], figure: &f64| [low.min(*figure), high.max(*figure)];
    figures.iter().fold([value; 2], widen)
}
