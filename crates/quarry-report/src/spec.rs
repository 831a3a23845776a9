//! Specifications of Vega-Lite.

use std::fmt::Write as _;

use quarry_view::{Axis, Bar, Line, LineKind, Range, Scale};
use serde_json::{Value, json};

use crate::chart::COLOURS;

/// Points of a line that have marks; those of more would hide it.
const MARKED: usize = 60;
/// Form of numbers under the pointer.
const NUMBER: &str = ",.4~r";

/// Rows of data as text, which is a third as long as JSON.
struct Data {
    text: String,
    types: Value,
}

impl Data {
    /// Columns: their names, and true for numbers.
    fn new(columns: &[(&str, bool)]) -> Self {
        let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
        let types = columns.iter().map(|(name, is_number)| {
            let kind = if *is_number { "number" } else { "string" };
            ((*name).to_string(), Value::from(kind))
        });
        Self {
            text: names.join(","),
            types: Value::Object(types.collect()),
        }
    }

    fn row(&mut self, cells: &[&dyn Cell]) {
        self.text.push('\n');
        for (at, cell) in cells.iter().enumerate() {
            if at > 0 {
                self.text.push(',');
            }
            cell.write(&mut self.text);
        }
    }

    fn value(self) -> Value {
        json!({"values": self.text, "format": {"type": "csv", "parse": self.types}})
    }
}

/// A number with nine digits: more make pages larger, and depend on how a number was read.
pub(crate) fn rounded(value: f64) -> f64 {
    format!("{value:.8e}").parse().unwrap_or(value)
}

/// A cell of [`Data`].
trait Cell {
    fn write(&self, text: &mut String);
}

impl Cell for f64 {
    fn write(&self, text: &mut String) {
        if self.is_finite() {
            // Writing to a string cannot fail.
            let _ = write!(text, "{}", rounded(*self));
        }
    }
}

impl Cell for String {
    fn write(&self, text: &mut String) {
        let _ = write!(text, "\"{}\"", self.replace('"', "\"\""));
    }
}

/// Letters in a line of a label below a chart, and of one beside it.
const ACROSS: usize = 14;
const BESIDE: usize = 24;
/// Pixels of a line of labels, and between two labels.
const LINE: usize = 14;
const GAP: usize = 6;

/// A label in lines of this many letters at most, broken behind spaces and signs, or anywhere in a longer word: no label is cut.
fn lines_of(label: &str, letters: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let signs = |letter: char| " -_,./+:@(".contains(letter);
    for word in label.split_inclusive(signs) {
        let mut word: Vec<char> = word.chars().collect();
        while !word.is_empty() {
            let Some(line) = lines.last_mut() else { break };
            let free = letters.saturating_sub(line.chars().count());
            let needed = word.len() - usize::from(word.ends_with(&[' ']));
            if needed <= free {
                line.extend(word.drain(..));
            } else if line.is_empty() {
                line.extend(word.drain(..letters));
                lines.push(String::new());
            } else {
                lines.push(String::new());
            }
        }
    }
    lines
        .iter_mut()
        .for_each(|line| line.truncate(line.trim_end().len()));
    lines.retain(|line| !line.is_empty());
    lines
}

/// An expression with the lines of each label.
fn labels(names: &[impl AsRef<str>], letters: usize) -> String {
    let names = names.iter().map(AsRef::as_ref);
    let lines = names.map(|name| (name.to_string(), json!(lines_of(name, letters))));
    format!("{}[datum.label]", Value::Object(lines.collect()))
}

/// The axis of labels beside a chart.
fn beside(names: &[&str]) -> Value {
    json!({"labelLimit": 0, "labelLineHeight": LINE, "labelExpr": labels(names, BESIDE)})
}

/// Height of a row that has room for the longest of these labels.
fn step(names: &[&str]) -> Value {
    let lines = names.iter().map(|name| lines_of(name, BESIDE).len());
    json!({"step": GAP + LINE * lines.max().unwrap_or(1).max(1)})
}

/// An axis in the words of Vega-Lite.
trait Encoded {
    fn is_names(&self) -> bool;
    /// The encoding of a field on this axis.
    fn encoding(&self, field: &str) -> Value;
    /// Fields that the pointer shows of a field on this axis.
    fn tooltip(&self, field: &str) -> Value;
    /// A value as the data has it: a number, or the name at an index.
    fn cell(&self, value: f64) -> Box<dyn Cell>;
}

impl Encoded for Axis {
    fn is_names(&self) -> bool {
        matches!(self.scale, Scale::Names(_))
    }

    fn encoding(&self, field: &str) -> Value {
        let mut encoding = json!({"field": field, "title": self.title, "type": "quantitative"});
        match &self.scale {
            Scale::Linear => {}
            Scale::Logarithmic => encoding["scale"] = json!({"type": "log"}),
            Scale::Percentiles => {
                let label = "format(100 - 100 * pow(10, -datum.value), '.6~r') + ' %'";
                encoding["axis"] = json!({"labelExpr": label, "tickMinStep": 1});
            }
            Scale::Names(names) => {
                encoding["type"] = "ordinal".into();
                encoding["sort"] = names.clone().into();
                let label = labels(names, ACROSS);
                encoding["axis"] = json!({"labelAngle": 0, "labelLimit": 0, "labelOverlap": true, "labelExpr": label});
            }
        }
        encoding
    }

    fn tooltip(&self, field: &str) -> Value {
        match self.scale {
            Scale::Names(_) => json!({"field": field, "title": self.title}),
            _ => {
                json!({"field": field, "title": self.title, "format": NUMBER, "type": "quantitative"})
            }
        }
    }

    fn cell(&self, value: f64) -> Box<dyn Cell> {
        match &self.scale {
            Scale::Names(names) => {
                let name = names.get(value as usize).cloned().unwrap_or_default();
                Box::new(name)
            }
            _ => Box::new(value),
        }
    }
}

/// Lines, each with a colour and a dash.
pub(crate) fn lines(x: &Axis, y: &Axis, lines: &[Line], styles: &[(&str, &[u8])]) -> Value {
    let columns = [
        ("line", false),
        ("x", !x.is_names()),
        ("y", true),
        ("low", true),
        ("high", true),
        ("mark", true),
        ("open", true),
    ];
    let mut data = Data::new(&columns);
    for line in lines {
        let has_marks = match line.kind {
            LineKind::Steps | LineKind::Limit => false,
            LineKind::Straight | LineKind::Other => line.points.len() <= MARKED,
        };
        let is_open = line.kind == LineKind::Other;
        for (at, value) in &line.points {
            let bounds = line.bounds.iter().find(|(place, _)| place == at);
            let [low, high] = bounds.map_or([f64::NAN; 2], |(_, bounds)| *bounds);
            let flags = [has_marks, is_open].map(|flag| f64::from(u8::from(flag)));
            data.row(&[
                &line.name,
                &*x.cell(*at),
                value,
                &low,
                &high,
                &flags[0],
                &flags[1],
            ]);
        }
    }
    let names: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
    let colours: Vec<&str> = styles.iter().map(|(colour, _)| *colour).collect();
    let dashes: Vec<Value> = styles
        .iter()
        // No dash at all is none of Vega's.
        .map(|(_, dash)| {
            if dash.is_empty() {
                json!([1, 0])
            } else {
                json!(dash)
            }
        })
        .collect();
    let scaled = |range: Value| json!({"field": "line", "legend": null, "scale": {"domain": names, "range": range}});
    let colour = scaled(json!(colours));
    let is_stepped = lines.iter().any(|line| line.kind == LineKind::Steps);
    let mut line = json!({
        "mark": {"type": "line", "interpolate": if is_stepped { "step-after" } else { "linear" }, "clip": true},
        "encoding": {"stroke": colour, "strokeDash": scaled(json!(dashes))},
    });
    if !x.is_names() {
        // A wheel without a key scrolls the page.
        line["params"] = json!([{
            "name": "zoom", "bind": "scales",
            "select": {"type": "interval", "encodings": ["x", "y"], "zoom": "wheel![event.ctrlKey || event.metaKey || event.shiftKey]"},
        }]);
    }
    let bounds = json!({
        "transform": [{"filter": "isValid(datum.low) && datum.low < datum.high"}],
        "mark": {"type": "rule", "strokeWidth": 8, "opacity": 0.3, "clip": true},
        "encoding": {"y": y.encoding("low"), "y2": {"field": "high"}, "stroke": colour},
    });
    let mut place = x.encoding("x");
    if !x.is_names() {
        for (option, value) in [
            ("nice", json!(false)),
            ("zero", json!(false)),
            ("padding", json!(6)),
        ] {
            place["scale"][option] = value;
        }
        let mut places = lines.iter().flat_map(|line| &line.points);
        if places.all(|(at, _)| at.fract() == 0.0) && x.scale == Scale::Linear {
            place["axis"] = json!({"tickMinStep": 1, "format": ","});
        }
    }
    let mut layers = vec![line];
    let mut says = vec![
        json!({"field": "line", "title": " "}),
        x.tooltip("x"),
        y.tooltip("y"),
    ];
    if lines.iter().any(|line| !line.bounds.is_empty()) {
        layers.insert(0, bounds);
        for field in ["low", "high"] {
            says.push(
                json!({"field": field, "title": field, "format": NUMBER, "type": "quantitative"}),
            );
        }
    }
    layers.push(json!({
        "params": [{"name": "near", "select": {"type": "point", "on": "pointermove", "nearest": true, "clear": "pointerout"}}],
        "mark": {"type": "point", "size": 45, "strokeWidth": 2, "clip": true},
        "encoding": {
            "stroke": colour, "fill": colour,
            "fillOpacity": {"condition": {"test": "datum.open", "value": 0}, "value": 1},
            "opacity": {
                "condition": [{"param": "near", "empty": false, "value": 1}, {"test": "datum.mark", "value": 1}],
                "value": 0,
            },
            "tooltip": says,
        },
    }));
    json!({
        "width": "container", "height": 260,
        "data": data.value(),
        "params": [{"name": "hidden", "value": []}],
        "transform": [{"filter": "indexof(hidden, datum.line) < 0"}],
        "encoding": {"x": place, "y": y.encoding("y")},
        "layer": layers,
    })
}

/// Horizontal bars of parts.
pub(crate) fn bars(axis: &Axis, parts: &[String], bars: &[Bar]) -> Value {
    let mut data = Data::new(&[
        ("name", false),
        ("part", false),
        ("value", true),
        ("at", true),
    ]);
    for bar in bars {
        for (at, (part, value)) in parts.iter().zip(&bar.values).enumerate() {
            data.row(&[&bar.name, part, value, &(at as f64)]);
        }
    }
    let names: Vec<&str> = bars.iter().map(|bar| bar.name.as_str()).collect();
    let colours: Vec<&str> = COLOURS.iter().copied().cycle().take(parts.len()).collect();
    json!({
        "width": "container", "height": step(&names),
        "data": data.value(),
        "params": [{"name": "hidden", "value": []}],
        "transform": [{"filter": "indexof(hidden, datum.part) < 0"}],
        "mark": {"type": "bar"},
        "encoding": {
            "y": {"field": "name", "type": "ordinal", "sort": names, "title": null, "axis": beside(&names)},
            "x": axis.encoding("value"),
            "color": {"field": "part", "legend": null, "scale": {"domain": parts, "range": colours}},
            "order": {"field": "at", "type": "quantitative"},
            "tooltip": [{"field": "name", "title": " "}, {"field": "part", "title": "part"}, axis.tooltip("value")],
        },
    })
}

/// Ranges below each other, with a mark at the middle, and a line at a value that they are compared with.
pub(crate) fn ranges(axis: &Axis, ranges: &[Range], now: Option<(&str, f64)>) -> Value {
    let mut data = Data::new(&[
        ("name", false),
        ("low", true),
        ("middle", true),
        ("high", true),
    ]);
    for range in ranges {
        data.row(&[&range.name, &range.low, &range.middle, &range.high]);
    }
    let names: Vec<&str> = ranges.iter().map(|range| range.name.as_str()).collect();
    let field = |field: &str, title: &str| json!({"field": field, "title": title, "format": NUMBER, "type": "quantitative"});
    let says = json!([
        {"field": "name", "title": " "}, field("low", "low"), field("middle", &axis.title), field("high", "high"),
    ]);
    let mut middle = axis.encoding("middle");
    middle["scale"]["zero"] = false.into();
    let mut low = axis.encoding("low");
    low["scale"] = middle["scale"].clone();
    let mut layers = vec![
        json!({
            "mark": {"type": "bar", "height": 11, "opacity": 0.5, "color": COLOURS[5]},
            "encoding": {"x": low, "x2": {"field": "high"}, "tooltip": says},
        }),
        json!({
            "mark": {"type": "tick", "thickness": 4, "size": 15, "color": COLOURS[0]},
            "encoding": {"x": middle, "tooltip": says},
        }),
    ];
    if let Some((name, value)) = now {
        layers.push(json!({
            "data": {"values": [{"now": value, "name": name}]},
            "mark": {"type": "rule", "strokeDash": [4, 3], "stroke": "currentColor", "strokeWidth": 1.5},
            "encoding": {
                "y": null,
                "x": {"field": "now", "type": "quantitative"},
                "tooltip": [{"field": "name", "title": " "}, field("now", &axis.title)],
            },
        }));
    }
    json!({
        "width": "container", "height": step(&names),
        "data": data.value(),
        "encoding": {"y": {"field": "name", "type": "ordinal", "sort": names, "title": null, "axis": beside(&names)}},
        "layer": layers,
    })
}

/// The number of values in each of some equal intervals of a range.
pub(crate) fn distribution(axis: &Axis, what: &str, values: &[f64], range: [f64; 2]) -> Value {
    let mut data = Data::new(&[("value", true)]);
    for value in values {
        data.row(&[value]);
    }
    let scale = json!({"domain": range, "nice": true});
    let x = json!({"field": "from", "bin": {"binned": true}, "title": axis.title, "scale": scale});
    json!({
        "width": "container", "height": 200,
        "data": data.value(),
        "transform": [{"bin": {"maxbins": 40, "extent": range}, "field": "value", "as": ["from", "to"]}],
        "mark": {"type": "bar", "color": COLOURS[0]},
        "encoding": {
            "x": x,
            "x2": {"field": "to"},
            "y": {"aggregate": "count", "title": what},
            "tooltip": [
                {"field": "from", "bin": {"binned": true}, "title": axis.title},
                {"aggregate": "count", "title": what},
            ],
        },
    })
}

/// Coloured cells with numbers.
pub(crate) fn heat(x: &Axis, y: &Axis, what: &str, cells: &[(usize, usize, f64)]) -> Value {
    let columns = [("x", !x.is_names()), ("y", !y.is_names()), ("value", true)];
    let mut data = Data::new(&columns);
    for (across, down, value) in cells {
        data.row(&[&*x.cell(*across as f64), &*y.cell(*down as f64), value]);
    }
    let values = cells.iter().map(|(_, _, value)| *value);
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    // The dark end of the scheme has the large values, on which a number must be light.
    let light = format!("datum.value > {}", (low + high) / 2.0);
    json!({
        "width": "container", "height": {"step": 34},
        "data": data.value(),
        "encoding": {"x": x.encoding("x"), "y": y.encoding("y")},
        "layer": [
            {
                "mark": {"type": "rect"},
                "encoding": {
                    "color": {
                        "field": "value", "type": "quantitative", "title": what,
                        "scale": {"scheme": "viridis", "reverse": true, "zero": false, "nice": false},
                        "legend": {"orient": "bottom", "direction": "horizontal"},
                    },
                    "tooltip": [x.tooltip("x"), y.tooltip("y"), {"field": "value", "title": what, "format": NUMBER, "type": "quantitative"}],
                },
            },
            {
                "mark": {"type": "text"},
                "encoding": {
                    "text": {"field": "value", "format": ".3~r", "type": "quantitative"},
                    "color": {"condition": {"test": light, "value": "#fff"}, "value": "#000"},
                },
            },
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_broken_and_never_cut() {
        for (label, lines) in [
            ("slub@6.18", vec!["slub@6.18"]),
            (
                "slub@6.18, 64 KiB pages, 2 CPUs",
                vec!["slub@6.18, 64 KiB pages,", "2 CPUs"],
            ),
            (
                "kmem_cache_alloc_noprof+0x1a",
                vec!["kmem_cache_alloc_noprof+", "0x1a"],
            ),
            (
                "abcdefghijklmnopqrstuvwxyz0",
                vec!["abcdefghijklmnopqrstuvwx", "yz0"],
            ),
            ("", vec![]),
        ] {
            assert_eq!(lines_of(label, BESIDE), lines, "{label}");
        }
        assert_eq!(labels(&["a b"], 1), r#"{"a b":["a","b"]}[datum.label]"#);
        assert_eq!(
            step(&["a", "twelve letters of twelve letters"]),
            json!({"step": 34})
        );
    }
}
