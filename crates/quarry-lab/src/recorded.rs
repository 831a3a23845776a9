//! A real kernel that was recorded under loads, with what it reported meanwhile.

use std::collections::HashMap;
use std::io::Read;

use flate2::read::GzDecoder;
use quarry_trace::{TraceError, TraceFile};

use crate::error::LabError;
use crate::replay::input::Input;
use crate::replay::part::Part;
use quarry_snapshot::{ReportError, Snapshot};

/// A kernel that was recorded under loads.
pub struct Recorded {
    /// Its name in messages.
    pub name: &'static str,
    /// The kernel and machine that were recorded.
    pub about: &'static str,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// CPUs.
    pub cpus: u32,
    /// Bytes of a cache line.
    pub cache_line: u32,
    /// Reports: the stages of a boot as packed JSON, those of a load as `<load>-before` to `<load>-after`.
    reports: &'static [u8],
    /// The loads: a name, and the events.
    loads: &'static [(&'static str, &'static [u8])],
}

/// A kernel with 64 KiB pages: hackbench's pattern (`trhb`), and sockets that fill and drain (`trfill`).
pub static LARGE_PAGES: Recorded = Recorded {
    name: "6.1-slub-64k",
    about: "Debian's 6.1.176 for ppc64el with pages of 64 KiB, in a guest with 4 CPUs",
    page_bytes: 64 << 10,
    cpus: 4,
    cache_line: 128,
    reports: include_bytes!("../data/recordings/6.1-slub-64k.json.gz"),
    loads: &[
        (
            "trhb",
            include_bytes!("../data/recordings/6.1-slub-64k.trhb.parquet"),
        ),
        (
            "trfill",
            include_bytes!("../data/recordings/6.1-slub-64k.trfill.parquet"),
        ),
    ],
};

/// The stage with sysfs.
const BOOT: &str = "boot";
/// Files that a stage reads one after the other: meminfo, slabinfo and buddyinfo.
const FILES: usize = 3;

impl Recorded {
    /// The names of the loads.
    pub fn loads(&self) -> impl Iterator<Item = &'static str> {
        self.loads.iter().map(|(load, _)| *load)
    }

    /// Opens the recording of a load.
    ///
    /// # Errors
    ///
    /// [`LabError::Usage`] if there is no such load, [`LabError::Trace`] if the program was built with a damaged one.
    pub fn open(&self, load: &str) -> Result<Input, LabError> {
        let found = self.loads.iter().find(|(name, _)| *name == load);
        let Some((_, bytes)) = found else {
            let known: Vec<&str> = self.loads().collect();
            return Err(LabError::Usage(format!(
                "{} was not recorded under {load}: there are {}",
                self.name,
                known.join(", ")
            )));
        };
        let name = format!("{}.{load}", self.name);
        Ok(Input::new(TraceFile::from_bytes(*bytes)?, &name))
    }

    /// The same, from what the kernel held before the load to what it held after it: the replay starts with the one
    /// report and is checked against the other.
    ///
    /// # Errors
    ///
    /// As [`Self::open`]; [`LabError::Report`] if the program was built with damaged reports.
    pub fn between_reports(&self, load: &str) -> Result<Input, LabError> {
        let mut input = self.open(load)?;
        let file = format!("{}.json.gz", self.name);
        let mut text = String::new();
        let read = GzDecoder::new(self.reports).read_to_string(&mut text);
        read.map_err(|source| ReportError::Read {
            file: file.clone(),
            source,
        })?;
        let stage = |name: &str| Snapshot::parse(&file, &text, Some(name));
        let before = stage(&format!("{load}-before"))?.slabinfo;
        input.initial = Some(stage(BOOT)?.at(before));
        input.check = Some(stage(&format!("{load}-after"))?.slabinfo);
        let times = report_times(&input.file)?;
        // slabinfo is the second file of its stage; the recording ends among the files of the last one.
        let of_stages = times.chunks(FILES);
        let mut of_slabinfo = of_stages.filter_map(|stage| stage.get(1).copied());
        let from = of_slabinfo.next();
        input.part = Part {
            from_ns: from,
            until_ns: of_slabinfo.next_back(),
        };
        Ok(input)
    }
}

/// When each `cat` of a recording opened a file that is a sequence of records, as slabinfo and meminfo are, on the
/// recording's clock.
///
/// # Errors
///
/// [`TraceError`] if the recording cannot be read.
pub fn report_times(file: &TraceFile) -> Result<Vec<u64>, TraceError> {
    let mut time_of = HashMap::new();
    let (mut rows, mut chunk) = (file.rows(), Vec::new());
    while rows.next_chunk(&mut chunk)? {
        for row in chunk.iter().filter(|row| row.comm == "cat") {
            let site = row.call_site.as_deref().unwrap_or_default();
            if site.starts_with("seq_open") || site.starts_with("single_open") {
                time_of.insert(row.pid, row.event.time_ns);
            }
        }
    }
    let mut times: Vec<u64> = time_of.into_values().collect();
    times.sort_unstable();
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_lies_between_its_reports() {
        for load in LARGE_PAGES.loads() {
            let input = LARGE_PAGES.between_reports(load).unwrap();
            let meta = input.file.meta();
            let recorded = (LARGE_PAGES.page_bytes, LARGE_PAGES.cpus);
            assert_eq!((meta.page_size.into(), meta.cpus), recorded, "{load}");
            let Part {
                from_ns: Some(from),
                until_ns: Some(until),
            } = input.part
            else {
                panic!("{load}: {:?}", input.part);
            };
            let times = [meta.first_time_ns, from, until, meta.last_time_ns];
            assert!(times.is_sorted() && from < until, "{load}: {times:?}");
        }
        let error = LARGE_PAGES.open("none").unwrap_err().to_string();
        assert!(error.ends_with("there are trhb, trfill"), "{error}");
    }
}
