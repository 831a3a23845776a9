//! Folders and archives: copies of `/proc`, sosreports, and folders with Quarry's own names.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::file::{ReportError, read_report};
use crate::machine;
use crate::paste;
use crate::slabinfo::Slabinfo;
use crate::snapshot::folder;
use crate::sysfs::CacheAttributes;
use crate::unpack::Files;

use super::{Form, Moment};

/// A folder, or an archive that was read.
pub(crate) enum Tree {
    Folder(PathBuf),
    Archive(Files),
}

/// Paths at which a text is, by its key: the first that exists counts. Those before the break are of Quarry's folders.
const TEXTS: [(&str, &[&str]); 20] = [
    ("page_size", &["page_size"]),
    (
        "kernel_release",
        &[
            "kernel_release",
            "proc/sys/kernel/osrelease",
            "sys/kernel/osrelease",
        ],
    ),
    ("version", &["version", "proc/version"]),
    (
        "uname",
        &[
            "uname_-a",
            "sos_commands/kernel/uname_-a",
            "sos_commands/general/uname_-a",
            "uname",
        ],
    ),
    (
        "cpu_possible",
        &["cpu_possible", "sys/devices/system/cpu/possible"],
    ),
    (
        "cpu_present",
        &["cpu_present", "sys/devices/system/cpu/present"],
    ),
    ("cpuinfo", &["cpuinfo", "proc/cpuinfo"]),
    ("lscpu", &["lscpu", "sos_commands/processor/lscpu"]),
    ("meminfo", &["meminfo", "proc/meminfo"]),
    ("cmdline", &["cmdline", "proc/cmdline"]),
    ("allocinfo", &["allocinfo", "proc/allocinfo"]),
    ("buddyinfo", &["buddyinfo", "proc/buddyinfo"]),
    ("pagetypeinfo", &["pagetypeinfo", "proc/pagetypeinfo"]),
    ("blocks", &["blocks"]),
    ("boot_id", &["boot_id", "proc/sys/kernel/random/boot_id"]),
    ("config", &["config"]),
    ("zoneinfo", &["zoneinfo", "proc/zoneinfo"]),
    (
        "dmesg",
        &["dmesg", "sos_commands/kernel/dmesg", "var/log/dmesg"],
    ),
    ("sysctl", &["sysctl_-a", "sos_commands/kernel/sysctl_-a"]),
    (
        "listing",
        &[
            "sos_commands/kernel/ls_-lanR_.sys.kernel.slab",
            "sos_commands/kernel/ls_-lt_.sys.kernel.slab",
            "sos_commands/memory/ls_-lanR_.sys.kernel.slab",
        ],
    ),
];

/// Folders in which a kernel's configuration is, as `config-RELEASE`.
const CONFIG_FOLDERS: [&str; 2] = ["boot", ""];
/// Paths of slabinfo.
const SLABINFO: [&str; 2] = ["slabinfo", "proc/slabinfo"];
/// Folders with a directory for each cache.
const SYSFS: [&str; 2] = ["slab", "sys/kernel/slab"];

/// True if a file of an archive can matter.
pub(crate) fn wanted(path: &str) -> bool {
    let at_end = |end: &str| {
        let before = path.strip_suffix(end);
        before.is_some_and(|before| before.is_empty() || before.ends_with('/'))
    };
    let name = path.rsplit('/').next().unwrap_or_default();
    let texts = TEXTS.iter().flat_map(|(_, paths)| paths.iter());
    texts.chain(&SLABINFO).any(|end| at_end(end))
        || at_end("meta.json")
        || at_end("sos_commands/memory/slabtop_-o")
        || name.starts_with("config-")
        || path.starts_with("slab/")
        || path.contains("/slab/")
        || is_bugreport(path)
}

/// True for the text of an Android bug report in its zip.
pub(crate) fn is_bugreport(path: &str) -> bool {
    let named = ["bugreport", "dumpstate"];
    let text = path.strip_suffix(".txt");
    text.is_some_and(|text| !text.contains('/') && named.iter().any(|name| text.starts_with(name)))
}

impl Tree {
    fn text(&self, path: &str) -> Result<Option<String>, ReportError> {
        match self {
            Self::Folder(folder) => {
                let path = folder.join(path);
                path.is_file().then(|| read_report(&path)).transpose()
            }
            Self::Archive(files) => Ok(files.texts.get(path).cloned()),
        }
    }

    /// Names of the files in a folder.
    fn names(&self, folder: &str) -> Vec<String> {
        match self {
            Self::Folder(root) => {
                let entries = fs::read_dir(root.join(folder)).into_iter().flatten();
                let names = entries.flatten().map(|entry| entry.file_name());
                let mut names: Vec<String> = names
                    .map(|name| name.to_string_lossy().into_owned())
                    .collect();
                names.sort_unstable();
                names
            }
            Self::Archive(files) => {
                let prefix = join(folder, "");
                let paths = files
                    .texts
                    .keys()
                    .filter_map(|path| path.strip_prefix(&prefix));
                let paths = paths.filter(|name| !name.contains('/'));
                paths.map(str::to_string).collect()
            }
        }
    }

    /// Folders in which everything else is: this one, or those in it.
    fn bases(&self) -> Vec<String> {
        let mut bases = vec![String::new()];
        match self {
            Self::Folder(root) => {
                let entries = fs::read_dir(root).into_iter().flatten().flatten();
                let folders = entries.filter(|entry| entry.path().is_dir());
                let mut names: Vec<String> = folders
                    .map(|entry| entry.file_name().to_string_lossy().into_owned())
                    .collect();
                names.sort_unstable();
                bases.extend(names);
            }
            Self::Archive(files) => {
                // The folder of proc/ before proc/ itself.
                for end in [
                    "/proc/slabinfo",
                    "/slabinfo",
                    "/sos_commands/memory/slabtop_-o",
                    "/proc/meminfo",
                ] {
                    let paths = files.texts.keys();
                    let found = paths.filter_map(|path| path.strip_suffix(end));
                    bases.extend(found.map(str::to_string));
                }
            }
        }
        bases
    }

    /// Attributes and aliases of caches.
    fn directories(&self, at: &str) -> Option<Result<folder::Directories, ReportError>> {
        match self {
            Self::Folder(root) => folder::directories(&root.join(at)),
            Self::Archive(files) => {
                let prefix = join(at, "");
                let mut found = folder::Directories::default();
                for (path, text) in &files.texts {
                    let parts = path
                        .strip_prefix(&prefix)
                        .and_then(|rest| rest.split_once('/'));
                    if let Some((cache, file)) = parts.filter(|(_, file)| !file.contains('/')) {
                        let attributes: &mut CacheAttributes =
                            found.0.entry(cache.to_string()).or_default();
                        attributes.set(file, text);
                    }
                }
                for (path, target) in &files.links {
                    let name = path
                        .strip_prefix(&prefix)
                        .filter(|name| !name.contains('/'));
                    let own = target.rsplit('/').next();
                    found.1.extend(
                        name.zip(own)
                            .map(|(name, own)| (name.to_string(), own.to_string())),
                    );
                }
                (!found.0.is_empty() || !found.1.is_empty()).then_some(Ok(found))
            }
        }
    }
}

fn join(folder: &str, name: &str) -> String {
    match folder {
        "" => name.to_string(),
        folder => format!("{folder}/{name}"),
    }
}

/// The moment that a folder or an archive has, or the text of a form that it has instead.
pub(crate) fn moment(file: &str, tree: &Tree) -> Result<Moment, ReportError> {
    let mut found: Vec<(String, String, String)> = Vec::new();
    for base in tree.bases() {
        for path in SLABINFO {
            let path = join(&base, path);
            if found.iter().any(|(_, known, _)| *known == path) {
                continue;
            }
            if let Some(text) = tree.text(&path)? {
                found.push((base.clone(), path, text));
                break;
            }
        }
    }
    // In the folder itself, or else in one of its folders.
    let own = found.first().is_some_and(|(base, ..)| base.is_empty());
    match found.as_slice() {
        [(_, first, _), (_, second, _), ..] if !own => {
            let what = format!("{first} and {second} are of two machines: give one of the folders");
            return Err(ReportError::bad(file, "snapshot", what));
        }
        [(base, path, text), ..] => return of_base(file, tree, base, path, text),
        [] => {}
    }
    for base in tree.bases() {
        let path = join(&base, "sos_commands/memory/slabtop_-o");
        if let Some(text) = tree.text(&path)? {
            let mut moment = facts(tree, &base)?;
            let file = format!("{file}/{path}");
            let listed = crate::paste::read(&file, &text)?.pop();
            let listed = listed
                .ok_or_else(|| ReportError::bad(&file, "caches", "it has no table of slabtop"))?;
            moment.extend(listed);
            return Ok(moment);
        }
    }
    // Those who are not root cannot copy more.
    for base in tree.bases() {
        let mut moment = facts(tree, &base)?;
        if let Some(form) = Form::without_slabs(&moment) {
            moment.extend(form.named());
            return Ok(moment);
        }
    }
    Err(ReportError::bad(
        file,
        "snapshot",
        "no slabinfo is in it; a folder or an archive with slabinfo (a copy of /proc/slabinfo) and slab/ (a copy of \
         /sys/kernel/slab), a copy of /proc, or a sosreport is expected; archives in it are not opened",
    ))
}

fn of_base(
    file: &str,
    tree: &Tree,
    base: &str,
    path: &str,
    slabinfo: &str,
) -> Result<Moment, ReportError> {
    let mut moment = meta(file, tree, base)?;
    moment.extend(facts(tree, base)?);
    let rows = Slabinfo::parse(&format!("{file}/{path}"), slabinfo)?;
    for folder in SYSFS {
        if let Some(found) = tree.directories(&join(base, folder)) {
            folder::add_directories(&mut moment, &found?);
            break;
        }
    }
    let form = if moment.contains_key("sos") {
        Form::Sosreport
    } else if path.ends_with("proc/slabinfo") || moment.contains_key("version") {
        Form::Proc
    } else {
        Form::Snapshot
    };
    moment.remove("sos");
    moment.extend(form.moment(&rows));
    Ok(moment)
}

/// `meta.json` of Quarry's folders.
fn meta(file: &str, tree: &Tree, base: &str) -> Result<Moment, ReportError> {
    let path = join(base, "meta.json");
    let Some(text) = tree.text(&path)? else {
        return Ok(Moment::new());
    };
    serde_json::from_str(&text).map_err(|error| {
        let file = Path::new(file).join(&path);
        ReportError::bad(
            &file.display().to_string(),
            format!("line {}", error.line()),
            error,
        )
    })
}

/// Facts about the machine, with the files that they are of.
fn facts(tree: &Tree, base: &str) -> Result<Moment, ReportError> {
    let mut moment = Moment::new();
    let mut sources = Moment::new();
    let mut add = |moment: &mut Moment, key: &str, path: &str, text: &str| {
        let value = match key {
            "cpuinfo" => lines_with(text, &["processor"]),
            "lscpu" => lines_with(text, &["Architecture", "CPU(s):"]),
            "config" => lines_with(text, &["CONFIG_", "# CONFIG_"]),
            "dmesg" => {
                paste::add_failures_of_log(moment, text);
                machine::log_lines(text)
            }
            "zoneinfo" => {
                if let Some(pages) = machine::managed_pages(text) {
                    moment.insert("managed_pages".to_string(), json!(pages));
                }
                return;
            }
            "sysctl" => {
                moment.insert("sysctls".to_string(), json!(machine::sysctls(text)));
                return;
            }
            "listing" => {
                let aliases = machine::aliases_of_listing(text);
                moment.insert("sysfs_aliases".to_string(), json!(aliases));
                return;
            }
            _ => text.to_string(),
        };
        moment.insert(key.to_string(), Value::String(value));
        sources.insert(key.to_string(), json!(path));
    };
    for (key, paths) in TEXTS {
        for path in paths {
            if let Some(text) = tree.text(&join(base, path))? {
                add(&mut moment, key, path, &text);
                if path.starts_with("sos_commands") {
                    moment.insert("sos".to_string(), json!(true));
                }
                break;
            }
        }
    }
    if !moment.contains_key("config")
        && let Some((path, text)) = config(tree, base, &moment)?
    {
        add(&mut moment, "config", &path, &text);
    }
    moment.insert("sources".to_string(), Value::Object(sources));
    Ok(moment)
}

/// The configuration of the kernel that runs, of those that are installed; the only one if its release is not known.
fn config(
    tree: &Tree,
    base: &str,
    moment: &Moment,
) -> Result<Option<(String, String)>, ReportError> {
    let text = |key: &str| moment.get(key).and_then(Value::as_str);
    let release = text("kernel_release").map(|text| text.trim().to_string());
    let release = release.or_else(|| machine::release_of_version(text("version")?));
    let release = release.or_else(|| machine::release_of_uname(text("uname")?));
    for folder in CONFIG_FOLDERS {
        let mut names = tree.names(&join(base, folder));
        names.retain(|name| name.starts_with("config-"));
        let name = match &release {
            Some(release) => names.iter().find(|name| name[7..] == **release),
            None => names.first().filter(|_| names.len() == 1),
        };
        if let Some(name) = name {
            let path = join(folder, name);
            return Ok(tree.text(&join(base, &path))?.map(|text| (path, text)));
        }
    }
    Ok(None)
}

/// The lines that begin with one of some words.
fn lines_with(text: &str, starts: &[&str]) -> String {
    let lines = text.lines().filter(|line| {
        let line = line.trim_start();
        starts.iter().any(|start| line.starts_with(start))
    });
    lines.collect::<Vec<_>>().join("\n")
}
