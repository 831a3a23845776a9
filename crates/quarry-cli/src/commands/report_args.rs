//! Reports of the recorded kernel that `quarry import` and `quarry filter` put into their traces.

use std::path::{Path, PathBuf};

use quarry_snapshot::{Pagetypeinfo, ReportError, Snapshot, Zoneinfo, read_report};
use quarry_trace::{Moment, NewReport, Origin};

use crate::input;

/// Reports that `quarry record` keeps by itself.
#[derive(clap::Args)]
pub(crate) struct ReportArgs {
    /// Keep in the trace what the kernel held before the load, for `quarry replay --initial`: a snapshot (quarry
    /// snapshot), a folder with slabinfo and slab/ (a copy of /sys/kernel/slab), a copy of /proc/slabinfo, or any
    /// form with slabs in docs/inputs.md. One of the inputs may be `-`.
    #[arg(long, value_name = "SNAPSHOT")]
    before: Option<PathBuf>,
    /// Keep what it held after the load, for `quarry replay --check`: the same forms.
    #[arg(long, value_name = "SNAPSHOT", requires = "before")]
    after: Option<PathBuf>,
    /// Keep the zones, free memory and per-CPU page lists that the kernel had before the load: a copy of
    /// /proc/zoneinfo. A second one is that from after the load.
    #[arg(long, value_name = "ZONEINFO")]
    zoneinfo: Vec<PathBuf>,
    /// Keep which blocks of these zones were free: a copy of /proc/pagetypeinfo. A second one as with --zoneinfo.
    #[arg(long, value_name = "PAGETYPEINFO", requires = "zoneinfo")]
    pagetypeinfo: Vec<PathBuf>,
    /// When the reports from before the load were read: seconds as the recording prints them, or +SECONDS after
    /// the first event that is kept. [default: at --from of quarry import, else at that event]
    #[arg(long, value_name = "TIME")]
    before_at: Option<Moment>,
    /// When those from after it were read, written in the same way. [default: at --until of quarry import, else
    /// after the last event]
    #[arg(long, value_name = "TIME")]
    after_at: Option<Moment>,
    /// Keep them also where they say that they are of another boot, kernel or time than the recording.
    #[arg(long)]
    force_report: bool,
}

impl ReportArgs {
    /// The inputs, each with the name of its option.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = (&'static str, Option<&Path>)> {
        let snapshots = [("--before", &self.before), ("--after", &self.after)];
        let lists = [
            ("--zoneinfo", &self.zoneinfo),
            ("--pagetypeinfo", &self.pagetypeinfo),
        ];
        let snapshots = snapshots.map(|(name, path)| (name, path.as_deref()));
        let lists = lists.into_iter().flat_map(|(name, paths)| {
            let paths = paths.iter();
            paths.map(move |path| (name, Some(path.as_path())))
        });
        snapshots.into_iter().chain(lists)
    }

    /// Reads the reports; refuses those that a replay could not read. `from` and `until` are when the load began and
    /// ended, if the caller knows.
    pub(crate) fn read(
        &self,
        from: Option<Moment>,
        until: Option<Moment>,
    ) -> anyhow::Result<Vec<NewReport>> {
        let mut reports = Vec::new();
        let times = [
            self.before_at.or(from).unwrap_or(Moment::Offset(0)),
            self.after_at.or(until).unwrap_or(Moment::Clock(u64::MAX)),
        ];
        let (before, after) = (self.before.iter(), self.after.iter());
        Self::add(
            times,
            &mut reports,
            "snapshot",
            before.chain(after),
            Snapshot::read_moment,
        )?;
        if !self.force_report {
            for report in &mut reports {
                let of = Snapshot::parse(&report.name, &report.text, None)?;
                report.origin = Origin {
                    boot_id: of.boot_id,
                    kernel: of.release,
                    monotonic_ns: of.monotonic_ns,
                };
            }
        }
        Self::add(times, &mut reports, "zoneinfo", &self.zoneinfo, |path| {
            let text = read_report(path)?;
            Zoneinfo::parse(&path.display().to_string(), &text).map(|_| text)
        })?;
        Self::add(
            times,
            &mut reports,
            "pagetypeinfo",
            &self.pagetypeinfo,
            |path| {
                let text = read_report(path)?;
                Pagetypeinfo::parse(&path.display().to_string(), &text).map(|_| text)
            },
        )?;
        Ok(reports)
    }

    /// Adds the reports of one name, the first from before the load.
    fn add<'a>(
        times: [Moment; 2],
        reports: &mut Vec<NewReport>,
        name: &str,
        paths: impl IntoIterator<Item = &'a PathBuf>,
        read: impl Fn(&Path) -> Result<String, ReportError>,
    ) -> anyhow::Result<()> {
        for (at, path) in times.into_iter().zip(paths) {
            reports.push(NewReport {
                name: name.to_string(),
                at,
                text: read(&input::report(path))?,
                origin: Origin::default(),
            });
        }
        Ok(())
    }
}
