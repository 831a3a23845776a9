//! The plots of the study of sheaves.

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use super::{CAPACITIES, COPIES, Figure, Results, Setting};

const SIZE: (u32, u32) = (760, 360);
/// Okabe and Ito, "Color Universal Design" (2008).
const COLOURS: [RGBColor; 4] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
];

/// Nanoseconds an operation by capacity, a line for each number of CPUs, with the range of the draws; SLUB is a dotted line
/// of the same colour.
pub(super) fn capacities(trace: &str, results: &Results) -> Result<String> {
    let ns = |copies, setting| results.ns(trace, copies, setting);
    let most = COPIES
        .iter()
        .flat_map(|&copies| {
            let own = CAPACITIES.map(|capacity| ns(copies, Setting::Capacity(capacity)));
            let slub = ns(copies, Setting::Slub);
            own.into_iter().chain([slub]).map(|ns| ns.high.max(ns.mean))
        })
        .fold(1.0, f64::max);
    let mut svg = String::new();
    draw(&mut svg, trace, most, &ns).map_err(|error| anyhow!("{error}"))?;
    Ok(svg)
}

fn draw(
    svg: &mut String,
    trace: &str,
    most: f64,
    ns: &dyn Fn(u32, Setting) -> Figure,
) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let caption =
        format!("{trace}: ns an operation by capacity (dotted: SLUB; bars: draws of constants)");
    let mut chart = ChartBuilder::on(&area)
        .caption(caption, ("sans-serif", 16))
        .margin(10)
        .x_label_area_size(36)
        .y_label_area_size(56)
        .build_cartesian_2d(
            (f64::from(CAPACITIES[0])..f64::from(CAPACITIES[CAPACITIES.len() - 1])).log_scale(),
            (1.0..most * 1.2).log_scale(),
        )?;
    chart
        .configure_mesh()
        .x_desc("objects a sheaf")
        .y_desc("ns an operation")
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .draw()?;
    for (copies, colour) in COPIES.into_iter().zip(COLOURS) {
        let figures = CAPACITIES
            .map(|capacity| (f64::from(capacity), ns(copies, Setting::Capacity(capacity))));
        let bars = figures.iter().map(|(capacity, ns)| {
            PathElement::new([(*capacity, ns.low), (*capacity, ns.high)], colour)
        });
        chart.draw_series(bars)?;
        let points = figures.iter().map(|(capacity, ns)| (*capacity, ns.mean));
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(2)).point_size(3))?
            .label(format!("{} CPUs", copies * 2))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        let slub = ns(copies, Setting::Slub).mean;
        let ends = [CAPACITIES[0], CAPACITIES[CAPACITIES.len() - 1]];
        let line = ends.map(|capacity| (f64::from(capacity), slub));
        chart.draw_series(DashedLineSeries::new(line, 3, 5, colour.into()))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()?;
    area.present()?;
    Ok(())
}
