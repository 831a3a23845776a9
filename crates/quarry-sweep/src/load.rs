//! Loads as cells: the texts of a cell's axes as a load's request.

use quarry_designs::units::parse_duration;
use quarry_machines::{DEFAULT_MACHINE, Machine};
use quarry_work::load::{self, Load, LoadOptions, LoadReport};
use quarry_work::{Progress, WorkError};

use crate::ask::Ask;
use crate::plan::Asked;
use crate::requests::number;

/// Runs the load of a cell on each of its designs.
pub(crate) fn run(
    ask: Ask,
    asked: &Asked,
    progress: &dyn Progress,
) -> Result<Vec<LoadReport>, WorkError> {
    let text = |key: &str| asked.axes.get(key);
    let usage = |error: String| WorkError::Usage(error);
    let machine = Machine::open(text("machine").map_or(DEFAULT_MACHINE, String::as_str));
    let machine = machine.map_err(|error| usage(error.to_string()))?;
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
        seed: number(asked, "seed").unwrap_or(usual.seed),
        ..usual
    };
    let draw = machine.draw(number(asked, "draw").unwrap_or(0));
    let mut runs = request.runs(&machine)?;
    runs.iter_mut()
        .map(|run| {
            run.spec.setup.draw = draw.clone();
            run.run(progress)
        })
        .collect()
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
