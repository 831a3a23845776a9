//! The reports that were read inside a recording's window, and when.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use flate2::read::MultiGzDecoder;
use quarry_lab::recorded::report_times;
use quarry_lab::replay::input::Input;
use quarry_snapshot::{Buddyinfo, Slabinfo, Snapshot, Zoneinfo};
use quarry_trace::{ImportOptions, TraceFile, import};
use serde_json::Value;

use super::Recording;

/// The kernel's reports at one moment.
pub(super) struct Report {
    pub(super) name: String,
    /// When it was read, by the recording's clock.
    pub(super) time_ns: u64,
    /// By cache; SLOB has no such report.
    pub(super) slabinfo: Option<Slabinfo>,
    /// Slab memory: the sum of slabinfo, or of SLOB what meminfo says.
    pub(super) bytes: u64,
    /// Free pages of the zones, of guests.
    pub(super) free_pages: Option<i64>,
}

impl Report {
    fn new(name: &str, time_ns: u64, slabinfo: Slabinfo, recording: &Recording) -> Self {
        Self {
            name: name.to_string(),
            time_ns,
            bytes: slabinfo.slab_bytes(recording.page_bytes.into()),
            slabinfo: Some(slabinfo),
            free_pages: None,
        }
    }
}

/// All reports of a recording, in the order of time.
pub(super) struct Reports {
    pub(super) reports: Vec<Report>,
    /// State at boot, for guests.
    pub(super) zoneinfo: Option<Zoneinfo>,
}

impl Reports {
    pub(super) fn read(folder: &Path, recording: &Recording) -> (Input, Self) {
        let guest = !recording.run.is_empty();
        let (trace, reports) = if guest {
            let (file, run) = (recording.file, recording.run);
            (format!("{file}.{run}"), format!("{file}.json.gz"))
        } else {
            let file = recording.file;
            (file.to_string(), format!("{file}.meta.json.gz"))
        };
        let imported = folder.join(format!("{trace}.parquet"));
        let mut input = match imported.to_str().filter(|_| imported.exists()) {
            Some(imported) => Input::open(imported).unwrap(),
            None => import_recording(&folder.join(format!("{trace}.kmem.txt.gz")), recording),
        };
        let json = read_json(&folder.join(reports));
        let times = report_times(&input.file).unwrap();
        let reports = if guest {
            guest_reports(&json, recording, &times)
        } else {
            host_reports(&json, recording, &times)
        };
        // A recording without sysfs tells no more than its name.
        let mut kernel = snapshot(&json, recording).unwrap_or_default();
        kernel.release = Some(recording.kernel.to_string());
        kernel.page_bytes = recording.page_bytes.into();
        (kernel.present_cpus, kernel.nr_cpu_ids) = (Some(recording.cpus), Some(recording.cpus));
        input.initial = Some(kernel);
        let zoneinfo = json["stages"]["boot"]["zoneinfo"].as_str();
        let zoneinfo = zoneinfo.map(|text| Zoneinfo::parse("boot", text).unwrap());
        (input, Self { reports, zoneinfo })
    }
}

/// The last of sysfs before the first report.
fn snapshot(json: &Value, recording: &Recording) -> Option<Snapshot> {
    if recording.run.is_empty() {
        let text = json["snap_before"].to_string();
        return Some(Snapshot::parse("snap_before", &text, None).unwrap());
    }
    let stages = json["stage_order"].as_array().unwrap().iter();
    let before = stages
        .map(|stage| stage.as_str().unwrap())
        .take_while(|stage| !stage.starts_with(recording.run));
    let tells = |stage: &&str| {
        let keys = ["sysfs_slab", "sysfs_slab_changed_since_boot"];
        keys.iter().any(|key| !json["stages"][stage][key].is_null())
    };
    let stage = before.filter(tells).last()?;
    Some(Snapshot::parse(recording.file, &json.to_string(), Some(stage)).unwrap())
}

fn read_json(path: &Path) -> Value {
    let mut text = String::new();
    MultiGzDecoder::new(File::open(path).unwrap())
        .read_to_string(&mut text)
        .unwrap();
    serde_json::from_str(&text).unwrap()
}

fn import_recording(path: &Path, recording: &Recording) -> Input {
    let mut bytes = Vec::new();
    let options = ImportOptions {
        kernel: Some(recording.kernel.to_string()),
        page_size: Some(recording.page_bytes),
        cpus: Some(recording.cpus),
        zstd_level: 1,
        ..ImportOptions::default()
    };
    let text = File::open(path).unwrap();
    import(text, path, &mut bytes, "t".as_ref(), &options, &mut |_| ()).unwrap();
    Input::new(TraceFile::from_bytes(bytes).unwrap(), recording.file)
}

/// Every stage reads meminfo, slabinfo, some zoneinfo, and buddyinfo, in this order. With SLOB, which
/// has no slabinfo, only the first of them is seen to open a sequence.
fn guest_reports(json: &Value, recording: &Recording, times: &[u64]) -> Vec<Report> {
    let stages = json["stage_order"].as_array().unwrap().iter();
    let mut times = times.iter();
    stages
        .map(|stage| stage.as_str().unwrap())
        .filter(|stage| stage.starts_with(recording.run) && !stage.contains("-sysfs"))
        .filter_map(|stage| Some((stage, json["stages"].get(stage)?)))
        .map(|(name, stage)| {
            let slabinfo = Slabinfo::parse_json(name, &stage["slabinfo"]).unwrap();
            let free_pages = Some(free_pages(&stage["buddyinfo"]));
            if slabinfo.rows.is_empty() {
                return Report {
                    name: name.to_string(),
                    time_ns: *times.next().unwrap(),
                    slabinfo: None,
                    bytes: stage["meminfo_kB"]["Slab"].as_u64().unwrap() << 10,
                    free_pages,
                };
            }
            let files = if stage["zoneinfo"].is_null() { 3 } else { 4 };
            let read: Vec<_> = times.by_ref().take(files).collect();
            Report {
                free_pages,
                ..Report::new(name, *read[1], slabinfo, recording)
            }
        })
        .collect()
}

/// The free pages of all zones in the lines of a buddyinfo.
fn free_pages(lines: &Value) -> i64 {
    let lines = lines.as_array().unwrap().iter();
    let text: String = lines
        .map(|line| format!("{}\n", line.as_str().unwrap()))
        .collect();
    let buddyinfo = Buddyinfo::parse("buddyinfo", &text).unwrap();
    let pages = buddyinfo.zones.iter().map(|zone| zone.pages());
    pages.sum::<u64>() as i64
}

/// Before and after the workload slabinfo and meminfo are read; between, a program of its own may
/// have read slabinfo often, and tells when.
fn host_reports(json: &Value, recording: &Recording, times: &[u64]) -> Vec<Report> {
    let window = &json["in_window"];
    let text = |key: &str| Slabinfo::parse_text(key, window[key].as_str().unwrap()).unwrap();
    assert_eq!(times.len(), 4, "two files twice");
    let mut rows = text("before_slabinfo");
    let mut reports = vec![Report::new("before", times[0], rows.clone(), recording)];
    for sample in json["slabinfo_samples"].as_array().into_iter().flatten() {
        for (name, columns) in sample["changed"].as_object().unwrap() {
            let row = rows.rows.iter_mut().find(|row| row.name == *name).unwrap();
            let column = |n: usize| columns[n].as_u64().unwrap();
            (row.active_objs, row.num_objs) = (column(0), column(1));
            (row.active_slabs, row.num_slabs) = (column(2), column(3));
        }
        let time_ns = (sample["t0"].as_f64().unwrap() * 1e9) as u64;
        let name = format!("sample at {:.3} s", time_ns as f64 / 1e9);
        reports.push(Report::new(&name, time_ns, rows.clone(), recording));
    }
    let after = text("after_slabinfo");
    reports.push(Report::new("after", times[2], after, recording));
    reports
}
