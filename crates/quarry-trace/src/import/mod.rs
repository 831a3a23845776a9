//! Recordings of others to traces: text of `perf script`, of ftrace's `trace` and of LTTng, line by line, and the
//! files of perf, trace-cmd and Perfetto ([`binary`]).
//!
//! The reader of text holds one block of text, and events of ftrace as long as they may come out of order
//! ([`buffers`]). [`unquote`] takes off what pasting added. [`line`] decides whether a line is one of our events,
//! belongs to another tracepoint, or is bad, and [`cut`] whether it stops early. [`fields`] reads the event,
//! [`crate::TraceBuilder`] makes rows of it.

mod binary;
mod buffers;
pub(crate) mod caches;
mod cut;
mod fields;
mod finish;
mod ftrace;
pub(crate) mod held;
mod input;
mod line;
pub(crate) mod live;
mod lttng;
mod packed;
mod perf;
pub(crate) mod refills;
#[cfg(test)]
mod tests;
mod ties;
mod unquote;

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::build::TraceBuilder;
use crate::error::{LineProblem, Result, TraceError, clip};
use crate::event::RawEvent;
use crate::intern::Interner;
use crate::meta::{CPUS_MAX, TABLE_ENTRIES_MAX, Table, TraceMeta};
use crate::moment::Moment;
use crate::outfile::{Existing, OutFile};
use crate::report::NewReport;
use binary::Form;
use buffers::Buffers;
use cut::{Doubt, Shown};
use fields::{Fault, PAGE_BYTES_MAX, PAGE_BYTES_MIN};
pub(crate) use fields::{object_bytes_max, parse_number};
use ftrace::Rings;
use input::Lines;
use line::{Line, Writer};
use packed::Opened;
use refills::Refills;
use unquote::unquote;

/// Options of an import, over what the text says. Everything has a default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportOptions {
    /// Kernel release; otherwise from `perf script --header`.
    pub kernel: Option<String>,
    /// Architecture; otherwise from the header, or from the addresses of objects.
    pub arch: Option<String>,
    /// The recorded command; otherwise from the header.
    pub command: Option<String>,
    /// Page size; otherwise from addresses and page frame numbers, or from the architecture. If none tells it,
    /// 4096 is assumed, and the trace says so.
    pub page_size: Option<u32>,
    /// Number of CPUs; otherwise from the header, otherwise the largest that is seen.
    pub cpus: Option<u32>,
    /// Events that the recorder lost, beside those that the text reports.
    pub lost_events: u64,
    /// Pass over lines that do not parse, and count them.
    pub skip_bad: bool,
    /// The recorded kernel's reports about itself.
    pub reports: Vec<NewReport>,
    /// Thread ids of the recorder, for [`TraceMeta::recorder_pids`].
    pub recorder_pids: Vec<i32>,
    /// When the load began, for [`TraceMeta::load`]; otherwise with the first event.
    pub load_from: Option<Moment>,
    /// When it ended; otherwise after the last event.
    pub load_until: Option<Moment>,
    /// Compression, 1 to 22.
    pub zstd_level: i32,
    /// The fate of a file that has the output's name.
    pub existing: Existing,
}

impl Default for ImportOptions {
    fn default() -> ImportOptions {
        ImportOptions {
            kernel: None,
            arch: None,
            command: None,
            page_size: None,
            cpus: None,
            lost_events: 0,
            skip_bad: false,
            reports: Vec::new(),
            recorder_pids: Vec::new(),
            load_from: None,
            load_until: None,
            zstd_level: 9,
            existing: Existing::Keep,
        }
    }
}

/// Result of an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportSummary {
    /// The metadata that was written.
    pub meta: TraceMeta,
    /// Lines of text read.
    pub lines: u64,
    /// Bytes read, compressed if the input was.
    pub bytes_in: u64,
    /// Bytes of the trace; 0 if it did not go to a file.
    pub bytes_out: u64,
}

/// Facts in the text's headers and marks.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    kernel: Option<String>,
    arch: Option<String>,
    command: Option<String>,
    cpus: Option<u32>,
    /// Events that ftrace's rings had and lost.
    rings: Rings,
    /// Events lost by perf's records.
    lost_records: u64,
    perf_lines: u64,
    ftrace_lines: u64,
    lttng_lines: u64,
    /// Largest address of an object.
    widest_address: u64,
    /// Low addresses have the 16 digits of a 64-bit kernel's `%p`.
    is_padded: bool,
    /// Lines of ftrace's text that are none of a recorder, and the first of them.
    foreign_lines: u64,
    first_foreign: Option<String>,
    /// True if an allocation's flags came as a number.
    has_numeric_flags: bool,
    /// The form of a binary recording.
    form: Option<Form>,
    /// Its samples that are ours.
    samples: u64,
    /// Page size in bytes.
    page_size: Option<u32>,
}

/// Imports the file `input` (`-` is standard input) and writes the trace `output`.
///
/// The trace appears under its name only when it is complete; on any error nothing is left behind and an
/// existing file stays. `progress` is called with the bytes read so far, compressed if the input is.
///
/// ```no_run
/// use quarry_trace::{ImportOptions, import_file};
///
/// let options = ImportOptions { kernel: Some("6.18".to_string()), ..ImportOptions::default() };
/// let summary = import_file("kmem.txt.gz".as_ref(), "kmem.parquet".as_ref(), &options, &mut |_| ())?;
/// println!("{} rows, {} orphans", summary.meta.rows, summary.meta.orphans.unknown_frees());
/// # Ok::<(), quarry_trace::TraceError>(())
/// ```
///
/// # Errors
/// Everything in [`TraceError`] that names the input or the output.
pub fn import_file(
    input: &Path,
    output: &Path,
    options: &ImportOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<ImportSummary> {
    if input == Path::new("-") {
        return import_to_file(
            io::stdin().lock(),
            Path::new("<stdin>"),
            output,
            options,
            progress,
        );
    }
    let file = open_recording(input)?;
    if let (Ok(from), Ok(to)) = (fs::canonicalize(input), fs::canonicalize(output))
        && from == to
    {
        return Err(TraceError::SameFile {
            path: output.to_path_buf(),
        });
    }
    import_to_file(file, input, output, options, progress)
}

/// Opens a recording for [`import`].
///
/// # Errors
/// [`TraceError::Read`], and [`TraceError::NotText`] for a folder of LTTng.
pub fn open_recording(path: &Path) -> Result<File> {
    let failed = |source| TraceError::Read {
        path: path.to_path_buf(),
        source,
    };
    let file = File::open(path).map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_dir() {
        return Ok(file);
    }
    if lttng::is_recording(path) {
        return Err(TraceError::NotText {
            path: path.to_path_buf(),
            what: input::CTF,
            advice: input::CTF_ADVICE,
        });
    }
    Err(failed(io::Error::from(io::ErrorKind::IsADirectory)))
}

/// Like [`import_file`], from any reader; `name` is what errors call it.
///
/// # Errors
/// Everything in [`TraceError`] that names the input or the output.
pub fn import_to_file(
    input: impl Read,
    name: &Path,
    output: &Path,
    options: &ImportOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<ImportSummary> {
    let out = OutFile::create(output, options.existing)?;
    let mut summary = import(input, name, out.handle()?, output, options, progress)?;
    summary.bytes_out = out.commit()?;
    Ok(summary)
}

/// Imports from any reader into any writer: `name` and `out_name` are what errors call them.
///
/// # Errors
/// Everything in [`TraceError`] that names the input or the output. `out` then holds part of a trace.
pub fn import<W: Write + Send>(
    input: impl Read,
    name: &Path,
    out: W,
    out_name: &Path,
    options: &ImportOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<ImportSummary> {
    let opened = packed::open(input, progress).map_err(|source| TraceError::Read {
        path: name.to_path_buf(),
        source,
    })?;
    let Opened {
        form,
        input,
        bytes_in,
    } = opened;
    let mut trace = TraceBuilder::new(out, out_name, options.zstd_level)?;
    // Told first: what pages are used for is found out on the way.
    trace.meta_mut().page_size = options.page_size.unwrap_or(0);
    let mut import = Import {
        name: name.to_path_buf(),
        options,
        facts: Facts::default(),
        refills: Refills::default(),
        buffers: Buffers::default(),
        shown: Shown::default(),
        doubt: None,
        trace,
        first_line: None,
        others: Others::default(),
        last_time_ns: 0,
        days_ns: 0,
        line: 0,
        largest: None,
    };
    if let Some(form) = form {
        import.binary(form, input)?;
        return Ok(ImportSummary {
            meta: import.finish(0)?,
            lines: 0,
            bytes_in: bytes_in.get(),
            bytes_out: 0,
        });
    }
    let mut lines = Lines::open(input, name, bytes_in)?;
    let mut error = None;
    while error.is_none()
        && let Some((text, ended)) = lines.next_line()?
    {
        error = import.line(&unquote(text), ended)?;
    }
    if error.is_none() {
        error = import.settle(None)?;
    }
    if let Some(error) = error {
        // What a damaged archive unpacks to is not the line's fault.
        lines.check_rest()?;
        return Err(error);
    }
    let (count, bytes_in) = (lines.line(), lines.bytes_in());
    let meta = import.finish(count)?;
    Ok(ImportSummary {
        meta,
        lines: count,
        bytes_in,
        bytes_out: 0,
    })
}

/// An import under way.
struct Import<'a, W: Write + Send> {
    name: PathBuf,
    options: &'a ImportOptions,
    facts: Facts,
    refills: Refills,
    buffers: Buffers,
    shown: Shown,
    doubt: Option<Doubt>,
    trace: TraceBuilder<W>,
    first_line: Option<String>,
    others: Others,
    /// Time of the last event.
    last_time_ns: u64,
    /// Whole days that times of the day lack.
    days_ns: u64,
    /// Number of the line, from 1.
    line: u64,
    /// The largest object that pages of some sizes are too small for.
    largest: Option<Largest>,
}

/// An object that may be too large, and the line that says so.
struct Largest {
    bytes: u32,
    line: u64,
    text: String,
}

/// Events of other tracepoints, by name.
#[derive(Default)]
struct Others {
    names: Interner,
    omitted: u64,
}

impl Others {
    /// Counts some. Kernels have thousands of tracepoints; more names than that are no tracepoints.
    fn count(&mut self, name: &[u8], events: u64) {
        const NAME_BYTES_MAX: usize = 100;
        if self.names.len() < TABLE_ENTRIES_MAX {
            self.names
                .add(&name[..name.len().min(NAME_BYTES_MAX)], events);
        } else {
            self.omitted += events;
        }
    }

    fn table(&self) -> Table {
        Table {
            omitted: self.omitted,
            ..Table::new(self.names.by_use())
        }
    }
}

impl<W: Write + Send> Import<'_, W> {
    /// Takes the event of a line.
    fn event(&mut self, mut event: RawEvent<'_>, writer: Writer, text: &[u8]) -> Result<()> {
        self.count(writer);
        let is_padded = fields::is_padded_address(text, &event);
        self.shown.add(&event, is_padded, text);
        self.facts.is_padded |= is_padded;
        if writer == Writer::Ftrace && self.buffers.hold() {
            self.buffers.push(text, &event);
            return Ok(());
        }
        self.let_go()?;
        if writer == Writer::Ftrace && self.buffers.begins(&event) {
            self.trace.meta_mut().unsorted_buffers = true;
        }
        if writer == Writer::Lttng {
            event.time_ns = self.past_midnight(event.time_ns);
        }
        self.take(&event)
    }

    /// Takes a line without an event of ours.
    fn no_event(&mut self, line: &Line<'_>, text: &[u8]) {
        match line {
            Line::Lost(count, Writer::Perf) => add(&mut self.facts.lost_records, *count),
            Line::Lost(count, _) => self.facts.rings.mark(*count),
            Line::Footer(event, cpu, time_ns) => {
                let meta = self.trace.meta_mut();
                meta.add_footer_event(*event, *cpu, *time_ns);
            }
            Line::OtherEvent(name) => self.other_events(name, 1),
            Line::Comment => {
                perf::header(text, &mut self.facts);
                ftrace::header(text, &mut self.facts);
                self.buffers.header(text);
                self.trace.meta_mut().other_lines += 1;
            }
            Line::Other | Line::Event(..) => {
                self.trace.meta_mut().other_lines += 1;
                if ftrace::is_foreign(text) {
                    self.facts.foreign_lines += 1;
                    self.facts
                        .first_foreign
                        .get_or_insert_with(|| clip(text.trim_ascii()));
                }
            }
        }
    }

    /// The fault of an event that no machine, or not this one, has.
    fn fault(&mut self, event: &RawEvent<'_>, text: &[u8]) -> Option<Fault> {
        if let Some(fault) = self.size_fault(event, text) {
            return Some(fault);
        }
        let cpus = self.options.cpus?;
        let (value, max) = (u64::from(event.cpu), u64::from(cpus).saturating_sub(1));
        (value > max || cpus == 0).then_some(("cpu", LineProblem::TooLarge { value, max }))
    }

    /// Takes the events that were held, in the order of time; no more are held.
    fn let_go(&mut self) -> Result<()> {
        let Some(held) = self.buffers.end() else {
            return Ok(());
        };
        for event in held.events() {
            self.take(&event)?;
        }
        if held.is_mixed {
            let repeated = match held.repeated {
                0 => String::new(),
                events => format!("; {events} events that two of them have are here once"),
            };
            let meta = self.trace.meta_mut();
            meta.rcu.batches.sort_by_key(|batch| batch.time_ns);
            meta.moves.extfrags.sort_by_key(|event| event.time_ns);
            meta.moves.drains.sort_by_key(|event| event.time_ns);
            meta.assumptions.push(format!(
                "the text has several buffers of ftrace one after another: their events are sorted by time{repeated}"
            ));
        }
        Ok(())
    }

    /// Takes one of our events.
    fn take(&mut self, event: &RawEvent<'_>) -> Result<()> {
        self.step(event.time_ns);
        if !event.kind.is_page() {
            self.facts.widest_address = self.facts.widest_address.max(event.address);
        }
        self.facts.has_numeric_flags |= event
            .gfp_flags
            .and_then(<[u8]>::first)
            .is_some_and(u8::is_ascii_digit);
        self.refills.push(event, &mut self.trace)
    }

    /// The fault of an object's size. The page size may be found out later: what is too large for some is noted.
    fn size_fault(&mut self, event: &RawEvent<'_>, text: &[u8]) -> Option<Fault> {
        let page_bytes = match (self.options.page_size, self.facts.page_size) {
            (Some(bytes), _) | (None, Some(bytes)) => bytes,
            (None, None) => PAGE_BYTES_MAX,
        };
        if let Some(fault) = fields::size_fault(event, page_bytes) {
            return Some(fault);
        }
        let known = self.largest.as_ref().map_or(0, |largest| largest.bytes);
        let may_be = object_bytes_max(PAGE_BYTES_MIN).max(known.into());
        if u64::from(event.bytes_alloc) > may_be {
            self.largest = Some(Largest {
                bytes: event.bytes_alloc,
                line: self.line,
                text: clip(text),
            });
        }
        None
    }

    /// Counts events of another tracepoint.
    fn other_events(&mut self, name: &[u8], events: u64) {
        self.trace.meta_mut().other_events += events;
        self.others.count(name, events);
    }

    /// Notes a time that is before the one of the event above.
    fn step(&mut self, time_ns: u64) {
        let back_ns = self.last_time_ns.saturating_sub(time_ns);
        self.last_time_ns = time_ns;
        let meta = self.trace.meta_mut();
        meta.time_steps_back += u64::from(back_ns > 0);
        meta.time_step_back_ns_max = meta.time_step_back_ns_max.max(back_ns);
    }

    /// A time of the day as time since the first midnight: it begins again at midnight.
    fn past_midnight(&mut self, time_ns: u64) -> u64 {
        let is_next_day = |time_ns: u64| time_ns + lttng::DAY_NS / 2 < self.last_time_ns;
        if time_ns < lttng::DAY_NS && is_next_day(time_ns + self.days_ns) {
            self.days_ns += lttng::DAY_NS;
        }
        time_ns + self.days_ns
    }

    fn count(&mut self, writer: Writer) {
        match writer {
            Writer::Perf => self.facts.perf_lines += 1,
            Writer::Ftrace => self.facts.ftrace_lines += 1,
            Writer::Lttng => self.facts.lttng_lines += 1,
        }
    }
}

/// A number of CPUs that a header tells, if a machine can have it.
fn cpus(text: &str) -> Option<u32> {
    let cpus = text.parse().ok();
    cpus.filter(|cpus| (1..=CPUS_MAX).contains(cpus))
}

/// Adds to a count that the text or the caller tells, which may be anything.
fn add(count: &mut u64, more: u64) {
    *count = count.saturating_add(more);
}

impl Facts {
    /// Our events so far.
    fn events(&self) -> u64 {
        self.perf_lines + self.ftrace_lines + self.lttng_lines + self.samples
    }
}
