//! Charts as markup: a specification of Vega-Lite, or a map's cells, with boxes that show and hide their parts.

use maud::{Markup, PreEscaped, html};
use quarry_view::{Cells, Chart, Drawing, Frame, Kind, Line, LineKind};
use serde_json::{Value, json};

use crate::spec;

/// Okabe and Ito, "Color Universal Design" (2008), without black and yellow, which a dark or a light page hides.
pub(crate) const COLOURS: [&str; 6] = [
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9",
];
/// Colours of a map's kinds: two pale ones for what can become free, one between, and a pale and a full one of each other colour.
const MAPPED: [&str; 9] = [
    "#cfd8cf", "#9fd0ee", "#c3b8dd", "#f5d595", "#E69F00", "#e8bcd6", "#CC79A7", "#edb493",
    "#D55E00",
];
/// Dashes of lines beyond the first of a colour.
const DASHES: [&[u8]; 4] = [&[], &[8, 3], &[2, 3], &[10, 3, 2, 3]];

/// A name in the legend, whose box shows and hides it.
#[derive(Clone, Debug)]
struct Key {
    name: String,
    colour: &'static str,
    dash: Vec<u8>,
    is_bar: bool,
}

impl Key {
    fn bar(name: String, colour: &'static str) -> Self {
        let dash = Vec::new();
        Self {
            name,
            colour,
            dash,
            is_bar: true,
        }
    }
}

/// The specification of a chart, and the names of its legend.
///
/// The pointer shows the nearest point of lines; dragging and the wheel with Ctrl move and zoom.
fn specified(chart: &Chart) -> (Value, Vec<Key>) {
    let (mut spec, keys) = match &chart.drawing {
        Drawing::Lines { x, y, lines } => {
            let keys = line_keys(lines);
            let styles: Vec<(&str, &[u8])> = keys
                .iter()
                .map(|key| (key.colour, key.dash.as_slice()))
                .collect();
            (spec::lines(x, y, lines, &styles), keys)
        }
        Drawing::Bars { axis, parts, bars } => {
            let keys = parts.iter().zip(COLOURS.iter().cycle());
            let keys = keys.map(|(name, colour)| Key::bar(name.clone(), colour));
            (spec::bars(axis, parts, bars), keys.collect())
        }
        Drawing::Ranges { axis, ranges, now } => {
            let now = now.as_ref().map(|(name, value)| (name.as_str(), *value));
            (spec::ranges(axis, ranges, now), Vec::new())
        }
        Drawing::Distribution {
            axis,
            what,
            values,
            range,
        } => (spec::distribution(axis, what, values, *range), Vec::new()),
        Drawing::Heat { x, y, what, cells } => (spec::heat(x, y, what, cells), Vec::new()),
        Drawing::Flame { frames } => return (flame(frames), Vec::new()),
        Drawing::Map { cell, kinds, rows } => {
            let keys = kinds.iter().zip(MAPPED.iter().cycle());
            let keys = keys.map(|(kind, colour)| Key::bar(kind.name.clone(), colour));
            let keys: Vec<Key> = keys.collect();
            return (map(cell, kinds, rows), keys);
        }
    };
    if chart.is_small {
        spec["height"] = 150.into();
    }
    if let Some([low, high]) = chart.within {
        spec["encoding"]["y"]["scale"]["domain"] = vec![low, high].into();
    }
    (spec, if keys.len() > 1 { keys } else { Vec::new() })
}

/// True for a chart that Vega-Lite draws; the page's own script draws the others.
pub(crate) fn needs_library(chart: &Chart) -> bool {
    !matches!(chart.drawing, Drawing::Map { .. } | Drawing::Flame { .. })
}

/// A flame graph as the page's script draws it.
fn flame(frames: &[Frame]) -> Value {
    let frames = frames
        .iter()
        .map(|frame| json!([frame.name, frame.depth, frame.place[0], frame.place[1]]));
    json!({"frames": frames.collect::<Vec<_>>()})
}

/// A map as the page's script draws it: half a million cells are too many for Vega-Lite.
fn map(cell: &str, kinds: &[Kind], rows: &[Cells]) -> Value {
    let kinds = kinds.iter().zip(MAPPED.iter().cycle());
    let kinds = kinds
        .map(|(kind, colour)| json!({"letter": kind.letter, "name": kind.name, "colour": colour}));
    let rows = rows
        .iter()
        .map(|row| json!([row.name, row.cells, row.about]));
    json!({"cell": cell, "kinds": kinds.collect::<Vec<_>>(), "rows": rows.collect::<Vec<_>>()})
}

pub(crate) fn markup(chart: &Chart) -> Markup {
    let (spec, keys) = specified(chart);
    // `<` must not end the script early.
    let data = spec.to_string().replace('<', "\\u003c");
    // Its frames are buttons.
    let is_flame = matches!(chart.drawing, Drawing::Flame { .. });
    html! {
        figure.chart {
            figcaption { (chart.title) }
            @if !keys.is_empty() {
                div.keys { @for key in &keys { (self::key(key)) } }
            }
            div.plot role=[(!is_flame).then_some("img")] aria-label=(chart.title) {}
            @if !chart.note.is_empty() { p.note { (chart.note) } }
            script type="application/json" { (PreEscaped(data)) }
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
    use quarry_view::Axis;

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
        let text = markup(&Chart::lines("t", axes(), axes(), vec![line])).into_string();
        assert_eq!(text.matches("</script>").count(), 1, "{text}");
        assert!(!text.contains("<b>"));
    }
}
