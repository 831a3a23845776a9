//! `quarry machines`: the machines whose time can be simulated.

use quarry_machines::{BUNDLED, Caches, Cost, Machine, Topology};
use quarry_view::Form::{Count, Text};
use quarry_view::value::{number, text};
use quarry_view::{Section, Spec, View, column};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::output;
use crate::terminal::{self, Show};

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
        [machine] if args.toml => {
            terminal::print(|out| out.write_all(machine.to_text().as_bytes()))
        }
        [machine] if args.machine.is_some() => {
            terminal::print_view(&view(machine)?, Show::default())
        }
        all => {
            let machines = all.iter().map(Row::of).collect();
            let doc = output::doc("machines", &Rows { machines })?;
            let mut table = MACHINES.of(&doc.content);
            table.blocks = true;
            let view = View::new(MACHINES.title).with(Section::default().with(table));
            terminal::print_view(&view, Show::default())
        }
    }
}

/// Prints machines as the JSON of a command.
pub(crate) fn print_json(command: &str, machines: &[Machine]) -> anyhow::Result<()> {
    let machines = machines.iter().map(Row::of).collect();
    output::print_json(command, &Rows { machines })
}

pub(crate) const TABLES: [Spec; 2] = [MACHINES, COSTS];

const MACHINES: Spec = Spec {
    title: "Machines",
    rows: "machines",
    first: 0,
    columns: || {
        vec![
            column("machine", "name", Text),
            column("CPUs", "cpus", Count),
            column("what it is", "about", Text),
        ]
    },
};

const COSTS: Spec = Spec {
    title: "Costs",
    rows: "machines.costs",
    first: 0,
    columns: || {
        let exact = |name, path, text| column(name, path, Count).worded(text);
        vec![
            column("cost", "key", Text),
            exact("value", "value", |of| plain(of, "value")),
            exact("low", "low", |of| plain(of, "low")),
            exact("high", "high", |of| plain(of, "high")),
            column("unit", "unit", Text),
            exact("source", "source unverified", |of| {
                text(of, "number").to_string()
            })
            .about("The column has its number in the list below."),
        ]
    },
};

/// A number without zeros at its end.
fn plain(of: &Value, path: &str) -> String {
    number(of, path).map_or_else(String::new, |value| value.to_string())
}

/// The view of a machine with its costs and their sources.
pub(crate) fn view(machine: &Machine) -> anyhow::Result<View> {
    let Topology {
        sockets,
        clusters,
        cpus,
        nodes,
        line_bytes,
        source,
    } = &machine.topology;
    let mut about = Section::default()
        .note(format!(
            "{sockets} x {clusters} x {cpus} CPUs (sockets, clusters, CPUs of a cluster), {nodes} nodes, lines of \
             {line_bytes} bytes, {} GHz",
            machine.ghz
        ))
        .note(format!("  {source}"));
    let Caches { l1, l2, llc } = machine.caches;
    for (name, cache) in [("l1", Some(l1)), ("l2", l2), ("llc", llc)] {
        if let Some(cache) = cache {
            let inclusive = if cache.inclusive { ", inclusive" } else { "" };
            let (kib, ways) = (cache.bytes >> 10, cache.ways);
            let hashed = if cache.hashed { ", hashed sets" } else { "" };
            about = about.note(format!("{name}: {kib} KiB, {ways} ways{inclusive}{hashed}"));
        }
    }
    // Many costs have the same source.
    let mut sources: Vec<&str> = Vec::new();
    let mut costs = Vec::new();
    for cost in &Row::of(machine).costs {
        let place = sources.iter().position(|known| *known == cost.cost.source);
        let place = place.unwrap_or_else(|| {
            sources.push(&cost.cost.source);
            sources.len() - 1
        });
        let mark = if cost.cost.unverified { "? " } else { "" };
        let mut row = serde_json::to_value(cost)?;
        row["number"] = format!("{mark}{}", place + 1).into();
        costs.push(row);
    }
    let heading = Section::new("Sources (? is from memory, or an estimate):");
    let sources = (1..).zip(sources);
    let sources = sources.map(|(number, source)| format!("  {number}. {source}"));
    Ok(View::new(&machine.name)
        .finding(format!("{}: {}", machine.name, machine.about))
        .with(about)
        .with(Section::default().with(COSTS.table(&costs)))
        .with(sources.fold(heading, Section::note)))
}
