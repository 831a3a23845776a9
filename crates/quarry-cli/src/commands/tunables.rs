//! `quarry tunables`: the table of tunables, from the data that everything else uses.

use quarry_core::era::Era;
use quarry_core::page::SYSCTLS;
use quarry_core::tunables::{DefaultValue, Scope, Table, Tunable};
use quarry_designs::{DESIGNS, DesignSpec, parse_era};
use quarry_view::Form::Text;
use quarry_view::value::{list, text};
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
    /// Only those of a design, as it is or in one era: `slub`, `slub@5.9`; `page` is the page
    /// allocator.
    #[arg(long, value_name = "DESIGN[@ERA]")]
    design: Option<String>,
    /// Print JSON (quarry explain --all).
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

/// Tunables.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Rows<'a> {
    /// Tunables: those of the boot line first, sysctls last.
    tunables: &'a [Row],
}

/// One tunable.
#[derive(JsonSchema, Serialize)]
struct Row {
    /// Name, as in the kernel.
    name: &'static str,
    /// Older name; null if there is none.
    alias: Option<&'static str>,
    /// `boot`, `cache` or `sysctl`.
    scope: &'static str,
    /// Least value.
    min: u64,
    /// Largest value.
    max: u64,
    /// Unit.
    unit: &'static str,
    /// Default; null if it is computed.
    default: Option<u64>,
    /// Default in words.
    default_text: String,
    /// Designs that have it, with first and last release.
    designs: Vec<String>,
    /// Meaning.
    doc: &'static str,
}

/// The table of tunables.
pub(crate) const TUNABLES: Spec = Spec {
    title: "Tunables",
    rows: "tunables",
    first: 0,
    columns: || {
        vec![
            column("tunable", "name scope min max unit", Text).worded(|of| {
                let [name, scope, unit] = ["name", "scope", "unit"].map(|path| text(of, path));
                format!("{name}\n  {scope}, {}..={}\n  {unit}", of["min"], of["max"])
            }),
            column("default", "default_text", Text),
            column("meaning", "doc designs", Text).worded(|of| {
                let designs = list(of, "designs").iter().filter_map(Value::as_str);
                format!(
                    "{}\n{}",
                    text(of, "doc"),
                    designs.collect::<Vec<_>>().join(", ")
                )
            }),
        ]
    },
};

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let rows = match &args.design {
        None => all().map(row).collect(),
        Some(text) => rows_of(text)?,
    };
    if args.json {
        return output::print_json("tunables", &Rows { tunables: &rows });
    }
    let doc = output::doc("tunables", &Rows { tunables: &rows })?;
    let mut table = TUNABLES.of(&doc.content);
    table.blocks = true;
    let view = View::new(TUNABLES.title).with(Section::default().with(table));
    terminal::print_view(&view, Show::default())
}

/// The tables of all designs, then that of the page allocator.
fn tables() -> impl Iterator<Item = &'static Table> {
    let designs = DESIGNS.iter().map(|design| design.tunables);
    designs.chain([&SYSCTLS])
}

/// Each tunable once, those of boot first and those of the page allocator last. Designs that share
/// one refer to the same.
fn all() -> impl Iterator<Item = &'static Tunable> {
    let mut all: Vec<&Tunable> = Vec::new();
    for row in tables().flat_map(|table| table.rows) {
        if !all.contains(&row.tunable) {
            all.push(row.tunable);
        }
    }
    all.sort_by_key(|tunable| match tunable.scope {
        Scope::Boot => 0,
        Scope::Cache | Scope::Own => 1,
        Scope::Sysctl => 2,
    });
    all.into_iter()
}

/// The tunables of `slub` (in any era) or of `slub@5.9`.
fn rows_of(text: &str) -> anyhow::Result<Vec<Row>> {
    let (name, era) = match text.split_once('@') {
        Some((name, era)) => (name, Some(era)),
        None => (text, None),
    };
    let (table, era): (&Table, Option<Era>) = if name == SYSCTLS.design {
        (&SYSCTLS, era.map(parse_era).transpose()?)
    } else {
        let spec = DesignSpec::parse(text)?;
        (spec.design.tunables, era.map(|_| spec.era))
    };
    Ok(match era {
        Some(era) => table.of(era).map(row).collect(),
        None => table.rows.iter().map(|of| row(of.tunable)).collect(),
    })
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
        designs: designs_with(tunable),
        doc: tunable.doc,
    }
}

/// The designs that have a tunable, with the first and the last release.
fn designs_with(tunable: &Tunable) -> Vec<String> {
    let rows = tables().flat_map(|table| table.rows.iter().map(|row| (table.design, row)));
    rows.filter(|(_, row)| row.tunable == tunable)
        .map(|(design, row)| match row.from == row.to {
            true => format!("{design}@{}", row.from),
            false => format!("{design}@{} to {}", row.from, row.to),
        })
        .collect()
}
