//! A snapshot of this machine.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use quarry_core::page::SYSCTLS;
use quarry_trace::record::now_ns;
use serde_json::{Map, Value, json};

use super::{Snapshot, folder};
use crate::allocinfo;
use crate::blocks::BlockMap;
use crate::buddyinfo::Pagetypeinfo;
use crate::file::{ReportError, at, explain_permission};
use crate::forms::Form;
use crate::slabinfo::Slabinfo;

/// Texts of the kernel by their key.
const TEXTS: [(&str, &str); 10] = [
    // From 6.1 on.
    ("architecture", "/proc/sys/kernel/arch"),
    ("kernel_release", "/proc/sys/kernel/osrelease"),
    ("boot_id", "/proc/sys/kernel/random/boot_id"),
    ("cmdline", "/proc/cmdline"),
    ("cpu_possible", "/sys/devices/system/cpu/possible"),
    ("cpu_present", "/sys/devices/system/cpu/present"),
    ("cpu_online", "/sys/devices/system/cpu/online"),
    ("node_online", "/sys/devices/system/node/online"),
    ("meminfo", "/proc/meminfo"),
    ("allocinfo", "/proc/allocinfo"),
];

/// The largest kmalloc that has a class with pages of 4 KiB: what is larger has one with larger pages.
const LARGEST_CLASS: u64 = 8192;

/// The file with the labels of blocks: the kinds of pages that they are for.
const LABELS: &str = "/proc/pagetypeinfo";

/// Sysctls that the page allocator depends on, beside those that Quarry has as tunables.
const OTHER_SYSCTLS: [&str; 4] = [
    "lowmem_reserve_ratio",
    "stat_interval",
    "watermark_boost_factor",
    "watermark_scale_factor",
];

impl Snapshot {
    /// Takes a snapshot of this machine's kernel: JSON of one moment. slabinfo is read first, so
    /// that reading the many files of sysfs, which itself allocates, is not in it.
    ///
    /// # Errors
    ///
    /// [`ReportError::Read`] where the kernel does not let us, or has no slabinfo.
    pub fn take() -> Result<Value, ReportError> {
        let root = Path::new("/");
        let mut taken = Self::take_from(root)?;
        if let Value::Object(moment) = &mut taken {
            add_blocks(root, moment);
        }
        Ok(taken)
    }

    /// Reads this computer, as a file with what [`Self::take`] gives is read, but without the map of its memory. Where its slabs cannot be
    /// read, as without root, it has the sums of meminfo.
    ///
    /// # Errors
    ///
    /// [`ReportError`] as [`Self::take`].
    pub fn now() -> Result<Self, ReportError> {
        Self::now_from(Path::new("/"))
    }

    /// Adds the map of this computer's memory and the labels of its blocks, or a note on why there are none. The kernel takes 50 to 100 ns
    /// for each page.
    #[must_use]
    pub fn with_blocks(mut self) -> Self {
        let mut read = || {
            self.blocks = Some(BlockMap::read(Path::new("/"), self.page_bytes)?);
            let labels = Self::read_file(Path::new("/"), LABELS)?;
            self.pagetypeinfo = Some(Pagetypeinfo::parse(LABELS, &labels)?);
            Ok(())
        };
        if let Err(error) = read() {
            self.notes.push(no_blocks(&error));
        }
        self
    }

    pub(super) fn now_from(root: &Path) -> Result<Self, ReportError> {
        let name = "this computer";
        let denied = match Self::take_from(root) {
            Err(error @ ReportError::Read { .. }) => error,
            taken => return Self::of_taken(name, taken?),
        };
        let mut moment = Form::Meminfo.named();
        moment.extend(texts(root));
        moment.extend(page_size(root));
        if !moment.contains_key("meminfo") {
            return Err(denied);
        }
        moment.insert("notes".to_string(), json!([denied.to_string()]));
        Self::of_taken(name, Value::Object(moment))
    }

    pub(super) fn of_taken(file: &str, taken: Value) -> Result<Self, ReportError> {
        let moments = match taken {
            Value::Object(moment) => vec![moment],
            _ => Vec::new(),
        };
        Self::of_moments(file, &moments, None).map(Self::last)
    }

    pub(super) fn take_from(root: &Path) -> Result<Value, ReportError> {
        let time_ns = now_ns();
        let slabinfo = Self::read_file(root, "/proc/slabinfo")?;
        Self::of_parts(time_ns, &slabinfo, Self::read_machine(root)?)
    }

    /// Reads a file of this machine.
    pub(crate) fn read_file(root: &Path, path: &str) -> Result<String, ReportError> {
        let path = at(root, path);
        let file = path.display().to_string();
        fs::read_to_string(path)
            .map_err(|source| explain_permission(ReportError::Read { file, source }))
    }

    /// Reads all parts of a snapshot but slabinfo.
    pub(crate) fn read_machine(root: &Path) -> Result<Map<String, Value>, ReportError> {
        let mut snapshot: Map<String, Value> = texts(root).collect();
        let known = SYSCTLS.rows.iter().map(|row| row.tunable.name);
        let sysctls = known.chain(OTHER_SYSCTLS).filter_map(|name| {
            let value = fs::read_to_string(at(root, &format!("/proc/sys/vm/{name}"))).ok()?;
            Some((format!("vm.{name}"), json!(value.trim())))
        });
        snapshot.insert("sysctls".to_string(), Value::Object(sysctls.collect()));
        snapshot.extend(page_size(root));
        // SLAB and SLOB have no such folder.
        if let Some(found) = folder::directories(&at(root, "/sys/kernel/slab")) {
            folder::add_directories(&mut snapshot, &found.map_err(explain_permission)?);
        }
        Ok(snapshot)
    }

    /// Makes the snapshot of a slabinfo, read at a moment, and of the rest of the machine.
    pub(crate) fn of_parts(
        time_ns: u64,
        slabinfo: &str,
        machine: Map<String, Value>,
    ) -> Result<Value, ReportError> {
        let mut snapshot = machine;
        let unix_time = SystemTime::now().duration_since(UNIX_EPOCH);
        let unix_time_s = unix_time.map_or(0, |time| time.as_secs());
        snapshot.insert("unix_time_s".to_string(), json!(unix_time_s));
        snapshot.insert("monotonic_ns".to_string(), json!(time_ns));
        let rows = Slabinfo::parse_text("/proc/slabinfo", slabinfo)?;
        snapshot.insert("slabinfo".to_string(), json!(rows));
        snapshot.insert("slabinfo_text".to_string(), json!(slabinfo));
        Ok(Value::Object(snapshot))
    }
}

/// Texts of the machine that can be read, by their key.
fn texts(root: &Path) -> impl Iterator<Item = (String, Value)> {
    TEXTS.into_iter().filter_map(move |(key, path)| {
        let text = fs::read_to_string(at(root, path)).ok()?;
        let text = match key {
            "meminfo" => text,
            "allocinfo" => allocinfo::lines_above(&text, LARGEST_CLASS),
            _ => text.trim().to_string(),
        };
        Some((key.to_string(), json!(text)))
    })
}

/// The size of a page, by its key.
fn page_size(root: &Path) -> Option<(String, Value)> {
    let page_bytes = quarry_trace::record::page_bytes(&at(root, "/proc/self/auxv"))?;
    Some(("page_size".to_string(), json!(page_bytes)))
}

/// Adds the map of a machine's memory and the labels of its blocks to a moment, or a note on why there is none.
pub(crate) fn add_blocks(root: &Path, moment: &mut Map<String, Value>) {
    let page_bytes = moment.get("page_size").and_then(Value::as_u64);
    let mut read = || {
        let map = BlockMap::read(root, page_bytes.unwrap_or(0))?;
        moment.insert("blocks".to_string(), json!(map.to_string()));
        let labels = Snapshot::read_file(root, LABELS)?;
        moment.insert("pagetypeinfo".to_string(), json!(labels));
        Ok(())
    };
    if let Err(error) = read() {
        moment.insert("notes".to_string(), json!([no_blocks(&error)]));
    }
}

fn no_blocks(error: &ReportError) -> String {
    format!("blocks of memory are not all known: {error}")
}
