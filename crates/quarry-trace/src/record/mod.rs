//! Recordings straight from this machine's kernel.
//!
//! ```text
//!   kernel --ring per CPU--> reader thread --rounds--> Recorder: merge by time --> TraceBuilder
//! ```
//!
//! A recording has an instance of its own in tracefs: it disturbs no other user of tracing and finds no foreign
//! events in its rings. One ring per CPU has the events of all tracepoints in the order in which the CPU wrote
//! them. Its clock is the same on all CPUs (`mono`), so that the events of CPUs are merged by time. Addresses in
//! rings are never hashed.
//!
//! The reader thread empties the rings every few milliseconds; what was overwritten before is counted by the
//! kernel and told as [`TraceMeta::lost_events`]. An event is merged when every other ring has a later one, or was
//! read to its end after that moment.

mod command;
mod instance;
mod reader;
mod scope;
mod sink;

pub use command::{end, exit_code, spawn, watch};
pub use scope::Scope;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::build::TraceBuilder;
use crate::cpu_list::cpu_list;
use crate::error::{Result, TraceError};
use crate::events::footer::{DRAIN, EXTFRAG, FooterDecoder, RCU};
use crate::events::merge::{Merge, Round};
use crate::events::names::{Symbols, Tasks};
use crate::events::stacks::Stacks;
use crate::events::{Decoder, Format, RingLayout};
use crate::import::refills::Refills;
use crate::meta::{LoadPart, TraceMeta};
use crate::outfile::{Existing, OutFile};
use crate::report::{CLOCK_MONO, KernelReport};
use instance::Instance;
use reader::Reader;
use sink::Sink;

/// Tracepoints that are recorded, those of older kernels among them: a kernel that has none of a name goes
/// without.
const KMEM: [&str; 8] = [
    "kmalloc",
    "kmalloc_node",
    "kfree",
    "kmem_cache_alloc",
    "kmem_cache_alloc_node",
    "kmem_cache_free",
    "mm_page_alloc",
    "mm_page_free",
];
/// Those without which a recording is of no use.
const NEEDED: [&str; 4] = ["kmalloc", "kfree", "kmem_cache_alloc", "kmem_cache_free"];

/// Number of the file that is the first pid namespace.
const FIRST_PID_NAMESPACE: u64 = 0xefff_fffc;

/// Options of a recording. Everything has a default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordOptions {
    /// Bytes of each CPU's ring. What a load makes while the reader waits for a CPU must fit.
    pub ring_bytes: u64,
    /// Tasks whose events are recorded.
    pub scope: Scope,
    /// Record the kernel's stack of each allocation.
    pub stacks: bool,
    /// Record each page that a CPU's list gives back to its zone: at most one event for each page that is freed.
    pub drains: bool,
    /// Mount tracefs where it is not mounted; it stays so.
    pub mount: bool,
    /// The command that is recorded, for [`TraceMeta::command`].
    pub command: Option<String>,
    /// Compression, 1 to 22: each step takes CPU time from the load.
    pub zstd_level: i32,
    /// The fate of a file that has the output's name.
    pub existing: Existing,
}

impl Default for RecordOptions {
    fn default() -> Self {
        Self {
            ring_bytes: 64 << 20,
            scope: Scope::default(),
            stacks: false,
            drains: false,
            mount: false,
            command: None,
            zstd_level: 1,
            existing: Existing::Keep,
        }
    }
}

impl RecordOptions {
    /// The memory that a recording with these options may take on this machine.
    #[must_use]
    pub fn memory(&self) -> MemoryNeed {
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let mut lines = meminfo.lines();
        let available = lines.find_map(|line| line.strip_prefix("MemAvailable:"));
        let available =
            available.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        let (cpus, _) = online_cpus();
        MemoryNeed {
            rings_bytes: self.ring_bytes.saturating_mul(cpus.into()),
            waiting_bytes: reader::WAITING_BYTES_MAX as u64,
            available_bytes: available.map(|kib| kib << 10),
        }
    }
}

/// Memory that a recording may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryNeed {
    /// Rings of all CPUs, which the kernel takes at the begin.
    pub rings_bytes: u64,
    /// Most bytes of events that wait to be written.
    pub waiting_bytes: u64,
    /// Memory that is available now (`MemAvailable`), if the kernel says it.
    pub available_bytes: Option<u64>,
}

impl MemoryNeed {
    /// True if it is more than half of what is available.
    #[must_use]
    pub fn is_large(&self) -> bool {
        let need = self.rings_bytes.saturating_add(self.waiting_bytes);
        self.available_bytes
            .is_some_and(|available| need > available / 2)
    }
}

/// The online CPUs: how many there are, and one more than the highest; 0 if the kernel does not say it.
fn online_cpus() -> (u32, u32) {
    let list = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    cpu_list(&list).unwrap_or_default()
}

/// A recording under way. Dropped, it leaves neither a trace nor an instance in tracefs.
pub struct Recorder {
    sink: Sink,
    out: OutFile,
    merge: Merge<u16>,
    stacks: Option<Stacks>,
    // After the reader, which uses its files.
    reader: Reader,
    instance: Instance,
}

/// A finished recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// The metadata that was written.
    pub meta: TraceMeta,
    /// Bytes of the trace.
    pub bytes_out: u64,
}

impl Recorder {
    /// Begins to record every kmem event of the machine into the trace `output`, which appears when
    /// [`Recorder::finish`] has completed it.
    ///
    /// # Errors
    ///
    /// [`TraceError::Record`] if tracefs is missing or refuses, or the kernel has no kmem tracepoints; those of
    /// the output.
    pub fn start(output: &Path, options: &RecordOptions) -> Result<Self> {
        let out = OutFile::create(output, options.existing)?;
        let mut trace = TraceBuilder::new(out.handle()?, output, options.zstd_level)?;
        describe(trace.meta_mut(), options);
        let instance = Instance::make(options.ring_bytes, options.mount)?;
        let layout = instance.text("events/header_page")?;
        let layout = RingLayout::parse(&layout).map_err(|problem| TraceError::RecordFormat {
            path: instance.path("events/header_page"),
            problem: problem.to_string(),
        })?;
        let mut decoder = Decoder::default();
        let mut recorded = Vec::new();
        for name in KMEM {
            if let Some(format) = format(&instance, &format!("kmem/{name}"))? {
                decoder.add(format);
                recorded.push(format!("kmem/{name}"));
            } else if NEEDED.contains(&name) {
                return Err(TraceError::Record {
                    action: "find the tracepoint",
                    path: instance.path(&format!("events/kmem/{name}")),
                    source: std::io::ErrorKind::NotFound.into(),
                    advice: "the kernel needs CONFIG_TRACEPOINTS and CONFIG_FTRACE",
                });
            }
        }
        trace.meta_mut().recorded = decoder.kinds();
        let mut tasks = Tasks::default();
        for (name, comm) in [
            ("task/task_newtask", "comm"),
            ("task/task_rename", "newcomm"),
        ] {
            if let Some(format) = format(&instance, name)?
                && tasks.add(&format, comm)
            {
                recorded.push(name.to_string());
            }
        }
        let stacks = match options.stacks {
            true => Some(with_stacks(&instance, &decoder, &recorded)?),
            false => None,
        };
        let mut footer = FooterDecoder::default();
        // Only kernels with CONFIG_RCU_TRACE have those of RCU.
        let names = RCU.map(|name| format!("rcu/{name}")).into_iter();
        let moves = [(EXTFRAG, true), (DRAIN, options.drains)];
        let moves = moves.into_iter().filter(|(_, is_wanted)| *is_wanted);
        for name in names.chain(moves.map(|(name, _)| format!("kmem/{name}"))) {
            if let Some(format) = format(&instance, &name)?
                && footer.add(&format)
            {
                recorded.push(name);
            }
        }
        let is_on = |name: &str| recorded.iter().any(|of| of.ends_with(name));
        let moves = &mut trace.meta_mut().moves;
        (moves.extfrag_on, moves.drain_on) = (is_on(EXTFRAG), is_on(DRAIN));
        options.scope.apply(&instance)?;
        // The newest names are those of the events: what is in /proc comes first.
        instance.enable(&recorded)?;
        tasks.read_running();
        let rings = instance.rings()?;
        let mut recorder = Self {
            sink: Sink {
                trace,
                refills: Refills::default(),
                decoder,
                footer,
                tasks,
                symbols: Symbols::read(),
            },
            out,
            merge: Merge::new(layout.clone(), rings.iter().map(|ring| ring.cpu)),
            stacks,
            reader: Reader::start(rings, instance.clock()?, layout),
            instance,
        };
        recorder.note_threads();
        if !in_first_pid_namespace() {
            let meta = recorder.sink.trace.meta_mut();
            meta.assumptions.push(
                "the recorder ran in a pid namespace (a container), where the kernel's thread ids are unknown: its \
                 own events are part of the load"
                    .to_string(),
            );
        }
        Ok(recorder)
    }

    /// Adds the threads of this process, which are the recorder's, to [`TraceMeta::recorder_pids`].
    fn note_threads(&mut self) {
        if !in_first_pid_namespace() {
            return;
        }
        let threads = fs::read_dir("/proc/self/task");
        let names = threads.into_iter().flatten().flatten();
        let pids = names.filter_map(|thread| thread.file_name().to_str()?.parse::<i32>().ok());
        let known = &mut self.sink.trace.meta_mut().recorder_pids;
        known.extend(pids);
        known.sort_unstable();
        known.dedup();
    }

    /// Waits so long, or takes a part of what the rings gave out. The caller repeats it, and so stays free to
    /// do other things when events come faster than they can be written. Up to 256 MiB of events wait until
    /// [`Recorder::finish`], so that writing does not slow down a short load.
    ///
    /// # Errors
    ///
    /// [`TraceError::Record`] if a ring cannot be read; those of the output.
    pub fn take(&mut self, wait: Duration) -> Result<()> {
        if self.reader.can_wait() {
            std::thread::sleep(wait);
            return Ok(());
        }
        match self.reader.next(wait)? {
            Some(round) => self.push(round),
            None => Ok(()),
        }
    }

    /// Says when the load began and ended ([`TraceMeta::load`]).
    pub fn set_load(&mut self, load: LoadPart) {
        self.sink.trace.meta_mut().load = Some(load);
    }

    /// Keeps what the kernel said about itself at a time ([`TraceMeta::reports`]).
    pub fn report(&mut self, report: KernelReport) {
        self.sink.trace.meta_mut().reports.push(report);
    }

    /// Bytes of events read so far.
    #[must_use]
    pub fn read_bytes(&self) -> u64 {
        self.reader.read_bytes()
    }

    /// Events lost so far.
    ///
    /// # Errors
    ///
    /// [`TraceError::Record`] if the counters cannot be read.
    pub fn lost(&self) -> Result<u64> {
        self.instance.lost()
    }

    /// Stops the recording, reads what is left in the rings and completes the trace.
    ///
    /// # Errors
    ///
    /// As [`Recorder::take`], and if no event came.
    pub fn finish(mut self) -> Result<Recording> {
        self.note_threads();
        self.instance.stop()?;
        self.reader.stop();
        while let Some(round) = self.reader.next(Duration::MAX)? {
            self.push(round)?;
        }
        self.take_joined(true)?;
        self.sink.refills.flush(&mut self.sink.trace)?;
        let lost = self.instance.lost()?;
        let meta = self.sink.trace.meta_mut();
        meta.lost_events = lost;
        tell_fragmenting(meta);
        if meta.events.total() == 0 {
            return Err(TraceError::NoEvents {
                path: self.instance.path("events/kmem"),
            });
        }
        if self.stacks.is_some_and(|stacks| !stacks.has_joined()) {
            meta.assumptions.push(
                "the kernel wrote no call stacks into the recorder's rings: there are call sites only".to_string(),
            );
        }
        let meta = self.sink.trace.finish()?;
        let bytes_out = self.out.commit()?;
        Ok(Recording { meta, bytes_out })
    }

    fn push(&mut self, round: Round) -> Result<()> {
        self.merge.add(round);
        while let Some((cpu, time_ns, sample)) = self.merge.next_event() {
            match &mut self.stacks {
                Some(stacks) => stacks.push(cpu, time_ns, sample),
                None => self.sink.take(cpu, time_ns, sample, None)?,
            }
        }
        self.take_joined(false)
    }

    /// Adds the events whose stacks came; `at_end` those too whose stacks did not.
    fn take_joined(&mut self, at_end: bool) -> Result<()> {
        let Some(stacks) = &mut self.stacks else {
            return Ok(());
        };
        while let Some(event) = stacks.next_event(at_end) {
            let stack = event.stack.as_deref();
            self.sink
                .take(event.cpu, event.time_ns, &event.sample, stack)?;
        }
        Ok(())
    }
}

/// Says which fallbacks mix types: samples do not tell the order of pageblocks, and pagetypeinfo does.
fn tell_fragmenting(meta: &mut TraceMeta) {
    let mut reports = meta.reports.iter();
    let order = reports.find_map(|report| {
        let mut lines = report
            .text
            .lines()
            .filter(|_| report.name == "pagetypeinfo");
        let order = lines.find_map(|line| line.strip_prefix("Page block order:"))?;
        order.trim().parse::<u8>().ok()
    });
    for event in &mut meta.moves.extfrags {
        let told = order.map(|order| event.fallback_order < order);
        event.fragmenting = event.fragmenting.or(told);
    }
}

/// Lets the kernel write the stack of each allocation.
fn with_stacks(instance: &Instance, decoder: &Decoder, recorded: &[String]) -> Result<Stacks> {
    let path = instance.path("events/ftrace/kernel_stack/format");
    let text = instance.text("events/ftrace/kernel_stack/format")?;
    let format = Format::parse(&text);
    let stacks = format.and_then(|format| Stacks::new(&format, decoder.allocations()));
    let stacks = stacks.map_err(|problem| TraceError::RecordFormat {
        path,
        problem: problem.to_string(),
    })?;
    // The option `stacktrace` would do it for frees, too.
    for name in recorded.iter().filter(|name| name.contains("alloc")) {
        instance.set(&format!("events/{name}/trigger"), "stacktrace")?;
    }
    Ok(stacks)
}

fn format(instance: &Instance, name: &str) -> Result<Option<Format>> {
    let path = instance.path(&format!("events/{name}/format"));
    if !path.exists() {
        return Ok(None);
    }
    let text = instance.text(&format!("events/{name}/format"))?;
    let parsed = Format::parse(&text);
    parsed
        .map(Some)
        .map_err(|problem| TraceError::RecordFormat {
            path,
            problem: problem.to_string(),
        })
}

/// Fills in the machine's description of itself.
fn describe(meta: &mut TraceMeta, options: &RecordOptions) {
    let read = |path: &str| fs::read_to_string(path).ok();
    let line = |path: &str| read(path).map(|text| text.trim().to_string());
    meta.source = "tracefs".to_string();
    meta.clock = Some(CLOCK_MONO.to_string());
    meta.boot_id = line("/proc/sys/kernel/random/boot_id");
    meta.kernel = line("/proc/sys/kernel/osrelease");
    meta.arch = Some(std::env::consts::ARCH.to_string());
    meta.command.clone_from(&options.command);
    meta.assumptions.extend(options.scope.assumption());
    meta.page_size = page_bytes("/proc/self/auxv".as_ref()).unwrap_or(0);
    (_, meta.cpus) = online_cpus();
}

/// The time now by the clock of recordings (`CLOCK_MONOTONIC`).
#[must_use]
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// True if this process's thread ids are those in the kernel's events. In a container they are its own.
fn in_first_pid_namespace() -> bool {
    fs::metadata("/proc/self/ns/pid").is_ok_and(|found| found.ino() == FIRST_PID_NAMESPACE)
}

/// The page size in a process's auxiliary vector (`/proc/self/auxv`): pairs of a key and a value, among them
/// `AT_PAGESZ` (`getauxval(3)`).
#[must_use]
pub fn page_bytes(auxv: &Path) -> Option<u32> {
    const AT_PAGESZ: usize = 6;
    let pairs = fs::read(auxv).ok()?;
    let (words, _) = pairs.as_chunks::<{ size_of::<usize>() }>();
    let words: Vec<usize> = words
        .iter()
        .map(|word| usize::from_ne_bytes(*word))
        .collect();
    let (pairs, _) = words.as_chunks::<2>();
    let pair = pairs.iter().find(|pair| pair[0] == AT_PAGESZ)?;
    u32::try_from(pair[1]).ok()
}

/// An error of tracefs.
fn failed(
    action: &'static str,
    path: impl Into<PathBuf>,
) -> impl FnOnce(std::io::Error) -> TraceError {
    let path = path.into();
    move |source| TraceError::Record {
        action,
        path,
        advice: match source.kind() {
            std::io::ErrorKind::PermissionDenied => "record as root: sudo quarry record ...",
            std::io::ErrorKind::NotFound => {
                "mount tracefs with --mount, or with mount -t tracefs tracefs /sys/kernel/tracing"
            }
            std::io::ErrorKind::OutOfMemory => "make the rings smaller with --ring",
            _ => "see what the kernel logged (dmesg)",
        },
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_large_beyond_half_of_what_is_available() {
        let need = |available_bytes| MemoryNeed {
            rings_bytes: 300,
            waiting_bytes: 100,
            available_bytes,
        };
        assert!(need(Some(799)).is_large());
        assert!(!need(Some(800)).is_large() && !need(None).is_large());
    }
}
