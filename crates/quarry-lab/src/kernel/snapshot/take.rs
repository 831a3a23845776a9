//! A snapshot of this machine.

use std::fs;
use std::io;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::{Snapshot, folder};
use crate::kernel::file::ReportError;
use crate::kernel::slabinfo::Slabinfo;

/// Texts of the kernel by their key.
const TEXTS: [(&str, &str); 7] = [
    ("kernel_release", "/proc/sys/kernel/osrelease"),
    ("cmdline", "/proc/cmdline"),
    ("cpu_possible", "/sys/devices/system/cpu/possible"),
    ("cpu_present", "/sys/devices/system/cpu/present"),
    ("cpu_online", "/sys/devices/system/cpu/online"),
    ("node_online", "/sys/devices/system/node/online"),
    ("meminfo", "/proc/meminfo"),
];

impl Snapshot {
    /// Takes a snapshot of this machine's kernel: JSON of one moment. slabinfo is read first, so
    /// that reading the many files of sysfs, which itself allocates, is not in it.
    ///
    /// # Errors
    ///
    /// [`ReportError::Read`] where the kernel does not let us, or has no slabinfo.
    pub fn take() -> Result<Value, ReportError> {
        Self::take_from(Path::new("/"))
    }

    pub(super) fn take_from(root: &Path) -> Result<Value, ReportError> {
        let at = |path: &str| root.join(path.trim_start_matches('/'));
        let slabinfo = read_as_root(&at("/proc/slabinfo"))?;
        let mut snapshot = Map::new();
        for (key, path) in TEXTS {
            if let Ok(text) = fs::read_to_string(at(path)) {
                let text = if key == "meminfo" { &text } else { text.trim() };
                snapshot.insert(key.to_string(), json!(text));
            }
        }
        if let Some(page_bytes) = quarry_trace::record::page_bytes(&at("/proc/self/auxv")) {
            snapshot.insert("page_size".to_string(), json!(page_bytes));
        }
        let rows = Slabinfo::parse_text("/proc/slabinfo", &slabinfo)?;
        snapshot.insert("slabinfo".to_string(), json!(rows));
        snapshot.insert("slabinfo_text".to_string(), json!(slabinfo));
        // SLAB and SLOB have no such folder.
        if let Some(found) = folder::directories(&at("/sys/kernel/slab")) {
            folder::add_directories(&mut snapshot, &found.map_err(explain_permission)?);
        }
        Ok(Value::Object(snapshot))
    }
}

fn read_as_root(path: &Path) -> Result<String, ReportError> {
    let file = path.display().to_string();
    fs::read_to_string(path)
        .map_err(|source| explain_permission(ReportError::Read { file, source }))
}

/// Says what to do where the kernel lets only root read.
fn explain_permission(error: ReportError) -> ReportError {
    match error {
        ReportError::Read { file, source } if source.kind() == io::ErrorKind::PermissionDenied => {
            let what = "only root may read it: run quarry snapshot as root";
            let source = io::Error::new(source.kind(), what);
            ReportError::Read { file, source }
        }
        error => error,
    }
}
