//! Plots of curves with published points beside simulated ones, as SVG.
//!
//! plotters draws the axes. Curves, bands and marks are written here, so that each line is a group with a name, and each mark
//! tells its numbers where the pointer is.

use anyhow::anyhow;
use maud::{Markup, PreEscaped, html};
use plotters::prelude::*;
use quarry_reproduce::{Line, LineKind, Plot};

use crate::chart::{COLOURS, GRID, TEXT, short, to_page};
use crate::reproduce_tables::{band, number};

/// Width and height of a plot in pixels, without its legend: not too wide for a narrow screen.
const SIZE: (u32, u32) = (640, 320);
/// Columns of the legend below, and the height of its rows.
const COLUMNS: usize = 2;
const ROW: usize = 22;
/// Half of a mark's width in pixels.
const MARK: f64 = 4.5;
/// Points of a curve that have marks; those of more would hide it.
const MARKED: usize = 60;

/// A line's name without what says that it was published: both have one colour and one mark.
fn subject(line: &Line) -> &str {
    line.name.trim_end_matches(", published")
}

/// A plot as SVG for a page. Simulated curves are full with full marks, published ones dashed with open marks.
pub(crate) fn svg(plot: &Plot) -> anyhow::Result<Markup> {
    let mut text = String::new();
    let scale = axes(plot, &mut text).map_err(|error| anyhow!("cannot draw a plot: {error}"))?;
    let body = text.split_once('>').map_or("", |(_, rest)| rest);
    let axes = to_page(body.trim_end().trim_end_matches("</svg>"));
    let mut subjects: Vec<&str> = Vec::new();
    for line in &plot.lines {
        if !subjects.contains(&subject(line)) {
            subjects.push(subject(line));
        }
    }
    let mut lines: Vec<(usize, &Line)> = plot.lines.iter().enumerate().collect();
    let mut groups = Vec::new();
    // Published marks are never hidden.
    lines.sort_by_key(|(_, line)| line.kind == LineKind::Published);
    for (at, line) in lines {
        let which = subjects.iter().position(|known| *known == subject(line));
        let which = which.unwrap_or(0);
        let style = Style {
            which,
            // Where curves lie on each other, the lower ones look out on both sides.
            width: 2 * (subjects.len() - which).min(4),
            kind: line.kind,
        };
        groups.push(html! {
            g.line data-name=(line.name) {
                (drawn(plot, line, &style, &scale))
                (legend(&line.name, &style, at))
            }
        });
    }
    let (width, height) = SIZE;
    let height = height as usize + ROW * plot.lines.len().div_ceil(COLUMNS) + 8;
    Ok(html! {
        svg viewBox={ "0 0 " (width) " " (height) } role="img" aria-label=(plot.title) {
            (PreEscaped(axes))
            @for group in groups { (group) }
        }
    })
}

/// Colour, dash and mark of a line.
struct Style {
    /// The number of its subject.
    which: usize,
    width: usize,
    kind: LineKind,
}

impl Style {
    fn colour(&self) -> String {
        let RGBColor(red, green, blue) = COLOURS[self.which % COLOURS.len()];
        format!("#{red:02X}{green:02X}{blue:02X}")
    }

    /// A curve through points.
    fn curve(&self, points: &[(f64, f64)]) -> Markup {
        let (dash, width) = match self.kind {
            LineKind::Simulated => ("none", self.width),
            LineKind::Published => ("6 4", 2),
            LineKind::Level => ("2 4", 2),
        };
        html! {
            polyline fill="none" stroke=(self.colour()) stroke-width=(width) stroke-dasharray=(dash)
                points=(list(points.iter().copied())) {}
        }
    }

    /// A mark with what it says; a level has none.
    fn mark(&self, (x, y): (f64, f64), says: &str) -> Markup {
        // Corners of a square, a triangle and a diamond, in halves of the width; a circle has none.
        let corners: &[(f64, f64)] = match self.which % 4 {
            1 => &[(-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0)],
            2 => &[(0.0, -1.3), (1.2, 1.0), (-1.2, 1.0)],
            3 => &[(0.0, -1.4), (1.4, 0.0), (0.0, 1.4), (-1.4, 0.0)],
            _ => &[],
        };
        let colour = self.colour();
        let fill = match self.kind {
            LineKind::Level => return html! {},
            LineKind::Simulated => colour.as_str(),
            LineKind::Published => "var(--ground)",
        };
        let title = html! { @if !says.is_empty() { title { (says) } } };
        let corners = corners
            .iter()
            .map(|(right, down)| (x + MARK * right, y + MARK * down));
        html! {
            @if corners.len() == 0 {
                circle cx=(pixels(x)) cy=(pixels(y)) r=(MARK) fill=(fill) stroke=(colour) stroke-width="2" { (title) }
            } @else {
                polygon points=(list(corners)) fill=(fill) stroke=(colour) stroke-width="2" { (title) }
            }
        }
    }
}

/// A place to a tenth of a pixel.
fn pixels(place: f64) -> String {
    format!("{place:.1}")
}

/// Places of points, as SVG lists them.
fn list(points: impl Iterator<Item = (f64, f64)>) -> String {
    let points = points.map(|(x, y)| format!("{x:.1},{y:.1}"));
    points.collect::<Vec<_>>().join(" ")
}

/// A line: its bands, its curve, its marks, and what a single published one says.
fn drawn(plot: &Plot, line: &Line, style: &Style, scale: &Scale) -> Markup {
    let bands = line.bands.iter();
    let bands = bands.map(|(x, [low, high])| (scale.place(*x, *low), scale.place(*x, *high)));
    let places = line.points.iter().map(|(x, y)| scale.place(*x, *y));
    let places: Vec<(f64, f64)> = places.collect();
    let says = |(x, y): &(f64, f64)| {
        let found = line.bands.iter().find(|(at, _)| at == x);
        let spread = match found {
            Some((_, spread)) => format!(" (band {})", band(Some(*spread))),
            None => String::new(),
        };
        let y = number(*y);
        format!("{}: {x} {}, {y} {}{spread}", line.name, plot.x, plot.y)
    };
    let single = match (line.points.as_slice(), places.as_slice(), line.kind) {
        ([(_, y)], [place], LineKind::Published) => Some((y, place)),
        _ => None,
    };
    html! {
        @for ((x, from), (_, to)) in bands {
            line.band x1=(pixels(x)) x2=(pixels(x)) y1=(pixels(from)) y2=(pixels(to)) stroke=(style.colour())
                stroke-width="12" stroke-opacity="0.3" {}
        }
        @if places.len() > 1 { (style.curve(&places)) }
        @if places.len() <= MARKED {
            @for (point, place) in line.points.iter().zip(&places) { (style.mark(*place, &says(point))) }
        }
        @if let Some((y, place)) = single {
            // Those of later lines are below, so that two near each other can be read.
            text.t x=(pixels(place.0 + 9.0)) y=(pixels(place.1 + if style.which < 2 { -8.0 } else { 16.0 }))
                font-size="12" { (y) " published" }
        }
    }
}

/// The line with a number in the legend.
fn legend(name: &str, style: &Style, at: usize) -> Markup {
    let x = 40.0 + (at % COLUMNS) as f64 * f64::from(SIZE.0 - 40) / COLUMNS as f64;
    let y = f64::from(SIZE.1) + (at / COLUMNS * ROW) as f64 + 12.0;
    html! {
        (style.curve(&[(x, y), (x + 24.0, y)]))
        (style.mark((x + 12.0, y), ""))
        text.t x=(x + 32.0) y=(y + 4.5) font-size="13" { (name) }
    }
}

/// A number of the axis to the right: numbers of things, so whole.
fn tick(value: f64, logarithmic: bool) -> String {
    match (value.fract().abs() < 1e-6, logarithmic) {
        (true, true) => format!("{:.0}", 10f64.powf(value)),
        (true, false) => format!("{value:.0}"),
        (false, _) => String::new(),
    }
}

/// A number along the axis to the right.
fn along(x: f64, logarithmic: bool) -> f64 {
    if logarithmic { x.log10() } else { x }
}

/// Maps numbers to pixels of a plot.
struct Scale {
    logarithmic: bool,
    /// Least numbers of both axes, and their pixels.
    low: ((f64, f64), (i32, i32)),
    /// The most.
    high: ((f64, f64), (i32, i32)),
}

impl Scale {
    fn place(&self, x: f64, y: f64) -> (f64, f64) {
        let ((low, low_pixel), (high, high_pixel)) = (self.low, self.high);
        let between = |value: f64, from: f64, to: f64, [first, last]: [i32; 2]| {
            f64::from(first) + (value - from) / (to - from) * f64::from(last - first)
        };
        (
            between(
                along(x, self.logarithmic),
                low.0,
                high.0,
                [low_pixel.0, high_pixel.0],
            ),
            between(y, low.1, high.1, [low_pixel.1, high_pixel.1]),
        )
    }
}

/// Draws the axes by plotters; the errors of its SVG backend are those of writing to a string.
fn axes(plot: &Plot, into: &mut String) -> Result<Scale, String> {
    let points = || {
        let points = plot.lines.iter().flat_map(|line| &line.points);
        points.map(|(x, y)| (along(*x, plot.logarithmic), *y))
    };
    let ends = plot.lines.iter().flat_map(|line| &line.bands);
    let ends = ends.flat_map(|(_, band)| *band);
    let heights: Vec<f64> = points().map(|point| point.1).chain(ends).collect();
    let right = points().map(|point| point.0).fold(1e-6, f64::max);
    let left = points().map(|point| point.0).fold(f64::INFINITY, f64::min);
    let left = if left < right {
        left.min(right * 0.9)
    } else {
        0.0
    };
    let room = (right - left) * 0.03;
    // The axis has 0.
    let top = heights.iter().copied().fold(1e-6, f64::max) * 1.08;
    let bottom = heights.iter().copied().fold(0.0, f64::min) * 1.08;
    let root = SVGBackend::with_string(into, SIZE).into_drawing_area();
    let labels = |size: u32| ("sans-serif", size).into_font().color(&TEXT);
    let mut chart = ChartBuilder::on(&root)
        .caption(&plot.title, labels(15))
        .margin(8)
        .margin_right(20)
        .x_label_area_size(40)
        .y_label_area_size(62)
        .build_cartesian_2d(left - room..right + room, bottom..top)
        .map_err(|error| error.to_string())?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(TEXT)
        .label_style(labels(12))
        .axis_desc_style(labels(12))
        .x_desc(plot.x)
        .y_desc(plot.y)
        .y_labels(6)
        .x_labels(if right - left <= 4.0 {
            right as usize + 1
        } else {
            10
        })
        .x_label_formatter(&|value| tick(*value, plot.logarithmic))
        .y_label_formatter(&|value| short(*value, top - bottom))
        .draw()
        .map_err(|error| error.to_string())?;
    let (low, high) = ((left - room, bottom), (right + room, top));
    let scale = Scale {
        logarithmic: plot.logarithmic,
        low: (low, chart.backend_coord(&low)),
        high: (high, chart.backend_coord(&high)),
    };
    root.present().map_err(|error| error.to_string())?;
    Ok(scale)
}
