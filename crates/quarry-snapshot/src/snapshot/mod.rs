//! A snapshot of a kernel: slabinfo, sysfs, and what they need to be understood.
//!
//! [`Snapshot::read`] takes any [`Form`] from a file, a folder or an archive. The two of Quarry's own:
//!
//! * **A folder** with `slabinfo` (a copy of `/proc/slabinfo`) and, if it is there, `slab/` (a copy
//!   of `/sys/kernel/slab`; links, which are aliases, may be kept or followed). What else helps has
//!   the name of the JSON key: `page_size`, `cpu_possible`, `cpu_present`, `kernel_release`, `version`, `uname`, `cpuinfo`,
//!   `meminfo`, `allocinfo`, `pagetypeinfo`, `blocks`, `cmdline`, `config`, `dmesg`, `boot_id`; or all of these in `meta.json`.
//! * **JSON of one moment**, as [`Snapshot::take`] writes it: the keys above, `slabinfo` (list of
//!   rows) or `slabinfo_text`, `sysfs_slab` (cache, then file, then value) and `sysfs_aliases`;
//!   `hidden` has a [`HiddenState`] and `slab_blocks` a [`SlabBlocks`], if a debugger read them; `sources` has the file of a key that is not named after it.
//! * **JSON of a boot** with `stages`: each has `slabinfo`, `meminfo_kB`, and `sysfs_slab` or
//!   `sysfs_slab_changed_since_boot`; one of them `cpus`, `version`, `cmdline` and `aliases`;
//!   `page_kB` stands beside the stages.

mod aliases;
mod doubts;
pub(crate) mod folder;
mod infer;
mod json;
mod part;
mod take;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use quarry_core::era::Era;
use quarry_sim::PAGE_BYTES;
use serde_json::Value;

use super::allocinfo::CallSite;
use super::blocks::{BlockMap, SlabBlocks};
use super::buddyinfo::{Buddyinfo, Pagetypeinfo};
use super::facts::{self, Facts, Origin, Releases};
use super::failures::PageFailure;
use super::file::ReportError;
use super::forms::{self, Detail, Form, Moment};
use super::hidden::{HiddenCache, HiddenState};
use super::machine;
use super::page_owner::PageOwners;
use super::slabinfo::{Slabinfo, SlabinfoRow};
use super::sysfs::CacheAttributes;
pub use part::{Asked, CacheBytes, Excerpt, OomSums, Totals};
pub(crate) use take::add_blocks;

/// A kernel's reports at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Source, for messages.
    pub file: String,
    /// Name of the moment, if there are several.
    pub stage: Option<String>,
    /// Name of the machine, as prompts, logs, `uname` or the tools that print for several machines have it.
    pub host: Option<String>,
    /// File, or title, that a text has above or before the rows, if it has several that may be of several machines.
    pub listed_in: Option<String>,
    /// Fact of a text by which its readings are ordered; `None` if they are as they stand.
    pub ordered_by: Option<String>,
    /// Form of the file.
    pub form: Form,
    /// Sentences about how the file was read, for the user.
    pub notes: Vec<String>,
    /// Origins of what follows about the machine.
    pub facts: Facts,
    /// The kernel's release, such as `6.1.0-50-powerpc64le`.
    pub release: Option<String>,
    /// Releases that the kernel can be of, by the names of its caches, if no file has the release.
    pub releases: Option<Releases>,
    /// The architecture, as `uname -m` prints it.
    pub architecture: Option<String>,
    /// Options of the kernel's configuration that matter to slabs, by name without `CONFIG_`: `y`, `n` or the value.
    pub config: BTreeMap<String, String>,
    /// Page size in bytes; if the snapshot has none, the smallest that the slabs fit in.
    pub page_bytes: u64,
    /// One more than the highest possible CPU (`nr_cpu_ids`).
    pub nr_cpu_ids: Option<u32>,
    /// CPUs that are present.
    pub present_cpus: Option<u32>,
    /// The caches.
    pub slabinfo: Slabinfo,
    /// Set if these are a part of the kernel's caches.
    pub excerpt: Option<Excerpt>,
    /// Caches without objects and slabs; then `slabinfo` has none.
    pub cache_bytes: Vec<CacheBytes>,
    /// Sums of the report that `cache_bytes` are of.
    pub oom: Option<OomSums>,
    /// Reports of the kernel's log about pages that a request did not get, in its order.
    pub page_failures: Vec<PageFailure>,
    /// Attributes by the name of the cache's own directory.
    pub sysfs: BTreeMap<String, CacheAttributes>,
    /// Directory by another name of the cache.
    pub aliases: BTreeMap<String, String>,
    /// Free objects that slabinfo counts as active, if a debugger read them.
    pub hidden: Option<HiddenState>,
    /// `Slab:` of meminfo in bytes.
    pub meminfo_slab_bytes: Option<u64>,
    /// `MemTotal:` of meminfo in bytes.
    pub memory_bytes: Option<u64>,
    /// `SReclaimable:` of meminfo in bytes.
    pub reclaimable_bytes: Option<u64>,
    /// `SUnreclaim:` of meminfo in bytes.
    pub unreclaimable_bytes: Option<u64>,
    /// Pages that zoneinfo counts as managed.
    pub managed_pages: Option<u64>,
    /// `KernelStack:` of meminfo in bytes.
    pub kernel_stack_bytes: Option<u64>,
    /// Call sites that hold memory, from `/proc/allocinfo`; those of large allocations at least.
    pub call_sites: Vec<CallSite>,
    /// Pages by their owners, if the file has them alone.
    pub page_owners: Option<PageOwners>,
    /// Free blocks by zone, from `/proc/buddyinfo` or the sums of `/proc/pagetypeinfo`.
    pub buddyinfo: Option<Buddyinfo>,
    /// Pages by kind for each 2 MiB of memory, folded from `/proc/kpageflags`.
    pub blocks: Option<BlockMap>,
    /// Pages of each cache for each 2 MiB, if a debugger read them.
    pub slab_blocks: Option<SlabBlocks>,
    /// Free memory and blocks by the mobility of their pages, from `/proc/pagetypeinfo`.
    pub pagetypeinfo: Option<Pagetypeinfo>,
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
        Self::read_all(path, stage).map(Self::last)
    }

    /// True for a Parquet file that has snapshots: PCP's `pcp2arrow` writes such, and traces are Parquet, too.
    #[must_use]
    pub fn is_table(path: &Path) -> bool {
        forms::arrow::is(path)
    }

    /// Reads every moment of a file, the oldest first: one of most forms, and one of a boot, whose stage `stage` names.
    ///
    /// # Errors
    ///
    /// [`ReportError`] as [`Self::read`].
    pub fn read_all(path: &Path, stage: Option<&str>) -> Result<Vec<Self>, ReportError> {
        let file = path.display().to_string();
        Self::of_moments(&file, &forms::read::path(path)?, stage)
    }

    /// All that is read of a file or a folder, as JSON: what gives the same text gives the same snapshots.
    ///
    /// # Errors
    ///
    /// [`ReportError`] as [`Self::read`].
    pub fn content(path: &Path) -> Result<String, ReportError> {
        let moments = forms::read::path(path)?.into_iter();
        Ok(Value::Array(moments.map(Value::Object).collect()).to_string())
    }

    /// Reads every moment of what a reader has, as [`Self::read_all`] does; `file` is what messages call it.
    ///
    /// # Errors
    ///
    /// [`ReportError`] as [`Self::read`].
    pub fn of_bytes(file: &str, reader: impl Read) -> Result<Vec<Self>, ReportError> {
        let moments = forms::read::reader(file, reader)?;
        Self::of_moments(file, &moments, None)
    }

    /// The moments that can be, at least one. One that cannot does not take the others away.
    fn of_moments(
        file: &str,
        moments: &[Moment],
        stage: Option<&str>,
    ) -> Result<Vec<Self>, ReportError> {
        let read = |moment| json::of_object(file, moment, stage)?.with_pages(stage);
        let (mut good, mut refused) = (Vec::new(), Vec::new());
        for moment in moments.iter().map(read) {
            match moment {
                Ok(snapshot) => good.push(snapshot),
                Err(error) => refused.push(error),
            }
        }
        let count = refused.len();
        match (good.last_mut(), refused.into_iter().next()) {
            (Some(last), Some(first)) => {
                last.notes.push(format!(
                    "moments that are left out: {count}, the first as {first}"
                ));
            }
            (None, Some(first)) => return Err(first),
            (None, None) => return Err(ReportError::bad(file, "moments", "it has none")),
            (Some(_), None) => {}
        }
        Self::with_slabs(&mut good);
        Ok(good)
    }

    /// The machine that the name of the file seems to be of, such as `web1.txt`; a guess.
    #[must_use]
    pub fn machine_of_name(&self) -> Option<String> {
        crate::paste::of_file(&self.file)
    }

    /// Leaves out the moments that have bytes alone, if others have slabs. A note compares the sums, which both have.
    pub fn with_slabs(moments: &mut Vec<Self>) {
        let has_slabs = |moment: &Self| moment.detail() > Detail::Bytes;
        if !moments.iter().any(has_slabs) {
            return;
        }
        let left_out: Vec<Self> = moments
            .extract_if(.., |moment| !has_slabs(moment))
            .collect();
        let Some(last) = moments.last_mut() else {
            return;
        };
        let own = last.meminfo_slab_bytes.unwrap_or(last.slab_bytes());
        for other in left_out {
            let sum = other.sum_bytes().map_or_else(String::new, |sum| {
                let [there, here] = [sum, own].map(|bytes| bytes >> 20);
                format!(
                    "; its sum is {there} MiB of slabs, {here} MiB in {}",
                    last.file
                )
            });
            let (file, form) = (&other.file, other.form.name());
            last.notes.push(format!(
                "left out, as it has no slabs: {file} ({form}){sum}"
            ));
            last.page_failures.extend(other.page_failures);
        }
    }

    /// The last of a file's moments, with a note about the others; there is at least one.
    #[must_use]
    pub fn last(mut moments: Vec<Self>) -> Self {
        let count = moments.len();
        let mut last = moments.pop().unwrap_or_default();
        if count > 1 {
            let note = format!("the last of {count} moments in the file");
            last.notes.push(note);
        }
        last
    }

    /// Reads what a kernel reported at one moment: a snapshot, or slabinfo alone as [`Slabinfo::read`] takes it. Returns
    /// it as JSON of one moment, which a trace can hold.
    ///
    /// # Errors
    ///
    /// [`ReportError`], also for a boot with stages: it is not one moment.
    pub fn read_moment(path: &Path) -> Result<String, ReportError> {
        let file = path.display().to_string();
        let moments = forms::read::path(path)?;
        let text = match <[_; 1]>::try_from(moments) {
            Ok([moment]) => Value::Object(moment).to_string(),
            Err(moments) => {
                let what = format!("it has {} moments: give one", moments.len());
                return Err(ReportError::bad(&file, "snapshot", what));
            }
        };
        let snapshot = Self::parse(&file, &text, None)?;
        if snapshot.detail() == Detail::Bytes {
            let form = snapshot.form.name();
            let what = format!("a {form} has bytes of caches, not their slabs (docs/inputs.md)");
            return Err(ReportError::bad(&file, "snapshot", what));
        }
        match snapshot.stage {
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
        let moments = forms::read::text(file, text)?;
        Self::of_moments(file, &moments, stage).map(Self::last)
    }

    /// Completed by the page size, or what is wrong with it.
    fn with_pages(mut self, stage: Option<&str>) -> Result<Self, ReportError> {
        let snapshot = &mut self;
        let file = snapshot.file.clone();
        if stage.is_some() && snapshot.stage.is_none() {
            let what = "there are no stages in it: leave --stage out";
            return Err(ReportError::bad(&file, "snapshot", what));
        }
        if snapshot.detail() == Detail::Bytes {
            let one = snapshot
                .architecture
                .as_deref()
                .and_then(machine::page_of_architecture);
            let told = snapshot.page_bytes_of_log();
            let of_map = snapshot.blocks.as_ref().map(|map| map.page_bytes);
            let found = told.or(of_map).or(one);
            snapshot.page_bytes = found.unwrap_or(snapshot.page_bytes);
            snapshot.doubt();
            return Ok(self);
        }
        if snapshot.slabinfo.rows.is_empty() {
            let place = snapshot.stage.as_deref().unwrap_or("slabinfo");
            let what = "no caches; a kernel with SLOB reports none";
            return Err(ReportError::bad(&file, place, what));
        }
        let bad = |what: String| ReportError::bad(&file, "page_size", what);
        if snapshot.page_bytes == 0 {
            (snapshot.page_bytes, snapshot.facts.page_bytes) = snapshot
                .page_bytes_inferred()
                .ok_or_else(|| bad("it is missing and cannot be guessed".to_string()))?;
        }
        snapshot.infer();
        if !PAGE_BYTES.contains(&snapshot.page_bytes) {
            return Err(bad(format!(
                "{} bytes is not known; known are 4096, 16384 and 65536",
                snapshot.page_bytes
            )));
        }
        let objects = snapshot.slabinfo.object_bytes();
        if let Some(memory) = snapshot.memory_bytes
            && objects > memory
        {
            let what = format!(
                "the caches have {} MiB of objects, the machine has {} MiB of memory: they are of several moments or machines",
                objects >> 20,
                memory >> 20
            );
            return Err(ReportError::bad(&file, "caches", what));
        }
        snapshot.doubt();
        Ok(self)
    }

    /// The same snapshot with what the user knows about its machine, for what its files lack.
    ///
    /// # Errors
    ///
    /// [`ReportError`] for a value that a file contradicts, or that cannot be.
    pub fn asked(mut self, asked: &Asked) -> Result<Self, ReportError> {
        let file = self.file.clone();
        let refuse = |what: String| Err(ReportError::bad(&file, "snapshot", what));
        let told = |origin: &Origin| match origin {
            Origin::Told(source) => Some(source.clone()),
            _ => None,
        };
        if let Some(release) = &asked.release {
            if let (Some(source), Some(own)) = (told(&self.facts.release), &self.release)
                && Era::parse(own) != Era::parse(release)
            {
                return refuse(format!("its kernel is {own} ({source}), not {release}"));
            }
            if Era::parse(release).is_none() {
                return refuse(format!(
                    "{release} is no release between {} and {}",
                    Era::FIRST,
                    Era::LAST
                ));
            }
            if let (Some(releases), Some(era)) = (self.releases, Era::parse(release))
                && !releases.contains(era)
            {
                let note = format!("the names of its caches are of {releases}, not of {release}");
                self.notes.push(note);
            }
            if told(&self.facts.release).is_none() {
                (self.release, self.facts.release) = (Some(release.clone()), Origin::Asked);
                self.releases = None;
                self.check_sheaves();
            }
        }
        if let Some(cpus) = asked.cpus {
            if cpus == 0 {
                return refuse("a machine has at least one CPU".to_string());
            }
            if let (Some(source), Some(own)) = (told(&self.facts.present_cpus), self.present_cpus)
                && own != cpus
            {
                return refuse(format!("its machine has {own} CPUs ({source}), not {cpus}"));
            }
            if told(&self.facts.present_cpus).is_none() {
                (self.present_cpus, self.facts.present_cpus) = (Some(cpus), Origin::Asked);
                if !self.facts.nr_cpu_ids.is_fact() {
                    let reason = "as many as are present";
                    self.nr_cpu_ids = Some(cpus);
                    self.facts.nr_cpu_ids = Origin::inferred(reason);
                }
            }
        }
        if let Some(bytes) = asked.page_bytes {
            if let Some(source) = told(&self.facts.page_bytes)
                && self.page_bytes != bytes
            {
                let own = self.page_bytes;
                return refuse(format!(
                    "its pages have {own} bytes ({source}), not {bytes}"
                ));
            }
            let mut whole = PAGE_BYTES.contains(&bytes);
            if whole && !self.form.counts_pages() {
                for row in &mut self.slabinfo.rows {
                    let slab = row.pagesperslab.saturating_mul(self.page_bytes);
                    whole &= row.num_slabs == 0 || slab.is_multiple_of(bytes);
                    row.pagesperslab = slab.div_ceil(bytes);
                }
            }
            if !whole || !fit(&self.slabinfo.rows, bytes) {
                return refuse(format!("its slabs do not fit into pages of {bytes} bytes"));
            }
            if told(&self.facts.page_bytes).is_none() {
                (self.page_bytes, self.facts.page_bytes) = (bytes, Origin::Asked);
            }
        }
        Ok(self)
    }

    /// The accuracy that predictions from this snapshot can have.
    #[must_use]
    pub fn detail(&self) -> Detail {
        match self.form.detail() {
            Detail::Slabinfo if self.hidden.is_some() => Detail::Exact,
            Detail::Slabinfo if self.has_sysfs() => Detail::Sysfs,
            detail => detail,
        }
    }

    /// True if `/sys/kernel/slab` was copied. A form that prints some of its files has attributes, too: what it lacks is
    /// not known then.
    #[must_use]
    pub fn has_sysfs(&self) -> bool {
        !self.sysfs.is_empty() && self.form.detail() >= Detail::Slabinfo
    }

    /// The fewest CPUs that the report allows: SLAB has shared arrays on machines with several only.
    #[must_use]
    pub fn cpus_min(&self) -> u32 {
        if facts::is_smp(&self.slabinfo.rows) {
            2
        } else {
            1
        }
    }

    /// True if the cache's objects can be reclaimed, by sysfs or by the name of the directory that merged caches share.
    /// `None` if neither is known.
    #[must_use]
    pub fn is_reclaimable(&self, cache: &str) -> Option<bool> {
        if let Some(attributes) = self.attributes(cache)
            && let Some(flag) = attributes.number("reclaim_account")
        {
            return Some(flag > 0);
        }
        // ":aA-0000192": letters for flags, then the size.
        let (letters, _) = self
            .aliases
            .get(cache)?
            .strip_prefix(':')?
            .rsplit_once('-')
            .unwrap_or_default();
        Some(letters.contains('a'))
    }

    /// The attributes of a cache by its name in slabinfo.
    #[must_use]
    pub fn attributes(&self, cache: &str) -> Option<&CacheAttributes> {
        let own = self.aliases.get(cache).map_or(cache, String::as_str);
        self.sysfs.get(own).or_else(|| self.sysfs.get(cache))
    }

    /// The hidden state of a cache by its name in slabinfo, if a debugger read it.
    #[must_use]
    pub fn hidden(&self, cache: &str) -> Option<&HiddenCache> {
        self.hidden.as_ref()?.caches.get(cache)
    }

    /// Slabs on each CPU's partial list of a row's cache, if sysfs counted them at the moment of the row.
    #[must_use]
    pub fn cpu_partial_lists(&self, row: &SlabinfoRow) -> Option<BTreeMap<u32, u64>> {
        self.counted_with(row)?.cpu_partial_lists()
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
    /// slabs and objects in use as the report; of others only sizes, limits and flags stay. What a debugger read stays
    /// for caches whose row is the same.
    #[must_use]
    pub fn at(mut self, report: Slabinfo) -> Self {
        let before = &self.slabinfo;
        let is_same = |name: &str| {
            report
                .row(name)
                .is_some_and(|row| before.row(name) == Some(row))
        };
        if let Some(hidden) = &mut self.hidden {
            hidden.caches.retain(|name, _| is_same(name));
        }
        if let Some(places) = &mut self.slab_blocks {
            places.retain(is_same);
        }
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
        let numbers = self.boot_values(names);
        numbers.filter_map(|value| value.parse().ok()).next_back()
    }

    /// The values that a parameter of the kernel's command line has under any of its names, in their order; empty ones
    /// where there is none.
    pub fn boot_values<'a>(&'a self, names: &[&str]) -> impl DoubleEndedIterator<Item = &'a str> {
        let words = self.cmdline.as_deref().unwrap_or_default();
        let parameters = words.split_whitespace();
        let parameters = parameters.map(|word| word.split_once('=').unwrap_or((word, "")));
        parameters
            .filter(|(name, _)| names.contains(name))
            .map(|(_, value)| value)
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

/// True if all slabs fit in pages of a size.
fn fit(rows: &[SlabinfoRow], page_bytes: u64) -> bool {
    rows.iter().all(|row| {
        let slab = row.pagesperslab.saturating_mul(page_bytes);
        row.objsize.saturating_mul(row.objperslab) <= slab
    })
}

#[cfg(test)]
mod tests;
