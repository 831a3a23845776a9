//! Charts: lines, bars, ranges, distributions and heat maps.

use maud::{Markup, PreEscaped, html};
use serde_json::Value;

use crate::spec;

/// Okabe and Ito, "Color Universal Design" (2008), without black and yellow, which a dark or a light page hides.
pub(crate) const COLOURS: [&str; 6] = [
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9",
];
/// Dashes of lines beyond the first of a colour.
const DASHES: [&[u8]; 4] = [&[], &[8, 3], &[2, 3], &[10, 3, 2, 3]];

/// A chart: a specification of Vega-Lite, with boxes that show and hide its parts.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Title.
    pub title: String,
    /// A sentence below the chart; empty for none.
    pub note: String,
    /// The specification, data included.
    pub spec: Value,
    keys: Vec<Key>,
}

/// A name in the legend, whose box shows and hides it.
#[derive(Clone, Debug)]
struct Key {
    name: String,
    colour: &'static str,
    dash: Vec<u8>,
    is_bar: bool,
}

/// An axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Quantity and unit.
    pub title: String,
    pub(crate) scale: Scale,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Scale {
    Linear,
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
    fn new(title: &str, spec: Value, keys: Vec<Key>) -> Self {
        Self {
            title: title.to_string(),
            note: String::new(),
            spec,
            keys,
        }
    }

    /// Lines over an axis. The pointer shows the nearest point; dragging and the wheel with Ctrl move and zoom.
    pub fn lines(title: &str, x: Axis, y: Axis, lines: &[Line]) -> Self {
        let keys = line_keys(lines);
        let styles: Vec<(&str, &[u8])> = keys
            .iter()
            .map(|key| (key.colour, key.dash.as_slice()))
            .collect();
        let spec = spec::lines(&x, &y, lines, &styles);
        let keys = if keys.len() > 1 { keys } else { Vec::new() };
        Self::new(title, spec, keys)
    }

    /// Bars below each other, each of parts with these names.
    pub fn bars(title: &str, axis: Axis, parts: &[&str], bars: &[Bar]) -> Self {
        let keys = parts.iter().zip(COLOURS.iter().cycle());
        let keys = keys.map(|(name, colour)| Key {
            name: (*name).to_string(),
            colour,
            dash: Vec::new(),
            is_bar: true,
        });
        let keys: Vec<Key> = keys.filter(|_| parts.len() > 1).collect();
        Self::new(title, spec::bars(&axis, parts, bars), keys)
    }

    /// Values with bounds, and a value that all are compared with, with its name.
    pub fn ranges(title: &str, axis: Axis, ranges: &[Range], now: Option<(&str, f64)>) -> Self {
        Self::new(title, spec::ranges(&axis, ranges, now), Vec::new())
    }

    /// The number of values in each interval of a range from low to high, which several charts may share; `what` names
    /// what is counted.
    pub fn distribution(
        title: &str,
        axis: Axis,
        what: &str,
        values: &[f64],
        range: [f64; 2],
    ) -> Self {
        let spec = spec::distribution(&axis, what, values, range);
        Self::new(title, spec, Vec::new())
    }

    /// A value by colour and number at places of two axes of names.
    pub fn heat(title: &str, x: Axis, y: Axis, what: &str, cells: &[(usize, usize, f64)]) -> Self {
        Self::new(title, spec::heat(&x, &y, what, cells), Vec::new())
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
        self.spec["height"] = 150.into();
        self
    }

    /// The chart with its vertical axis over a range that several charts share.
    #[must_use]
    pub fn within(mut self, low: f64, high: f64) -> Self {
        self.spec["encoding"]["y"]["scale"]["domain"] = vec![low, high].into();
        self
    }

    pub(crate) fn markup(&self) -> Markup {
        // `<` must not end the script early.
        let data = self.spec.to_string().replace('<', "\\u003c");
        html! {
            figure.chart {
                figcaption { (self.title) }
                @if !self.keys.is_empty() {
                    div.keys { @for key in &self.keys { (self::key(key)) } }
                }
                div.plot role="img" aria-label=(self.title) {}
                @if !self.note.is_empty() { p.note { (self.note) } }
                script type="application/json" { (PreEscaped(data)) }
            }
        }
    }
}

/// A box with the colour and the dash of a name.
fn key(key: &Key) -> Markup {
    let dash: Vec<String> = key.dash.iter().map(ToString::to_string).collect();
    let width = if key.is_bar { 14 } else { 3 };
    html! {
        label {
            input type="checkbox" value=(key.name) checked;
            svg viewBox="0 0 32 14" aria-hidden="true" {
                line x1="0" x2="32" y1="7" y2="7" stroke=(key.colour) stroke-width=(width) stroke-dasharray=(dash.join(" ")) {}
            }
            (key.name)
        }
    }
}

/// A colour for each subject, and a dash where a colour or a form repeats.
fn line_keys(lines: &[Line]) -> Vec<Key> {
    let mut subjects: Vec<&str> = Vec::new();
    let keys = lines.iter().map(|line| {
        let subject = match line.subject.as_str() {
            "" => line.name.as_str(),
            subject => subject,
        };
        let at = subjects.iter().position(|known| *known == subject);
        let at = at.unwrap_or_else(|| {
            subjects.push(subject);
            subjects.len() - 1
        });
        let dash = match line.kind {
            LineKind::Other => &[6, 4],
            LineKind::Limit => &[2, 4],
            _ => DASHES[at / COLOURS.len() % DASHES.len()],
        };
        Key {
            name: line.name.clone(),
            colour: COLOURS[at % COLOURS.len()],
            dash: dash.to_vec(),
            is_bar: false,
        }
    });
    keys.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_subject_have_its_colour() {
        let line = |name: &str, subject: &str, kind| Line {
            subject: subject.to_string(),
            ..Line::new(name, [(0.0, 0.0)]).kind(kind)
        };
        let keys = line_keys(&[
            line("a", "", LineKind::Straight),
            line("b", "", LineKind::Steps),
            line("a, published", "a", LineKind::Other),
        ]);
        let colours: Vec<&str> = keys.iter().map(|key| key.colour).collect();
        assert_eq!(colours, [COLOURS[0], COLOURS[1], COLOURS[0]]);
        assert_eq!(keys[2].dash, [6, 4]);
        // Beyond the colours the dash tells lines apart.
        let many: Vec<Line> = (0..8)
            .map(|at| Line::new(at.to_string(), [(0.0, 0.0)]))
            .collect();
        let keys = line_keys(&many);
        assert_eq!(keys[6].colour, keys[0].colour);
        assert_ne!(keys[6].dash, keys[0].dash);
    }

    #[test]
    fn names_cannot_leave_the_script() {
        let line = Line::new("</script><b>", [(0.0, 1.0)]);
        let axes = || Axis::linear("x");
        let text = Chart::lines("t", axes(), axes(), &[line])
            .markup()
            .into_string();
        assert_eq!(text.matches("</script>").count(), 1, "{text}");
        assert!(!text.contains("<b>"));
    }
}
