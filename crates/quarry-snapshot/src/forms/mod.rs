//! Forms of files that people have of a kernel's slabs. Each has a module that turns its text into the JSON of a moment,
//! which [`Snapshot::parse`](crate::Snapshot::parse) takes and a trace holds. A new form is its module, a [`Form`] and a line
//! of [`TEXTS`] or [`VALUES`].

pub(crate) mod arrow;
mod below;
mod bugreport;
pub(crate) mod crash;
pub(crate) mod crash_slabs;
mod files;
pub(crate) mod log;
mod metrics;
pub(crate) mod read;
pub(crate) mod rows;
pub(crate) mod slabtool;
pub(crate) mod slabtop;
pub(crate) mod vmstat;

use serde_json::{Map, Value};

use crate::file::ReportError;
use crate::paste;
use crate::slabinfo::Slabinfo;

/// JSON of a kernel's reports at one moment.
pub(crate) type Moment = Map<String, Value>;
/// Moments of a file, by its name for messages and its content.
type Moments<T> = fn(&str, &T) -> Result<Vec<Moment>, ReportError>;
/// Recognition and reading of a form.
type Reader<T> = (fn(&T) -> bool, Moments<T>);

/// Forms of texts that programs write for programs; all others are [pasted](crate::paste).
const TEXTS: [Reader<str>; 5] = [
    (
        |text| text.trim_start().starts_with("allocinfo - version"),
        paste::allocinfo,
    ),
    (paste::is_page_owner, paste::page_owner),
    (bugreport::is, bugreport::read),
    (metrics::is_node, metrics::node),
    (metrics::is_pmrep, metrics::pmrep),
];

/// Forms that are JSON.
const VALUES: [Reader<Value>; 2] = [
    (metrics::is_prometheus, metrics::prometheus),
    (below::is, below::read),
];

/// Form of a file with a kernel's slabs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// JSON of `quarry snapshot`, or a folder with slabinfo and, if it is there, sysfs.
    #[default]
    Snapshot,
    /// A copy of `/proc/slabinfo`.
    Slabinfo,
    /// A copy of `/proc`.
    Proc,
    /// A folder or an archive of sosreport.
    Sosreport,
    /// A bug report of Android.
    Bugreport,
    /// Text of `slabtop -o`.
    Slabtop,
    /// Text of `vmstat -m`.
    Vmstat,
    /// Text of `kmem -s` or `kmem -S` of crash.
    Crash,
    /// Text of the `slabinfo` tool of the kernel tree.
    SlabTool,
    /// Sums alone: text of `slabinfo -T` of that tool, or a head of slabtop without rows.
    SlabTotals,
    /// Table of a kernel's log when memory was exhausted.
    Oom,
    /// Messages of a kernel's log about caches that could not grow.
    Unable,
    /// A copy of `/proc/meminfo` alone.
    Meminfo,
    /// A copy of `/proc/allocinfo` alone.
    Allocinfo,
    /// Owners of pages: `/sys/kernel/debug/page_owner`, the output of `page_owner_sort`, or `show_stacks`.
    PageOwner,
    /// Copies of `/proc/buddyinfo` and `/proc/pagetypeinfo` alone.
    Buddyinfo,
    /// A map of blocks of memory alone, as snapshots keep it.
    Blocks,
    /// Text of node_exporter.
    NodeExporter,
    /// JSON of Prometheus.
    Prometheus,
    /// CSV of `pmrep` (PCP).
    Pmrep,
    /// Parquet of `pcp2arrow` (PCP).
    Pcp2arrow,
    /// JSON of `below dump`.
    Below,
}

/// Accuracy that a form allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// Bytes of each cache alone: nothing is known of slabs.
    Bytes,
    /// Objects and slabs of each cache; some of the numbers are computed from others.
    Thin,
    /// slabinfo without sysfs.
    Slabinfo,
    /// slabinfo and sysfs.
    Sysfs,
    /// All of it, and the hidden state of the caches: what CPUs, sheaves and barns hold.
    Exact,
}

impl Form {
    /// Every form.
    pub const ALL: [Self; 22] = [
        Self::Snapshot,
        Self::Slabinfo,
        Self::Proc,
        Self::Sosreport,
        Self::Bugreport,
        Self::Slabtop,
        Self::Vmstat,
        Self::Crash,
        Self::SlabTool,
        Self::SlabTotals,
        Self::Oom,
        Self::Unable,
        Self::Meminfo,
        Self::Allocinfo,
        Self::PageOwner,
        Self::Buddyinfo,
        Self::Blocks,
        Self::NodeExporter,
        Self::Prometheus,
        Self::Pmrep,
        Self::Pcp2arrow,
        Self::Below,
    ];

    /// Name for users.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Snapshot => "snapshot",
            Self::Slabinfo => "slabinfo",
            Self::Proc => "copy of /proc",
            Self::Sosreport => "sosreport",
            Self::Bugreport => "Android bug report",
            Self::Slabtop => "slabtop",
            Self::Vmstat => "vmstat -m",
            Self::Crash => "crash kmem -s",
            Self::SlabTool => "slabinfo tool",
            Self::SlabTotals => "sums of slabs",
            Self::Oom => "OOM report",
            Self::Unable => "SLUB allocation failures",
            Self::Meminfo => "meminfo",
            Self::Allocinfo => "allocinfo",
            Self::PageOwner => "page_owner",
            Self::Buddyinfo => "buddyinfo",
            Self::Blocks => "blocks",
            Self::NodeExporter => "node_exporter",
            Self::Prometheus => "Prometheus query_range",
            Self::Pmrep => "pmrep",
            Self::Pcp2arrow => "pcp2arrow",
            Self::Below => "below dump",
        }
    }

    /// Accuracy that it allows without sysfs.
    #[must_use]
    pub fn detail(self) -> Detail {
        match self {
            Self::Snapshot | Self::Slabinfo | Self::Proc | Self::Sosreport | Self::Bugreport => {
                Detail::Slabinfo
            }
            Self::SlabTotals
            | Self::Oom
            | Self::Meminfo
            | Self::Allocinfo
            | Self::PageOwner
            | Self::Buddyinfo
            | Self::Blocks => Detail::Bytes,
            _ => Detail::Thin,
        }
    }

    /// True if it counts pages of slabs; else these are computed from bytes, for the page size that is likeliest.
    pub(crate) fn counts_pages(self) -> bool {
        !matches!(
            self,
            Self::Slabtop | Self::Vmstat | Self::Crash | Self::Below
        )
    }

    /// True if its active objects are without those that CPUs hold free in their slabs and arrays; a kernel counts them in.
    /// Sheaves are in both.
    #[must_use]
    pub fn counts_held_as_free(self) -> bool {
        self == Self::Crash
    }

    /// Lack of this form, as the end of a sentence; `None` for those that have slabinfo.
    #[must_use]
    pub fn lacks(self) -> Option<&'static str> {
        match self {
            Self::Slabtop => {
                Some("object sizes are rounded, pages per slab computed from the cache size")
            }
            Self::Vmstat => Some("slabs and their pages are computed from objects and sizes"),
            Self::Crash => Some(
                "object sizes are without padding, objects per slab computed; ALLOCATED is without what CPUs hold free",
            ),
            Self::SlabTool => Some("objects are computed from slabs, limits of caches left out"),
            Self::SlabTotals => Some("only sums: `sudo cat /proc/slabinfo` has the caches"),
            Self::Oom => Some("only bytes of unreclaimable caches, no objects and no slabs"),
            Self::Unable => Some("only caches that could not grow, on the nodes that were tried"),
            Self::Allocinfo => Some("only call sites: `sudo cat /proc/slabinfo` has the caches"),
            Self::PageOwner => {
                Some("only owners of pages: `sudo cat /proc/slabinfo` has the caches")
            }
            Self::Meminfo => Some("only sums: `sudo cat /proc/slabinfo` has the caches"),
            Self::Buddyinfo => Some("only free pages: `sudo cat /proc/slabinfo` has the caches"),
            Self::Blocks => Some("only a map of blocks: `sudo cat /proc/slabinfo` has the caches"),
            Self::NodeExporter | Self::Prometheus => Some("slabs are computed from objects"),
            Self::Pmrep | Self::Pcp2arrow => Some("no tunables"),
            Self::Below => Some("pages of slabs are computed from objects and sizes"),
            Self::Snapshot | Self::Slabinfo | Self::Proc | Self::Sosreport | Self::Bugreport => {
                None
            }
        }
    }

    /// A moment without caches in this form.
    pub(crate) fn named(self) -> Moment {
        Moment::from_iter([("form".to_string(), self.name().into())])
    }

    /// The form of a moment that has no slabs but sums of them, or a map of blocks.
    pub(crate) fn without_slabs(moment: &Moment) -> Option<Self> {
        let forms = [("meminfo", Self::Meminfo), ("blocks", Self::Blocks)];
        let form = forms.into_iter().find(|(key, _)| moment.contains_key(*key));
        form.map(|(_, form)| form)
    }

    /// The moment of a report in this form.
    pub(crate) fn moment(self, report: &Slabinfo) -> Moment {
        let mut moment = self.named();
        moment.insert("slabinfo".to_string(), serde_json::json!(report));
        moment
    }

    /// The form of a name.
    pub(crate) fn of_key(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|form| form.name() == name)
    }
}

#[cfg(test)]
mod tests;
