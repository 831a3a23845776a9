//! Loads as cells: the texts of a cell's axes as a load's request.

use quarry_designs::units::parse_duration;
use quarry_designs::{DesignSpec, Setting, Tuning, resolve};
use quarry_work::load::{self, Load, LoadOptions, LoadReport};
use quarry_work::micro::{MicroReport, MicroSpec, Pattern};
use quarry_work::{Progress, Setup, WorkError};

use crate::ask::Ask;
use crate::plan::Asked;
use crate::requests::{booted, machine, number};

/// Runs the load of a cell on each of its designs.
pub(crate) fn run(
    ask: Ask,
    asked: &Asked,
    progress: &dyn Progress,
) -> Result<Vec<LoadReport>, WorkError> {
    let text = |key: &str| asked.axes.get(key);
    let usage = |error: String| WorkError::Usage(error);
    let machine = machine(asked).map_err(usage)?;
    let usual = load::Ask::new(vec![named(ask, asked)?]);
    let time = text("time").map(|text| parse_duration(text));
    let request = load::Ask {
        designs: text("design").cloned().into_iter().collect(),
        era: text("era").cloned(),
        cpus: number(asked, "cpus").into_iter().collect(),
        page_bytes: number(asked, "page-size").unwrap_or(usual.page_bytes),
        memory_bytes: number(asked, "memory").unwrap_or(usual.memory_bytes),
        set: asked.set.clone(),
        wake_order: text("wake-order").cloned(),
        wake_place: text("wake-place").cloned(),
        time: time.transpose().map_err(usage)?,
        count_start: text("count-start").is_some_and(|text| text == "true"),
        seed: number(asked, "seed").unwrap_or(usual.seed),
        ..usual
    };
    let draw = machine.draw(number(asked, "draw").unwrap_or(0));
    let mut runs = request.runs(&machine)?;
    runs.iter_mut()
        .map(|run| {
            run.spec.setup.draw = draw.clone();
            run.run_from(&booted(asked), progress)
        })
        .collect()
}

/// Designs of micro-benchmarks without an axis of them.
const MICRO_DESIGNS: [&str; 2] = ["slub@6.18", "sheaf@7.0"];

/// Runs the micro-benchmark of a cell on each of its designs.
pub(crate) fn run_micro(asked: &Asked) -> Result<Vec<MicroReport>, WorkError> {
    let usage = |error: String| WorkError::Usage(error);
    let design = |text: &str| DesignSpec::parse(text).map_err(|error| usage(error.to_string()));
    let designs: Vec<DesignSpec> = match asked.axes.get("design") {
        Some(text) => vec![design(text)?],
        None => MICRO_DESIGNS
            .into_iter()
            .map(design)
            .collect::<Result<_, _>>()?,
    };
    let settings = asked.set.iter().map(|text| Setting::parse(text));
    let settings: Result<Vec<Setting>, _> = settings.collect();
    let tunings = settings.and_then(|settings| resolve(&settings, &designs));
    let tunings = tunings.map_err(|error| usage(error.to_string()))?;
    let machine = machine(asked).map_err(usage)?;
    let pattern = asked.axes.get("pattern");
    let pattern = pattern.map(|name| quarry_designs::named("pattern", &Pattern::ALL, name));
    let pattern = pattern
        .transpose()
        .map_err(|error| usage(error.to_string()))?;
    let run = |(design, tuning): (DesignSpec, Tuning)| {
        let usual = Setup::new(design.era, machine.clone());
        let usual = MicroSpec::new(Setup {
            page_bytes: number(asked, "page-size").unwrap_or(usual.page_bytes),
            memory_bytes: number(asked, "memory").unwrap_or(load::MEMORY_BYTES),
            tuning,
            draw: machine.draw(number(asked, "draw").unwrap_or(0)),
            seed: number(asked, "seed").unwrap_or(usual.seed),
            ..usual
        });
        let spec = MicroSpec {
            pattern: pattern.unwrap_or(usual.pattern),
            object_bytes: number(asked, "size").unwrap_or(usual.object_bytes),
            count: number(asked, "count").unwrap_or(usual.count),
            cpus: number(asked, "cpus").unwrap_or(usual.cpus),
            ..usual
        };
        spec.run_on(&design)
    };
    designs.into_iter().zip(tunings).map(run).collect()
}

/// The load of a question with the options of a cell.
fn named(ask: Ask, asked: &Asked) -> Result<Load, WorkError> {
    let name = ask.name().strip_prefix("run ").unwrap_or_default();
    let size = ["groups", "clients", "pairs"]
        .into_iter()
        .find_map(|key| number(asked, key));
    Load::named(name, size)?.with(&LoadOptions {
        fds: number(asked, "fds"),
        loops: number(asked, "loops"),
        datasize: number(asked, "datasize"),
        transport: asked.axes.get("transport").cloned(),
        sizes: ["request", "response"].map(|key| number(asked, key)),
        remote: None,
    })
}
