//! Plots of curves with published points beside simulated ones, as SVG.

use anyhow::anyhow;
use plotters::prelude::*;
use quarry_reproduce::{Line, Plot};

use crate::chart::{COLOURS, GRID, TEXT, short, to_page};

/// Width and height of a plot in pixels.
pub(crate) const SIZE: (u32, u32) = (860, 340);
/// Width of the legend.
const LEGEND: u32 = 240;

/// A line's name without what says that it was published: both have one colour.
fn subject(line: &Line) -> &str {
    line.name.trim_end_matches(", published")
}

/// The inside of a plot's SVG. Simulated curves are full with full points, published ones dashed with rings.
pub(crate) fn svg(plot: &Plot) -> anyhow::Result<String> {
    let mut text = String::new();
    draw(plot, &mut text).map_err(|error| anyhow!("cannot draw a plot: {error}"))?;
    let body = text.split_once('>').map_or("", |(_, rest)| rest);
    Ok(to_page(body.trim_end().trim_end_matches("</svg>")))
}

/// A number of the axis to the right: numbers of things, so whole.
fn tick(value: f64, logarithmic: bool) -> String {
    match (value.fract().abs() < 1e-6, logarithmic) {
        (true, true) => format!("{:.0}", 10f64.powf(value)),
        (true, false) => format!("{value:.0}"),
        (false, _) => String::new(),
    }
}

/// Draws by plotters; the errors of its SVG backend are those of writing to a string.
fn draw(plot: &Plot, into: &mut String) -> Result<(), String> {
    let place = |x: f64| if plot.logarithmic { x.log10() } else { x };
    let points = || {
        let all = plot.lines.iter().flat_map(|line| &line.points);
        all.map(|(x, y)| (place(*x), *y))
    };
    let most = |of: fn((f64, f64)) -> f64| points().map(of).fold(0.0, f64::max);
    let right = most(|point| point.0).max(1e-6);
    let left = points().map(|point| point.0).fold(f64::INFINITY, f64::min);
    let left = if left < right {
        left.min(right * 0.9)
    } else {
        0.0
    };
    let room = (right - left) * 0.03;
    let top = most(|point| point.1).max(1e-6) * 1.08;
    let root = SVGBackend::with_string(into, SIZE).into_drawing_area();
    let labels = |size: u32| ("sans-serif", size).into_font().color(&TEXT);
    let mut chart = ChartBuilder::on(&root)
        .caption(&plot.title, labels(15))
        .margin(8)
        .margin_right(LEGEND + 10)
        .x_label_area_size(40)
        .y_label_area_size(62)
        .build_cartesian_2d(left - room..right + room, 0.0..top)
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
        .y_label_formatter(&|value| short(*value, top))
        .draw()
        .map_err(|error| error.to_string())?;
    let mut subjects: Vec<&str> = plot.lines.iter().map(subject).collect();
    subjects.dedup();
    let number = |line: &Line| subjects.iter().position(|known| *known == subject(line));
    for (at, line) in plot.lines.iter().enumerate() {
        let colour = COLOURS[number(line).unwrap_or(at) % COLOURS.len()];
        let style = colour.stroke_width(2);
        let points = line.points.iter().map(|(x, y)| (place(*x), *y));
        let marks = points.clone();
        let drawn = match line.published {
            true => chart.draw_series(DashedLineSeries::new(points, 6, 4, style)),
            false => chart.draw_series(LineSeries::new(points, style)),
        };
        drawn.map_err(|error| error.to_string())?;
        let mark = if line.published {
            style
        } else {
            colour.filled()
        };
        let marks = marks.map(|point| Circle::new(point, 4, mark));
        chart
            .draw_series(marks)
            .map_err(|error| error.to_string())?;
        let (x, y) = ((SIZE.0 - LEGEND) as i32, 46 + at as i32 * 22);
        let legend = Circle::new((x + 10, y), 4, mark);
        root.draw(&PathElement::new(vec![(x, y), (x + 20, y)], style))
            .and_then(|()| root.draw(&legend))
            .and_then(|()| root.draw(&Text::new(line.name.clone(), (x + 28, y - 7), labels(13))))
            .map_err(|error| error.to_string())?;
    }
    root.present().map_err(|error| error.to_string())
}
