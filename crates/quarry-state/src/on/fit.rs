//! The fit of a release's formulas to a snapshot: where they do not describe it, a prediction is of another kernel.

use quarry_snapshot::Snapshot;

use super::Prediction;

/// Shares of the caches in per cent: from the first on a prediction stands alone, below the second it needs the user's
/// word.
const GOOD: f64 = 95.0;
const LEAST: f64 = 70.0;

/// A prediction's fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fit {
    /// The formulas give nearly all caches their slabs.
    Good,
    /// They do not for some: the likely cause.
    Doubtful(String),
    /// They do not for many: the likely cause. The prediction says little.
    Bad(String),
}

/// Errors in per cent, from and to, that predictions had where the real memory was known: the extremes of the tables by kind
/// of input in `docs/what-if.md`, which are the same for all kinds.
pub const KNOWN_ERRORS: [i32; 2] = [-16, 19];

/// The reason why nothing is computed of such a kernel.
pub const OF_32_BITS: &str = "of a 32-bit kernel, whose words, classes and limits differ";

impl Prediction {
    /// Share of the snapshot's caches whose slabs the formulas give, in per cent.
    #[must_use]
    pub fn fit_percent(&self, snapshot: &Snapshot) -> f64 {
        let rows = snapshot.slabinfo.rows.len().max(1);
        100.0 * self.explained_caches as f64 / rows as f64
    }

    /// The fit, with the likely cause of a bad one.
    #[must_use]
    pub fn fit(&self, snapshot: &Snapshot) -> Fit {
        let percent = self.fit_percent(snapshot);
        match () {
            () if snapshot.is_32_bit() => Fit::Bad(format!(
                "it is {OF_32_BITS}; 32-bit kernels are not supported"
            )),
            () if percent >= GOOD => Fit::Good,
            () if percent >= LEAST => Fit::Doubtful(self.cause(snapshot)),
            () => Fit::Bad(self.cause(snapshot)),
        }
    }

    fn cause(&self, snapshot: &Snapshot) -> String {
        let release = snapshot.release.as_deref();
        let vendor = release.filter(|release| VENDORS.iter().any(|mark| release.contains(mark)));
        match (release, vendor) {
            _ if !self.snapshot_debugging.is_empty() => {
                format!("its debugging is not all known ({})", self.snapshot_debugging)
            }
            (None, _) => "the release is not told, and the assumed one may be wrong".to_string(),
            (_, Some(vendor)) => {
                format!("{vendor} is a vendor's kernel, which may have later rules than its number says")
            }
            _ => "the release, the CPUs or the page size may not be the kernel's, or it has changes of its own".to_string(),
        }
    }
}

/// Parts of vendors' releases.
const VENDORS: [&str; 9] = [
    ".el", ".fc", ".amzn", "-aws", "-azure", "-gcp", "uek", "-default", "-generic",
];
