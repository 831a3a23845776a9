//! One run of a program on an allocator.

use std::collections::hash_map::DefaultHasher;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::Hasher as _;
use std::io::{self, IsTerminal as _, Read as _, Seek as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::arms::Arm;
use super::child::{self, Start};
use crate::units;

/// One run that ended as it should.
pub(super) struct RunReport {
    /// Exit code.
    pub(super) code: i32,
    /// The last lines of its standard error output, if any exit code was right; else empty.
    pub(super) errors: String,
    pub(super) seconds: f64,
    pub(super) cpu_seconds: f64,
    /// Most memory at a time; none if it is not known ([`Start::peak`]).
    pub(super) peak_bytes: Option<u64>,
    /// Fingerprint of the standard output.
    pub(super) output: u64,
    /// The processes that reported, the one with most memory first.
    pub(super) processes: Vec<HeapReport>,
}

/// Report of a process at its end.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct HeapReport {
    /// Its number.
    pub(super) pid: u32,
    /// Its forks.
    pub(super) forks: u32,
    /// Its memory at the end in bytes, as the system counts it.
    #[serde(default)]
    pub(super) rss: u64,
    /// Design and release.
    pub(super) design: String,
    /// Lock of per-CPU state: `rseq`, or `fallback` where that is not available.
    pub(super) mode: String,
    /// Bytes of pages that the heap has from the system, without the untouched rests of huge pages.
    pub(super) resident: u64,
    /// Bytes of these that are free in the page allocator.
    pub(super) free: u64,
    /// Blocks that are mappings of their own.
    pub(super) mapped_blocks: u64,
    /// Bytes of these.
    pub(super) mapped: u64,
    /// Blocks of pages that were allocated: sizes beyond the caches'.
    pub(super) large: u64,
    /// Those of them that were freed.
    pub(super) large_freed: u64,
    /// The caches.
    pub(super) caches: Vec<CacheReport>,
}

/// A cache at the end of a process.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct CacheReport {
    /// Its name.
    pub(super) name: String,
    /// Bytes of an object.
    pub(super) object_size: u64,
    /// Slabs.
    pub(super) slabs: u64,
    /// Bytes of these.
    pub(super) slab_bytes: u64,
    /// Objects that they hold.
    pub(super) objects: u64,
    /// Objects that no node's list offers: in use, or with a CPU.
    pub(super) active: u64,
    /// Slabs that are neither full nor empty, and no CPU's.
    pub(super) partial_slabs: u64,
    /// Bytes of objects in pages that caches share (SLOB).
    pub(super) shared_bytes: u64,
    /// Objects in use; absent if the cache was busy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) live: Option<u64>,
    /// Allocations from the CPU's own list.
    pub(super) alloc_fastpath: u64,
    /// Others.
    pub(super) alloc_slowpath: u64,
    /// Frees to the CPU's own list.
    pub(super) free_fastpath: u64,
    /// Others.
    pub(super) free_slowpath: u64,
    /// Calls that found the CPU's state held by another thread.
    pub(super) cpu_slot_busy: u64,
}

/// Standard input of every run: what this command got, from its beginning; nothing if that is a terminal.
struct Input(Option<File>);

impl Input {
    /// Reads this command's own input to its end.
    fn read() -> anyhow::Result<Self> {
        let mut stdin = io::stdin().lock();
        if stdin.is_terminal() {
            return Ok(Self(None));
        }
        let mut kept = temporary()?;
        io::copy(&mut stdin, &mut kept).context("cannot keep the standard input")?;
        Ok(Self(Some(kept)))
    }

    fn again(&self) -> anyhow::Result<Stdio> {
        let Some(mut kept) = self.0.as_ref() else {
            return Ok(Stdio::null());
        };
        kept.rewind().context("cannot read the kept input again")?;
        Ok(kept
            .try_clone()
            .context("cannot read the kept input again")?
            .into())
    }
}

fn temporary() -> anyhow::Result<File> {
    tempfile::tempfile().context("no temporary file")
}

/// A program and its arguments.
#[derive(Clone, Copy)]
pub(super) struct Program<'a> {
    pub(super) name: &'a OsStr,
    pub(super) arguments: &'a [OsString],
}

impl Program<'_> {
    /// All words as text.
    pub(super) fn words(&self) -> Vec<String> {
        let words =
            std::iter::once(self.name).chain(self.arguments.iter().map(OsString::as_os_str));
        words
            .map(|word| word.to_string_lossy().into_owned())
            .collect()
    }
}

/// Purpose of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum What<'a> {
    /// Its time and memory.
    Measure,
    /// The processes' reports, which take time themselves.
    Report,
    /// All calls, in files that begin with this path.
    Record(&'a Path),
}

/// The common part of all runs.
pub(super) struct Runner<'a> {
    pub(super) program: Program<'a>,
    input: Input,
    timeout: Option<Duration>,
}

impl<'a> Runner<'a> {
    /// Reads this command's own input, for all runs.
    pub(super) fn new(program: Program<'a>, timeout: Option<Duration>) -> anyhow::Result<Self> {
        Ok(Self {
            program,
            input: Input::read()?,
            timeout,
        })
    }

    /// Runs the program once. The inner error says why the run is no result: a signal, the timeout, or another exit code
    /// than `expected`, which is any at first.
    pub(super) fn run(
        &self,
        expected: Option<i32>,
        arm: &Arm,
        what: What<'_>,
    ) -> anyhow::Result<Result<RunReport, String>> {
        let Self {
            program,
            input,
            timeout,
        } = self;
        // Before each run: this command's own memory grows.
        let start = Start::probe();
        let reports = child::folder(None).context("no folder for reports")?;
        let (output, errors) = (temporary()?, temporary()?);
        let mut command = start.command(program.name);
        // A group of its own: an interrupt from the keyboard is this command's, and a timeout ends all of it.
        command
            .process_group(0)
            .args(program.arguments)
            .stdin(input.again()?)
            .stdout(output.try_clone().context("no temporary file")?)
            .stderr(errors.try_clone().context("no temporary file")?);
        if let Some(library) = &arm.library {
            command.env("LD_PRELOAD", preloads(library));
        }
        if let Some(design) = &arm.design {
            command.env("QUARRY_DESIGN", design);
        }
        if let What::Record(path) = what {
            command.env("QUARRY_RECORD", path);
        }
        if what == What::Report {
            command.env("QUARRY_REPORT", reports.path().join("heap"));
        }
        let begin = Instant::now();
        let child = child::spawn(&mut command)
            .with_context(|| format!("cannot run {}", program.name.to_string_lossy()))?;
        let (used, in_time) = child::wait(child, *timeout)?;
        let seconds = begin.elapsed().as_secs_f64();
        if let (Some(timeout), false) = (timeout, in_time) {
            return Ok(Err(format!(
                "no end within {}",
                units::duration(timeout.as_secs_f64())
            )));
        }
        let code = match (used.status.code(), expected) {
            (Some(code), None) => code,
            (Some(code), Some(expected)) if code == expected => code,
            _ => return Ok(Err(describe(used.status, &last_lines(errors)?))),
        };
        Ok(Ok(RunReport {
            code,
            errors: match expected {
                None => last_lines(errors)?,
                Some(_) => String::new(),
            },
            seconds,
            cpu_seconds: (used.rusage.utime + used.rusage.stime).as_secs_f64(),
            peak_bytes: start.peak(&used),
            output: fingerprint(output)?,
            processes: read_reports(reports.path())?,
        }))
    }
}

/// The libraries that are preloaded already, behind this one.
fn preloads(library: &Path) -> OsString {
    let mut list = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        list.push(":");
        list.push(others);
    }
    list
}

/// An end in words.
fn describe(status: ExitStatus, errors: &str) -> String {
    let status = match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    };
    match errors.is_empty() {
        true => status,
        false => format!("{status}: {errors}"),
    }
}

/// The last lines of what a program wrote to its standard error output, as one.
fn last_lines(mut errors: File) -> anyhow::Result<String> {
    /// Lines that are shown.
    const LINES: usize = 4;
    /// Bytes in which they are looked for: a program may write more than memory holds.
    const BYTES: u64 = 1 << 16;
    let mut text = Vec::new();
    let mut read = || -> io::Result<()> {
        let bytes = errors.seek(io::SeekFrom::End(0))?;
        errors.seek(io::SeekFrom::Start(bytes.saturating_sub(BYTES)))?;
        errors.read_to_end(&mut text).map(|_| ())
    };
    read().context("cannot read what the program wrote")?;
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    Ok(lines[lines.len().saturating_sub(LINES)..].join(" | "))
}

/// A number for what a program wrote.
fn fingerprint(mut output: File) -> anyhow::Result<u64> {
    let mut hasher = DefaultHasher::new();
    let mut piece = vec![0; 1 << 16];
    output
        .rewind()
        .context("cannot read what the program wrote")?;
    loop {
        let read = output
            .read(&mut piece)
            .context("cannot read what the program wrote")?;
        if read == 0 {
            return Ok(hasher.finish());
        }
        // By bytes: reads end anywhere.
        piece[..read].iter().for_each(|&byte| hasher.write_u8(byte));
    }
}

/// Reads what processes reported.
fn read_reports(folder: &Path) -> anyhow::Result<Vec<HeapReport>> {
    let mut reports = Vec::new();
    for file in std::fs::read_dir(folder).context("cannot read the reports")? {
        let path = file.context("cannot read the reports")?.path();
        let text = std::fs::read_to_string(&path).context("cannot read a report")?;
        // A process that is killed while it writes leaves a piece, which says nothing.
        reports.extend(serde_json::from_str::<HeapReport>(&text));
    }
    reports.sort_by_key(|report| (std::cmp::Reverse(report.rss), report.pid));
    Ok(reports)
}
