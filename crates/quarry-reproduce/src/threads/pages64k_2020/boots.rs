//! Reports of real boots that the thread's memory is predicted from, and compared with.

use std::io::Read;

use flate2::read::GzDecoder;
use quarry_lab::LabError;
use quarry_lab::booted::Booted;
use quarry_snapshot::Snapshot;
use quarry_state::{Question, predict};

use super::{Asked, POSSIBLE_CPUS, min_objects};
use crate::error::ReproduceError;
use crate::plan::{Arms, Experiment};
use crate::threads::loads::KIB;

/// A report.
#[derive(Clone, Copy)]
pub(super) struct Boot {
    /// Its name in experiments.
    pub(super) name: &'static str,
    bytes: &'static [u8],
}

/// The report of a file of `data/snapshots`.
macro_rules! boot {
    ($name:literal, $file:literal) => {
        Boot {
            name: $name,
            bytes: include_bytes!(concat!("../../../data/snapshots/", $file, ".json.gz")),
        }
    };
}

/// Debian 12 with systemd on 6.1. The first is the nearest to the thread's guest: hash MMU, 64 possible CPUs, and
/// `slub_min_objects` as its kernel computes it. Each arm with another state takes another one.
pub(super) const DEBIAN: [Boot; 4] = [
    boot!(
        "hash, 64 possible",
        "debian-6.1-64k-hash-maxcpus64-minobj32"
    ),
    boot!("radix", "debian-6.1-64k"),
    boot!("radix again", "debian-6.1-64k-repeat"),
    boot!("radix, 64 possible", "debian-6.1-64k-maxcpus64"),
];
/// The same with what the thread changes.
pub(super) const ORDER_2: Boot = boot!("slub_max_order=2", "debian-6.1-64k-maxorder2");
pub(super) const SMALL_PAGES: Boot = boot!("6.12, 4 KiB pages", "debian-6.12-4k");

/// Guests of 6.1 and of 7.2 that boot to a shell and hold a third of that.
pub(super) const BARE: Boot = boot!("bare 6.1", "6.1-ppc64el-64k");
pub(super) const BARE_AGAIN: Boot = boot!("bare 6.1 again", "6.1-ppc64el-64k-repeat");
pub(super) const BARE_ORDER_1: Boot =
    boot!("bare 6.1, slub_max_order=1", "6.1-ppc64el-64k-maxorder1");
pub(super) const BARE_LATER: Boot = boot!("bare 7.2", "7.2-ppc64el-64k");

impl Boot {
    /// Reads the report.
    pub(super) fn read(self) -> Result<Snapshot, ReproduceError> {
        let mut text = String::new();
        let read = GzDecoder::new(self.bytes).read_to_string(&mut text);
        let read =
            read.map_err(|error| LabError::Usage(format!("snapshot {}: {error}", self.name)));
        read?;
        let parsed = Snapshot::parse(self.name, &text, None);
        Ok(parsed.map_err(LabError::from)?)
    }

    /// The memory that its kernel held: `Slab` of meminfo, as the thread has it. The counter lags behind slabinfo, and large requests are
    /// in it alone.
    pub(super) fn real(self) -> Experiment {
        Experiment {
            name: real(self),
            design: None,
            seconds: 0.02,
            arms: Arms::Values,
            run: Box::new(move |_| {
                let report = self.read()?;
                let listed = report.slab_bytes();
                let bytes = report
                    .meminfo_slab_bytes
                    .map_or(listed, |all| all.max(listed));
                Ok(vec![(KIB.to_string(), bytes as f64 / 1024.0)])
            }),
        }
    }
}

/// Name of the experiment of what a real boot held.
pub(super) fn real(boot: Boot) -> String {
    format!("real, {}", boot.name)
}

/// Heap after the thread's boot, for loads to begin on. With more possible CPUs the slabs of what these bring are full ones.
pub(super) fn booted(asked: &Asked) -> Result<Booted, ReproduceError> {
    let mut snapshot = DEBIAN[0].read()?;
    if asked.possible_cpus != POSSIBLE_CPUS {
        let question = Question {
            possible_cpus: Some(asked.possible_cpus),
            settings: vec![min_objects(POSSIBLE_CPUS)],
            ..Question::default()
        };
        let told = predict(&snapshot, &question).map_err(LabError::from)?;
        let page_bytes = snapshot.page_bytes;
        for (row, cache) in snapshot.slabinfo.rows.iter_mut().zip(&told.caches) {
            let slab_bytes = row.pagesperslab.saturating_mul(page_bytes).max(1);
            let more = cache
                .bytes
                .predicted_bytes
                .saturating_sub(cache.observed_bytes);
            let slabs = more / slab_bytes;
            row.num_slabs += slabs;
            row.active_slabs += slabs;
            row.num_objs += slabs * row.objperslab;
            row.active_objs += slabs * row.objperslab;
        }
    }
    Ok(Booted::of(snapshot)?)
}
