//! Charts of the times of operations by percentile, as SVG.
//!
//! The axis of percentiles is that of latency plots: each of 90, 99, 99.9 and 99.99 per cent is as far from the next.

use anyhow::anyhow;
use plotters::prelude::*;
use quarry_lab::replay::timed::report::{OperationTimes, QUANTILES, TimedReport};

use crate::chart::{self, COLOURS, GRID, HEIGHT, TEXT, WIDTH};
use crate::units;

/// Insides of SVGs: allocations and frees of the runs of each machine.
fn charts(runs: &[TimedReport]) -> anyhow::Result<Vec<String>> {
    let machines = runs.iter().map(|run| ((run.page_size, run.cpus), run));
    let mut charts = Vec::new();
    for ((page_size, cpus), runs) in quarry_view::grouped(machines) {
        for (what, times) in [
            ("allocations", (|run| &run.alloc) as Times),
            ("frees", |run| &run.free),
        ] {
            let title = format!("{what}, {} pages, {cpus} CPUs", units::bytes(page_size));
            let mut text = String::new();
            draw(&title, &runs, times, &mut text)
                .map_err(|error| anyhow!("cannot draw a chart: {error}"))?;
            charts.push(chart::inside(&text, runs.len()));
        }
    }
    Ok(charts)
}

/// All charts in one SVG.
pub(crate) fn svg(name: &str, runs: &[TimedReport]) -> anyhow::Result<String> {
    let title = format!("{name}: simulated time of operations by percentile");
    Ok(chart::stacked(&title, &charts(runs)?))
}

/// Times of one kind of operation.
type Times = fn(&TimedReport) -> &OperationTimes;

/// Place of a part of the operations on the axis.
fn place(part: f64) -> f64 {
    -(1.0 - part).log10()
}

/// The percentile at a place of the axis.
fn percentile(place: f64) -> String {
    format!("{} %", (1.0 - 10_f64.powf(-place)) * 100.0)
}

fn draw(title: &str, runs: &[&TimedReport], times: Times, into: &mut String) -> Result<(), String> {
    let points = |run: &TimedReport| -> Vec<(f64, f64)> {
        let times = times(run);
        let at = QUANTILES.iter().zip(times.quantiles_ns);
        at.map(|(part, ns)| (place(*part), ns)).collect()
    };
    let all = || runs.iter().flat_map(|run| points(run)).map(|(_, ns)| ns);
    let least = all().fold(f64::INFINITY, f64::min).max(0.1);
    let most = all().fold(least, f64::max);
    let root = SVGBackend::with_string(into, (WIDTH, HEIGHT)).into_drawing_area();
    let labels = |size: u32| ("sans-serif", size).into_font().color(&TEXT);
    let mut chart = ChartBuilder::on(&root)
        .caption(title, labels(14))
        .margin(8)
        .margin_right(190)
        .x_label_area_size(38)
        .y_label_area_size(58)
        .build_cartesian_2d(0.0..4.0, (least * 0.8..most * 1.25).log_scale())
        .map_err(|error| error.to_string())?;
    chart
        .configure_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(TEXT)
        .label_style(labels(12))
        .axis_desc_style(labels(12))
        .x_desc("percentile of the operations")
        .y_desc("simulated time, ns")
        .x_labels(5)
        .x_label_formatter(&|place: &f64| percentile(place.round()))
        .y_label_formatter(&|ns: &f64| chart::short(*ns, *ns))
        .draw()
        .map_err(|error| error.to_string())?;
    for (at, (run, colour)) in runs.iter().zip(COLOURS.iter().cycle()).enumerate() {
        let style = colour.stroke_width(2);
        chart
            .draw_series(LineSeries::new(points(run), style))
            .map_err(|error| error.to_string())?;
        let (x, y) = (WIDTH as i32 - 182, 44 + at as i32 * 22);
        root.draw(&PathElement::new(vec![(x, y), (x + 24, y)], style))
            .and_then(|()| root.draw(&Text::new(run.title(), (x + 30, y - 7), labels(13))))
            .map_err(|error| error.to_string())?;
    }
    root.present().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_have_equal_distances() {
        let places: Vec<String> = (0..5).map(|at| percentile(f64::from(at))).collect();
        assert_eq!(places, ["0 %", "90 %", "99 %", "99.9 %", "99.99 %"]);
        assert!((place(0.99) - 2.0).abs() < 1e-9);
    }

    #[test]
    fn each_run_has_a_line_in_both_charts() {
        let mut run = TimedReport::default();
        (run.design, run.era, run.cpus) = ("slub", "6.18", 2);
        run.alloc.quantiles_ns = [20.0; QUANTILES.len()];
        run.free.quantiles_ns = [30.0; QUANTILES.len()];
        let other = TimedReport {
            design: "sheaf",
            ..run.clone()
        };
        let charts = charts(&[run, other]).unwrap();
        assert_eq!(charts.len(), 2);
        for chart in charts {
            assert!(chart.contains("class=\"run run0\""), "{chart}");
            assert!(chart.contains("class=\"run run1\""), "{chart}");
        }
    }
}
