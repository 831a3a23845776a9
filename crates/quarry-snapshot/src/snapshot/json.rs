//! Snapshots as JSON: of one moment, and of a boot in stages.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{Snapshot, meminfo};
use crate::file::ReportError;
use crate::slabinfo::Slabinfo;
use crate::sysfs::CacheAttributes;
use quarry_designs::list;

type Object = Map<String, Value>;

/// Parses either form.
pub(super) fn parse(file: &str, text: &str, stage: Option<&str>) -> Result<Snapshot, ReportError> {
    let value: Value = serde_json::from_str(text).map_err(|error| {
        let what = format!(
            "{error}; a snapshot is a JSON file (quarry snapshot makes one) or a folder with \
             slabinfo and slab/"
        );
        ReportError::bad(file, format!("line {}", error.line()), what)
    })?;
    match &value {
        Value::Object(root) => of_object(file, root, stage),
        _ => Err(ReportError::bad(file, "line 1", "it is not a JSON object")),
    }
}

/// Reads either form.
pub(super) fn of_object(
    file: &str,
    root: &Object,
    stage: Option<&str>,
) -> Result<Snapshot, ReportError> {
    let in_file = |what: String| ReportError::bad(file, "snapshot", what);
    let mut snapshot = match root.get("stages") {
        Some(Value::Object(stages)) => boot(file, root, stages, stage)?,
        Some(_) => return Err(in_file("stages is not an object".to_string())),
        None => moment(file, root)?,
    };
    snapshot.file = file.to_string();
    Ok(snapshot)
}

fn text<'v>(object: &'v Object, key: &str) -> Option<&'v str> {
    object.get(key).and_then(Value::as_str)
}

/// One moment.
fn moment(file: &str, root: &Object) -> Result<Snapshot, ReportError> {
    let slabinfo = match (root.get("slabinfo"), text(root, "slabinfo_text")) {
        (Some(rows), _) => Slabinfo::parse_json(file, rows)?,
        (None, Some(text)) => Slabinfo::parse_text(file, text)?,
        (None, None) => {
            let what = "neither \"slabinfo\", \"slabinfo_text\" nor \"stages\" is in it";
            return Err(ReportError::bad(file, "snapshot", what));
        }
    };
    let mut snapshot = Snapshot {
        slabinfo,
        sysfs: attributes(file, root.get("sysfs_slab"))?,
        aliases: aliases(root.get("sysfs_aliases")),
        ..Snapshot::default()
    };
    meta(&mut snapshot, root).map_err(|what| ReportError::bad(file, "snapshot", what))?;
    Ok(snapshot)
}

/// Facts about the machine, outside the caches.
fn meta(snapshot: &mut Snapshot, root: &Object) -> Result<(), String> {
    if let Some(page_size) = root.get("page_size") {
        let number = page_size.as_u64();
        let number = number.or_else(|| page_size.as_str()?.trim().parse().ok());
        snapshot.page_bytes =
            number.ok_or_else(|| format!("page_size: {page_size} is not a number"))?;
    }
    let trimmed = |key| text(root, key).map(|text| text.trim().to_string());
    snapshot.release = trimmed("kernel_release");
    snapshot.cmdline = trimmed("cmdline");
    snapshot.boot_id = trimmed("boot_id");
    let number = |key| root.get(key).and_then(Value::as_u64);
    snapshot.unix_time_s = number("unix_time_s");
    snapshot.monotonic_ns = number("monotonic_ns");
    if let Some(Value::Object(sysctls)) = root.get("sysctls") {
        let values = sysctls.iter();
        let values =
            values.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_string())));
        snapshot.sysctls = values.collect();
    }
    let in_meminfo = |name| meminfo(text(root, "meminfo")?, name);
    snapshot.meminfo_slab_bytes = in_meminfo("Slab");
    snapshot.memory_bytes = in_meminfo("MemTotal");
    snapshot.kernel_stack_bytes = in_meminfo("KernelStack");
    snapshot.set_cpus(text(root, "cpu_possible"), text(root, "cpu_present"))
}

/// One stage of a boot.
fn boot(
    file: &str,
    root: &Object,
    stages: &Object,
    stage: Option<&str>,
) -> Result<Snapshot, ReportError> {
    let ordered: Vec<&str> = match root.get("stage_order") {
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => stages.keys().map(String::as_str).collect(),
    };
    let name = stage.or(ordered.first().copied()).unwrap_or_default();
    let Some(Value::Object(at)) = stages.get(name) else {
        let what = format!("no stage {name:?}; stages are {}", list(&ordered));
        return Err(ReportError::bad(file, "stages", what));
    };
    let bad = |what: String| ReportError::bad(file, format!("stage {name}"), what);
    // What only one stage has is of the whole boot.
    let of_boot = |key: &str| {
        at.get(key)
            .or_else(|| stages.values().find_map(|stage| stage.get(key)))
    };
    let of_boot_text = |key: &str| of_boot(key).and_then(Value::as_str);
    let rows = at
        .get("slabinfo")
        .ok_or_else(|| bad("it has no \"slabinfo\"".to_string()))?;
    let in_meminfo = |name| at.get("meminfo_kB")?.get(name)?.as_u64()?.checked_mul(1024);
    let mut snapshot = Snapshot {
        stage: Some(name.to_string()),
        slabinfo: Slabinfo::parse_json(file, rows)?,
        sysfs: stage_attributes(file, at, of_boot("sysfs_slab"))?,
        aliases: aliases(of_boot("aliases")),
        page_bytes: root
            .get("page_kB")
            .and_then(Value::as_u64)
            .map_or(0, |kb| kb.saturating_mul(1024)),
        // "Linux version 6.1.0-50-powerpc64le (...) ..."
        release: of_boot_text("version")
            .and_then(|version| version.split_whitespace().nth(2))
            .map(str::to_string),
        cmdline: of_boot_text("cmdline").map(str::to_string),
        meminfo_slab_bytes: in_meminfo("Slab"),
        memory_bytes: in_meminfo("MemTotal"),
        kernel_stack_bytes: in_meminfo("KernelStack"),
        ..Snapshot::default()
    };
    let cpus = of_boot_text("cpus").unwrap_or_default();
    let cpus_line = |word: &str| {
        let mut lines = cpus.lines().map(str::trim);
        lines
            .find_map(|line| line.strip_prefix(word))
            .map(str::trim)
    };
    snapshot
        .set_cpus(cpus_line("possible"), cpus_line("present"))
        .map_err(bad)?;
    Ok(snapshot)
}

/// A stage's attributes: its own, or the boot's with what has changed. If it has neither, counts
/// are not known.
fn stage_attributes(
    file: &str,
    at: &Object,
    boot: Option<&Value>,
) -> Result<BTreeMap<String, CacheAttributes>, ReportError> {
    let mut caches = attributes(file, boot)?;
    if at.contains_key("sysfs_slab") {
        return Ok(caches);
    }
    let Some(changed) = at.get("sysfs_slab_changed_since_boot") else {
        caches.values_mut().for_each(CacheAttributes::forget_counts);
        return Ok(caches);
    };
    for (cache, changed) in attributes(file, Some(changed))? {
        let into = caches.entry(cache).or_default();
        changed.iter().for_each(|(file, text)| into.set(file, text));
    }
    Ok(caches)
}

fn attributes(
    file: &str,
    value: Option<&Value>,
) -> Result<BTreeMap<String, CacheAttributes>, ReportError> {
    let mut caches = BTreeMap::new();
    let caches_of = match value {
        None | Some(Value::Null) => return Ok(caches),
        Some(Value::Object(caches_of)) => caches_of,
        Some(_) => {
            let what = "an object is expected: cache, then file, then value";
            return Err(ReportError::bad(file, "sysfs_slab", what));
        }
    };
    for (cache, files) in caches_of {
        let Value::Object(files) = files else {
            let what = format!("{cache}: an object with the cache's files is expected");
            return Err(ReportError::bad(file, "sysfs_slab", what));
        };
        let mut attributes = CacheAttributes::default();
        for (name, value) in files {
            match value {
                Value::String(text) => attributes.set(name, text),
                Value::Null => {}
                other => attributes.set(name, &other.to_string()),
            }
        }
        caches.insert(cache.clone(), attributes);
    }
    Ok(caches)
}

fn aliases(value: Option<&Value>) -> BTreeMap<String, String> {
    let Some(Value::Object(aliases)) = value else {
        return BTreeMap::new();
    };
    aliases
        .iter()
        .filter_map(|(alias, own)| Some((alias.clone(), own.as_str()?.to_string())))
        .collect()
}
