//! Charts as data: lines, bars, ranges, distributions, heat maps and maps of cells.

use serde_json::Value;

use crate::{Column, value};

const MIB: f64 = 1_048_576.0;

/// A chart.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Title.
    pub title: String,
    /// A sentence below the chart; empty for none.
    pub note: String,
    /// Contents.
    pub drawing: Drawing,
    /// True for a lower chart, one of several next to each other.
    pub is_small: bool,
    /// Range of the vertical axis that several charts share.
    pub within: Option<[f64; 2]>,
}

/// Contents of a chart.
#[derive(Clone, Debug)]
pub enum Drawing {
    /// Lines over an axis.
    Lines {
        /// Horizontal axis.
        x: Axis,
        /// Vertical axis.
        y: Axis,
        /// The lines.
        lines: Vec<Line>,
    },
    /// Bars below each other, each of parts with these names.
    Bars {
        /// Axis of the values.
        axis: Axis,
        /// Names of the parts.
        parts: Vec<String>,
        /// The bars.
        bars: Vec<Bar>,
    },
    /// Values with bounds, and a value that all are compared with.
    Ranges {
        /// Axis of the values.
        axis: Axis,
        /// The values.
        ranges: Vec<Range>,
        /// Name and value of what all are compared with.
        now: Option<(String, f64)>,
    },
    /// The number of values in each interval of a range.
    Distribution {
        /// Axis of the values.
        axis: Axis,
        /// Things that are counted.
        what: String,
        /// The values.
        values: Vec<f64>,
        /// Ends of the range, which several charts may share.
        range: [f64; 2],
    },
    /// A value by colour and number at places of two axes of names.
    Heat {
        /// Horizontal axis.
        x: Axis,
        /// Vertical axis.
        y: Axis,
        /// Name of the value.
        what: String,
        /// Place on both axes, and value.
        cells: Vec<(usize, usize, f64)>,
    },
    /// Rows of small cells, each of a kind that has a colour.
    Map {
        /// Thing that a cell stands for.
        cell: String,
        /// Kinds of cells.
        kinds: Vec<Kind>,
        /// The rows.
        rows: Vec<Cells>,
    },
    /// Frames of call stacks, each as wide as its bytes and above the frame that called it.
    Flame {
        /// Frames, each behind the one below it.
        frames: Vec<Frame>,
    },
}

/// A frame of a flame graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// Name.
    pub name: String,
    /// Frames below it.
    pub depth: usize,
    /// Bytes to the left of it, and its own.
    pub place: [f64; 2],
}

/// A kind of cells.
#[derive(Clone, Debug)]
pub struct Kind {
    /// Letter that stands for it in [`Cells`]; kinds of one letter, small and capital, share a colour, which is pale for the small one.
    pub letter: char,
    /// Name in the legend.
    pub name: String,
}

/// A row of cells.
#[derive(Clone, Debug)]
pub struct Cells {
    /// Name on the axis.
    pub name: String,
    /// The letter of a kind for each cell; others are left blank.
    pub cells: String,
    /// Sentence that the pointer shows of the row.
    pub about: String,
}

/// An axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Quantity and unit.
    pub title: String,
    /// Places of values.
    pub scale: Scale,
}

/// Places of values on an axis.
#[derive(Clone, Debug, PartialEq)]
pub enum Scale {
    /// Equal differences have equal distances.
    Linear,
    /// Equal ratios have equal distances.
    Logarithmic,
    /// Parts of a whole as `-log10(1 - part)`: 90, 99 and 99.9 per cent have equal distances.
    Percentiles,
    /// A place for each name; a value is the index of its name.
    Names(Vec<String>),
}

impl Axis {
    /// An axis of numbers.
    pub fn linear(title: impl Into<String>) -> Self {
        let (title, scale) = (title.into(), Scale::Linear);
        Self { title, scale }
    }

    /// An axis of numbers above 0 on which equal ratios have equal distances.
    pub fn logarithmic(title: impl Into<String>) -> Self {
        Self {
            scale: Scale::Logarithmic,
            ..Self::linear(title)
        }
    }

    /// An axis of percentiles, given as `-log10(1 - part)`.
    pub fn percentiles(title: impl Into<String>) -> Self {
        Self {
            scale: Scale::Percentiles,
            ..Self::linear(title)
        }
    }

    /// An axis with a place for each name; a value is the index of its name.
    pub fn names(
        title: impl Into<String>,
        names: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        Self {
            scale: Scale::Names(names.into_iter().map(Into::into).collect()),
            ..Self::linear(title)
        }
    }
}

/// Form of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineKind {
    /// Straight from point to point.
    #[default]
    Straight,
    /// Holds its value until the next point.
    Steps,
    /// Dashed, with open marks: numbers of another source.
    Other,
    /// Dotted, without marks: a limit.
    Limit,
}

/// A line of a chart.
#[derive(Clone, Debug, Default)]
pub struct Line {
    /// Name in the legend.
    pub name: String,
    /// Points.
    pub points: Vec<(f64, f64)>,
    /// Bounds at some places: x, the low and the high one.
    pub bounds: Vec<(f64, [f64; 2])>,
    /// Form.
    pub kind: LineKind,
    /// Lines of one subject have one colour; empty for a subject of its own.
    pub subject: String,
}

impl Line {
    /// A line through points.
    pub fn new(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self {
            name: name.into(),
            points: points.into_iter().collect(),
            ..Self::default()
        }
    }

    /// The line in another form.
    #[must_use]
    pub fn kind(mut self, kind: LineKind) -> Self {
        self.kind = kind;
        self
    }
}

/// A bar of several parts.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Name on the axis.
    pub name: String,
    /// A value for each part.
    pub values: Vec<f64>,
}

/// A value with bounds.
#[derive(Clone, Debug)]
pub struct Range {
    /// Name on the axis.
    pub name: String,
    /// Least value.
    pub low: f64,
    /// Expected value.
    pub middle: f64,
    /// Greatest value.
    pub high: f64,
}

impl Chart {
    fn new(title: &str, drawing: Drawing) -> Self {
        Self {
            title: title.to_string(),
            note: String::new(),
            drawing,
            is_small: false,
            within: None,
        }
    }

    /// Lines over an axis.
    #[must_use]
    pub fn lines(title: &str, x: Axis, y: Axis, lines: Vec<Line>) -> Self {
        Self::new(title, Drawing::Lines { x, y, lines })
    }

    /// Bars below each other, each of parts with these names.
    #[must_use]
    pub fn bars(title: &str, axis: Axis, parts: &[&str], bars: Vec<Bar>) -> Self {
        let parts = parts.iter().map(ToString::to_string).collect();
        Self::new(title, Drawing::Bars { axis, parts, bars })
    }

    /// Values with bounds, and a value that all are compared with, with its name.
    #[must_use]
    pub fn ranges(title: &str, axis: Axis, ranges: Vec<Range>, now: Option<(&str, f64)>) -> Self {
        let now = now.map(|(name, value)| (name.to_string(), value));
        Self::new(title, Drawing::Ranges { axis, ranges, now })
    }

    /// Bars of columns of bytes, in MiB, one for each row.
    #[must_use]
    pub fn bars_of(
        title: &str,
        axis: &str,
        rows: &[Value],
        name: fn(&Value) -> String,
        parts: &[Column],
    ) -> Self {
        let bars = rows.iter().map(|row| Bar {
            name: name(row),
            values: parts
                .iter()
                .map(|part| part.value(row).unwrap_or(0.0) / MIB)
                .collect(),
        });
        let names: Vec<String> = parts.iter().map(Column::plain).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        Self::bars(title, Axis::linear(axis), &names, bars.collect())
    }

    /// Bytes with bounds, in MiB, one for each row: its name, low, middle and high are at these paths. They are compared with
    /// the bytes now.
    #[must_use]
    pub fn ranges_of(title: &str, rows: &[Value], paths: [&str; 4], now: Option<f64>) -> Self {
        let ranges = rows.iter().map(|row| {
            let mib = |path: &str| value::number(row, path).unwrap_or(0.0) / MIB;
            let [name, low, middle, high] = paths;
            Range {
                name: value::text(row, name).to_string(),
                low: mib(low),
                middle: mib(middle),
                high: mib(high),
            }
        });
        let compared = now.map(|now| ("now", now / MIB));
        let chart = Self::ranges(title, Axis::linear("MiB"), ranges.collect(), compared);
        match now {
            Some(_) => chart
                .noted("The dashed line is the slab memory now, the thick mark the prediction."),
            None => chart,
        }
    }

    /// The number of values in each interval of a range from low to high; `what` names what is counted.
    #[must_use]
    pub fn distribution(
        title: &str,
        axis: Axis,
        what: &str,
        values: &[f64],
        range: [f64; 2],
    ) -> Self {
        let (what, values) = (what.to_string(), values.to_vec());
        let drawing = Drawing::Distribution {
            axis,
            what,
            values,
            range,
        };
        Self::new(title, drawing)
    }

    /// A value by colour and number at places of two axes of names.
    #[must_use]
    pub fn heat(
        title: &str,
        x: Axis,
        y: Axis,
        what: &str,
        cells: Vec<(usize, usize, f64)>,
    ) -> Self {
        let what = what.to_string();
        Self::new(title, Drawing::Heat { x, y, what, cells })
    }

    /// Rows of small cells, each of a kind that has a colour; `cell` names the thing that one stands for.
    #[must_use]
    pub fn map(title: &str, cell: &str, kinds: Vec<Kind>, rows: Vec<Cells>) -> Self {
        let cell = cell.to_string();
        Self::new(title, Drawing::Map { cell, kinds, rows })
    }

    /// A flame graph of call stacks, each from the outermost frame on, with their bytes. Frames of one name that have the same
    /// frames below them are one.
    #[must_use]
    pub fn flame(title: &str, stacks: &[(Vec<String>, f64)]) -> Self {
        let mut stacks: Vec<(&[String], f64)> = stacks
            .iter()
            .map(|(frames, bytes)| (frames.as_slice(), *bytes))
            .collect();
        stacks.sort_by_key(|(frames, _)| *frames);
        let all: f64 = stacks.iter().map(|(_, bytes)| bytes).sum();
        let mut frames = vec![Frame {
            name: "all".to_string(),
            depth: 0,
            place: [0.0, all],
        }];
        // Frames of the stack before, by their depth.
        let mut open: Vec<(usize, &String)> = Vec::new();
        let mut left = 0.0;
        for (stack, bytes) in stacks {
            let same = stack.iter().zip(&open);
            let same = same.take_while(|(name, (_, other))| name == other).count();
            open.truncate(same);
            for (at, _) in &open {
                frames[*at].place[1] += bytes;
            }
            for (depth, name) in stack.iter().enumerate().skip(same) {
                open.push((frames.len(), name));
                frames.push(Frame {
                    name: name.clone(),
                    depth: depth + 1,
                    place: [left, bytes],
                });
            }
            left += bytes;
        }
        Self::new(title, Drawing::Flame { frames })
    }

    /// The chart with a sentence below it.
    #[must_use]
    pub fn noted(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// The chart, lower, for small multiples.
    #[must_use]
    pub fn small(mut self) -> Self {
        self.is_small = true;
        self
    }

    /// The chart with its vertical axis over a range that several charts share.
    #[must_use]
    pub fn within(mut self, low: f64, high: f64) -> Self {
        self.within = Some([low, high]);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_one_caller_are_one() {
        let stack = |frames: &str| frames.split(';').map(str::to_string).collect::<Vec<_>>();
        let stacks = [
            (stack("sh;open;filp"), 3.0),
            (stack("cat;open;filp"), 1.0),
            (stack("sh;open;dentry"), 2.0),
        ];
        let Drawing::Flame { frames } = Chart::flame("t", &stacks).drawing else {
            panic!("no flame graph");
        };
        let told: Vec<String> = frames
            .iter()
            .map(|of| format!("{} {} {:?}", of.depth, of.name, of.place))
            .collect();
        assert_eq!(
            told,
            [
                "0 all [0.0, 6.0]",
                "1 cat [0.0, 1.0]",
                "2 open [0.0, 1.0]",
                "3 filp [0.0, 1.0]",
                "1 sh [1.0, 5.0]",
                "2 open [1.0, 5.0]",
                "3 dentry [1.0, 2.0]",
                "3 filp [3.0, 3.0]",
            ]
        );
    }
}
