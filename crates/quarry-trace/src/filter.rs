//! A part of a trace as a trace of its own.

use std::fs;
use std::io::Write;
use std::path::Path;

use crate::error::{Result, TraceError};
use crate::event::{FullRow, NO_CACHE, seconds};
use crate::meta::{LoadPart, RcuFrees, TraceMeta};
use crate::moves::PageMoves;
use crate::outfile::{Existing, OutFile};
use crate::read::{Owned, TraceFile};
use crate::rebuild::Rebuild;
use crate::report::NewReport;

/// Compression of the trace, as that of an import.
const ZSTD_LEVEL: i32 = 9;
/// zstd's highest, for a trace that is packed again and no more.
const ZSTD_HIGHEST: i32 = 22;

/// Conditions on rows; a row is kept if it meets all that are set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Rows from this time on.
    pub from_ns: Option<u64>,
    /// Rows before this time.
    pub until_ns: Option<u64>,
    /// Rows of processes with one of these names; any if there is none.
    pub comms: Vec<String>,
    /// Rows of these threads; any if there is none.
    pub pids: Vec<i32>,
    /// Rows of caches with one of these names, `kmalloc` among them; any, and page events, if there is none.
    pub caches: Vec<String>,
    /// True to leave out what the recorder allocated, and its frees.
    pub without_recorder: bool,
    /// Reports of the recorded kernel that the new trace has beside those that it keeps.
    pub reports: Vec<NewReport>,
}

impl Filter {
    /// True if it may leave rows of the load out.
    fn selects(&self) -> bool {
        self.from_ns.is_some() || self.until_ns.is_some() || !self.is_of_whole_machine()
    }

    /// True if a window and the recorder are all that it cuts out.
    fn is_of_whole_machine(&self) -> bool {
        self.comms.is_empty() && self.pids.is_empty() && self.caches.is_empty()
    }

    fn keeps(&self, row: &FullRow, meta: &TraceMeta) -> bool {
        let cache = || match row.event.cache {
            NO_CACHE => row.cache.as_deref(),
            index => meta.cache(index).map(|cache| cache.name.as_str()),
        };
        (self.comms.is_empty() || self.comms.contains(&row.comm))
            && (self.pids.is_empty() || self.pids.contains(&row.pid))
            && (self.caches.is_empty()
                || cache().is_some_and(|name| self.caches.iter().any(|other| other == name)))
    }

    /// The filter in words.
    fn describe(&self) -> String {
        let mut parts = Vec::new();
        parts.extend(self.from_ns.map(|ns| format!("from {} s", seconds(ns))));
        parts.extend(self.until_ns.map(|ns| format!("until {} s", seconds(ns))));
        let pids: Vec<String> = self.pids.iter().map(i32::to_string).collect();
        for (what, list) in [
            ("of processes", &self.comms),
            ("of threads", &pids),
            ("of caches", &self.caches),
        ] {
            if !list.is_empty() {
                parts.push(format!("{what} {}", list.join(", ")));
            }
        }
        if self.without_recorder {
            parts.push("without the recorder's events".to_string());
        }
        parts.join(" ")
    }
}

/// Writes the part of a trace that `filter` keeps to the trace `output`, which appears when it is complete. A filter
/// that cuts and adds nothing packs the trace as hard as zstd can.
///
/// A free whose allocation is not kept is one of unknown memory, as in a recording that begins late. An object
/// whose free comes after the part stays alive. An object whose free within the part is not kept gets an
/// implied free, so that memory does not seem to grow. What was cut is said in [`TraceMeta::assumptions`].
/// [`TraceMeta::reports`] stay if a window alone is cut, and they were read in it.
///
/// # Errors
/// If the trace cannot be read, nothing of it is kept, or the output cannot be written, is the trace, or exists
/// and is to be kept.
pub fn filter_file(
    trace: &TraceFile,
    filter: &Filter,
    output: &Path,
    existing: Existing,
) -> Result<TraceMeta> {
    if let (Ok(from), Ok(to)) = (fs::canonicalize(trace.path()), fs::canonicalize(output))
        && from == to
    {
        return Err(TraceError::SameFile {
            path: trace.path().to_path_buf(),
        });
    }
    let out = OutFile::create(output, existing)?;
    let written = filter_to(trace, filter, out.handle()?, output)?;
    out.commit()?;
    Ok(written)
}

/// Writes that part to any writer, such as stdout; `out_name` is what errors call it.
///
/// # Errors
/// As [`filter_file`]. `out` then holds part of a trace.
pub fn filter_to<W: Write + Send>(
    trace: &TraceFile,
    filter: &Filter,
    out: W,
    out_name: &Path,
) -> Result<TraceMeta> {
    let meta = trace.meta();
    let level = match filter.selects() || !filter.reports.is_empty() {
        true => ZSTD_LEVEL,
        false => ZSTD_HIGHEST,
    };
    let mut part = Rebuild::new(out, out_name, level, meta.clone())?;
    let (mut rows, mut chunk) = (trace.rows(), Vec::new());
    let mut recorders = filter.without_recorder.then(|| Owned::new(meta));
    while rows.next_chunk(&mut chunk)? {
        for row in &chunk {
            let time_ns = row.event.time_ns;
            let owned = recorders.as_mut();
            if owned.is_some_and(|owned| owned.has(meta, &row.event, row.pid)) {
                // Neither the object nor its free is of the new trace.
            } else if filter.from_ns.is_some_and(|from_ns| time_ns < from_ns) {
                part.before(row);
            } else if filter.until_ns.is_some_and(|until_ns| time_ns >= until_ns) {
                // Rows step back by the length of an allocation at most, so some may still follow.
            } else if filter.keeps(row, meta) {
                part.keep(row)?;
            } else {
                part.leave_out(row)?;
            }
        }
    }
    if part.rows() == 0 {
        return Err(TraceError::NothingKept {
            path: trace.path().to_path_buf(),
            filter: filter.describe(),
            first_ns: meta.first_time_ns,
            last_ns: meta.last_time_ns,
        });
    }
    // What the kernel said of everything says nothing of a part of its tasks or caches.
    let whole_machine = filter.is_of_whole_machine();
    part.meta_mut().reports.retain(|report| {
        whole_machine
            && filter
                .from_ns
                .is_none_or(|from_ns| report.time_ns >= from_ns)
            && filter
                .until_ns
                .is_none_or(|until_ns| report.time_ns < until_ns)
    });
    let (from_ns, until_ns) = (filter.from_ns, filter.until_ns);
    let kept = match whole_machine {
        true => (
            meta.rcu.within(from_ns, until_ns),
            meta.moves.within(from_ns, until_ns),
        ),
        false => (RcuFrees::default(), PageMoves::default()),
    };
    (part.meta_mut().rcu, part.meta_mut().moves) = kept;
    let window = |load: LoadPart| load.within(filter.from_ns, filter.until_ns);
    part.meta_mut().load = meta.load_part().and_then(window);
    part.meta_mut().add_reports(&filter.reports)?;
    let new = part.meta_mut();
    if filter.selects() {
        new.assumptions.push(format!(
            "only a part of a recording is here ({}): objects from before it are unknown",
            filter.describe()
        ));
    } else if filter.without_recorder {
        new.assumptions
            .push("the recorder's own events are not here".to_string());
    } else {
        // Events without a row are counted on.
        (new.null_frees, new.failed_allocs) = (meta.null_frees, meta.failed_allocs);
        new.events = meta.events;
    }
    part.finish()
}
