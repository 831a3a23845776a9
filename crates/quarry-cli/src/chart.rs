//! Charts of slab memory over recorded time, as SVG.
//!
//! Colours are Okabe and Ito's, which people tell apart who see red and green alike; each run has a dash
//! as well. Text and axes take `currentColor`, so that a page or an image viewer in dark mode shows them.

use anyhow::anyhow;
use maud::{PreEscaped, html};
use plotters::prelude::*;
use quarry_lab::RunReport;
use quarry_lab::replay::memory::MemorySample;

use crate::units;

/// Width of a chart in pixels.
pub(crate) const WIDTH: u32 = 860;
/// Height of the area of one page size, in pixels.
pub(crate) const HEIGHT: u32 = 300;

/// Okabe and Ito, "Color Universal Design" (2008), but black and yellow, which a dark or a light page
/// hides.
pub(crate) const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
];
/// Dashes of the lines, in SVG's `stroke-dasharray`.
const DASHES: [&str; 4] = ["", "8 3", "2 3", "10 3 2 3"];

/// A mark in the SVG that plotters writes; real colours of text replace it.
pub(crate) const TEXT: RGBColor = RGBColor(1, 2, 3);
pub(crate) const GRID: RGBColor = RGBColor(1, 2, 4);

/// The runs of one page size and number of CPUs.
pub(crate) struct Panel<'a> {
    /// Page size and number of CPUs.
    pub(crate) title: String,
    /// The runs.
    pub(crate) runs: Vec<&'a RunReport>,
}

/// Runs by page size and number of CPUs, in the order of the runs.
pub(crate) fn panels(runs: &[RunReport]) -> Vec<Panel<'_>> {
    let titled = runs.iter().map(|run| {
        let title = format!("{} pages, {} CPUs", units::bytes(run.page_size), run.cpus);
        (title, run)
    });
    let panels = quarry_view::grouped(titled).into_iter();
    panels.map(|(title, runs)| Panel { title, runs }).collect()
}

/// All panels in one SVG, one below the other, with a legend.
pub(crate) fn svg(name: &str, runs: &[RunReport]) -> anyhow::Result<String> {
    let panels = panels(runs);
    let mut parts = Vec::new();
    for panel in &panels {
        parts.push(panel_svg(panel)?);
    }
    let title = format!("{name}: slab memory over recorded time");
    Ok(stacked(&title, &parts))
}

/// Charts below each other in one SVG with a title.
pub(crate) fn stacked(title: &str, parts: &[String]) -> String {
    let height = HEIGHT as usize * parts.len() + 28;
    let svg = html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (WIDTH) " " (height) } width=(WIDTH) role="img" {
            title { (title) }
            style { (PreEscaped(STYLE)) }
            rect.ground width="100%" height="100%" {}
            text.t x="12" y="20" font-size="15" { (title) }
            @for (at, part) in parts.iter().enumerate() {
                g transform={ "translate(0 " (28 + at * HEIGHT as usize) ")" } { (PreEscaped(part)) }
            }
        }
    };
    svg.into_string() + "\n"
}

/// Style that makes an image readable in light and dark mode.
const STYLE: &str = "svg{color:#1f2328;font-family:system-ui,sans-serif}.ground{fill:#fff}\
text{fill:currentColor;stroke:none}.g{stroke:#8884}.t{fill:currentColor}\
@media (prefers-color-scheme: dark){svg{color:#e6edf3}.ground{fill:#0d1117}}";

/// The inside of a panel's SVG.
pub(crate) fn panel_svg(panel: &Panel<'_>) -> anyhow::Result<String> {
    let mut text = String::new();
    draw(panel, &mut text).map_err(|error| anyhow!("cannot draw a chart: {error}"))?;
    Ok(inside(&text, panel.runs.len()))
}

/// The inside of an SVG with the lines of `runs` runs, in the page's colours.
pub(crate) fn inside(svg: &str, runs: usize) -> String {
    let body = svg.split_once('>').map_or("", |(_, rest)| rest);
    let body = body.trim_end().trim_end_matches("</svg>");
    restyle(body, runs)
}

/// Draws by plotters what has axes; the errors of its SVG backend are those of writing to a string.
fn draw(panel: &Panel<'_>, into: &mut String) -> Result<(), String> {
    let samples = || panel.runs.iter().flat_map(|run| &run.memory.samples);
    let seconds = |time_ns: u64| time_ns as f64 / 1e9;
    let begin = samples()
        .map(|at| seconds(at.time_ns))
        .fold(f64::INFINITY, f64::min);
    let end = samples().map(|at| seconds(at.time_ns)).fold(0.0, f64::max);
    let begin = begin.min(end);
    let most = samples().map(|at| at.slab_bytes).max().unwrap_or(0);
    let (unit, unit_bytes) = match most {
        0..=0x20_0000 => ("KiB", 1024.0),
        _ => ("MiB", 1_048_576.0),
    };
    let top = (most as f64 / unit_bytes * 1.05).max(1.0);
    let end = if end > begin { end } else { begin + 1e-6 };
    let root = SVGBackend::with_string(into, (WIDTH, HEIGHT)).into_drawing_area();
    let labels = |size: u32| ("sans-serif", size).into_font().color(&TEXT);
    let mut chart = ChartBuilder::on(&root)
        .caption(&panel.title, labels(14))
        .margin(8)
        .margin_right(150)
        .x_label_area_size(38)
        .y_label_area_size(58)
        .build_cartesian_2d(begin..end, 0.0..top)
        .map_err(|error| error.to_string())?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(TEXT)
        .label_style(labels(12))
        .axis_desc_style(labels(12))
        .x_desc("recorded time, seconds")
        .y_desc(format!("slab memory, {unit}"))
        .y_labels(6)
        .x_label_formatter(&|value| short(*value, end - begin))
        .y_label_formatter(&|value| short(*value, top))
        .draw()
        .map_err(|error| error.to_string())?;
    // What objects asked for is the load's, so the same in all runs.
    let asked = panel.runs.first().map(|run| {
        let points = steps(&run.memory.samples, |sample| sample.object_bytes);
        ("asked for".to_string(), points, TEXT.stroke_width(1))
    });
    let runs = panel.runs.iter().zip(COLOURS.iter().cycle());
    let runs = runs.map(|(run, colour)| {
        let points = steps(&run.memory.samples, |sample| sample.slab_bytes);
        let name = run.title();
        (name, points, colour.stroke_width(2))
    });
    for (at, (name, points, style)) in runs.chain(asked).enumerate() {
        let points = points.into_iter();
        let points = points.map(|(time_ns, bytes)| (seconds(time_ns), bytes as f64 / unit_bytes));
        chart
            .draw_series(LineSeries::new(points, style))
            .map_err(|error| error.to_string())?;
        let (x, y) = (WIDTH as i32 - 142, 44 + at as i32 * 22);
        root.draw(&PathElement::new(vec![(x, y), (x + 24, y)], style))
            .and_then(|()| root.draw(&Text::new(name, (x + 30, y - 7), labels(13))))
            .map_err(|error| error.to_string())?;
    }
    root.present().map_err(|error| error.to_string())
}

/// The corners of a line that holds its value until the next sample.
fn steps(samples: &[MemorySample], bytes: fn(&MemorySample) -> u64) -> Vec<(u64, u64)> {
    let mut points: Vec<(u64, u64)> = Vec::with_capacity(samples.len() * 2);
    for sample in samples {
        if let Some((_, before)) = points.last().copied()
            && before != bytes(sample)
        {
            points.push((sample.time_ns, before));
        }
        points.push((sample.time_ns, bytes(sample)));
    }
    points
}

/// A number of an axis, with the decimals that its range needs.
pub(crate) fn short(value: f64, range: f64) -> String {
    let decimals = match range {
        range if range >= 5.0 => 0,
        range if range >= 0.5 => 1,
        range if range >= 0.05 => 2,
        range if range >= 0.005 => 3,
        _ => 6,
    };
    format!("{value:.decimals$}")
}

/// Colours of text and grid to the page's, and a dash and a class for each run's lines.
fn restyle(svg: &str, runs: usize) -> String {
    let mut text = to_page(svg);
    for at in 0..runs.min(COLOURS.len()) {
        let RGBColor(red, green, blue) = COLOURS[at];
        let stroke = format!("stroke=\"#{red:02X}{green:02X}{blue:02X}\"");
        let dash = DASHES[at % DASHES.len()];
        let own = format!("{stroke} class=\"run run{at}\" stroke-dasharray=\"{dash}\"");
        text = text.replace(&stroke, &own);
    }
    text
}

/// Colours of text and grid to the page's.
pub(crate) fn to_page(svg: &str) -> String {
    svg.replace("fill=\"#010203\"", "class=\"t\"")
        .replace("stroke=\"#010203\"", "stroke=\"currentColor\"")
        .replace("stroke=\"#010204\"", "class=\"g\"")
}
