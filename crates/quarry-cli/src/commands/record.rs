//! `quarry record`: what this machine's kernel allocates, as a trace.

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::Context;
use indicatif::ProgressBar;
use quarry_snapshot::ReportError;
use quarry_trace::record::{
    self, MemoryNeed, RecordOptions, Recorder, Recording, Scope, exit_code,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::signals::{self, RecordingEnd};
use crate::{error, output, terminal, units};

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The trace to write (Parquet). It appears only when it is complete.
    #[arg(short, long, value_name = "OUT.parquet")]
    output: PathBuf,
    #[command(flatten)]
    force: output::Force,
    /// Stop after this time (500ms, 5s, 2m); a command that still runs goes on.
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    duration: Option<Duration>,
    /// Bytes of each CPU's ring. What comes while the command waits for a CPU must fit.
    #[arg(long, value_name = "BYTES", value_parser = units::parse_bytes, default_value = "64M")]
    ring: u64,
    /// Record only this process, its threads and their children, by its id; may be repeated. Frees by others are
    /// missing then, as the trace says, and the kernel's reports, which are of the whole machine.
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pid: Vec<i32>,
    /// Record only the tasks that are in this control group or below it, and their children: a path below
    /// /sys/fs/cgroup, such as system.slice/nginx.service. It does not see tasks that join later, nor the work that
    /// kernel threads and interrupts of other tasks do for the group.
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,
    /// Record only threads of this name, such as nginx; may be repeated.
    #[arg(long, value_name = "NAME")]
    comm: Vec<String>,
    /// Record the kernel's call stack of each allocation, for `quarry callers --folded`. It costs time and room in the
    /// rings (see below).
    #[arg(long)]
    stacks: bool,
    /// Record each page that a CPU's list gives back to its zone (mm_page_pcpu_drain). That is an event of 0.5 us for
    /// up to each page that is freed, beside those of its allocation and its free, which are always recorded. The trace
    /// keeps the first 100,000 and counts the rest.
    #[arg(long)]
    drains: bool,
    /// Mount tracefs at /sys/kernel/tracing if it is not mounted. It stays so.
    #[arg(long)]
    mount: bool,
    /// Leave out what the kernel says about itself at both ends; `quarry replay --check` needs it.
    #[arg(long)]
    no_reports: bool,
    /// Print what was recorded as JSON.
    #[arg(long)]
    json: bool,
    /// Run this command, and stop when it ends. Everything that the machine does is recorded.
    #[arg(
        value_name = "COMMAND",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    command: Vec<OsString>,
}

const EXAMPLES: &str = "\
Records until COMMAND ends, or for --duration, or until SIGINT (Ctrl-C), SIGTERM
or SIGHUP, all of which keep the recording, also of a background job whose shell
ignores SIGINT. A COMMAND that still runs then is waited for when the recording is
written.

Needs root, or write access to tracefs. The recording has rings of its own in tracefs
and disturbs no other user of tracing; addresses in them are not hashed.

At both ends it keeps a snapshot (quarry snapshot), zoneinfo, pagetypeinfo and
vmstat in the trace, so that `quarry replay OUT.parquet --check` begins with what the
kernel held and compares the end with what it held then.

Memory: --ring for each CPU, which the kernel takes at the begin, and up to 512 MiB
for events that wait to be written. A note says so if that is more than half of
what is available. Events that the rings had no room for are counted as lost:
give --ring more.

--stacks takes about 2.5 us of the load per allocation, on top of 0.5 us per event
(6.18, on a virtual machine of 2026), and about twice the room in the rings. The
trace grows by a third. Frees have no stack. Functions of modules that are loaded
later are numbers.

Exit codes:
  that of COMMAND, 128 and the signal's number if a signal ended it; else
  0 done; 1 failed, and no output is left behind; 2 wrong usage

Examples:
  sudo quarry record -o mine.parquet --duration 5s
  sudo quarry record -o build.parquet -- make -j8
  sudo quarry record -o web.parquet --cgroup system.slice/nginx.service --duration 10s
  sudo quarry record -o mine.parquet --stacks --duration 5s
  quarry replay build.parquet --check";

/// Fields of `record --json`.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Report<'a> {
    /// Trace that was written.
    output: String,
    /// Rows of the trace: events, without frees of nothing and failed allocations, and with implied frees.
    rows: u64,
    /// Events that were recorded.
    events: u64,
    /// Events that the rings had no room for.
    lost_events: u64,
    /// Allocations that have a call stack; 0 without `--stacks`.
    with_stack: u64,
    /// Seconds of the load: those that the command ran, or that `--duration` asked for.
    seconds: f64,
    /// Nanoseconds from the first row to the last: before and after the load the kernel's reports are read.
    duration_ns: u64,
    /// Bytes of the trace.
    bytes_out: u64,
    /// Release of this kernel.
    kernel: Option<&'a str>,
    /// Bytes of a page.
    page_size: u32,
    /// CPUs of this machine.
    cpus: u32,
    /// Names of the kernel's reports in the trace, in the order of their times.
    reports: Vec<&'a str>,
    /// Assumptions in place of what the recording does not say, a sentence each.
    assumptions: &'a [String],
    /// Checksum of what a replay reads, in hexadecimal: traces with equal digests replay equally.
    digest: String,
    /// Exit code of the command; null without a command, or if it still ran.
    exit_code: Option<i32>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let stop = signals::end_recording().context("cannot wait for signals")?;
    let command = args.command.join(OsStr::new(" "));
    let options = RecordOptions {
        ring_bytes: args.ring,
        scope: Scope {
            processes: args.pid.clone(),
            cgroup: args.cgroup.clone(),
            comms: args.comm.clone(),
        },
        stacks: args.stacks,
        drains: args.drains,
        mount: args.mount,
        command: (!args.command.is_empty()).then(|| command.to_string_lossy().into_owned()),
        existing: args.force.existing(),
        ..RecordOptions::default()
    };
    note_memory(options.memory());
    let unread =
        |error: &ReportError| terminal::note(&format!("{error}; the trace goes without it"));
    let mut child = None;
    let recorded = quarry_lab::record::record(
        &args.output,
        &options,
        !args.no_reports,
        unread,
        |recorder| wait(args, recorder, &stop, &mut child),
    )?;
    let mut status = recorded.waited;
    stop.set_written();
    print(args, &recorded.recording, recorded.seconds, status)?;
    if let (true, None, Some(child)) = (stop.is_asked(), status, &mut child) {
        terminal::note(
            "the recording is complete; waiting for the command, which another signal leaves alone",
        );
        status = Some(child.wait().context("cannot wait for the command")?);
    }
    match status.map_or(0, exit_code) {
        0 => Ok(()),
        code => Err(error::of_command(&args.command[0].to_string_lossy(), code)),
    }
}

/// Says what memory a recording takes if that is much of what there is.
fn note_memory(need: MemoryNeed) {
    if let (true, Some(available)) = (need.is_large(), need.available_bytes) {
        terminal::note(&format!(
            "the rings take {}, and events that wait to be written up to {}, of the {} that are available; --ring \
             makes them smaller",
            units::bytes(need.rings_bytes),
            units::bytes(need.waiting_bytes),
            units::bytes(available)
        ));
    }
}

/// Records until the command, which becomes `child`, ends, the time is over, or a signal comes.
fn wait(
    args: &Args,
    recorder: &mut Recorder,
    stop: &RecordingEnd,
    child: &mut Option<Child>,
) -> anyhow::Result<Option<ExitStatus>> {
    if stop.is_asked() {
        return Ok(None);
    }
    io::stdout().flush()?;
    *child = record::spawn(&args.command)?;
    let began = Instant::now();
    let bar = progress_bar();
    let ended = record::watch(
        child.as_mut(),
        args.duration,
        || stop.is_asked(),
        |step| {
            recorder.take(step)?;
            // The counters of lost events are a file for each CPU.
            if !bar.is_hidden() {
                bar.set_message(format!(
                    "{:.1} s, {} of events, {} lost",
                    began.elapsed().as_secs_f64(),
                    units::bytes(recorder.read_bytes()),
                    units::count(recorder.lost()?)
                ));
                bar.tick();
            }
            Ok::<_, anyhow::Error>(())
        },
    )?;
    bar.finish_and_clear();
    Ok(ended)
}

fn progress_bar() -> ProgressBar {
    match io::stderr().is_terminal() {
        true => ProgressBar::new_spinner(),
        false => ProgressBar::hidden(),
    }
}

fn print(
    args: &Args,
    recording: &Recording,
    seconds: f64,
    status: Option<ExitStatus>,
) -> anyhow::Result<()> {
    let meta = &recording.meta;
    let (events, lost) = (meta.events.total(), meta.lost_events);
    let output = args.output.display().to_string();
    if args.json {
        return output::print_json(
            "record",
            &Report {
                output,
                rows: meta.rows,
                events,
                lost_events: lost,
                with_stack: meta.stack_rows,
                seconds,
                duration_ns: meta.duration_ns(),
                bytes_out: recording.bytes_out,
                kernel: meta.kernel.as_deref(),
                page_size: meta.page_size,
                cpus: meta.cpus,
                reports: meta
                    .reports
                    .iter()
                    .map(|report| report.name.as_str())
                    .collect(),
                assumptions: &meta.assumptions,
                digest: format!("{:016x}", meta.digest),
                exit_code: status.map(|status| exit_code(status).into()),
            },
        );
    }
    let mut text = format!(
        "{output}: {} rows ({} events recorded) in {:.3} s, {seconds:.3} s of them the load's; {} lost, {} on {} CPUs, {}\n",
        units::count(meta.rows),
        units::count(events),
        meta.duration_ns() as f64 / 1e9,
        units::count(lost),
        meta.kernel.as_deref().unwrap_or("unknown kernel"),
        meta.cpus,
        units::bytes(recording.bytes_out),
    );
    if lost > 0 {
        text.push_str("lost events make objects look alive or unknown: give --ring more\n");
    }
    for assumption in &meta.assumptions {
        text.push_str(&format!("assumed: {assumption}\n"));
    }
    let snapshots = meta
        .reports
        .iter()
        .filter(|report| report.name == "snapshot");
    text.push_str(&match snapshots.count() >= 2 {
        true => format!("next: quarry replay {output} --check\n"),
        false => format!("next: quarry replay {output}\n"),
    });
    terminal::print_text(&text)
}
