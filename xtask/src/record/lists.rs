//! What the kernel says of its per-CPU page lists: their state when the workload begins and ends,
//! and what went between them and the zones meanwhile. It is the measure for a replay's page
//! events.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;

/// A block was taken from a zone under its lock.
pub(super) const REFILL: &str = "kmem:mm_page_alloc_zone_locked";
/// A block of a CPU's lists was given back to its zone.
pub(super) const DRAIN: &str = "kmem:mm_page_pcpu_drain";
/// What the first of these says of a block that went to a CPU's lists.
const FOR_LISTS: &str = "percpu_refill=1";

const ZONEINFO: &str = "/proc/zoneinfo";
/// Tells, for root, what the recording's clock says.
const CLOCK: &str = "/proc/timer_list";

/// Blocks between the lists and the zones, from one report to the other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Traffic {
    /// Nanoseconds of the recording's clock at the first report.
    pub(super) from_ns: u64,
    /// The same at the second.
    pub(super) until_ns: u64,
    /// Blocks that refills took from the zones.
    pub(super) refilled: u64,
    /// Blocks that went past the lists.
    pub(super) unlisted: u64,
    /// Blocks that the lists gave back.
    pub(super) drained: u64,
}

impl Traffic {
    /// Counts a line of the recording's text, if it is about this.
    pub(super) fn count(&mut self, event: &str, time_ns: u64, text: &str) -> bool {
        if event != REFILL && event != DRAIN {
            return false;
        }
        if (self.from_ns..self.until_ns).contains(&time_ns) {
            let counter = match event {
                DRAIN => &mut self.drained,
                _ if text.contains(FOR_LISTS) => &mut self.refilled,
                _ => &mut self.unlisted,
            };
            *counter += 1;
        }
        true
    }
}

/// Names of the reports beside a recording: before and after the workload.
pub(super) fn report_names(name: &str) -> [String; 2] {
    ["before", "after"].map(|when| format!("{name}.{when}.zoneinfo.gz"))
}

/// Copies the report into the workload's folder, and the time of doing so.
pub(super) fn report(dir: &Path, when: &str) -> Result<()> {
    let text = fs::read(ZONEINFO).with_context(|| format!("cannot read {ZONEINFO}"))?;
    let clock = fs::read_to_string(CLOCK).with_context(|| format!("cannot read {CLOCK}"))?;
    let now = now_ns(&clock).with_context(|| format!("{CLOCK} does not tell the time"))?;
    fs::write(dir.join(when), text)?;
    fs::write(dir.join(format!("{when}.ns")), now.to_string())?;
    Ok(())
}

fn now_ns(timer_list: &str) -> Option<u64> {
    let mut lines = timer_list.lines();
    let now = lines.find_map(|line| line.strip_prefix("now at "))?;
    now.split_whitespace().next()?.parse().ok()
}

/// Packs what [`report`] left in the workload's folder, and gives the two moments.
pub(super) fn collect(dir: &Path, out: &Path, name: &str) -> Result<Traffic> {
    let mut moments = [0; 2];
    for ((when, packed), moment) in ["before", "after"]
        .into_iter()
        .zip(report_names(name))
        .zip(&mut moments)
    {
        let text = fs::read(dir.join(when)).context("the workload left no zoneinfo")?;
        let path = out.join(packed);
        let file =
            File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        let mut encoder = GzEncoder::new(file, Compression::best());
        encoder.write_all(&text)?;
        encoder.finish()?;
        *moment = fs::read_to_string(dir.join(format!("{when}.ns")))?.parse()?;
    }
    let [from_ns, until_ns] = moments;
    Ok(Traffic {
        from_ns,
        until_ns,
        ..Traffic::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_found() {
        let text = "Timer List Version: v0.10\nHRTIMER_MAX_CLOCK_BASES: 8\nnow at 14572 nsecs\n";
        assert_eq!(now_ns(text), Some(14572));
        assert_eq!(now_ns("Timer List Version: v0.10\n"), None);
    }

    #[test]
    fn blocks_are_counted_between_the_reports() {
        let mut traffic = Traffic {
            from_ns: 10,
            until_ns: 20,
            ..Traffic::default()
        };
        let refill = "page=0x1 pfn=0x1 order=0 migratetype=1 percpu_refill=1";
        let direct = "page=0x1 pfn=0x1 order=9 migratetype=1 percpu_refill=0";
        for (event, time_ns, text, ours) in [
            (REFILL, 9, refill, true),
            (REFILL, 10, refill, true),
            (REFILL, 11, direct, true),
            (DRAIN, 19, "", true),
            (DRAIN, 19, "", true),
            (DRAIN, 20, "", true),
            ("kmem:kfree", 15, "", false),
        ] {
            assert_eq!(traffic.count(event, time_ns, text), ours);
        }
        let counts = (traffic.refilled, traffic.unlisted, traffic.drained);
        assert_eq!(counts, (1, 1, 2));
    }

    #[test]
    fn reports_are_packed_with_their_moments() {
        let [dir, out] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        assert!(collect(dir.path(), out.path(), "x").is_err());
        for (when, now) in [("before", "5"), ("after", "7")] {
            fs::write(dir.path().join(when), when).unwrap();
            fs::write(dir.path().join(format!("{when}.ns")), now).unwrap();
        }
        let traffic = collect(dir.path(), out.path(), "x").unwrap();
        assert_eq!((traffic.from_ns, traffic.until_ns), (5, 7));
        assert!(
            report_names("x")
                .iter()
                .all(|name| out.path().join(name).exists())
        );
    }
}
