//! A snapshot of a kernel: slabinfo, sysfs, and what they need to be understood.
//!
//! [`Snapshot::read`] takes three forms:
//!
//! * **A folder** with `slabinfo` (a copy of `/proc/slabinfo`) and, if it is there, `slab/` (a copy
//!   of `/sys/kernel/slab`; links, which are aliases, may be kept or followed). What else helps has
//!   the name of the JSON key: `page_size`, `cpu_possible`, `cpu_present`, `kernel_release`,
//!   `meminfo`, `cmdline`, `boot_id`; or all of these in `meta.json`.
//! * **JSON of one moment**, as [`Snapshot::take`] writes it: the keys above, `slabinfo` (list of
//!   rows) or `slabinfo_text`, `sysfs_slab` (cache, then file, then value) and `sysfs_aliases`.
//! * **JSON of a boot** with `stages`: each has `slabinfo`, `meminfo_kB`, and `sysfs_slab` or
//!   `sysfs_slab_changed_since_boot`; one of them `cpus`, `version`, `cmdline` and `aliases`;
//!   `page_kB` stands beside the stages.
//!
//! JSON may be packed with gzip.

mod folder;
mod json;
mod take;

use std::collections::BTreeMap;
use std::path::Path;

use quarry_sim::PAGE_BYTES;
use quarry_trace::cpu_list;
use serde_json::{Value, json};

use super::file::{ReportError, read_report};
use super::slabinfo::{Slabinfo, SlabinfoRow};
use super::sysfs::CacheAttributes;

/// Slabs on the partial list of each CPU that has some, by the name of the cache.
pub type CpuPartialLists = BTreeMap<String, BTreeMap<u32, u64>>;

/// A kernel's reports at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Source, for messages.
    pub file: String,
    /// Name of the moment, if there are several.
    pub stage: Option<String>,
    /// The kernel's release, such as `6.1.0-50-powerpc64le`.
    pub release: Option<String>,
    /// Page size in bytes; if the snapshot has none, the smallest that the slabs fit in.
    pub page_bytes: u64,
    /// One more than the highest possible CPU (`nr_cpu_ids`).
    pub nr_cpu_ids: Option<u32>,
    /// CPUs that are present.
    pub present_cpus: Option<u32>,
    /// The caches.
    pub slabinfo: Slabinfo,
    /// Attributes by the name of the cache's own directory.
    pub sysfs: BTreeMap<String, CacheAttributes>,
    /// Directory by another name of the cache.
    pub aliases: BTreeMap<String, String>,
    /// `Slab:` of meminfo in bytes.
    pub meminfo_slab_bytes: Option<u64>,
    /// `MemTotal:` of meminfo in bytes.
    pub memory_bytes: Option<u64>,
    /// `KernelStack:` of meminfo in bytes.
    pub kernel_stack_bytes: Option<u64>,
    /// The kernel's command line.
    pub cmdline: Option<String>,
    /// Identity of the boot (`/proc/sys/kernel/random/boot_id`).
    pub boot_id: Option<String>,
    /// Seconds since 1970 when the snapshot was taken, by the machine's clock.
    pub unix_time_s: Option<u64>,
    /// The moment of slabinfo by `CLOCK_MONOTONIC`, the clock of recordings of `quarry record`.
    pub monotonic_ns: Option<u64>,
    /// Values of sysctls, such as `vm.min_free_kbytes`, as the kernel prints them.
    pub sysctls: BTreeMap<String, String>,
}

impl Snapshot {
    /// Reads a snapshot; `stage` names one of the stages of a boot, the first if it is `None`.
    ///
    /// # Errors
    ///
    /// [`ReportError`]: what cannot be read, what is missing, which stages there are.
    pub fn read(path: &Path, stage: Option<&str>) -> Result<Self, ReportError> {
        let file = path.display().to_string();
        if path.is_dir() {
            return json::of_object(&file, &folder::read(path)?, stage)?.with_pages(stage);
        }
        Self::parse(&file, &read_report(path)?, stage)
    }

    /// Reads what a kernel reported at one moment: a snapshot, or slabinfo alone as [`Slabinfo::read`] takes it. Returns
    /// it as JSON of one moment, which a trace can hold.
    ///
    /// # Errors
    ///
    /// [`ReportError`], also for a boot with stages: it is not one moment.
    pub fn read_moment(path: &Path) -> Result<String, ReportError> {
        let file = path.display().to_string();
        let text = if path.is_dir() {
            Value::Object(folder::read(path)?).to_string()
        } else {
            let text = read_report(path)?;
            match text.trim_start().starts_with('{') {
                true => text,
                false => json!({ "slabinfo": Slabinfo::parse(&file, &text)? }).to_string(),
            }
        };
        match Self::parse(&file, &text, None)?.stage {
            None => Ok(text),
            Some(_) => {
                let what = "these are the stages of a boot: give what was read at one moment, as a copy of \
                            /proc/slabinfo, the JSON of quarry snapshot, or a folder with slabinfo and slab/";
                Err(ReportError::bad(&file, "snapshot", what))
            }
        }
    }

    /// Parses the JSON of a snapshot, as [`Self::read`] does; `file` is what messages call it.
    ///
    /// # Errors
    ///
    /// [`ReportError`]: what is missing, which stages there are.
    pub fn parse(file: &str, text: &str, stage: Option<&str>) -> Result<Self, ReportError> {
        json::parse(file, text, stage)?.with_pages(stage)
    }

    /// Completed by the page size, or what is wrong with it.
    fn with_pages(mut self, stage: Option<&str>) -> Result<Self, ReportError> {
        let snapshot = &mut self;
        let file = snapshot.file.clone();
        if stage.is_some() && snapshot.stage.is_none() {
            let what = "there are no stages in it: leave --stage out";
            return Err(ReportError::bad(&file, "snapshot", what));
        }
        if snapshot.slabinfo.rows.is_empty() {
            let place = snapshot.stage.as_deref().unwrap_or("slabinfo");
            let what = "no caches; a kernel with SLOB reports none";
            return Err(ReportError::bad(&file, place, what));
        }
        let bad = |what: String| ReportError::bad(&file, "page_size", what);
        if snapshot.page_bytes == 0 {
            snapshot.page_bytes = page_bytes_of(&snapshot.slabinfo.rows)
                .ok_or_else(|| bad("it is missing and cannot be guessed".to_string()))?;
        }
        if !PAGE_BYTES.contains(&snapshot.page_bytes) {
            return Err(bad(format!(
                "{} bytes is not known; known are 4096, 16384 and 65536",
                snapshot.page_bytes
            )));
        }
        Ok(self)
    }

    /// The attributes of a cache by its name in slabinfo.
    #[must_use]
    pub fn attributes(&self, cache: &str) -> Option<&CacheAttributes> {
        let own = self.aliases.get(cache).map_or(cache, String::as_str);
        self.sysfs.get(own).or_else(|| self.sysfs.get(cache))
    }

    /// Number of slabs on each CPU's partial list, by the names of a report's rows. Attributes
    /// are read one after the other, and the report may be another moment's: of a cache only told
    /// are lists beside which sysfs counts as many slabs (`slabs`) and objects in use (`objects`)
    /// as the report.
    #[must_use]
    pub fn cpu_partial_lists(&self, report: &Slabinfo) -> CpuPartialLists {
        let lists = report.rows.iter().filter_map(|row| {
            let lists = self.counted_with(row)?.cpu_partial_lists()?;
            Some((row.name.clone(), lists))
        });
        lists.collect()
    }

    /// Slabs on the nodes' partial lists of a row's cache, if sysfs counted them at the moment of the row.
    #[must_use]
    pub fn partial_slabs(&self, row: &SlabinfoRow) -> Option<u64> {
        self.counted_with(row)?.number("partial")
    }

    /// The attributes of a row's cache, if they count as many slabs and objects in use as the row.
    fn counted_with(&self, row: &SlabinfoRow) -> Option<&CacheAttributes> {
        let attributes = self.attributes(&row.name)?;
        counts_as(attributes, row).then_some(attributes)
    }

    /// The same kernel at the moment of another report. Counts of sysfs stay for caches if they count as many
    /// slabs and objects in use as the report; of others only sizes, limits and flags stay.
    #[must_use]
    pub fn at(mut self, report: Slabinfo) -> Self {
        for row in &report.rows {
            let own = self.aliases.get(&row.name).unwrap_or(&row.name);
            if let Some(attributes) = self.sysfs.get_mut(own)
                && !counts_as(attributes, row)
            {
                attributes.forget_counts();
            }
        }
        self.slabinfo = report;
        self
    }

    /// Nodes that have slabs, as sysfs counts them by node (`N0=`); one if it is not told.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        let texts = self.sysfs.values().filter_map(|cache| cache.text("slabs"));
        let highest = texts.flat_map(node_numbers).max();
        highest.map_or(1, |highest| highest.saturating_add(1))
    }

    /// Bytes of all slabs.
    #[must_use]
    pub fn slab_bytes(&self) -> u64 {
        self.slabinfo.slab_bytes(self.page_bytes)
    }

    /// The number that a parameter of the kernel's command line has; the last one counts.
    #[must_use]
    pub fn boot_number(&self, names: &[&str]) -> Option<u32> {
        self.cmdline
            .as_deref()?
            .split_whitespace()
            .filter_map(|word| word.split_once('='))
            .filter(|(name, _)| names.contains(name))
            .filter_map(|(_, value)| value.parse().ok())
            .next_back()
    }

    /// Takes over lists of CPUs.
    fn set_cpus(&mut self, possible: Option<&str>, present: Option<&str>) -> Result<(), String> {
        let parse = |list: Option<&str>| match list {
            None => Ok(None),
            Some(list) => cpu_list(list)
                .map(Some)
                .ok_or_else(|| format!("{list:?} is not a list of CPUs such as 0-3")),
        };
        let (possible, present) = (parse(possible)?, parse(present)?);
        self.nr_cpu_ids = possible.or(present).map(|(_, ids)| ids);
        self.present_cpus = present.or(possible).map(|(count, _)| count);
        Ok(())
    }
}

/// True if sysfs counted as many slabs and objects in use as a row: it was read at the moment of the row.
fn counts_as(attributes: &CacheAttributes, row: &SlabinfoRow) -> bool {
    let counts = (attributes.number("slabs"), attributes.number("objects"));
    counts == (Some(row.num_slabs), Some(row.active_objs))
}

/// The nodes that a count of sysfs such as `12 N0=7 N1=5` names.
fn node_numbers(text: &str) -> impl Iterator<Item = u32> {
    let parts = text.split_whitespace();
    parts.filter_map(|part| part.strip_prefix('N')?.split_once('=')?.0.parse().ok())
}

/// A line of meminfo's text, in bytes.
fn meminfo(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// The smallest page size that all slabs fit in.
fn page_bytes_of(rows: &[SlabinfoRow]) -> Option<u64> {
    let fits = |page: &u64| {
        rows.iter().all(|row| {
            let slab = row.pagesperslab.saturating_mul(*page);
            row.objsize.saturating_mul(row.objperslab) <= slab
        })
    };
    PAGE_BYTES.into_iter().find(fits)
}

#[cfg(test)]
mod tests;
