//! Everything that can go wrong, with the place where it did and what to do next.

use std::io;
use std::path::PathBuf;

use parquet::errors::ParquetError;
use thiserror::Error;

use crate::event::seconds;

/// The crate's result.
pub type Result<T, E = TraceError> = std::result::Result<T, E>;

/// Reason why an import, a write or a read of a trace stopped.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The input could not be opened or read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The input has no byte.
    #[error("{}: the file is empty; record again, or check the command that wrote it", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The input is not text.
    #[error("{}: this is {what}, not text; {advice}", path.display())]
    NotText {
        /// The file.
        path: PathBuf,
        /// The kind of file, by its first bytes.
        what: &'static str,
        /// The way to get text from it.
        advice: &'static str,
    },
    /// The kernel's tracing cannot be used.
    #[error("cannot {action} {}: {source}; {advice}", path.display())]
    Record {
        /// The attempt, as a verb.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
        /// The next step for the user.
        advice: &'static str,
    },
    /// The tasks to record cannot be.
    #[error("cannot record {what} alone: {problem}")]
    Scope {
        /// The tasks.
        what: String,
        /// The reason, and the next step.
        problem: String,
    },
    /// The kernel describes its events in a way that is not known.
    #[error("{}: {problem}; record with perf record -e 'kmem:*' and import the text of perf script", path.display())]
    RecordFormat {
        /// The description.
        path: PathBuf,
        /// The fault in it.
        problem: String,
    },
    /// A binary recording is damaged, or of a kind that cannot be read.
    #[error("{}: this {form} cannot be read: {problem}", path.display())]
    BadFile {
        /// The file.
        path: PathBuf,
        /// `perf.data`, `trace.dat` or `Perfetto trace`.
        form: &'static str,
        /// The fault, and the next step.
        problem: String,
    },
    /// A recording without events.
    #[error("{}: no event came; record for longer, or while something runs", path.display())]
    NoEvents {
        /// The tracepoints.
        path: PathBuf,
    },
    /// A recording of other tracepoints.
    #[error(
        "{}: no kmem event, but {}; record kmem:kmalloc, kmem:kfree, kmem:kmem_cache_alloc and \
         kmem:kmem_cache_free (quarry import --help has the command)",
        path.display(), most_frequent(names, *events)
    )]
    NoKmemEvents {
        /// The recording.
        path: PathBuf,
        /// Events in it.
        events: u64,
        /// Their names with how many there are, most frequent first.
        names: Vec<(String, u64)>,
    },
    /// Text in which no line is one of ours.
    #[error(
        "{}: no kmem event in {lines} lines; expected the text of `perf script` or of ftrace's `trace` file, \
         such as `bash 1234/1234 [000] 12.345678: kmem:kfree: call_site=f+0x1 ptr=0xffff888100000000`; \
         the first line is: {first_line}",
        path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Lines read.
        lines: u64,
        /// The first line that is not blank, clipped.
        first_line: String,
    },
    /// A gzip file that ends early.
    #[error("{}: the gzip data ends early, after {bytes_in} compressed bytes; copy the file again, or keep what \
             there is with `zcat FILE > part.txt` and import that", path.display())]
    TruncatedGzip {
        /// The file.
        path: PathBuf,
        /// Compressed bytes read.
        bytes_in: u64,
    },
    /// A gzip file that is damaged.
    #[error("{}: the gzip data is damaged near compressed byte {bytes_in} ({source}); copy the file again", path.display())]
    CorruptGzip {
        /// The file.
        path: PathBuf,
        /// Compressed bytes read.
        bytes_in: u64,
        /// The decoder's error.
        source: io::Error,
    },
    /// A line that is one of ours but does not parse, or that cannot be true.
    #[error("{}:{line}: {field}: {problem}; skip such lines with --skip-bad; the line is: {text}", path.display())]
    BadLine {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: u64,
        /// Column or field at fault.
        field: &'static str,
        /// The fault in it.
        problem: LineProblem,
        /// The line, clipped.
        text: String,
    },
    /// An object that is larger than a block of the recorded machine's pages.
    #[error(
        "{}:{line}: bytes_alloc: {bytes} is impossible with pages of {page_bytes} bytes, whose largest block has {}; \
         with --page-size, which names another size, --skip-bad can skip the line; the line is: {text}",
        path.display(), crate::import::object_bytes_max(*page_bytes)
    )]
    TooLargeForPages {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: u64,
        /// Bytes of the object.
        bytes: u32,
        /// Page size, which was found out after the line was read.
        page_bytes: u32,
        /// The line, clipped.
        text: String,
    },
    /// A line stops in the middle, and nothing of its kind follows it.
    #[error("{}:{line}: {why}; the line is: {text}", path.display())]
    TruncatedLine {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: u64,
        /// Reason to think so, and what to do.
        why: &'static str,
        /// The text so far, clipped.
        text: String,
    },
    /// A line longer than any event can be.
    #[error("{}:{line}: the line is longer than {limit_bytes} bytes; this is not the text of perf script or ftrace", path.display())]
    LineTooLong {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: u64,
        /// The limit.
        limit_bytes: usize,
    },
    /// A table of the trace is full.
    #[error("{}: more than {limit} distinct {what}; split the recording and import the parts", path.display())]
    TooMany {
        /// The file being written.
        path: PathBuf,
        /// The items that are too many.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// A filter that keeps no row.
    #[error(
        "{}: no event is {filter}; the recording goes from {} to {} s, and its processes and caches are in its \
         footer",
        path.display(), seconds(*first_ns), seconds(*last_ns)
    )]
    NothingKept {
        /// The trace.
        path: PathBuf,
        /// The filter in words.
        filter: String,
        /// Time of the first row.
        first_ns: u64,
        /// Time of the last row.
        last_ns: u64,
    },
    /// A report of something else than the recording.
    #[error(
        "the {report} is not of this recording: {what}; give one of the same boot and time, or --force-report to keep it"
    )]
    OtherOrigin {
        /// Kind of the report.
        report: String,
        /// The difference, in words.
        what: String,
    },
    /// A load outside the recording.
    #[error(
        "{}: no event is of the load from {} to {} s; the recording goes from {} to {} s",
        path.display(), seconds(*from_ns), seconds(*until_ns), seconds(*first_ns), seconds(*last_ns)
    )]
    EmptyLoad {
        /// The recording.
        path: PathBuf,
        /// Begin of the load.
        from_ns: u64,
        /// Its end.
        until_ns: u64,
        /// Time of the first row.
        first_ns: u64,
        /// Latest time of any row.
        last_ns: u64,
    },
    /// A recorder that no event is of.
    #[error(
        "{}: no event is of thread {pid}, which was said to be the recorder's; quarry filter --comm perf shows \
         perf's thread ids",
        path.display()
    )]
    NoRecorder {
        /// The recording.
        path: PathBuf,
        /// The thread id.
        pid: i32,
    },
    /// Nothing tells the page size of a machine that may have several.
    #[error(
        "{}: the page size is unknown, and kernels for {arch} have 4k, 16k or 64k pages; name it with --page-size \
         (on the machine: getconf PAGESIZE)",
        path.display()
    )]
    PageSizeUnknown {
        /// The file being written.
        path: PathBuf,
        /// The architecture.
        arch: String,
    },
    /// The output could not be written. Nothing is left behind.
    #[error("cannot write {}: {source}{}; nothing was left behind", path.display(), output_advice(source))]
    Write {
        /// The output.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The output exists, and is to be kept.
    #[error("{}: the output exists; replace it with --force, or name another", path.display())]
    OutputExists {
        /// The output.
        path: PathBuf,
    },
    /// The output exists and is not a regular file.
    #[error("{}: the output exists and is not a regular file; name a file", path.display())]
    OutputNotFile {
        /// The output.
        path: PathBuf,
    },
    /// Input and output are one file.
    #[error("{}: input and output are the same file; name another output", path.display())]
    SameFile {
        /// The file.
        path: PathBuf,
    },
    /// The Parquet encoder refused.
    #[error("cannot encode {}: {source}", path.display())]
    Encode {
        /// The output.
        path: PathBuf,
        /// The encoder's error.
        source: ParquetError,
    },
    /// The file is no Parquet file.
    #[error("{}: not a trace (not a Parquet file); make a trace from recorded text with `quarry import`", path.display())]
    NotParquet {
        /// The file.
        path: PathBuf,
    },
    /// A Parquet file whose end is missing or damaged.
    #[error("{}: a Parquet file without a readable footer ({source}); it was probably truncated: copy it again", path.display())]
    TruncatedParquet {
        /// The file.
        path: PathBuf,
        /// The decoder's error.
        source: ParquetError,
    },
    /// A Parquet file that Quarry did not write.
    #[error("{}: a Parquet file, but not a Quarry trace (its footer has no `{key}`); make one with `quarry import`", path.display())]
    ForeignParquet {
        /// The file.
        path: PathBuf,
        /// The missing key.
        key: &'static str,
    },
    /// A trace of another format version.
    #[error("{}: trace format version {found}, this program reads versions {oldest} to {supported}; import the recording again, or use the matching quarry", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// The version in the file.
        found: String,
        /// The oldest version that this crate reads.
        oldest: u32,
        /// The version of this crate.
        supported: u32,
    },
    /// The footer's metadata does not decode.
    #[error("{}: the footer's `{key}` is damaged: {source}", path.display())]
    Metadata {
        /// The file.
        path: PathBuf,
        /// The key.
        key: &'static str,
        /// The decoder's error.
        source: serde_json::Error,
    },
    /// The footer's metadata contradicts itself or the rows.
    #[error("{}: the footer says {what} = {footer}, but {found} was found; the file is damaged: import the recording again", path.display())]
    Inconsistent {
        /// The file.
        path: PathBuf,
        /// The items that are counted.
        what: &'static str,
        /// The footer's value.
        footer: u64,
        /// The other value.
        found: u64,
    },
    /// A column is missing or of another type.
    #[error("{}: not a trace: column `{column}` is missing or is no number; make a trace with `quarry import`, and keep its columns where another program rewrites it", path.display())]
    Column {
        /// The file.
        path: PathBuf,
        /// The column.
        column: &'static str,
    },
    /// A codec that this build does not have.
    #[error(
        "{}: its columns are compressed by {codec}, which is not built in; write it with zstd, snappy or \
         without compression (DuckDB: COPY (FROM 'IN') TO 'OUT' (FORMAT parquet, COMPRESSION zstd); pyarrow and \
         pandas: compression='zstd')",
        path.display()
    )]
    Codec {
        /// The file.
        path: PathBuf,
        /// The codec.
        codec: String,
    },
    /// The rows do not decode.
    #[error("{}: damaged near row {row}: {source}; copy the file again", path.display())]
    Decode {
        /// The file.
        path: PathBuf,
        /// First row, from 1, that could not be read.
        row: u64,
        /// The decoder's error.
        source: ParquetError,
    },
    /// The bytes of a row group are not those that were written.
    #[error("{}: damaged: the rows from {row} on (bytes from {offset}) do not match their checksum; copy the file again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// First row, from 1, of the damaged group.
        row: u64,
        /// Offset of the group in the file.
        offset: u64,
    },
    /// Rows of another program that are not in the order of time.
    #[error(
        "{}: row {row} is of {} s, the row before it of {} s: a replay needs rows in the order of time_ns, and rows of \
         one time in the order of the trace. Sort them (DuckDB: COPY (FROM read_parquet('IN', file_row_number = true) \
         ORDER BY time_ns, file_row_number) TO 'OUT'; pandas: sort_values('time_ns', kind='stable')), or write them in \
         the order in which they were read",
        path.display(), seconds(*time_ns), seconds(*before_ns)
    )]
    OutOfOrder {
        /// The file.
        path: PathBuf,
        /// The row, from 1.
        row: u64,
        /// Its time.
        time_ns: u64,
        /// The time of the row before it.
        before_ns: u64,
    },
    /// A row that cannot be true.
    #[error("{}: row {row}: {column} = {value} is impossible ({expected}); the file is damaged: import the recording again", path.display())]
    BadRow {
        /// The file.
        path: PathBuf,
        /// The row, from 1.
        row: u64,
        /// The column.
        column: &'static str,
        /// Its value.
        value: i64,
        /// The valid values.
        expected: String,
    },
}

/// Fault in a line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LineProblem {
    /// The field is not there.
    #[error("missing")]
    Missing,
    /// The column is not there, and perf can print it.
    #[error("the column is missing; use `perf script -F comm,pid,tid,cpu,time,event,trace`")]
    MissingColumn,
    /// Not the number that it should be.
    #[error("`{0}` is not a number")]
    NotNumber(String),
    /// Not an address.
    #[error(
        "`{0}` is not an address (if the kernel hides it, record as root or boot with no_hash_pointers)"
    )]
    NotAddress(String),
    /// An address that the kernel printed before it could hash it.
    #[error(
        "`{0}` stands for an address that is not told: the kernel prints it early in its boot, before it can hash \
         addresses (boot with no_hash_pointers)"
    )]
    EarlyPointer(String),
    /// Not seconds with a fraction.
    #[error(
        "`{0}` is not a time in seconds.fraction (use the `local`, `global` or `mono` trace clock)"
    )]
    NotTime(String),
    /// Not a time of babeltrace.
    #[error("`{0}` is not a time; print the recording with babeltrace2 --clock-seconds")]
    NotClock(String),
    /// A number that no kernel reports.
    #[error("{value} is impossible, at most {max}")]
    TooLarge {
        /// The value.
        value: u64,
        /// The largest possible one.
        max: u64,
    },
    /// Zero where something is needed.
    #[error("0 is impossible for an allocation that succeeded")]
    Zero,
}

/// The first 160 characters of a line, printable.
pub(crate) fn clip(line: &[u8]) -> String {
    const CLIP_CHARS: usize = 160;
    let cut = &line[..line.len().min(CLIP_CHARS * 4)];
    let text: String = String::from_utf8_lossy(cut)
        .chars()
        .take(CLIP_CHARS)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    if text.len() < line.len() {
        format!("{}…", text.trim_end())
    } else {
        text
    }
}

/// The first names with their numbers, and the number of all others.
fn most_frequent(names: &[(String, u64)], all: u64) -> String {
    const NAMES: usize = 5;
    let shown = &names[..names.len().min(NAMES)];
    let mut parts: Vec<String> = shown
        .iter()
        .map(|(name, events)| format!("{name} ({events})"))
        .collect();
    let rest = all.saturating_sub(shown.iter().map(|(_, events)| events).sum());
    if rest > 0 {
        parts.push(format!("{rest} of other names"));
    }
    parts.join(", ")
}

fn output_advice(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            " (free some space or name another disk)"
        }
        io::ErrorKind::NotFound => " (make the directory first)",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            " (name a directory that you may write to)"
        }
        _ => "",
    }
}
