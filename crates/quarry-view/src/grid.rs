//! Runs by the axes on which they differ: their names in a table, and charts over the axes.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use crate::figure::{on_axis, shown, titled};
use crate::value::at;
use crate::{Axis, Bar, Cell, Chart, Column, Line, Range, Spec, Table, grouped};

/// Members that say which run it is, in the order of its name. They are not compared.
pub const IDENTITY: &[&str] = &[
    "name",
    "thread",
    "experiment",
    "driver",
    "thread_driver",
    "design",
    "era",
    "set",
    "load",
    "test",
    "size",
    "groups",
    "clients",
    "pairs",
    "tasks",
    "pattern",
    "workload",
    "machine",
    "zone",
    "object_size",
    "object_bytes",
    "bulk",
    "node",
    "kmalloc",
    "null",
    "processes",
    "move_every",
    "lru",
    "rings",
    "mtu",
    "streams",
    "consumer",
    "page_size",
    "cpus",
];

/// Lines of one chart, and charts of one figure.
const LINES: usize = 8;
const PANELS: usize = 12;
/// Ratio of the ends of an axis from which on it is logarithmic.
const DECADES: f64 = 16.0;

/// Something in which runs differ, with its values in order.
pub struct GridAxis {
    /// Name of the member.
    pub name: String,
    /// Values that runs have.
    pub values: Vec<Value>,
    /// True if all are numbers.
    pub is_number: bool,
}

/// Runs with the axes on which they differ.
pub struct Grid<'a, R = Value> {
    /// The axes.
    pub axes: Vec<GridAxis>,
    /// Runs, each with the number of its value on each axis.
    pub runs: Vec<(&'a R, Vec<usize>)>,
    /// Names and values of what all runs have in common.
    common: Vec<(String, Value)>,
}

/// The design with its release and what is set, as one name.
fn design(run: &Value) -> Option<String> {
    let design = run["design"].as_str()?;
    let era = run["era"]
        .as_str()
        .map_or_else(String::new, |era| format!("@{era}"));
    let set = run["set"].as_str().filter(|set| !set.is_empty());
    let set = set.map_or_else(String::new, |set| format!(" ({set})"));
    Some(format!("{design}{era}{set}"))
}

impl<'a> Grid<'a> {
    /// Runs of outputs, by the members that say which run it is.
    pub fn of(runs: &'a [Value]) -> Self {
        let has_design = runs.iter().any(|run| run["design"].is_string());
        let names = ["file", "design"]
            .into_iter()
            .chain(IDENTITY.iter().copied());
        let merged = |name: &str| has_design && ["era", "set"].contains(&name);
        let mut kept: Vec<&str> = Vec::new();
        for name in names {
            let is_there = runs.iter().any(|run| !run[name].is_null());
            // Of a replay these are results.
            let is_result = ["object_bytes", "null"].contains(&name)
                && runs.iter().all(|run| run["pattern"].is_null());
            if is_there && !merged(name) && !is_result && !kept.contains(&name) {
                kept.push(name);
            }
        }
        Self::by(runs, &kept, |run, name| match name {
            "design" => design(run).map_or(Value::Null, Value::from),
            name => run[name].clone(),
        })
    }

    /// The table of the runs, a row each; the columns that say which it is come first.
    #[must_use]
    pub fn table(&self, spec: &Spec) -> Table {
        let columns = self.columns();
        let lead = columns.len();
        let rows = self.runs.iter();
        let rows = rows.map(|(run, places)| (self.cells(places), *run));
        let seeds = self
            .runs
            .iter()
            .filter_map(|(run, _)| run["seeds"].as_u64());
        let seeds = seeds.max().map_or_else(String::new, |seeds| {
            format!("Means of {seeds} seeds; charts have the least and the most, too.")
        });
        let note = [self.common(), seeds].join(" ");
        spec.led(columns, rows).turned(lead).noted(note.trim())
    }

    /// Charts of a member, as [`Self::charts_by`]. Means over seeds have the ends of all as bounds.
    pub fn charts(&self, name: &str, bounds: Option<[&str; 2]>) -> Vec<Chart> {
        let ends = ["least", "most"].map(|end| format!("{end}.{name}"));
        let has_seeds = self.runs.iter().any(|(run, _)| run["least"].is_object());
        let bounds = match has_seeds {
            true => Some([ends[0].as_str(), ends[1].as_str()]),
            false => bounds,
        };
        self.charts_by(name, bounds, |run, of| at(run, of).as_f64())
    }
}

impl<'a, R> Grid<'a, R> {
    /// Runs by members with these names.
    pub fn by(runs: &'a [R], names: &[&str], value: impl Fn(&R, &str) -> Value) -> Self {
        let mut axes = Vec::new();
        let mut common = Vec::new();
        let mut places = vec![Vec::new(); runs.len()];
        for name in names {
            let of_runs: Vec<Value> = runs.iter().map(|run| value(run, name)).collect();
            // A fleet has thousands of inputs: values are found by their text.
            let texts: Vec<String> = of_runs.iter().map(Value::to_string).collect();
            let mut seen: HashSet<&str> = HashSet::new();
            let mut values: Vec<Value> = Vec::new();
            for (value, text) in of_runs.iter().zip(&texts) {
                if seen.insert(text) {
                    values.push(value.clone());
                }
            }
            if let [only] = values.as_slice() {
                if !only.is_null() && only != "" {
                    common.push(((*name).to_string(), only.clone()));
                }
                continue;
            }
            // A tunable that is not set has its default, which comes first.
            let is_default = |value: &Value| value.is_null() && name.starts_with("set.");
            let is_number = values
                .iter()
                .all(|value| value.is_number() || is_default(value));
            if is_number {
                let number = |value: &Value| value.as_f64().unwrap_or(f64::NEG_INFINITY);
                values.sort_by(|a, b| number(a).total_cmp(&number(b)));
            }
            let at = values.iter().enumerate();
            let at: HashMap<String, usize> = at.map(|(at, of)| (of.to_string(), at)).collect();
            for (place, text) in places.iter_mut().zip(&texts) {
                place.push(at[text]);
            }
            axes.push(GridAxis {
                name: (*name).to_string(),
                values,
                is_number,
            });
        }
        Self {
            axes,
            runs: runs.iter().zip(places).collect(),
            common,
        }
    }

    /// Columns that say which run a row is of.
    pub fn columns(&self) -> Vec<Column> {
        let columns = self.axes.iter().map(|axis| match axis.is_number {
            true => Column::number(plain(&axis.name)),
            false => Column::text(plain(&axis.name)),
        });
        match columns.collect::<Vec<_>>() {
            none if none.is_empty() => vec![Column::text("run")],
            some => some,
        }
    }

    /// Cells of a run for these columns.
    pub fn cells(&self, places: &[usize]) -> Vec<Cell> {
        if self.axes.is_empty() {
            let name = self
                .common
                .iter()
                .map(|(name, value)| shown(name, value))
                .next();
            return vec![Cell::text(name.unwrap_or_else(|| "run".to_string()))];
        }
        let cells = self.axes.iter().zip(places).map(|(axis, place)| {
            let value = &axis.values[*place];
            let text = axis.text(*place);
            match value.as_f64() {
                Some(number) => Cell::number(text, number),
                None => Cell::text(text),
            }
        });
        cells.collect()
    }

    /// The properties that all runs share, in a sentence; empty if none.
    pub fn common(&self) -> String {
        let parts = self
            .common
            .iter()
            .map(|(name, value)| format!("{} {}", plain(name), shown(name, value)));
        match parts.collect::<Vec<_>>().join(", ") {
            none if none.is_empty() => String::new(),
            all => format!("All runs: {all}."),
        }
    }

    /// Name of a run by its values on some axes.
    pub fn label(&self, places: &[usize], axes: &[usize]) -> String {
        let parts = axes.iter().map(|at| {
            let axis = &self.axes[*at];
            let text = axis.text(places[*at]);
            match plain(&axis.name).as_str() {
                "design" | "file" | "driver" | "input" | "set" => text,
                "release" => format!("Linux {text}"),
                "CPUs" if text == "1" => "1 CPU".to_string(),
                name @ ("pages" | "CPUs") => format!("{text} {name}"),
                name if axis.name.starts_with("set.") => format!("{name}={text}"),
                name => format!("{name} {text}"),
            }
        });
        let label = parts
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join(", ");
        if label.is_empty() {
            "all".to_string()
        } else {
            label
        }
    }

    /// Name of a run by all axes.
    pub fn whole_label(&self, places: &[usize]) -> String {
        self.label(places, &self.independent())
    }

    /// True if the value on an axis follows from that on another.
    fn follows(&self, at: usize, of: usize) -> bool {
        let mut values = vec![None; self.axes[of].values.len()];
        let mut runs = self.runs.iter();
        runs.all(|(_, places)| *values[places[of]].get_or_insert(places[at]) == places[at])
    }

    /// Axes without those whose value follows from an earlier one.
    fn independent(&self) -> Vec<usize> {
        let mut kept: Vec<usize> = Vec::new();
        for at in 0..self.axes.len() {
            if !kept.iter().any(|of| self.follows(at, *of)) {
                kept.push(at);
            }
        }
        kept
    }

    /// The numeric axis with most values.
    fn x(&self) -> Option<usize> {
        let numeric = self
            .independent()
            .into_iter()
            .filter(|at| self.axes[*at].is_number);
        numeric.max_by_key(|at| (self.axes[*at].values.len(), usize::MAX - at))
    }

    /// Charts of a figure: small ones with lines over the numeric axis with most values, or bars without one.
    pub fn charts_by(
        &self,
        name: &str,
        bounds: Option<[&str; 2]>,
        value: impl Fn(&R, &str) -> Option<f64>,
    ) -> Vec<Chart> {
        let value = |run: &R, of: &str| value(run, of).map(|value| on_axis(of, value));
        let Some(x) = self.x() else {
            if let Some([low, high]) = bounds {
                let ranges = self.runs.iter().filter_map(|(run, places)| {
                    let middle = value(run, name)?;
                    Some(Range {
                        name: self.whole_label(places),
                        low: value(run, low).unwrap_or(middle),
                        middle,
                        high: value(run, high).unwrap_or(middle),
                    })
                });
                let ranges: Vec<Range> = ranges.collect();
                let axis = Axis::linear(titled(name));
                return match ranges.is_empty() {
                    true => Vec::new(),
                    false => vec![Chart::ranges(&titled(name), axis, ranges, None)],
                };
            }
            let bars = self.runs.iter().filter_map(|(run, places)| {
                Some(Bar {
                    name: self.whole_label(places),
                    values: vec![value(run, name)?],
                })
            });
            let bars: Vec<Bar> = bars.collect();
            return match bars.is_empty() {
                true => Vec::new(),
                false => vec![Chart::bars(
                    &titled(name),
                    Axis::linear(titled(name)),
                    &["all"],
                    bars,
                )],
            };
        };
        let mut lines: Vec<usize> = self.independent();
        lines.retain(|at| *at != x);
        let mut panels = Vec::new();
        // The axis with most values stays last, as lines of one chart.
        lines.sort_by_key(|at| self.axes[*at].values.len());
        while lines.len() > 1
            && lines
                .iter()
                .map(|at| self.axes[*at].values.len())
                .product::<usize>()
                > LINES
        {
            panels.push(lines.remove(0));
        }
        panels.sort_unstable();
        lines.sort_unstable();
        let axis = &self.axes[x];
        let points = self.runs.iter().filter_map(|(run, places)| {
            let low_high =
                bounds.and_then(|[low, high]| Some([value(run, low)?, value(run, high)?]));
            Some((places, value(run, name)?, low_high))
        });
        let points: Vec<_> = points.collect();
        let all = points
            .iter()
            .flat_map(|(_, value, bounds)| bounds.unwrap_or([*value; 2]));
        let most = all.fold(0.0, f64::max);
        let by_panel = points
            .iter()
            .map(|point| (self.label(point.0, &panels), point));
        let charts = grouped(by_panel)
            .into_iter()
            .take(PANELS)
            .map(|(title, points)| {
                let by_line = points
                    .into_iter()
                    .map(|point| (self.label(point.0, &lines), point));
                let drawn = grouped(by_line).into_iter().map(|(label, points)| {
                    let mut points = points;
                    points.sort_by_key(|(places, _, _)| places[x]);
                    let at = |places: &[usize]| axis.place(places[x]);
                    let mut line = Line::new(
                        label,
                        points.iter().map(|(places, value, _)| (at(places), *value)),
                    );
                    let bounds = points
                        .iter()
                        .filter_map(|(places, _, bounds)| Some((at(places), (*bounds)?)));
                    line.bounds = bounds.collect();
                    line
                });
                let drawn: Vec<Line> = drawn.collect();
                let is_alone = panels.is_empty();
                let title = if is_alone { titled(name) } else { title };
                let chart =
                    Chart::lines(&title, axis.on_chart(), Axis::linear(titled(name)), drawn);
                match is_alone {
                    true => chart,
                    false => chart.small().within(0.0, most * 1.05),
                }
            });
        charts.collect()
    }
}

impl GridAxis {
    /// A value as text.
    pub fn text(&self, at: usize) -> String {
        match &self.values[at] {
            Value::Null if self.name.starts_with("set.") => "default".to_string(),
            value => shown(&self.name, value),
        }
    }

    /// Numbers with equal distances or ratios; sizes of pages have names.
    fn is_continuous(&self) -> bool {
        let is_pages = plain(&self.name) == "pages";
        self.is_number
            && self.values.len() > 2
            && !is_pages
            && self.values.iter().all(Value::is_number)
    }

    fn place(&self, at: usize) -> f64 {
        match self.is_continuous() {
            true => self.values[at].as_f64().unwrap_or_default(),
            false => at as f64,
        }
    }

    /// The axis of a chart.
    fn on_chart(&self) -> Axis {
        let title = plain(&self.name);
        if !self.is_continuous() {
            let names = (0..self.values.len()).map(|at| self.text(at));
            return Axis::names(title, names);
        }
        let ends = [self.values.first(), self.values.last()]
            .map(|end| end.and_then(Value::as_f64).unwrap_or(0.0));
        match ends[0] > 0.0 && ends[1] >= ends[0] * DECADES {
            true => Axis::logarithmic(title),
            false => Axis::linear(title),
        }
    }
}

/// Name of a member for people.
pub fn plain(name: &str) -> String {
    if let Some(tunable) = name.strip_prefix("set.") {
        return tunable.to_string();
    }
    let name = name.strip_prefix("asked.").unwrap_or(name);
    match name {
        "page_size" => "pages".to_string(),
        "cpus" => "CPUs".to_string(),
        other => other.replace('_', " "),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Drawing;

    fn run(design: &str, cpus: u32, bytes: u64) -> Value {
        json!({"design": design, "era": "6.18", "page_size": 4096, "cpus": cpus, "peak_slab_bytes": bytes})
    }

    #[test]
    fn runs_differ_in_axes_and_share_the_rest() {
        let runs = [run("slub", 16, 1), run("slub", 2, 1), run("sheaf", 2, 1)];
        let grid = Grid::of(&runs);
        let names: Vec<&str> = grid.axes.iter().map(|axis| axis.name.as_str()).collect();
        assert_eq!(names, ["design", "cpus"]);
        assert_eq!(grid.axes[1].values, [json!(2), json!(16)]);
        assert_eq!(grid.runs[0].1, [0, 1]);
        assert_eq!(grid.whole_label(&grid.runs[2].1), "sheaf@6.18, 2 CPUs");
        assert_eq!(grid.common(), "All runs: pages 4 KiB.");
    }

    #[test]
    fn a_figure_has_lines_over_numbers_and_bars_without() {
        let runs = [run("slub", 16, 3), run("slub", 2, 1), run("sheaf", 2, 1)];
        let charts = Grid::of(&runs).charts("peak_slab_bytes", None);
        assert_eq!(charts.len(), 1);
        assert!(matches!(charts[0].drawing, Drawing::Lines { .. }));
        let runs = [run("slub", 2, 3), run("sheaf", 2, 1)];
        let charts = Grid::of(&runs).charts("peak_slab_bytes", None);
        assert!(matches!(charts[0].drawing, Drawing::Bars { .. }));
        assert!(Grid::of(&runs).charts("absent", None).is_empty());
        // What follows from the design is no axis of its own.
        let mut runs = [run("slub", 2, 3), run("sheaf", 2, 1), run("sheaf", 4, 1)];
        for run in &mut runs {
            run["driver"] = format!("of {}", run["design"]).into();
        }
        let grid = Grid::of(&runs);
        assert_eq!(grid.axes.len(), 3);
        assert_eq!(grid.whole_label(&grid.runs[0].1), "slub@6.18, 2 CPUs");
    }

    #[test]
    fn many_lines_are_split_into_charts_of_one_scale() {
        let runs: Vec<Value> = (0..60)
            .map(|at| {
                let mut run = run(&format!("d{}", at % 5), [2, 4, 8][at / 5 % 3], at as u64);
                run["machine"] = format!("m{}", at / 15).into();
                run
            })
            .collect();
        let charts = Grid::of(&runs).charts("peak_slab_bytes", None);
        assert_eq!(charts.len(), 4);
        assert!(
            charts
                .iter()
                .all(|chart| chart.is_small && chart.within == charts[0].within)
        );
    }
}
