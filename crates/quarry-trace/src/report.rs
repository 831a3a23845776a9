//! Reports of the recorded kernel about itself, which a trace keeps.

use serde::{Deserialize, Serialize};

use crate::event::seconds;
use crate::meta::TraceMeta;
use crate::moment::Moment;

/// `CLOCK_MONOTONIC` by the name that ftrace gives it.
pub(crate) const CLOCK_MONO: &str = "mono";

/// A kernel's report about itself during the recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelReport {
    /// Kind of the report: `snapshot`, `zoneinfo`, `pagetypeinfo`, `vmstat`.
    pub name: String,
    /// When it was read, by the clock of the events.
    pub time_ns: u64,
    /// The text.
    pub text: String,
}

/// A report that an import or a filter adds to its trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewReport {
    /// As [`KernelReport::name`].
    pub name: String,
    /// When it was read. Offsets count from the first event of the new trace.
    pub at: Moment,
    /// The text.
    pub text: String,
    /// The machine that it is of; what is known of it must be true of the recording.
    pub origin: Origin,
}

/// The boot and the moment of a report, as it tells them itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Identity of the boot.
    pub boot_id: Option<String>,
    /// Release of the kernel.
    pub kernel: Option<String>,
    /// The moment by `CLOCK_MONOTONIC`.
    pub monotonic_ns: Option<u64>,
}

/// Nanoseconds before or after a recording at which a report is still taken to be of it: what the machine did in between
/// is not recorded.
const REPORT_SLACK_NS: u64 = 10_000_000_000;

impl Origin {
    /// The first difference to the recording, in words; `None` if none is known.
    pub(crate) fn differs(&self, meta: &TraceMeta) -> Option<String> {
        if let (Some(boot), Some(recorded)) = (&self.boot_id, &meta.boot_id)
            && boot != recorded
        {
            return Some(format!("it is of boot {boot}, the recording of {recorded}"));
        }
        if let (Some(kernel), Some(recorded)) = (&self.kernel, &meta.kernel)
            // A recording may have the release by a shorter name, from an option.
            && !kernel.starts_with(recorded.as_str())
            && !recorded.starts_with(kernel.as_str())
        {
            return Some(format!(
                "it is of kernel {kernel}, the recording of {recorded}"
            ));
        }
        let at_ns = self
            .monotonic_ns
            .filter(|_| meta.clock.as_deref() == Some(CLOCK_MONO))?;
        let (first_ns, last_ns) = (meta.first_time_ns, meta.last_time_ns);
        let far = |ns: u64| ns > REPORT_SLACK_NS;
        match () {
            () if far(first_ns.saturating_sub(at_ns)) => Some(format!(
                "it was read {} s before the first event",
                seconds(first_ns - at_ns)
            )),
            () if far(at_ns.saturating_sub(last_ns)) => Some(format!(
                "it was read {} s after the last event",
                seconds(at_ns - last_ns)
            )),
            () => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A recording from 100 to 160 s after its machine started.
    fn recording() -> TraceMeta {
        TraceMeta {
            boot_id: Some("a".to_string()),
            kernel: Some("6.18.44".to_string()),
            clock: Some(CLOCK_MONO.to_string()),
            first_time_ns: 100_000_000_000,
            last_time_ns: 160_000_000_000,
            ..TraceMeta::default()
        }
    }

    fn differs(origin: Origin, change: fn(&mut TraceMeta)) -> String {
        let mut meta = recording();
        change(&mut meta);
        origin.differs(&meta).unwrap_or_default()
    }

    #[test]
    fn another_boot_kernel_or_time_differs() {
        let boot = |id: &str| Origin {
            boot_id: Some(id.to_string()),
            ..Origin::default()
        };
        assert_eq!(differs(boot("a"), |_| ()), "");
        assert_eq!(
            differs(boot("b"), |_| ()),
            "it is of boot b, the recording of a"
        );
        assert_eq!(differs(boot("b"), |meta| meta.boot_id = None), "");
        let kernel = |name: &str| Origin {
            kernel: Some(name.to_string()),
            ..Origin::default()
        };
        assert_eq!(differs(kernel("6.18.44"), |_| ()), "");
        assert_eq!(
            differs(kernel("6.18.44"), |meta| meta.kernel =
                Some("6.18".to_string())),
            ""
        );
        assert!(differs(kernel("6.1.0"), |_| ()).starts_with("it is of kernel 6.1.0"));
        let at = |seconds: u64| Origin {
            monotonic_ns: Some(seconds * 1_000_000_000),
            ..Origin::default()
        };
        for seconds in [90, 100, 130, 170] {
            assert_eq!(differs(at(seconds), |_| ()), "", "{seconds}");
        }
        assert!(differs(at(89), |_| ()).contains("11.000000000 s before the first"));
        assert!(differs(at(171), |_| ()).contains("11.000000000 s after the last"));
        // Another clock cannot be compared.
        assert_eq!(differs(at(0), |meta| meta.clock = None), "");
    }
}
