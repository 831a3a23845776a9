//! Host and simulation side by side.

use serde_json::{Value, json};

use crate::common::{median, table};
use crate::host::{Counted, Halves};
use crate::workload::Workload;

/// Largest relative difference between a simulated figure and the host's.
const TOLERANCE: f64 = 0.25;

/// A workload's figures: of each visit the medians of its rounds.
pub(crate) struct Row {
    pub(crate) workload: Workload,
    pub(crate) host: Vec<Halves>,
    /// The same once more.
    pub(crate) null: Vec<Halves>,
    /// Instructions and cycles of an operation; `None` if the machine counts none.
    pub(crate) counted: Option<Counted>,
    pub(crate) simulated: Halves,
}

/// One half of a row, or both.
struct Figure {
    name: String,
    /// True if the figure covers the whole workload.
    whole: bool,
    host_ns: f64,
    least_ns: f64,
    null: f64,
    simulated_ns: f64,
    /// Instructions, and cycles.
    counted: Option<[f64; 2]>,
}

impl Figure {
    fn ratio(&self) -> f64 {
        self.simulated_ns / self.host_ns
    }

    fn within(&self) -> bool {
        (1.0 - self.ratio()).abs() <= TOLERANCE
    }
}

impl Row {
    fn figures(&self) -> Vec<Figure> {
        let halves = self.workload.halves().iter().enumerate();
        let mut figures: Vec<Figure> = halves
            .map(|(half, name)| self.figure(name, |halves| halves[half]))
            .collect();
        if figures.len() == 2 {
            figures.push(self.figure("both", |halves| halves[0] + halves[1]));
        }
        figures
    }

    fn figure(&self, half: &str, of: impl Fn(&Halves) -> f64) -> Figure {
        // A visit without a round in which all CPUs began together says nothing.
        let both = self.host.iter().map(&of).zip(self.null.iter().map(&of));
        let both: Vec<(f64, f64)> = both
            .filter(|(host, null)| host.is_finite() && null.is_finite())
            .collect();
        let visits = || both.iter().map(|(host, _)| *host);
        Figure {
            name: format!("{}: {half}", self.workload.name()),
            whole: half == "pair" || half == "both",
            host_ns: median(visits()),
            least_ns: visits().fold(f64::INFINITY, f64::min),
            null: median(both.iter().map(|(host, null)| null / host)),
            simulated_ns: of(&self.simulated),
            counted: self
                .counted
                .map(|counted| [of(&counted.instructions), of(&counted.cycles)]),
        }
    }
}

/// Prints the figures; with `ghz` those that are counted beside the simulated time in cycles.
pub(crate) fn print(rows: &[Row], ghz: f64) {
    let mut table = table([
        "workload",
        "host ns",
        "least",
        "again (null)",
        "simulated ns",
        "ratio",
        "within 25 %",
    ]);
    let figures: Vec<Figure> = rows.iter().flat_map(Row::figures).collect();
    for figure in &figures {
        table.add_row([
            figure.name.clone(),
            format!("{:.2}", figure.host_ns),
            format!("{:.2}", figure.least_ns),
            format!("{:.2}x", figure.null),
            format!("{:.2}", figure.simulated_ns),
            format!("{:.2}", figure.ratio()),
            if figure.within() { "yes" } else { "no" }.to_string(),
        ]);
    }
    println!("{table}");
    let within = |figures: &[&Figure]| {
        let within = figures.iter().filter(|figure| figure.within()).count();
        format!("{within} of {}", figures.len())
    };
    let whole: Vec<&Figure> = figures.iter().filter(|figure| figure.whole).collect();
    let halves: Vec<&Figure> = figures.iter().filter(|figure| !figure.whole).collect();
    println!(
        "within 25 %: {} workloads, {} of their halves",
        within(&whole),
        within(&halves)
    );
    print_counted(&figures, ghz);
}

fn print_counted(figures: &[Figure], ghz: f64) {
    let mut table = table([
        "workload",
        "instructions",
        "cycles",
        "simulated cycles",
        "ratio",
    ]);
    for figure in figures {
        let Some([instructions, cycles]) = figure.counted else {
            println!("no instructions and cycles: this machine has no counters of them");
            return;
        };
        let simulated = figure.simulated_ns * ghz;
        table.add_row([
            figure.name.clone(),
            format!("{instructions:.1}"),
            format!("{cycles:.1}"),
            format!("{simulated:.1}"),
            format!("{:.2}", simulated / cycles),
        ]);
    }
    println!("{table}");
}

pub(crate) fn json(rows: &[Row]) -> Value {
    let figures = rows.iter().flat_map(Row::figures).map(|figure| {
        json!({
            "workload": figure.name,
            "host_ns": figure.host_ns,
            "host_ns_min": figure.least_ns,
            "null_ratio": figure.null,
            "simulated_ns": figure.simulated_ns,
            "ratio": figure.ratio(),
            "within": figure.within(),
            "instructions": figure.counted.map(|[instructions, _]| instructions),
            "cycles": figure.counted.map(|[_, cycles]| cycles),
        })
    });
    Value::Array(figures.collect())
}
