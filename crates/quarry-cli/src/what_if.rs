//! `quarry what-if`: a real kernel's slab memory under other settings or in another release.

use std::collections::BTreeMap;
use std::ffi::OsString;

use quarry_designs::{DesignSpec, Setting, parse_era};
use quarry_lab::plan::combinations;
use quarry_lab::whatif::{Baseline, Config, Fit, Prediction, Question, known_errors};
use quarry_snapshot::Snapshot;

use schemars::JsonSchema;
use serde::Serialize;

use crate::error::usage;
use crate::input::Source;
use crate::known::KnownArgs;
use crate::{input, known, output, replay, units, what_if_tables};

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A snapshot: JSON of quarry snapshot, a copy of /proc/slabinfo, a folder or an archive, or any form in
    /// docs/inputs.md; `-` reads stdin. Or a trace that has snapshots, as `quarry record` keeps them.
    #[arg(value_name = "SNAPSHOT|TRACE")]
    snapshot: OsString,
    /// Snapshot of a trace: what the kernel held at the begin or at the end of the load. [default: begin]
    #[arg(long, value_name = "WHEN", value_enum, conflicts_with = "stage")]
    at: Option<At>,
    /// Stage of a recorded boot; the first by default.
    #[arg(long, value_name = "NAME")]
    stage: Option<String>,
    #[command(flatten)]
    known: KnownArgs,
    /// Another release of Linux, 2.6.22 or later, with the design and the rules that it has.
    #[arg(long, value_name = "RELEASE", conflicts_with = "design")]
    release: Option<String>,
    /// Other designs or eras, separated by commas; the snapshot's own by default.
    #[arg(long, value_name = "DESIGN[@ERA],...", value_delimiter = ',')]
    design: Vec<String>,
    /// Other page sizes: 4k, 16k, 64k, separated by commas.
    #[arg(
        long,
        value_name = "BYTES,...",
        value_delimiter = ',',
        value_parser = units::parse_page_bytes
    )]
    page_size: Vec<u64>,
    /// Other numbers of CPUs, separated by commas; present and possible ones.
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    cpus: Vec<u32>,
    /// Another number of possible CPUs (nr_cpu_ids), which eras until 5.9 choose orders by; what each
    /// costs beside that is not known. As many as are present by default.
    #[arg(long, value_name = "N")]
    possible_cpus: Option<u32>,
    /// Set a tunable; may be repeated. `quarry tunables` lists them. A list, cpu_partial=0,6,13, has a prediction for
    /// each value beside the one without; several lists have one for each combination. slub_debug=FZP asks for the
    /// snapshot with other debugging, slub_debug= for it without.
    #[arg(long = "set", value_name = "[DESIGN[@ERA].]NAME=VALUE[,...]")]
    settings: Vec<String>,
    /// Add what an option of the kernel's configuration costs or saves, such as MEMCG=n or RANDOM_KMALLOC_CACHES=y; may
    /// be repeated.
    #[arg(long, value_name = "NAME=y|n")]
    config: Vec<String>,
    /// Show every cache, not only those that change most.
    #[arg(long)]
    caches: bool,
    /// Answer although the formulas give fewer than 70 % of the caches their slabs.
    #[arg(long)]
    force: bool,
    /// Print JSON (docs/json.md); `runs` has a prediction each.
    #[arg(long)]
    json: bool,
    /// Print comma-separated values: a line for each prediction, or with --caches for each cache.
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

const EXAMPLES: &str = "\
A snapshot is what `quarry snapshot` writes, or a folder with a copy of
/proc/slabinfo as slabinfo and of /sys/kernel/slab as slab/; beside them, if
wanted, files page_size, cpu_possible, cpu_present, kernel_release, cmdline and
meminfo, or meta.json with these keys. Without them release, page size and CPUs
are guessed from the slabs, and said to be guesses; --kernel, --had-cpus and
--had-page-size give what you know. sosreports, slabtop, node_exporter and
others are read, too (docs/inputs.md).

How it is predicted:
  Exact: the slabs of each cache under other settings have the size and objects
  that the design's formulas give; full slabs and the objects on nodes' partial
  lists are counted by the kernel.
  Estimated, because no snapshot tells: what CPUs use of the slabs they hold
  (the kernel counts all of it as used), from how many they have filled before;
  where objects lie in partial slabs, as if left over at random; how many CPUs
  would use a cache, from how many do. Other settings apply to the same live
  objects: what the kernel allocates for every CPU or page is not known.
  `low` and `high` put all of these at their best and worst, in all caches at
  once. Two boots of one machine differ by about 2 %.
  With --release, kernels from 7.0 on have sheaves and barns for all caches:
  what they keep after a load, which slabs that pins, and the sheaves' own
  memory are estimated. Tunables that both releases have stay. Differences of
  releases that are not computed widen the bounds and are named: memory groups'
  own caches (3.8 to 5.8), accounting vectors, arm64's smallest kmalloc class,
  objects that were made larger and caches that were added.
  Facts that the file does not tell are named, too; the bounds then hold for
  all that explains the slabs as well.
  Caches that cannot exist with other pages (kmalloc above the largest class,
  thread_stack with pages below its size) leave the slabs for the page
  allocator; the output gives their bytes.

Exit codes:
  0 done; 1 the file cannot be read; 2 wrong usage, a trace without snapshots,
  or a kernel that the formulas do not explain (--force)

Examples:
  quarry what-if now.json --release 7.3
  quarry what-if mine.parquet --at end --page-size 64k
  quarry what-if now.json --set cpu_partial=0,6,13
  quarry what-if now.json --set slub_debug=FZP
  quarry what-if now.json --config SLAB_MERGE_DEFAULT=n --config MEMCG=n
  quarry what-if now.json --release 7.3 --set sheaf_capacity=4
  quarry what-if now.json --page-size 64k
  quarry what-if sosreport-host.tar.xz --release 6.12
  quarry what-if slabinfo --kernel 5.4 --had-cpus 16 --release 6.12
  quarry what-if boot.json.gz --stage boot --set slub_max_order=0
  quarry what-if now.json --cpus 2,16,64 --caches
  quarry what-if folder/ --design slub@5.9,slubq --page-size 4k,64k --json";

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let questions = questions(args)?;
    let snapshot = args.known.applied(snapshot(args)?)?;
    known::check_slabs(&snapshot, "a prediction")?;
    let baseline = Baseline::of(&snapshot)?;
    let mut predictions = Vec::new();
    for (set, question) in questions {
        let mut prediction = baseline.predict(&question)?;
        if let (false, Fit::Bad(cause)) = (args.force, prediction.fit(&snapshot)) {
            return Err(usage(format!(
                "{}: the formulas of {} give {} of {} caches their slabs: {cause}; --force answers all the same",
                snapshot.file,
                prediction.snapshot_design,
                prediction.explained_caches,
                snapshot.slabinfo.rows.len()
            )));
        }
        prediction.set = set;
        predictions.push(prediction);
    }
    if args.csv {
        let first = ["design", "page_size", "cpus"];
        return output::print_runs_csv(&predictions, args.caches, &first);
    }
    if !args.json {
        let text = what_if_tables::text(&snapshot, &predictions, args.caches);
        return output::print_text(&text);
    }
    output::print_json(
        "what-if",
        &Report {
            snapshot: SnapshotInfo {
                file: &snapshot.file,
                stage: snapshot.stage.as_deref(),
                form: snapshot.form.name(),
                kernel: snapshot.release.as_deref(),
                kernel_range: snapshot.releases.map(|releases| releases.to_string()),
                page_size: snapshot.page_bytes,
                cpus: snapshot.present_cpus,
                guesses: known::guesses(&snapshot),
                notes: known::notes(&snapshot),
                known_errors_percent: known_errors(snapshot.detail()),
                slab_bytes: snapshot.slab_bytes(),
            },
            settings: output::Asked {
                set: &args.settings,
                at: None,
            },
            runs: &predictions,
        },
    )
}

/// Fields of `what-if --json`.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Report<'a> {
    /// The snapshot.
    snapshot: SnapshotInfo<'a>,
    /// Settings as given.
    settings: output::Asked<'a>,
    /// Predictions: one for each question.
    runs: &'a [Prediction],
}

/// A snapshot.
#[derive(JsonSchema, Serialize)]
struct SnapshotInfo<'a> {
    /// File.
    file: &'a str,
    /// Stage, if the file has one.
    stage: Option<&'a str>,
    /// Form of the file, such as `snapshot`, `slabinfo`, `sosreport` or `slabtop`.
    form: &'a str,
    /// Release; null if unknown.
    kernel: Option<&'a str>,
    /// Releases that the kernel can be of by the names of its caches, if its release is unknown; null if known.
    kernel_range: Option<String>,
    /// Bytes of a page.
    page_size: u64,
    /// CPUs; null if unknown.
    cpus: Option<u32>,
    /// Reasons of what no file says, by field: `kernel_range`, `page_size`, `cpus`.
    guesses: BTreeMap<&'static str, String>,
    /// Sentences about how the file was read and what it lacks.
    notes: Vec<String>,
    /// Errors in per cent, from and to, that predictions from such a file had where the real memory was known.
    known_errors_percent: [i32; 2],
    /// Bytes of all slabs.
    slab_bytes: u64,
}

/// Moment of a recorded load.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum At {
    Begin,
    End,
}

/// Reads the snapshot, of a trace the one that is asked for.
fn snapshot(args: &Args) -> anyhow::Result<Snapshot> {
    let input = match input::source(&args.snapshot, args.stage.as_deref())? {
        Source::Trace(input) => input,
        Source::Snapshot(_) if args.at.is_some() => {
            return Err(usage(format!(
                "{} is a snapshot of one moment; --at is for traces",
                input::shown(args.snapshot.as_ref())
            )));
        }
        Source::Snapshot(snapshot) => return Ok(*snapshot),
    };
    let mut snapshots = input.snapshots()?;
    let (found, wanted) = match args.at {
        Some(At::End) => (snapshots.len() > 1, "end"),
        _ => (!snapshots.is_empty(), "begin"),
    };
    match snapshots.pop().filter(|_| found) {
        Some(last) if wanted == "end" => Ok(last),
        Some(last) => Ok(snapshots.into_iter().next().unwrap_or(last)),
        None => Err(usage(format!(
            "{} has no snapshot of the {wanted} of its load: record it with quarry record, or add one with quarry \
             filter --before and --after",
            input.name
        ))),
    }
}

/// Every design with every page size, CPU count and combination of listed values, each with the name of that
/// combination.
fn questions(args: &Args) -> anyhow::Result<Vec<(String, Question)>> {
    let (debug, settings) = debugging(&args.settings)?;
    let configs = args.config.iter().map(|text| Config::parse(text));
    let configs = configs.collect::<Result<Vec<_>, _>>()?;
    let (settings, lists) = replay::settings(&settings)?;
    let designs: Result<Vec<_>, _> = args
        .design
        .iter()
        .map(|text| DesignSpec::parse(text))
        .collect();
    let designs = designs?;
    let release = args.release.as_deref().map(parse_era).transpose()?;
    let eras = designs.iter().map(|design| design.era);
    output::note_eras(eras.chain(release));
    let mut questions = Vec::new();
    for design in or_none(&designs) {
        for page_bytes in or_none(&args.page_size) {
            for cpus in or_none(&args.cpus) {
                for listed in combinations(&lists) {
                    let names: Vec<String> = listed.iter().map(Setting::short).collect();
                    let set = match names.is_empty() {
                        true if lists.is_empty() => String::new(),
                        true => "default".to_string(),
                        false => names.join(" "),
                    };
                    let question = Question {
                        design,
                        release,
                        page_bytes,
                        cpus,
                        possible_cpus: args.possible_cpus,
                        settings: [settings.as_slice(), &listed].concat(),
                        debug: debug.clone(),
                        configs: configs.clone(),
                    };
                    questions.push((set, question));
                }
            }
        }
    }
    Ok(questions)
}

/// The value of `slub_debug` among settings, whose value is no number, and the others.
fn debugging(settings: &[String]) -> anyhow::Result<(Option<String>, Vec<String>)> {
    let value = |text: &String| {
        let (name, value) = text.split_once('=')?;
        matches!(name, "slub_debug" | "slab_debug").then(|| value.to_string())
    };
    let asked: Vec<String> = settings.iter().filter_map(value).collect();
    let others = settings.iter().filter(|text| value(text).is_none());
    match asked.as_slice() {
        [] | [_] => Ok((asked.first().cloned(), others.cloned().collect())),
        [first, second, ..] => Err(usage(format!(
            "--set slub_debug={first} and slub_debug={second}: a kernel has one; name several caches as in FZ,kmalloc-*;U,dentry"
        ))),
    }
}

/// The values, or that there are none.
fn or_none<T: Copy>(values: &[T]) -> Vec<Option<T>> {
    if values.is_empty() {
        vec![None]
    } else {
        values.iter().copied().map(Some).collect()
    }
}
