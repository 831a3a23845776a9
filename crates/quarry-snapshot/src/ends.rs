//! Reports of this machine's kernel at both ends of a recorded load.

use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

use quarry_trace::KernelReport;
use quarry_trace::record::now_ns;

use super::file::ReportError;
use super::snapshot::{Snapshot, add_blocks};

/// Time after the walk through sysfs in which the kernel frees what the walk left behind. It frees the state of open
/// files after a grace period, in batches without events: 12,870 files leave 800 objects of kmalloc-96, which are gone
/// 50 ms later (measured on 6.18). The load must not find them.
const SETTLE: Duration = Duration::from_millis(100);

/// An end of a recorded load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Before the load.
    Begin,
    /// After the load.
    Finish,
}

/// Reports of this machine's kernel at an end of a recorded load.
///
/// The walk through sysfs allocates thousands of objects itself. So slabinfo is read last at the begin and first at
/// the end: the walks are outside of the part between the two. Zoneinfo and pagetypeinfo are read next to it. vmstat is
/// read right behind the map of memory at the begin and right before it at the end: its times are those of the maps.
#[derive(Debug, Default)]
pub struct EndReports {
    /// Reports in the order of their times.
    pub reports: Vec<KernelReport>,
    /// Reports that the kernel has and that could not be read.
    pub unread: Vec<ReportError>,
}

impl EndReports {
    /// Reads the reports of an end.
    #[must_use]
    pub fn take(end: End) -> Self {
        Self::take_from(Path::new("/"), end)
    }

    fn take_from(root: &Path, end: End) -> Self {
        let mut taken = Self::default();
        let machine = || {
            let mut machine = Snapshot::read_machine(root)?;
            add_blocks(root, &mut machine);
            Ok(machine)
        };
        let slabinfo = || Snapshot::read_file(root, "/proc/slabinfo");
        let snapshot = match end {
            End::Begin => {
                let machine = machine();
                taken.add_text(root, "vmstat");
                thread::sleep(SETTLE);
                taken.add_text(root, "pagetypeinfo");
                taken.add_text(root, "zoneinfo");
                let slabinfo = slabinfo();
                // What reading it allocated is in the state that the load finds.
                let time_ns = now_ns();
                slabinfo
                    .and_then(|text| Ok((time_ns, Snapshot::of_parts(time_ns, &text, machine?)?)))
            }
            End::Finish => {
                let time_ns = now_ns();
                let slabinfo = slabinfo();
                taken.add_text(root, "zoneinfo");
                taken.add_text(root, "pagetypeinfo");
                taken.add_text(root, "vmstat");
                slabinfo
                    .and_then(|text| Ok((time_ns, Snapshot::of_parts(time_ns, &text, machine()?)?)))
            }
        };
        match snapshot {
            Ok((time_ns, snapshot)) => taken.add("snapshot", time_ns, snapshot.to_string()),
            Err(error) => taken.unread.push(error),
        }
        taken.reports.sort_by_key(|report| report.time_ns);
        taken
    }

    /// Adds a file of `/proc`; kernels may be built without.
    fn add_text(&mut self, root: &Path, name: &str) {
        let time_ns = now_ns();
        match Snapshot::read_file(root, &format!("/proc/{name}")) {
            Ok(text) => self.add(name, time_ns, text),
            Err(ReportError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            Err(error) => self.unread.push(error),
        }
    }

    fn add(&mut self, name: &str, time_ns: u64, text: String) {
        self.reports.push(KernelReport {
            name: name.to_string(),
            time_ns,
            text,
        });
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Nothing that reading the other files allocates is between the slabinfos of the two ends.
    #[test]
    fn slabinfo_is_next_to_the_load_at_both_ends() {
        let dir = tempfile::tempdir().unwrap();
        let file = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let slabinfo = "slabinfo - version: 2.1\n\
            pid 16 16 256 16 1 : tunables 0 0 0 : slabdata 1 1 0\n";
        file("proc/slabinfo", slabinfo);
        file("proc/zoneinfo", "Node 0\n");
        file("proc/vmstat", "nr_free_pages 1\n");
        file("sys/kernel/slab/pid/slabs", "1 N0=1\n");
        let names = |taken: &EndReports| {
            let names = taken.reports.iter().map(|report| report.name.clone());
            names.collect::<Vec<_>>()
        };
        let begin = EndReports::take_from(dir.path(), End::Begin);
        let finish = EndReports::take_from(dir.path(), End::Finish);
        assert_eq!(names(&begin), ["vmstat", "zoneinfo", "snapshot"]);
        assert_eq!(names(&finish), ["snapshot", "zoneinfo", "vmstat"]);
        let (last, first) = (&begin.reports[2], &finish.reports[0]);
        assert!(last.time_ns <= first.time_ns);
        let snapshot = Snapshot::parse("f", &last.text, None).unwrap();
        assert_eq!(snapshot.attributes("pid").unwrap().number("slabs"), Some(1));

        fs::remove_file(dir.path().join("proc/slabinfo")).unwrap();
        let without = EndReports::take_from(dir.path(), End::Begin);
        assert_eq!(names(&without), ["vmstat", "zoneinfo"]);
        let error = without.unread[0].to_string();
        assert!(error.contains("slabinfo"), "{error}");
    }
}
