//! Recordings of kernels, and replays of them.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use quarry_lab::ask::{Ask, Ready};
use quarry_lab::callers::taints::Taints;
use quarry_lab::callers::{By, Callers};
use quarry_lab::replay::input::Input;
use quarry_snapshot::ReportError;
use quarry_trace::record::{RecordOptions, Scope};
use quarry_trace::{Existing, ImportOptions, TraceFile};

use crate::args::{Bytes, Keywords, Name, PageBytes, Seconds, Several, argument, choice};
use crate::ask::answered;
use crate::error::{raised, usage};
use crate::events::{Events, trace_of};
use crate::running::{self, Bar, note};
use crate::snapshot::Snapshot;
use crate::table::PyTable;

/// A recording of what a kernel allocated.
#[pyclass(module = "quarry", frozen)]
pub(crate) struct Recording {
    pub(crate) input: Input,
    /// Exit code of the command that was recorded, if it has ended.
    exit_code: Option<u8>,
}

impl Recording {
    pub(crate) fn of(file: TraceFile, name: &str) -> Self {
        Self {
            input: Input::new(file, name),
            exit_code: None,
        }
    }
}

#[pymethods]
impl Recording {
    /// Opens a trace: a file, the name of a bundled one (hackbench, kv, tbench), or the bytes of a file. Parquet that another
    /// program wrote of a trace's rows is one, too.
    ///
    /// >>> recording = quarry.Recording.open("kv")
    /// >>> recording.kernel[:4], recording.page_size, recording.cpus
    /// ('6.18', 4096, 2)
    #[staticmethod]
    fn open(py: Python<'_>, source: Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = source.cast::<PyBytes>() {
            let bytes = bytes.as_bytes().to_vec();
            let file = py.detach(|| TraceFile::from_bytes(bytes)).map_err(raised)?;
            return Ok(Self::of(file, "<bytes>"));
        }
        let path: PathBuf = source.extract()?;
        let input = py.detach(|| match path.to_str() {
            Some(name) => Input::open(name),
            None => Ok(Input::new(TraceFile::open(&path)?, &path.to_string_lossy())),
        });
        Ok(Self {
            input: input.map_err(raised)?,
            exit_code: None,
        })
    }

    /// Records what this machine's kernel allocates, as root, until `command` ends or for `duration`, and opens the trace.
    /// It has the kernel's reports of both ends. Ctrl-C ends the command and the recording, which is written then.
    #[staticmethod]
    #[pyo3(signature = (
        output, command = None, *, duration = None, ring = None, pid = None, cgroup = None, comm = None, stacks = false,
        drains = false, mount = false, reports = true, force = false
    ))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn record(
        py: Python<'_>,
        output: PathBuf,
        command: Option<Several<OsString>>,
        duration: Option<Bound<'_, PyAny>>,
        ring: Option<Bound<'_, PyAny>>,
        pid: Option<Bound<'_, PyAny>>,
        cgroup: Option<PathBuf>,
        comm: Option<Several<String>>,
        stacks: bool,
        drains: bool,
        mount: bool,
        reports: bool,
        force: bool,
    ) -> PyResult<Self> {
        let command = command.unwrap_or_default().0;
        let duration = argument("duration", duration.as_ref())?.map(|time: Seconds| time.0);
        let ring: Option<Bytes> = argument("ring", ring.as_ref())?;
        let processes: Option<Several<i32>> = argument("pid", pid.as_ref())?;
        if command.is_empty() && duration.is_none() {
            return Err(usage("give a command, or a duration"));
        }
        let usual = RecordOptions::default();
        let options = RecordOptions {
            ring_bytes: ring.map_or(usual.ring_bytes, |bytes| bytes.0),
            scope: Scope {
                processes: processes.unwrap_or_default().0,
                cgroup,
                comms: comm.unwrap_or_default().0,
            },
            stacks,
            drains,
            mount,
            command: (!command.is_empty())
                .then(|| command.join(OsStr::new(" ")).to_string_lossy().into_owned()),
            existing: existing(force),
            ..usual
        };
        let bar = Bar::new(py, false, "record", 0, "events")?;
        let unread = Mutex::new(Vec::new());
        let made = running::run(py, &bar, |shared| {
            let keep = |error: &ReportError| {
                let mut all = unread.lock().unwrap_or_else(PoisonError::into_inner);
                all.push(error.to_string());
            };
            quarry_lab::record::record(&output, &options, reports, keep, |recorder| {
                shared.record(recorder, &command, duration)
            })
        })?;
        let made = made.map_err(raised)?;
        for error in unread.into_inner().unwrap_or_else(PoisonError::into_inner) {
            note(py, &format!("{error}; the trace goes without it"))?;
        }
        let file = TraceFile::open(&output).map_err(raised)?;
        Ok(Self {
            exit_code: made.waited,
            ..Self::of(file, &output.to_string_lossy())
        })
    }

    /// Makes a trace of a recording of perf, trace-cmd, ftrace, LTTng or Perfetto, and opens it. Facts that the recording
    /// lacks can be given.
    #[staticmethod]
    #[pyo3(signature = (
        source, output, *, kernel = None, arch = None, page_size = None, cpus = None, command = None, lost = None,
        skip_bad = false, recorder_pid = None, force = false, progress = false
    ))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn import_(
        py: Python<'_>,
        source: PathBuf,
        output: PathBuf,
        kernel: Option<Bound<'_, PyAny>>,
        arch: Option<String>,
        page_size: Option<Bound<'_, PyAny>>,
        cpus: Option<Bound<'_, PyAny>>,
        command: Option<String>,
        lost: Option<Bound<'_, PyAny>>,
        skip_bad: bool,
        recorder_pid: Option<Bound<'_, PyAny>>,
        force: bool,
        progress: bool,
    ) -> PyResult<Self> {
        let page_size: Option<PageBytes> = argument("page_size", page_size.as_ref())?;
        let recorder: Option<Several<i32>> = argument("recorder_pid", recorder_pid.as_ref())?;
        let options = ImportOptions {
            kernel: argument("kernel", kernel.as_ref())?.map(|name: Name| name.0),
            arch,
            command,
            page_size: page_size.and_then(|size| u32::try_from(size.0).ok()),
            cpus: argument("cpus", cpus.as_ref())?,
            lost_events: argument("lost", lost.as_ref())?.unwrap_or(0),
            skip_bad,
            recorder_pids: recorder.unwrap_or_default().0,
            existing: existing(force),
            ..ImportOptions::default()
        };
        let bytes = std::fs::metadata(&source).map_or(0, |found| found.len());
        let bar = Bar::new(py, progress, "import", bytes, "B")?;
        let made = running::run(py, &bar, |shared| shared.import(&source, &output, &options))?;
        made.map_err(raised)?;
        let file = TraceFile::open(&output).map_err(raised)?;
        Ok(Self::of(file, &output.to_string_lossy()))
    }

    /// Replays the recording on every design, page size, number of CPUs and value of a listed tunable, a row each; with
    /// `time`, in the simulated time of a machine. What is not given is the recording's own, or what the command takes.
    /// `booted` begins it on the heap of a kernel that has run. `caches` gives a row for each cache instead.
    ///
    /// Columns that end in `_bytes` are bytes, `_ns` nanoseconds, and others are counts; `table.about` says which.
    ///
    /// >>> recording = quarry.Recording.open("kv")
    /// >>> table = recording.replay(design=["slub@6.18", "sheaf@7.0"], page_size="4k")
    /// >>> [row["peak_slab_bytes"] >> 20 for row in table]
    /// [4, 4]
    #[pyo3(signature = (**given))]
    fn replay(&self, py: Python<'_>, given: Option<&Bound<'_, PyDict>>) -> PyResult<PyTable> {
        let mut given = Keywords::of(given)?;
        start(&mut given)?;
        let ask = match given.is_true("time") {
            true => Ask::TIMED_REPLAY,
            false => Ask::REPLAY,
        };
        let ready = Ready::Recording(&self.input);
        let table = answered(py, ask, "replay", given, &ready, None)?;
        Ok(table
            .noted("input", &self.input.name)
            .noted("input_digest", self.digest()))
    }

    /// The events as a stream of Arrow.
    ///
    /// >>> events = quarry.Recording.open("kv").events()
    /// >>> events.columns[:3]
    /// ['time_ns', 'cpu', 'pid']
    fn events(&self) -> Events {
        Events::of(self.input.file.clone(), &self.input.name)
    }

    /// Makes a trace of events that any library of data frames holds, with the columns of `events`, and writes it to
    /// `output`; without, it stays in memory. Events that were taken out are seen as not recorded, as by `quarry filter`.
    /// Frames of polars and pandas keep the rows alone: `like` is the recording that they are of, with the kernel, the
    /// machine and the names of caches.
    #[staticmethod]
    #[pyo3(signature = (events, output = None, *, like = None, force = false))]
    fn from_arrow(
        events: &Bound<'_, PyAny>,
        output: Option<PathBuf>,
        like: Option<&Self>,
        force: bool,
    ) -> PyResult<Self> {
        let like = like.map(|like| like.input.file.meta());
        let file = trace_of(events, like, output.as_deref(), existing(force))?;
        let name = output.as_deref().unwrap_or(Path::new("<events>"));
        Ok(Self::of(file, &name.to_string_lossy()))
    }

    /// Who allocates, by `site`, `process` or `cache`: a row each, that with most bytes alive at the peak first.
    ///
    /// `peak_live_bytes` and `end_live_bytes` are bytes, `allocs` and `frees` counts.
    ///
    /// >>> quarry.Recording.open("kv").callers("process")["name"][:2]
    /// ['redis-benchmark', 'redis-server']
    #[pyo3(signature = (by = "site"))]
    fn callers(&self, py: Python<'_>, by: &str) -> PyResult<PyTable> {
        let by_what = choice("by", &By::ALL, by)?;
        let callers = py
            .detach(|| Callers::of(&self.input.file, false))
            .map_err(raised)?;
        let table = PyTable::of(&callers.by(by_what), &["name"])?;
        Ok(table
            .shows(format!("callers {by}"))
            .noted("command", "callers")
            .noted("input", &self.input.name)
            .noted("input_digest", self.digest()))
    }

    /// Who spoils blocks of memory: a row for each first page of the kernel in a block of the machine's huge page or of
    /// 1 GiB that had none. The recording needs a map of its kernel's memory, which `quarry record` keeps for root.
    ///
    /// >>> recording = quarry.Recording.record("mine.parquet", duration=5)  # doctest: +SKIP
    /// >>> recording.taints()["process"][:2]  # doctest: +SKIP
    fn taints(&self, py: Python<'_>) -> PyResult<PyTable> {
        let found = py.detach(|| Taints::of(&self.input.file, &self.input.snapshots()?));
        let table = PyTable::of(&found.map_err(raised)?.taints, &["time_ns"])?;
        Ok(table
            .shows("taints")
            .noted("command", "callers --taints")
            .noted("input", &self.input.name)
            .noted("input_digest", self.digest()))
    }

    /// Snapshots of the kernel before and after the load, as far as the recording has them.
    fn snapshots(&self, py: Python<'_>) -> PyResult<Vec<Snapshot>> {
        let found = py.detach(|| self.input.snapshots()).map_err(raised)?;
        let snapshot = |of| Snapshot {
            of,
            digest: Some(self.digest()),
        };
        Ok(found.into_iter().map(snapshot).collect())
    }

    /// File, name of a bundled trace, or `<bytes>`.
    #[getter]
    fn name(&self) -> &str {
        &self.input.name
    }

    /// Release of the recorded kernel; None if unknown.
    #[getter]
    fn kernel(&self) -> Option<&str> {
        self.input.file.meta().kernel.as_deref()
    }

    /// Bytes of a page of the recorded machine.
    #[getter]
    fn page_size(&self) -> u32 {
        self.input.file.meta().page_size
    }

    /// CPUs of the recorded machine.
    #[getter]
    fn cpus(&self) -> u32 {
        self.input.file.meta().cpus
    }

    /// Nanoseconds from the first to the last event.
    #[getter]
    fn duration_ns(&self) -> u64 {
        self.input.file.meta().duration_ns()
    }

    /// Checksum of what a replay reads: recordings with equal digests replay equally.
    #[getter]
    fn digest(&self) -> String {
        format!("{:016x}", self.input.file.meta().digest)
    }

    /// Events that the recorder lost.
    #[getter]
    fn lost_events(&self) -> u64 {
        self.input.file.meta().lost_events
    }

    /// Gaps of the recording and what fills them, a sentence each.
    #[getter]
    fn assumptions(&self) -> Vec<String> {
        self.input.file.meta().assumptions.clone()
    }

    /// Exit code of the command that `record` ran, 128 and the number of the signal that ended it; None without one, or if it
    /// still ran.
    #[getter]
    fn exit_code(&self) -> Option<u8> {
        self.exit_code
    }

    fn __len__(&self) -> usize {
        self.input.file.meta().rows as usize
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a Recording is not pickled: send the path of its file, and open it there",
        ))
    }

    fn __repr__(&self) -> String {
        let meta = self.input.file.meta();
        format!(
            "<quarry.Recording {}: {} events in {:.3} s, kernel {}, {} CPUs>",
            self.input.name,
            meta.rows,
            meta.duration_ns() as f64 / 1e9,
            meta.kernel.as_deref().unwrap_or("unknown"),
            meta.cpus
        )
    }
}

/// The beginning of a replay by the words of the command.
fn start(given: &mut Keywords) -> PyResult<()> {
    let words = [
        ("empty", "empty"),
        ("initial", "initial"),
        ("check", "check"),
    ];
    let mut start = None;
    for (word, value) in words {
        if given.flag(word)? {
            if start == Some("empty") {
                return Err(usage(
                    "empty contradicts initial and check, which begin with the kernel's reports",
                ));
            }
            start = Some(value);
        }
    }
    if let Some(start) = start {
        given.give("start", start);
    }
    Ok(())
}

/// The fate of a file that has the name of an output.
pub(crate) fn existing(force: bool) -> Existing {
    match force {
        true => Existing::Replace,
        false => Existing::Keep,
    }
}
