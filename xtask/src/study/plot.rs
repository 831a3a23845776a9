//! The plots of the study of sheaves.

use std::ops::Range;

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use super::{CAPACITIES, COPIES, Figure, Results, Setting, cpus};

const SIZE: (u32, u32) = (760, 360);
/// Okabe and Ito, "Color Universal Design" (2008).
const COLOURS: [RGBColor; 4] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
];

/// Nanoseconds an operation by capacity, a line for each number of CPUs, with the range of the seeds and the draws; SLUB is a
/// dotted line of the same colour.
pub(super) fn capacities(trace: &str, results: &Results) -> Result<String> {
    let ns = |copies, setting| results.ns(trace, copies, setting);
    let all = COPIES.iter().flat_map(|&copies| {
        let own = CAPACITIES.map(|capacity| ns(copies, Setting::Capacity(capacity)));
        own.into_iter().chain([ns(copies, Setting::Slub)])
    });
    let (least, most) = all.fold((f64::MAX, 1.0_f64), |(least, most), ns| {
        (least.min(ns.low), most.max(ns.high))
    });
    // The legend is below all lines.
    let range = least / 4.0..most * 1.2;
    let mut svg = String::new();
    draw(&mut svg, trace, range, &ns).map_err(|error| anyhow!("{error}"))?;
    Ok(svg)
}

/// Position of a capacity on the logarithmic axis.
fn place(capacity: u32) -> f64 {
    f64::from(capacity).log2()
}

fn draw(
    svg: &mut String,
    trace: &str,
    range: Range<f64>,
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
            place(CAPACITIES[0]) - 0.1..place(CAPACITIES[CAPACITIES.len() - 1]) + 0.1,
            range.log_scale(),
        )?;
    chart
        .configure_mesh()
        .x_desc("objects a sheaf")
        .y_desc("ns an operation")
        .x_labels(CAPACITIES.len())
        .x_label_formatter(&|x| format!("{:.0}", x.exp2()))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .draw()?;
    for (copies, colour) in COPIES.into_iter().zip(COLOURS) {
        let figures =
            CAPACITIES.map(|capacity| (place(capacity), ns(copies, Setting::Capacity(capacity))));
        let bars = figures
            .iter()
            .map(|(place, ns)| PathElement::new([(*place, ns.low), (*place, ns.high)], colour));
        chart.draw_series(bars)?;
        let points = figures.iter().map(|(place, ns)| (*place, ns.mean));
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(2)).point_size(3))?
            .label(format!("{} CPUs", cpus(copies)))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        let slub = ns(copies, Setting::Slub).mean;
        let ends = [CAPACITIES[0], CAPACITIES[CAPACITIES.len() - 1]];
        let line = ends.map(|capacity| (place(capacity), slub));
        chart.draw_series(DashedLineSeries::new(line, 3, 5, colour.into()))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()?;
    area.present()?;
    Ok(())
}
