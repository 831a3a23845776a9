//! Loads as cells: the texts of a cell's axes as a load's request.

use quarry_designs::units::parse_duration;
use quarry_machines::Machine;
use quarry_work::load::{self, Load, LoadReport};
use quarry_work::world::Transport;
use quarry_work::{Progress, WorkError};

use crate::ask::Ask;
use crate::plan::Asked;

/// Machine whose time is simulated if none is named.
pub(crate) const MACHINE: &str = "haswell-ep-2x12";

/// Runs the load of a cell on each of its designs.
pub(crate) fn run(
    ask: Ask,
    asked: &Asked,
    progress: &dyn Progress,
) -> Result<Vec<LoadReport>, WorkError> {
    let text = |key: &str| asked.axes.get(key);
    let number = |key: &str| text(key).and_then(|text| text.parse().ok());
    let numbers = |key: &str| number(key).into_iter().collect();
    let usage = |error: String| WorkError::Usage(error);
    let machine = Machine::open(text("machine").map_or(MACHINE, String::as_str));
    let machine = machine.map_err(|error| usage(error.to_string()))?;
    let usual = load::Ask::new(vec![named(ask, asked)?]);
    let time = text("time").map(|text| parse_duration(text));
    let request = load::Ask {
        designs: text("design").cloned().into_iter().collect(),
        era: text("era").cloned(),
        cpus: numbers("cpus"),
        page_bytes: number("page-size").map_or(usual.page_bytes, u64::from),
        memory_bytes: text("memory")
            .and_then(|text| text.parse().ok())
            .unwrap_or(usual.memory_bytes),
        set: asked.set.clone(),
        wake_order: text("wake-order").cloned(),
        wake_place: text("wake-place").cloned(),
        time: time.transpose().map_err(usage)?,
        seed: number("seed").map_or(usual.seed, u64::from),
        ..usual
    };
    let draw = machine.draw(number("draw").unwrap_or(0));
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
    let number = |key: &str| -> Option<u32> { asked.axes.get(key)?.parse().ok() };
    let name = ask.name().strip_prefix("run ").unwrap_or_default();
    let size = ["groups", "clients", "pairs"].into_iter().find_map(number);
    let mut load = Load::named(name, size)?;
    match &mut load {
        Load::Hackbench(it) => {
            it.descriptors = number("fds").unwrap_or(it.descriptors);
            it.loops = number("loops").unwrap_or(it.loops);
            it.bytes = number("datasize").unwrap_or(it.bytes);
            it.transport = match asked.axes.get("transport").map(String::as_str) {
                None | Some("unix") => Transport::Unix,
                Some("datagram") => Transport::Datagram,
                Some("pipe") => Transport::Pipe,
                Some(other) => {
                    return Err(WorkError::Usage(format!(
                        "transport: {other:?} is none of unix, datagram, pipe"
                    )));
                }
            };
        }
        Load::TcpRr(it) => {
            it.request = number("request").unwrap_or(it.request);
            it.response = number("response").unwrap_or(it.response);
        }
        Load::Tbench(_) | Load::Own(_) => {}
    }
    Ok(load)
}
