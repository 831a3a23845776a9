//! Snapshots as JSON: of one moment, and of a boot in stages.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Excerpt, OomSums, Snapshot, meminfo};
use crate::allocinfo;
use crate::blocks::{BlockMap, SlabBlocks};
use crate::buddyinfo::{Buddyinfo, Pagetypeinfo};
use crate::facts::Origin;
use crate::failures;
use crate::file::ReportError;
use crate::forms::Form;
use crate::hidden::HiddenState;
use crate::machine;
use crate::page_owner::PageOwners;
use crate::slabinfo::Slabinfo;
use crate::sysfs::CacheAttributes;
use quarry_designs::list;

type Object = Map<String, Value>;

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

fn moment(file: &str, root: &Object) -> Result<Snapshot, ReportError> {
    let slabinfo = match (root.get("slabinfo"), text(root, "slabinfo_text")) {
        (Some(rows), _) => Slabinfo::parse_json(file, rows)?,
        (None, Some(text)) => Slabinfo::parse_text(file, text)?,
        (None, None) if root.contains_key("form") || text(root, "blocks").is_some() => {
            Slabinfo::default()
        }
        (None, None) => {
            let what = "neither \"slabinfo\", \"slabinfo_text\" nor \"stages\" is in it: `quarry snapshot` makes one, \
                        `sudo cat /proc/slabinfo > FILE` has the caches";
            return Err(ReportError::bad(file, "snapshot", what));
        }
    };
    let mut snapshot = Snapshot {
        slabinfo,
        sysfs: attributes(file, root.get("sysfs_slab"))?,
        aliases: aliases(root.get("sysfs_aliases")),
        ..Snapshot::default()
    };
    snapshot.hidden =
        hidden(root, &snapshot.slabinfo).map_err(|what| ReportError::bad(file, "hidden", what))?;
    let part = |what: serde_json::Error| ReportError::bad(file, "snapshot", what);
    let member = |key: &str| root.get(key).filter(|value| !value.is_null());
    if let Some(excerpt) = member("excerpt") {
        snapshot.excerpt = Some(Excerpt::deserialize(excerpt).map_err(part)?);
    }
    if let Some(bytes) = member("cache_bytes") {
        snapshot.cache_bytes = Vec::deserialize(bytes).map_err(part)?;
    }
    if let Some(sums) = member("oom") {
        snapshot.oom = Some(OomSums::deserialize(sums).map_err(part)?);
    }
    snapshot.page_failures = text(root, failures::KEY)
        .map(failures::read)
        .unwrap_or_default();
    if let Some(owners) = member("page_owners") {
        snapshot.page_owners = Some(PageOwners::deserialize(owners).map_err(part)?);
    }
    meta(&mut snapshot, root).map_err(|what| ReportError::bad(file, "snapshot", what))?;
    if let Some(places) = member("slab_blocks") {
        let places = SlabBlocks::of_json(places, &snapshot.slabinfo, snapshot.page_bytes);
        let places = places.map_err(|what| ReportError::bad(file, "slab_blocks", what))?;
        snapshot.slab_blocks = Some(places);
    }
    snapshot.check_sheaves();
    Ok(snapshot)
}

/// The hidden state, which has to be of the report's moment.
fn hidden(root: &Object, report: &Slabinfo) -> Result<Option<HiddenState>, String> {
    let Some(value) = root.get("hidden") else {
        return Ok(None);
    };
    let hidden = HiddenState::deserialize(value).map_err(|error| error.to_string())?;
    hidden.check(report)?;
    Ok(Some(hidden))
}

/// Facts about the machine, outside the caches.
fn meta(snapshot: &mut Snapshot, root: &Object) -> Result<(), String> {
    let number_of = |key: &str| {
        let value = root.get(key)?;
        let number = value.as_u64();
        let number = number.or_else(|| value.as_str()?.trim().parse().ok());
        Some(number.ok_or_else(|| format!("{key}: {value} is not a number")))
    };
    if let Some(form) = text(root, "form") {
        snapshot.form = Form::of_key(form).ok_or_else(|| format!("form: {form:?} is not known"))?;
    } else if !["slabinfo", "slabinfo_text"]
        .iter()
        .any(|key| root.contains_key(*key))
    {
        snapshot.form = Form::without_slabs(root).unwrap_or_default();
    }
    if let Some(Value::Array(notes)) = root.get("notes") {
        let notes = notes.iter().filter_map(Value::as_str);
        snapshot.notes = notes.map(str::to_string).collect();
    }
    if let Some(page_size) = number_of("page_size") {
        snapshot.page_bytes = page_size?;
        snapshot.facts.page_bytes = source(root, "page_size");
    }
    let trimmed = |key| text(root, key).map(|text| text.trim().to_string());
    let log = text(root, "dmesg").unwrap_or_default();
    (snapshot.release, snapshot.facts.release) = first_told(
        root,
        &[
            ("kernel_release", |text| {
                let text = text.trim();
                (!text.is_empty()).then(|| text.to_string())
            }),
            ("version", machine::release_of_version),
            ("uname", machine::release_of_uname),
            ("dmesg", machine::release_of_version),
            ("dmesg", machine::release_of_report),
        ],
    );
    (snapshot.cmdline, snapshot.facts.cmdline) = match trimmed("cmdline") {
        Some(cmdline) => (Some(cmdline), source(root, "cmdline")),
        None => match machine::cmdline_of_log(log) {
            Some(cmdline) => (Some(cmdline), source(root, "dmesg")),
            None => (None, Origin::Unknown),
        },
    };
    snapshot.config = text(root, "config")
        .map(machine::options)
        .unwrap_or_default();
    architecture(snapshot, root);
    let uname = || machine::host_of_uname(text(root, "uname")?);
    snapshot.host = trimmed("host").or_else(uname);
    snapshot.listed_in = trimmed("listed_in");
    snapshot.ordered_by = trimmed("ordered_by");
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
    if snapshot.memory_bytes.is_some() {
        snapshot.facts.memory = source(root, "meminfo");
    }
    snapshot.reclaimable_bytes = in_meminfo("SReclaimable");
    snapshot.unreclaimable_bytes = in_meminfo("SUnreclaim");
    snapshot.kernel_stack_bytes = in_meminfo("KernelStack");
    snapshot.call_sites = text(root, "allocinfo")
        .map(allocinfo::call_sites)
        .unwrap_or_default();
    // They say nothing of slabs: a damaged one is no reason to refuse them.
    let mut passed_over = |error: ReportError| snapshot.notes.push(format!("passed over: {error}"));
    let blocks = text(root, "blocks").map(|found| BlockMap::parse("blocks", found));
    snapshot.blocks = blocks.and_then(|found| found.map_err(&mut passed_over).ok());
    let types = text(root, "pagetypeinfo").map(|found| Pagetypeinfo::parse("pagetypeinfo", found));
    let types = types.and_then(|found| found.map_err(&mut passed_over).ok());
    let free = text(root, "buddyinfo").map(|found| Buddyinfo::parse("buddyinfo", found));
    let free = free.and_then(|found| found.map_err(&mut passed_over).ok());
    snapshot.buddyinfo = free.or_else(|| types.as_ref().map(Pagetypeinfo::zones));
    if let (None, Some(cut)) = (&snapshot.buddyinfo, text(root, "pagetypeinfo")) {
        snapshot.buddyinfo = Pagetypeinfo::zones_of_cut(cut);
        let note = "free pages are of the types that pagetypeinfo lists before it is cut";
        snapshot
            .notes
            .extend(snapshot.buddyinfo.is_some().then(|| note.to_string()));
    }
    snapshot.pagetypeinfo = types;
    snapshot.managed_pages = number_of("managed_pages").transpose()?;
    cpus(snapshot, root)
}

/// Origin of what a key says: the file that its text is of.
fn source(root: &Object, key: &str) -> Origin {
    let sources = root.get("sources").and_then(Value::as_object);
    let path = sources.and_then(|sources| text(sources, key));
    Origin::told(path.unwrap_or(key))
}

/// Parser of a text, which may not say what it is asked for.
type Parse = fn(&str) -> Option<String>;

/// Value of the first text that says it.
fn first_told(root: &Object, texts: &[(&str, Parse)]) -> (Option<String>, Origin) {
    let mut told = texts.iter().filter_map(|(key, parse)| {
        let value = parse(text(root, key)?)?;
        Some((Some(value), source(root, key)))
    });
    told.next().unwrap_or_default()
}

/// The architecture, of `uname`, the release, the configuration or lscpu.
fn architecture(snapshot: &mut Snapshot, root: &Object) {
    let owned = |name: &'static str| Some(name.to_string());
    let (told, origin) = first_told(
        root,
        &[
            ("architecture", |text| Some(text.trim().to_string())),
            ("uname", |text| {
                machine::architecture_of_uname(text).map(str::to_string)
            }),
            ("lscpu", |text| {
                machine::field(text, "Architecture").map(str::to_string)
            }),
        ],
    );
    let of_release = snapshot.release.as_deref();
    let of_release = of_release.and_then(machine::architecture_of_release);
    let of_config = machine::architecture_of_options(&snapshot.config);
    (snapshot.architecture, snapshot.facts.architecture) = match (told, of_config, of_release) {
        (Some(told), _, _) => (Some(told), origin),
        (None, Some(name), _) => (owned(name), source(root, "config")),
        (None, None, Some(name)) => (owned(name), snapshot.facts.release.clone()),
        (None, None, None) => (None, Origin::Unknown),
    };
}

/// The numbers of CPUs.
fn cpus(snapshot: &mut Snapshot, root: &Object) -> Result<(), String> {
    let list = |key: &str| {
        let cpus = text(root, key).map(machine::cpus).transpose();
        cpus.map_err(|what| format!("{key}: {what}"))
    };
    let (possible, present) = (list("cpu_possible")?, list("cpu_present")?);
    let processors = text(root, "cpuinfo").and_then(machine::processors);
    let lscpu = || machine::field(text(root, "lscpu")?, "CPU(s)")?.parse().ok();
    let log = text(root, "dmesg").and_then(machine::possible_of_log);
    (snapshot.present_cpus, snapshot.facts.present_cpus) = match (present, processors) {
        (Some((count, _)), _) => (Some(count), source(root, "cpu_present")),
        (None, Some(count)) => (Some(count), source(root, "cpuinfo")),
        (None, None) => match (lscpu(), possible, log) {
            (Some(count), _, _) => (Some(count), source(root, "lscpu")),
            (None, Some((count, _)), _) => {
                let reason = "as many as are possible";
                (Some(count), Origin::inferred(reason))
            }
            (None, None, Some(count)) => {
                let reason = "as many as are possible, by the kernel's log";
                (Some(count), Origin::inferred(reason))
            }
            (None, None, None) => (None, Origin::Unknown),
        },
    };
    (snapshot.nr_cpu_ids, snapshot.facts.nr_cpu_ids) = match (possible, log, present) {
        (Some((_, ids)), _, _) => (Some(ids), source(root, "cpu_possible")),
        (None, Some(ids), _) => (Some(ids), source(root, "dmesg")),
        (None, None, Some((_, ids))) => (Some(ids), Origin::inferred("as many as are present")),
        (None, None, None) => match snapshot.present_cpus {
            Some(cpus) => (Some(cpus), Origin::inferred("as many as are present")),
            None => (None, Origin::Unknown),
        },
    };
    Ok(())
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
    let told = |key: &str| match of_boot(key) {
        Some(_) => Origin::told(key),
        None => Origin::Unknown,
    };
    snapshot.facts.release = told("version");
    snapshot.facts.cmdline = told("cmdline");
    snapshot.facts.memory = match snapshot.memory_bytes {
        Some(_) => Origin::told("meminfo_kB"),
        None => Origin::Unknown,
    };
    if snapshot.page_bytes > 0 {
        snapshot.facts.page_bytes = Origin::told("page_kB");
    }
    architecture(&mut snapshot, root);
    let cpus = of_boot_text("cpus").unwrap_or_default();
    let cpus_line = |word: &str| {
        let mut lines = cpus.lines().map(str::trim);
        lines
            .find_map(|line| line.strip_prefix(word))
            .map(str::trim)
    };
    let mut lists = Object::new();
    for (key, line) in [("cpu_possible", "possible"), ("cpu_present", "present")] {
        if let Some(list) = cpus_line(line) {
            lists.insert(key.to_string(), list.into());
        }
    }
    self::cpus(&mut snapshot, &lists).map_err(bad)?;
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
