//! Draws slab memory over the time of the bundled recording on every design, for the README.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::shell;

/// What the picture shows: every design at the recorded page size.
const REPLAY: [&str; 5] = ["replay", "--page-size", "4k", "--json", "--no-timing"];
const PICTURE: &str = "docs/memory.svg";

const WIDTH_PX: f64 = 820.0;
const HEIGHT_PX: f64 = 380.0;
/// Left, top, right and bottom of the plot; the legend is right of it.
const PLOT_PX: [f64; 4] = [56.0, 44.0, 590.0, 340.0];
const COLORS: [&str; 6] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9",
];
const MIB: f64 = 1048576.0;

/// Memory over time, in seconds and MiB.
struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

/// Runs `quarry replay` on the bundled recording and writes the picture.
pub(crate) fn run() -> Result<()> {
    let mut cargo = shell::cargo();
    cargo.args(["run", "--release", "--quiet", "-p", "quarry-cli", "--"]);
    let report: Value = serde_json::from_str(&shell::output(cargo.args(REPLAY))?)
        .context("`quarry replay --json` printed no JSON")?;
    let lines = lines(&report).context("`quarry replay --json` has no memory over time")?;
    let path = shell::root().join(PICTURE);
    std::fs::write(&path, svg(&lines))
        .with_context(|| format!("cannot write {}", path.display()))?;
    println!("wrote {}", path.display());
    Ok(())
}

/// The runs of a report, and what their objects asked for, which is the same in all.
fn lines(report: &Value) -> Option<Vec<Line>> {
    let mut lines = Vec::new();
    for run in report["runs"].as_array()? {
        let name = format!("{}@{}", run["design"].as_str()?, run["era"].as_str()?);
        lines.push(line(name, run, "slab_bytes")?);
    }
    let first = report["runs"].get(0)?;
    lines.push(line("asked for".to_owned(), first, "object_bytes")?);
    Some(lines)
}

fn line(name: String, run: &Value, key: &str) -> Option<Line> {
    let samples = run["memory"]["samples"].as_array()?.iter();
    let points = samples.map(|sample| {
        let seconds = sample["time_ns"].as_f64()? / 1e9;
        Some((seconds, sample[key].as_f64()? / MIB))
    });
    Some(Line {
        name,
        points: points.collect::<Option<_>>()?,
    })
}

/// The picture of some lines, with a legend that has each line's peak and end.
fn svg(lines: &[Line]) -> String {
    let [left, top, right, bottom] = PLOT_PX;
    let all = || lines.iter().flat_map(|line| &line.points);
    let seconds = all().map(|point| point.0).fold(0.1, f64::max);
    let most = all().map(|point| point.1).fold(1.0, f64::max);
    let most = (most / 10.0).ceil() * 10.0;
    let x = |at: f64| left + at / seconds * (right - left);
    let y = |mib: f64| bottom - mib / most * (bottom - top);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH_PX}\" height=\"{HEIGHT_PX}\" \
         viewBox=\"0 0 {WIDTH_PX} {HEIGHT_PX}\" font-family=\"DejaVu Sans, Helvetica, sans-serif\" \
         font-size=\"13\" fill=\"#222\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"{left}\" y=\"24\" font-size=\"15\">slab memory in MiB over seconds: hackbench on \
         Linux 6.18, replayed on each design</text>\n"
    );
    for step in 0..=5 {
        let (mib, at) = (
            most * f64::from(step) / 5.0,
            seconds * f64::from(step) / 5.0,
        );
        let (row, column) = (y(mib), x(at));
        let _ = writeln!(
            out,
            "<path d=\"M{left} {row:.1}H{right}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{mib:.0}</text>\
             <text x=\"{column:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{at:.2}</text>",
            left - 8.0,
            row + 4.5,
            bottom + 20.0
        );
    }
    let header = right + 44.0;
    let _ = writeln!(
        out,
        "<text x=\"{header}\" y=\"{top}\">design</text><text x=\"{:.0}\" y=\"{top}\" \
         text-anchor=\"end\">peak</text><text x=\"{:.0}\" y=\"{top}\" text-anchor=\"end\">end</text>",
        header + 128.0,
        header + 176.0
    );
    for (index, line) in lines.iter().enumerate() {
        let color = COLORS[index % COLORS.len()];
        let dash = if line.name.contains('@') {
            ""
        } else {
            " stroke-dasharray=\"4 3\""
        };
        let path: Vec<String> = line
            .points
            .iter()
            .map(|(at, mib)| format!("{:.1} {:.1}", x(*at), y(*mib)))
            .collect();
        let peak = line.points.iter().map(|point| point.1).fold(0.0, f64::max);
        let end = line.points.last().map_or(0.0, |point| point.1);
        let row = top + 24.0 * (index as f64 + 1.0);
        let _ = writeln!(
            out,
            "<path d=\"M{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.8\"{dash}/>\n\
             <path d=\"M{:.0} {:.0}h20\" stroke=\"{color}\" stroke-width=\"3\"{dash}/>\
             <text x=\"{header}\" y=\"{row}\">{}</text>\
             <text x=\"{:.0}\" y=\"{row}\" text-anchor=\"end\">{peak:.1}</text>\
             <text x=\"{:.0}\" y=\"{row}\" text-anchor=\"end\">{end:.1}</text>",
            path.join("L"),
            header - 26.0,
            row - 4.0,
            line.name,
            header + 128.0,
            header + 176.0
        );
    }
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_is_a_line_with_its_peak_and_end() {
        let sample = |ns: u64, slab: u64| serde_json::json!({"time_ns": ns, "slab_bytes": slab << 20, "object_bytes": 1 << 20});
        let samples = [
            sample(0, 0),
            sample(500_000_000, 9),
            sample(1_000_000_000, 4),
        ];
        let report = serde_json::json!({"runs": [
            {"design": "slub", "era": "6.18", "memory": {"samples": samples}},
        ]});
        let lines = lines(&report).expect("a run with samples");
        let names: Vec<_> = lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["slub@6.18", "asked for"]);
        assert_eq!(lines[0].points, [(0.0, 0.0), (0.5, 9.0), (1.0, 4.0)]);
        let picture = svg(&lines);
        for part in [
            "M56.0 340.0L323.0 73.6L590.0 221.6",
            ">9.0<",
            ">4.0<",
            "stroke-dasharray",
        ] {
            assert!(picture.contains(part), "no {part} in {picture}");
        }
        assert!(super::lines(&serde_json::json!({"runs": [{}]})).is_none());
    }
}
