//! Snapshots of real kernels, and predictions from them.

use std::path::PathBuf;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use quarry_lab::LabError;
use quarry_lab::ask::{Ask, At, Ready, Source};
use quarry_snapshot::Asked;
use quarry_state::{KNOWN_ERRORS, State};

use crate::args::{Keywords, Name, PageBytes, argument, choice};
use crate::ask::answered;
use crate::error::{InputError, raised, usage};
use crate::table::PyTable;

/// A kernel's reports at one moment.
#[pyclass(module = "quarry", frozen)]
pub(crate) struct Snapshot {
    pub(crate) of: quarry_snapshot::Snapshot,
    /// Digest of its file, as rows of sweeps have it; None of this computer now.
    pub(crate) digest: Option<String>,
}

#[pymethods]
impl Snapshot {
    /// Reads a snapshot: a file, a folder or an archive of any form in docs/inputs.md, or the bytes of a file; or one of a
    /// trace. `kernel`, `had_cpus` and `had_page_size` are facts that the file may lack.
    ///
    /// `stage` is the name of a stage of a recorded boot; `at` is `begin` or `end` of a trace. `kernel` is a text such as `"6.12"`,
    /// `had_cpus` a number, `had_page_size` bytes or a text such as `"64k"`.
    ///
    /// >>> host = quarry.Snapshot.read("host.json")
    /// >>> host.page_size, host.cpus, host.form
    /// (4096, 2, 'snapshot')
    #[staticmethod]
    #[pyo3(signature = (source, *, stage = None, at = None, kernel = None, had_cpus = None, had_page_size = None))]
    fn read(
        py: Python<'_>,
        source: Bound<'_, PyAny>,
        stage: Option<&str>,
        at: Option<&str>,
        kernel: Option<Bound<'_, PyAny>>,
        had_cpus: Option<Bound<'_, PyAny>>,
        had_page_size: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let at = at.map(|name| choice("at", &At::ALL, name)).transpose()?;
        let page_size: Option<PageBytes> = argument("had_page_size", had_page_size.as_ref())?;
        let known = Asked {
            release: argument("kernel", kernel.as_ref())?.map(|name: Name| name.0),
            cpus: argument("had_cpus", had_cpus.as_ref())?,
            page_bytes: page_size.map(|size| size.0),
        };
        let (of, digest) = if let Ok(bytes) = source.cast::<PyBytes>() {
            if stage.is_some() || at.is_some() {
                return Err(usage("stage and at are for files: bytes have one moment"));
            }
            let bytes = bytes.as_bytes();
            let moments = py.detach(|| quarry_snapshot::Snapshot::of_bytes("<bytes>", bytes));
            let last = moments.map_err(raised)?.into_iter().next_back();
            let last = last.ok_or_else(|| InputError::new_err("<bytes>: no moment is in it"))?;
            (last, quarry_sweep::bytes_digest(bytes))
        } else {
            let path: PathBuf = source.extract()?;
            let read = || Source::open(path.as_os_str(), stage)?.into_snapshot(at);
            let of = py.detach(read).map_err(raised)?;
            let name = path.display().to_string();
            (of, py.detach(|| quarry_sweep::digest(&name)))
        };
        Ok(Self {
            of: of.asked(&known).map_err(raised)?,
            digest: Some(digest),
        })
    }

    /// Reads the snapshot of this computer, as root.
    #[staticmethod]
    fn now(py: Python<'_>) -> PyResult<Self> {
        let of = py.detach(quarry_snapshot::Snapshot::now).map_err(raised)?;
        Ok(Self { of, digest: None })
    }

    /// Predicts the kernel's slab memory under other settings; without any, under its own. A list has a row for each value,
    /// several lists one for each combination; `caches` gives a row for each cache instead. Each prediction has bounds,
    /// `low` and `high`.
    ///
    /// Values are texts, numbers or lists of them: `page_size=[4096, "64k"]` are bytes, `release` is a text. Columns that end in
    /// `_bytes` are bytes; `observed_bytes` is what the snapshot has, `predicted_bytes` the answer, and nine times in ten it is
    /// between `likely_low_bytes` and `likely_high_bytes`.
    ///
    /// >>> host = quarry.Snapshot.read("host.json")
    /// >>> table = host.what_if(release="7.3", page_size=["4k", "64k"])
    /// >>> table["page_size"], table["design"]
    /// ([4096, 65536], ['sheaf@7.3', 'sheaf@7.3'])
    /// >>> all(row["likely_low_bytes"] <= row["likely_high_bytes"] for row in table)
    /// True
    #[pyo3(signature = (**given))]
    fn what_if(&self, py: Python<'_>, given: Option<&Bound<'_, PyDict>>) -> PyResult<PyTable> {
        let given = Keywords::of(given)?;
        if let Some(name) = given.any_of(&["stage", "at", "kernel", "had_cpus", "had_page_size"]) {
            return Err(usage(format!("{name}: it is a keyword of Snapshot.read")));
        }
        let state = py.detach(|| State::of(&self.of).map_err(LabError::from));
        let ready = Ready::Snapshot(&self.of, &state.map_err(raised)?);
        let table = answered(py, Ask::WHAT_IF, "what_if", given, &ready, None)?;
        let [least, most] = KNOWN_ERRORS;
        let table = match &self.digest {
            Some(digest) => table.noted("input_digest", digest),
            None => table,
        };
        Ok(table
            .noted("input", &self.of.file)
            .noted("known_errors_percent", format!("{least} to {most}")))
    }

    /// File, or `<bytes>`.
    #[getter]
    fn file(&self) -> &str {
        &self.of.file
    }

    /// Form of the file, such as `snapshot`, `slabinfo`, `sosreport` or `slabtop`.
    #[getter]
    fn form(&self) -> &'static str {
        self.of.form.name()
    }

    /// Release of the kernel; None if unknown.
    #[getter]
    fn kernel(&self) -> Option<&str> {
        self.of.release.as_deref()
    }

    /// Bytes of a page.
    #[getter]
    fn page_size(&self) -> u64 {
        self.of.page_bytes
    }

    /// CPUs; None if unknown.
    #[getter]
    fn cpus(&self) -> Option<u32> {
        self.of.present_cpus
    }

    /// Memory of the machine in bytes; None if unknown.
    #[getter]
    fn memory_bytes(&self) -> Option<u64> {
        self.of.memory_bytes
    }

    /// Bytes of all slabs.
    #[getter]
    fn slab_bytes(&self) -> u64 {
        self.of.slab_bytes()
    }

    /// Reasons of what no file says, by field: `kernel`, `page_size`, `cpus`.
    #[getter]
    fn guesses<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let facts = &self.of.facts;
        let origins = [
            ("kernel", &facts.release),
            ("page_size", &facts.page_bytes),
            ("cpus", &facts.present_cpus),
        ];
        let guesses = PyDict::new(py);
        for (field, origin) in origins {
            if let Some(reason) = origin.reason() {
                guesses.set_item(field, reason)?;
            }
        }
        Ok(guesses)
    }

    /// Sentences about how the file was read.
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.of.notes.clone()
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a Snapshot is not pickled: send the path of its file, and read it there",
        ))
    }

    fn __repr__(&self) -> String {
        let of = &self.of;
        let cpus = of
            .present_cpus
            .map_or_else(|| "?".to_string(), |cpus| cpus.to_string());
        format!(
            "<quarry.Snapshot {}: {}, kernel {}, {} CPUs, {} bytes of slabs>",
            of.file,
            of.form.name(),
            of.release.as_deref().unwrap_or("unknown"),
            cpus,
            of.slab_bytes()
        )
    }
}
