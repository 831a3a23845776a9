//! `quarry diff`: what changed between two outputs of `--json`.

pub(crate) mod runs;
pub(crate) mod view;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::commands::diff::runs::{label, partners};
use crate::terminal::{self, Show};
use crate::{error, input, output};

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// First output of any command with --json, packed with gzip or not; `-` reads stdin.
    #[arg(value_name = "A.json")]
    a: PathBuf,
    /// Second output.
    #[arg(value_name = "B.json")]
    b: PathBuf,
    /// Print every number that changed, not only those that tell designs apart.
    #[arg(long)]
    all: bool,
    /// Number of caches to print for each run: those whose memory changed by most bytes.
    #[arg(long, value_name = "N", default_value_t = 15)]
    top: usize,
    /// Exit with code 3 if a printed number of B is worse by more than this: greater, or less if it is a rate or a count
    /// of fast paths. With --all every number counts.
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    fail_above: Option<f64>,
    /// Print all changes as JSON (quarry explain --all).
    #[arg(long)]
    json: bool,
}

/// Parses `5%` or `0.5`, in per cent.
fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text.trim_end_matches('%').trim().parse::<f64>();
    number
        .ok()
        .filter(|percent| percent.is_finite() && *percent >= 0.0)
        .ok_or_else(|| format!("{text:?} is no percentage from 0 on; write 5% or 0.5%"))
}

const EXAMPLES: &str = "\
Which runs are compared:
  Runs of the same design, era, page size, number of CPUs and other axes, of two
  outputs of one command. Of what is left, runs that differ in the era alone;
  then, if each file has one run left, these two. Others are named and left out.
  Machines and tunables are compared by their names, callers as caches are. An
  output without runs, such as that of import, is one run. Changes are relative to
  A and sorted by that; a cache's memory is that at the end of a replay, or the
  predicted one of what-if. events/s is not compared. Of a look at a file without
  slabs and one at a file with slabs the sums are compared, which both have.

In continuous integration:
  --fail-above looks at the numbers that are printed: memory, slow paths, locks and
  times. A number that was 0, or that A lacks, counts as above any limit.

Exit codes:
  0 done, whether or not there are changes; 1 a file cannot be read, is no such
  output, or no run has a partner; 2 wrong usage; 3 a number is worse by more than
  --fail-above

Examples:
  quarry replay --json > a.json
  quarry replay --set slub_max_order=1 --json | quarry diff a.json -
  quarry what-if now.json --json | quarry diff before.json - --fail-above 5%";

impl Pair {
    /// Numbers that changed and are printed: those of [`MAIN`], or all with `all` and where a run has none of them.
    pub(crate) fn printed(&self, all: bool) -> impl Iterator<Item = &Change> {
        self.rows
            .iter()
            .filter(move |row| all || !self.has_main || MAIN.contains(&row.name.as_str()))
    }
}

/// Numbers that are printed first, beside all that `--all` has.
const MAIN: &[&str] = &[
    "peak_slab_bytes",
    "object_bytes",
    "final_slab_bytes",
    "final_object_bytes",
    "caches.free_bytes",
    "caches.waste_bytes",
    "large_bytes_peak",
    "alloc_slowpath",
    "free_slowpath",
    "cross_cpu_frees",
    "locks.zone",
    "locks.node_list",
    "page_allocs",
    "overhead_bytes",
    "pages.peak_bytes",
    "pages.no_memory",
    "predicted_bytes",
    "likely_low_bytes",
    "likely_high_bytes",
    "alloc.mean_ns",
    "alloc.p99_ns",
    "free.mean_ns",
    "free.p99_ns",
    "fault.mean_ns",
    "operation_ns",
    "packet_ns",
    "per_second",
    "mb_per_second",
    "mbit_per_second",
    "cpu_us",
    "slab_kib",
    "peak_live_bytes",
    "end_live_bytes",
    "bytes_alloc",
    "allocs",
];

/// Members of a run that say how it was made, or how fast this computer was.
const NOT_COMPARED: &[&str] = &[
    "possible_cpus",
    "snapshot_design",
    "events_per_second",
    "seed",
    "observed_bytes",
    "published_mbit_per_second",
];

/// A number in both files.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub(crate) struct Change {
    /// Path of the field below its run; `caches.waste_bytes` and `caches.free_bytes` are sums over the
    /// caches.
    pub(crate) name: String,
    /// Value in A; null if A lacks it.
    pub(crate) a: Option<f64>,
    /// Value in B; null if B lacks it.
    pub(crate) b: Option<f64>,
    /// (b - a) / a; null if a is 0, or if a file lacks the field.
    pub(crate) relative: Option<f64>,
}

impl Change {
    fn new(name: &str, a: Option<f64>, b: Option<f64>) -> Self {
        let relative = match (a, b) {
            (Some(a), Some(b)) if a != 0.0 => Some((b - a) / a),
            _ => None,
        };
        let name = name.to_string();
        Self {
            name,
            a,
            b,
            relative,
        }
    }

    /// Sort key of changes: values that were 0 or absent come first.
    fn rank(&self) -> f64 {
        self.relative.map_or(f64::INFINITY, f64::abs)
    }
}

/// Memory of a cache: bytes of its slabs at the end of a replay, or predicted; 0 if a file lacks the cache.
/// Caches of one name are added up.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub(crate) struct CacheChange {
    /// Bytes.
    #[serde(flatten)]
    pub(crate) memory: Change,
    /// Bytes of waste that B has more than A; null for what-if.
    pub(crate) waste_bytes: Option<f64>,
    /// Bytes of free objects that B has more than A; null for what-if.
    pub(crate) free_bytes: Option<f64>,
}

/// Two runs that are compared.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub(crate) struct Pair {
    /// Run of A: design, era, page size and number of CPUs.
    pub(crate) a: String,
    /// Run of B.
    pub(crate) b: String,
    /// Numbers that changed, the largest change relative to A first.
    pub(crate) rows: Vec<Change>,
    /// Caches whose memory changed, the largest change first.
    pub(crate) caches: Vec<CacheChange>,
    /// True if a run has numbers that are printed first.
    #[serde(skip)]
    pub(crate) has_main: bool,
}

/// A setting or a property of the input in which the outputs differ.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub(crate) struct Differs {
    /// Member of `trace`, `snapshot` or `settings`, or `quarry.version`; `caches` if a file has sums alone.
    pub(crate) what: String,
    /// Value in A.
    pub(crate) a: Value,
    /// Value in B.
    pub(crate) b: Value,
}

/// Comparison of two outputs.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub(crate) struct Difference {
    /// File A.
    pub(crate) a: String,
    /// File B.
    pub(crate) b: String,
    /// Command whose outputs they are.
    pub(crate) of: String,
    /// Settings and inputs in which the outputs differ.
    pub(crate) differs: Vec<Differs>,
    /// Pairs of runs with all numbers that changed.
    pub(crate) runs: Vec<Pair>,
    /// Runs of A without a partner.
    pub(crate) only_in_a: Vec<String>,
    /// Runs of B without a partner.
    pub(crate) only_in_b: Vec<String>,
    /// With `--fail-above`, numbers that got worse by more than that, as run and change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) worse: Vec<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    input::check_one_stdin(&[("A.json", Some(&args.a)), ("B.json", Some(&args.b))])?;
    let (a, b) = (read(&args.a)?, read(&args.b)?);
    let mut difference = compare((&input::shown(&args.a), &a), (&input::shown(&args.b), &b))?;
    if let Some(percent) = args.fail_above {
        difference.worse = worse(&difference, args.all, percent / 100.0);
    }
    match args.json {
        true => output::print_json("diff", &difference)?,
        false => {
            let show = Show {
                rows: Some(args.top),
                ..Show::default()
            };
            terminal::print_view(&view::view(&difference, args.all)?, show)?;
        }
    }
    let percent = args.fail_above.unwrap_or_default();
    match difference.worse.as_slice() {
        [] => Ok(()),
        [first, rest @ ..] => Err(error::with_code(
            WORSE,
            format!(
                "worse by more than {percent} %: {first}{}",
                match rest.len() {
                    0 => String::new(),
                    more => format!(", and {more} more numbers"),
                }
            ),
        )),
    }
}

/// Exit code if a number is worse by more than `--fail-above`.
const WORSE: u8 = 3;

/// Numbers of B that are worse than those of A by more than a part of A.
fn worse(difference: &Difference, all: bool, limit: f64) -> Vec<String> {
    let mut found = Vec::new();
    for pair in &difference.runs {
        for row in pair.printed(all) {
            let delta = row.b.unwrap_or(0.0) - row.a.unwrap_or(0.0);
            let delta = if more_is_better(&row.name) {
                -delta
            } else {
                delta
            };
            let above = row.relative.is_none_or(|relative| relative.abs() > limit);
            if delta > 0.0 && above {
                let by = row
                    .relative
                    .map_or_else(|| "new".to_string(), |by| format!("{:+.1} %", by * 100.0));
                found.push(format!("{}: {} {by}", pair.b, row.name));
            }
        }
    }
    found
}

/// True for rates, and for counts and shares that a better allocator has more of.
fn more_is_better(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    last.contains("per_second")
        || last.contains("fastpath")
        || ["utilisation", "idle_percent"].contains(&last)
}

/// Reads a document and checks that it is of a known shape.
pub(crate) fn read(path: &Path) -> anyhow::Result<Value> {
    let text = quarry_snapshot::read_report(&input::report(path))?;
    let file = input::shown(path);
    parse(&text).with_context(|| file)
}

fn parse(text: &str) -> anyhow::Result<Value> {
    const HINT: &str = "give what a command of quarry printed with --json";
    let document: Value =
        serde_json::from_str(text).map_err(|error| anyhow!("it is no JSON ({error}); {HINT}"))?;
    match document.get("schema") {
        Some(schema) if schema == output::SCHEMA => {}
        Some(schema) => bail!(
            "its schema is {schema}, and quarry {} reads {}; print it again with this version",
            env!("CARGO_PKG_VERSION"),
            output::SCHEMA
        ),
        None => bail!("it has no `schema` number; {HINT}"),
    }
    if !document["command"].is_string() {
        bail!("it does not say which command it is of; {HINT}");
    }
    Ok(document)
}

/// Compares two documents; each with its name.
fn compare(a: (&str, &Value), b: (&str, &Value)) -> anyhow::Result<Difference> {
    let of = |document: &Value| document["command"].as_str().unwrap_or_default().to_string();
    if of(a.1) != of(b.1) {
        bail!(
            "{} is of {} and {} of {}; outputs of one command can be compared",
            a.0,
            of(a.1),
            b.0,
            of(b.1)
        );
    }
    let runs = runs::of_document;
    let (pairs, only_in_a, only_in_b) = partners(&runs(a.1), &runs(b.1));
    if pairs.is_empty() {
        let none = |names: &[String]| match names.is_empty() {
            true => "none".to_string(),
            false => names.join("; "),
        };
        bail!(
            "no run of one file has a partner in the other: {} has {}; {} has {}",
            a.0,
            none(&only_in_a),
            b.0,
            none(&only_in_b)
        );
    }
    Ok(Difference {
        a: a.0.to_string(),
        b: b.0.to_string(),
        of: of(a.1),
        differs: differs(a.1, b.1)
            .into_iter()
            .chain(pairs.iter().find_map(|(a, b)| lacks_caches(a, b)))
            .collect(),
        runs: pairs.iter().map(|(a, b)| pair(a, b)).collect(),
        only_in_a,
        only_in_b,
        worse: Vec::new(),
    })
}

/// Versions, traces, snapshots and settings, as far as they differ.
fn differs(a: &Value, b: &Value) -> Vec<Differs> {
    let mut all = Vec::new();
    for part in ["quarry", "trace", "snapshot", "settings"] {
        let members = |document: &Value| document[part].as_object().cloned().unwrap_or_default();
        let (of_a, of_b) = (members(a), members(b));
        let mut names: Vec<&String> = of_a.keys().chain(of_b.keys()).collect();
        names.sort();
        names.dedup();
        for name in names {
            let member = |of: &serde_json::Map<String, Value>| of.get(name).cloned();
            let (a, b) = (member(&of_a), member(&of_b));
            if a != b {
                all.push(Differs {
                    what: format!("{part}.{name}"),
                    a: a.unwrap_or_default(),
                    b: b.unwrap_or_default(),
                });
            }
        }
    }
    all
}

/// Says which run has no caches, but sums alone, if the other has caches: only what both have is compared.
fn lacks_caches(a: &Value, b: &Value) -> Option<Differs> {
    let has = |run: &Value| match run["caches"].as_array() {
        Some(caches) => format!("{} caches", caches.len()),
        None => "none, sums alone".to_string(),
    };
    (a["caches"].is_array() != b["caches"].is_array()).then(|| Differs {
        what: "caches".to_string(),
        a: has(a).into(),
        b: has(b).into(),
    })
}

fn pair(a: &Value, b: &Value) -> Pair {
    let (of_a, of_b) = (numbers(a), numbers(b));
    let is_unlike = lacks_caches(a, b).is_some();
    let mut rows: Vec<Change> = names(&of_a, &of_b)
        .map(|name| Change::new(name, of_a.get(name).copied(), of_b.get(name).copied()))
        .filter(|row| row.a != row.b)
        .filter(|row| !is_unlike || row.a.is_some() && row.b.is_some())
        .collect();
    rows.sort_by(|x, y| y.rank().total_cmp(&x.rank()));
    Pair {
        a: label(a),
        b: label(b),
        has_main: MAIN.iter().any(|name| of_a.contains_key(*name)),
        rows,
        caches: match is_unlike {
            true => Vec::new(),
            false => caches(a, b),
        },
    }
}

/// The names in either, once each, in their order.
fn names<'a, V>(
    a: &'a BTreeMap<String, V>,
    b: &'a BTreeMap<String, V>,
) -> impl Iterator<Item = &'a String> {
    let only_in_b = b.keys().filter(|name| !a.contains_key(*name));
    let mut names: Vec<&String> = a.keys().chain(only_in_b).collect();
    names.sort();
    names.into_iter()
}

/// All numbers of a run that are in no list, and sums over its caches.
fn numbers(run: &Value) -> BTreeMap<String, f64> {
    let mut numbers = runs::numbers(run);
    numbers.retain(|name, _| !NOT_COMPARED.contains(&name.as_str()));
    let list = run["caches"].as_array().into_iter().flatten();
    for cache in list {
        for field in ["waste_bytes", "free_bytes"] {
            if let Some(bytes) = cache[field].as_f64() {
                *numbers.entry(format!("caches.{field}")).or_default() += bytes;
            }
        }
    }
    numbers
}

/// A cache's bytes, and the waste and free ones among them, if the output has them.
#[derive(Clone, Copy, Default)]
struct Memory {
    bytes: f64,
    waste: Option<f64>,
    free: Option<f64>,
}

/// The memory of caches by name; several of one name are added up.
fn memory(run: &Value) -> BTreeMap<String, Memory> {
    let mut caches: BTreeMap<String, Memory> = BTreeMap::new();
    for cache in run["caches"].as_array().into_iter().flatten() {
        let field = |name: &str| cache[name].as_f64();
        let bytes = field("slab_bytes").or_else(|| field("predicted_bytes"));
        let name = cache["name"].as_str().unwrap_or("no name");
        let of = caches.entry(name.to_string()).or_default();
        let add = |sum: Option<f64>, more: Option<f64>| {
            more.map_or(sum, |more| Some(sum.unwrap_or(0.0) + more))
        };
        of.bytes += bytes.unwrap_or(0.0);
        of.waste = add(of.waste, field("waste_bytes"));
        of.free = add(of.free, field("free_bytes"));
    }
    caches
}

fn caches(a: &Value, b: &Value) -> Vec<CacheChange> {
    let (of_a, of_b) = (memory(a), memory(b));
    let more = |a: Option<f64>, b: Option<f64>| match (a, b) {
        (None, None) => None,
        (a, b) => Some(b.unwrap_or(0.0) - a.unwrap_or(0.0)),
    };
    let mut caches: Vec<CacheChange> = names(&of_a, &of_b)
        .map(|name| {
            let of = |side: &BTreeMap<String, Memory>| side.get(name).copied().unwrap_or_default();
            let (a, b) = (of(&of_a), of(&of_b));
            CacheChange {
                memory: Change::new(name, Some(a.bytes), Some(b.bytes)),
                waste_bytes: more(a.waste, b.waste),
                free_bytes: more(a.free, b.free),
            }
        })
        .filter(|cache| cache.memory.a != cache.memory.b)
        .collect();
    caches.sort_by(|x, y| y.memory.rank().total_cmp(&x.memory.rank()));
    caches
}

#[cfg(test)]
mod tests;
