//! `quarry tunables`: the table of tunables, from the data that everything else uses.

use quarry_core::tunables::{DefaultValue, PAGE_ALLOCATOR, Scope, TUNABLES, Tunable};
use quarry_lab::DesignSpec;
use quarry_lab::design::parse_era;
use serde::Serialize;

use crate::output;

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Only those of a design, as it is or in one era: `slub`, `slub@5.9`; `page` is the page
    /// allocator.
    #[arg(long, value_name = "DESIGN[@ERA]")]
    design: Option<String>,
    /// Print JSON: one array, an object for each tunable.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
A boot tunable is one value for all caches, a cache tunable one for each cache.
`--set` of `quarry replay` and `quarry geometry` takes both and gives every
cache the same value. A sysctl is one value of the page allocator.

Exit codes: 0 done; 1 failed; 2 wrong usage.

Examples:
  quarry tunables
  quarry tunables --design slub@2.6.24
  quarry tunables --design slubq --json
  quarry tunables --design page@6.18";

#[derive(Serialize)]
struct Row {
    name: &'static str,
    alias: Option<&'static str>,
    scope: &'static str,
    min: u64,
    max: u64,
    unit: &'static str,
    default: Option<u64>,
    default_text: String,
    designs: Vec<String>,
    doc: &'static str,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let rows = match &args.design {
        None => TUNABLES.iter().map(row).collect(),
        Some(text) => rows_of(text)?,
    };
    if args.json {
        return output::print_json(&rows);
    }
    let mut table = output::table(&["tunable", "default", "meaning"], &[1, 2]);
    for row in &rows {
        table.add_row([
            format!(
                "{}\n  {}, {}..={}\n  {}",
                row.name, row.scope, row.min, row.max, row.unit
            ),
            row.default_text.clone(),
            format!("{}\n{}", row.doc, row.designs.join(", ")),
        ]);
    }
    output::print_text(&table.to_string())
}

/// The tunables of `slub` (in any era) or of `slub@5.9`.
fn rows_of(text: &str) -> anyhow::Result<Vec<Row>> {
    let (name, era) = match text.split_once('@') {
        Some((PAGE_ALLOCATOR, era)) => (PAGE_ALLOCATOR, Some(parse_era(era)?)),
        None if text == PAGE_ALLOCATOR => (PAGE_ALLOCATOR, None),
        at => {
            let spec = DesignSpec::parse(text)?;
            (spec.design.name, at.map(|_| spec.era))
        }
    };
    let applies = |tunable: &&Tunable| match era {
        Some(era) => tunable.applies(name, era),
        None => tunable.available.iter().any(|at| at.design == name),
    };
    Ok(TUNABLES.iter().filter(applies).map(row).collect())
}

fn row(tunable: &Tunable) -> Row {
    Row {
        name: tunable.name,
        alias: tunable.alias.map(|(alias, _)| alias),
        scope: match tunable.scope {
            Scope::Boot => "boot",
            Scope::Cache | Scope::Own => "cache",
            Scope::Sysctl => "sysctl",
        },
        min: tunable.min,
        max: tunable.max,
        unit: tunable.unit,
        default: match tunable.default {
            DefaultValue::Value(value) => Some(value),
            DefaultValue::Computed(_) => None,
        },
        default_text: tunable.default.to_string(),
        designs: tunable
            .available
            .iter()
            .map(|at| {
                if at.from == at.to {
                    format!("{}@{}", at.design, at.from)
                } else {
                    format!("{}@{} to {}", at.design, at.from, at.to)
                }
            })
            .collect(),
        doc: tunable.doc,
    }
}
