//! `quarry machines`: the machines whose time can be simulated.

use quarry_machines::{BUNDLED, Caches, Cost, Machine, Topology};
use schemars::JsonSchema;
use serde::Serialize;

use crate::output;

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Show this machine: a bundled one by its name, or a file.
    machine: Option<String>,
    /// Print JSON (quarry explain --all).
    #[arg(long)]
    json: bool,
    /// Print the machine's file, to change it.
    #[arg(long, requires = "machine", conflicts_with = "json")]
    toml: bool,
}

const EXAMPLES: &str = "\
A machine is a file of facts: topology, caches, and what memory, locks and
interrupts cost, each with a source and a range from low to high. A value
marked ? is from memory, or an estimate. `--machine` of `quarry run` takes the
same names and files.

Exit codes: 0 done; 1 failed; 2 wrong usage.

Examples:
  quarry machines
  quarry machines haswell-ep-2x12
  quarry machines haswell-ep-2x12 --toml > mine.toml
  quarry machines ./mine.toml --json

`quarry calibrate -o mine.toml` makes a file of this computer.";

/// Machines.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Rows<'a> {
    /// Machines, bundled ones in the order of the list.
    machines: Vec<Row<'a>>,
}

/// One machine.
#[derive(JsonSchema, Serialize)]
struct Row<'a> {
    /// Name.
    name: &'a str,
    /// Description, one line.
    about: &'a str,
    /// Clock in GHz.
    ghz: f64,
    /// CPUs of all sockets.
    cpus: u32,
    /// CPUs, nodes and lines.
    topology: &'a Topology,
    /// Caches.
    caches: &'a Caches,
    /// Costs with their ranges and sources.
    costs: Vec<CostRow<'a>>,
}

/// A cost.
#[derive(JsonSchema, Serialize)]
struct CostRow<'a> {
    /// Path of the cost in a machine file.
    key: String,
    /// Values.
    #[serde(flatten)]
    cost: &'a Cost,
}

impl<'a> Row<'a> {
    fn of(machine: &'a Machine) -> Self {
        let costs = machine.costs();
        Self {
            name: &machine.name,
            about: &machine.about,
            ghz: machine.ghz,
            cpus: machine.topology.all_cpus(),
            topology: &machine.topology,
            caches: &machine.caches,
            costs: costs
                .map(|(key, cost)| CostRow {
                    key: key.path(),
                    cost,
                })
                .collect(),
        }
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let machines: Vec<Machine> = match &args.machine {
        Some(name) => vec![Machine::open(name)?],
        None => {
            let all = BUNDLED.iter().map(|(name, _)| Machine::bundled(name));
            all.collect::<Result<_, _>>()?
        }
    };
    if args.json {
        return print_json("machines", &machines);
    }
    match machines.as_slice() {
        [machine] if args.toml => output::print(|out| out.write_all(machine.to_text().as_bytes())),
        [machine] if args.machine.is_some() => output::print_text(&one(machine)),
        all => output::print_text(&list(all)),
    }
}

/// Prints machines as the JSON of a command.
pub(crate) fn print_json(command: &str, machines: &[Machine]) -> anyhow::Result<()> {
    let machines = machines.iter().map(Row::of).collect();
    output::print_json(command, &Rows { machines })
}

fn list(machines: &[Machine]) -> String {
    let mut table = output::table(&["machine", "CPUs", "what it is"], &[2]);
    for machine in machines {
        table.add_row([
            machine.name.clone(),
            machine.topology.all_cpus().to_string(),
            machine.about.clone(),
        ]);
    }
    table.to_string()
}

/// A machine with its costs and their sources.
pub(crate) fn one(machine: &Machine) -> String {
    let Topology {
        sockets,
        clusters,
        cpus,
        nodes,
        line_bytes,
        source,
    } = &machine.topology;
    let mut text = format!(
        "{}: {}\n{sockets} x {clusters} x {cpus} CPUs (sockets, clusters, CPUs of a cluster), {nodes} nodes, lines of \
         {line_bytes} bytes, {} GHz\n  {source}\n",
        machine.name, machine.about, machine.ghz
    );
    let Caches { l1, l2, llc } = machine.caches;
    for (name, cache) in [("l1", Some(l1)), ("l2", l2), ("llc", llc)] {
        if let Some(cache) = cache {
            let inclusive = if cache.inclusive { ", inclusive" } else { "" };
            let (kib, ways) = (cache.bytes >> 10, cache.ways);
            let hashed = if cache.hashed { ", hashed sets" } else { "" };
            text += &format!("{name}: {kib} KiB, {ways} ways{inclusive}{hashed}\n");
        }
    }
    // Many costs have the same source.
    let mut sources: Vec<&str> = Vec::new();
    let header = ["cost", "value", "low", "high", "unit", "source"];
    let mut table = output::table(&header, &[4]);
    for (key, cost) in machine.costs() {
        let place = sources.iter().position(|known| *known == cost.source);
        let number = place.unwrap_or_else(|| {
            sources.push(&cost.source);
            sources.len() - 1
        });
        let mark = if cost.unverified { "? " } else { "" };
        table.add_row([
            key.path(),
            cost.value.to_string(),
            cost.low.to_string(),
            cost.high.to_string(),
            cost.unit.name().to_string(),
            format!("{mark}{}", number + 1),
        ]);
    }
    text += &format!("\n{table}\n\nSources (? is from memory, or an estimate):\n");
    for (number, source) in (1..).zip(sources) {
        text += &format!("  {number}. {source}\n");
    }
    text
}
