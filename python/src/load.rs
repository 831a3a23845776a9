//! The classic loads in simulated time.

use pyo3::prelude::*;
use quarry_lab::booted::Booted;
use quarry_machines::{DEFAULT_MACHINE, Machine};
use quarry_work::load::{Ask, Load, LoadOptions, MEMORY_BYTES};
use quarry_work::run_all;
use serde_json::json;

use crate::args::{Bytes, Name, PageBytes, Pairs, Seconds, Several};
use crate::error::{raised, usage};
use crate::running::{self, Bar, note, note_eras};
use crate::snapshot::Snapshot;
use crate::table::PyTable;

/// Runs a load in simulated time: hackbench, tbench or tcp_rr of a size (groups, clients or pairs), on each number of CPUs
/// and each design. A list of sizes has a row for each. A run begins on an empty heap; with `initial` on the heap of a
/// snapshot, with `booted` on that of a bundled kernel that has run.
#[pyfunction]
#[pyo3(signature = (
    load, size = None, *, design = None, era = None, cpus = None, page_size = None, memory = None, set = None, at = None,
    wake_order = None, wake_place = None, skb_sizes = None, time = None, count_start = false, fds = None, loops = None, datasize = None,
    transport = None, sizes = None, remote = None, machine = None, initial = None, booted = false, seed = 1, jobs = None, caches = false,
    progress = false
))]
#[expect(clippy::too_many_arguments, reason = "keywords of Python")]
pub(crate) fn run(
    py: Python<'_>,
    load: &str,
    size: Option<Several<u32>>,
    design: Option<Several<Name>>,
    era: Option<Name>,
    cpus: Option<Several<u32>>,
    page_size: Option<PageBytes>,
    memory: Option<Bytes>,
    set: Option<Pairs>,
    at: Option<Several<String>>,
    wake_order: Option<String>,
    wake_place: Option<String>,
    skb_sizes: Option<String>,
    time: Option<Seconds>,
    count_start: bool,
    fds: Option<u32>,
    loops: Option<u32>,
    datasize: Option<Bytes>,
    transport: Option<String>,
    sizes: Option<(u32, u32)>,
    remote: Option<bool>,
    machine: Option<&str>,
    initial: Option<PyRef<'_, Snapshot>>,
    booted: bool,
    seed: u64,
    jobs: Option<usize>,
    caches: bool,
    progress: bool,
) -> PyResult<PyTable> {
    let options = LoadOptions {
        fds,
        loops,
        datasize: datasize.map(|bytes| bytes.0),
        transport,
        sizes: sizes.map_or([None; 2], |(request, response)| {
            [Some(request), Some(response)]
        }),
        remote,
    };
    let named = |size| Load::named(load, size)?.with(&options);
    let loads: Result<Vec<Load>, _> = match size {
        None => named(None).map(|load| vec![load]),
        Some(sizes) => sizes.0.into_iter().map(|size| named(Some(size))).collect(),
    };
    let loads = loads.map_err(raised)?;
    let ask = Ask {
        designs: design.unwrap_or_default().texts(),
        era: era.map(|era| era.0),
        cpus: cpus.unwrap_or_default().0,
        page_bytes: page_size.map_or(4096, |size| size.0),
        memory_bytes: memory.map_or(MEMORY_BYTES, |bytes| bytes.0),
        set: set.unwrap_or_default().0,
        at: at.unwrap_or_default().0,
        wake_order,
        wake_place,
        skb_sizes,
        time: time.map(|time| time.0),
        count_start,
        seed,
        ..Ask::new(loads)
    };
    let machine = Machine::open(machine.unwrap_or(DEFAULT_MACHINE)).map_err(raised)?;
    let initial_file = initial.as_ref().map(|initial| initial.of.file.clone());
    let start = match (initial, booted) {
        (Some(_), true) => {
            let problem = "initial and booted are two states: give one of them";
            return Err(usage(problem));
        }
        (Some(initial), false) => Some(Booted::of(initial.of.clone()).map_err(raised)?),
        (None, booted) => booted.then_some(Booted::Bundled),
    };
    let runs = ask.runs(&machine).map_err(raised)?;
    note_eras(py, runs.iter().map(|run| run.spec.setup.era))?;
    let jobs = running::jobs(jobs);
    let bar = Bar::new(py, progress, load, 100 * runs.len() as u64, "%")?;
    let reports = running::run(py, &bar, |shared| {
        run_all(&runs, jobs, |run| run.run_from(&start, shared))
    })?;
    let reports = reports.map_err(raised)?;
    for (run, report) in runs
        .iter()
        .zip(&reports)
        .filter(|(_, report)| report.late_changes > 0)
    {
        note(
            py,
            &format!(
                "{}: it ended before {} of at",
                run.spec.label(),
                report.late_changes
            ),
        )?;
    }
    let lead = ["load", "size", "design", "era", "cpus"];
    let table = match caches {
        true => PyTable::of_parts(&reports, |report| &report.caches, &lead)?,
        false => PyTable::of(&reports, &lead)?,
    };
    let asked = json!({
        "load": load, "size": ask.loads.iter().map(|load| load.size().1).collect::<Vec<_>>(), "design": ask.designs,
        "era": ask.era, "cpus": ask.cpus, "page_size": ask.page_bytes, "memory": ask.memory_bytes, "set": ask.set,
        "at": ask.at, "wake_order": ask.wake_order, "wake_place": ask.wake_place, "skb_sizes": ask.skb_sizes,
        "count_start": ask.count_start, "machine": machine.name, "initial": initial_file, "booted": booted,
        "seed": ask.seed,
    });
    Ok(table
        .noted("command", format!("run {load}"))
        .noted("asked", asked))
}
