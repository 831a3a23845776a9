//! The allocators, and runs of this program on them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use crate::measure::Measured;

/// The allocator that the others are compared with.
pub(crate) const REFERENCE: &str = "mimalloc";
/// The same once more: its ratio is the noise.
pub(crate) const NULL: &str = "mimalloc again";
/// Our allocator.
pub(crate) const OURS: &str = "magazine";

/// Allocators that are found where distributions install them.
const KNOWN: [(&str, &str); 4] = [
    (REFERENCE, "libmimalloc.so.2"),
    ("jemalloc", "libjemalloc.so.2"),
    ("tcmalloc", "libtcmalloc_minimal.so.4"),
    ("snmalloc", "libsnmallocshim.so"),
];
const FOLDERS: [&str; 4] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/local/lib",
];

/// An allocator.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) name: String,
    /// The library to preload; none for the C library's.
    library: Option<PathBuf>,
}

impl FromStr for Peer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, path) = text.split_once('=').ok_or("it must be NAME=LIBRARY")?;
        let library = Path::new(path);
        match library.is_file() {
            true => Ok(Self::new(name, Some(library))),
            false => Err(format!("{path}: no such file")),
        }
    }
}

impl Peer {
    fn new(name: &str, library: Option<&Path>) -> Self {
        let (name, library) = (name.to_owned(), library.map(Path::to_path_buf));
        Self { name, library }
    }

    /// Runs a load in a process of its own.
    pub(crate) fn run(&self, load: &str) -> Result<Measured, String> {
        let this = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
        let mut child = Command::new(this);
        child.args(["--child", load]).env_remove("LD_PRELOAD");
        if let Some(library) = &self.library {
            child.env("LD_PRELOAD", library);
        }
        let output = child.output();
        let output = output.map_err(|error| format!("{load} on {}: {error}", self.name))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let value = serde_json::from_str(&text).ok();
        let measured = value.as_ref().and_then(Measured::from_json);
        // What the dynamic linker does not take it leaves out, and the program runs without.
        let is_preloaded = !String::from_utf8_lossy(&output.stderr).contains("ld.so");
        measured.filter(|_| is_preloaded).ok_or_else(|| {
            let errors = String::from_utf8_lossy(&output.stderr);
            format!("{load} on {}: {}\n{errors}", self.name, output.status)
        })
    }
}

/// The allocators in the order of the columns: ours, the reference twice, the C library's, then what is installed or given.
pub(crate) fn all(given: &[Peer], only: &[String]) -> Result<Vec<Peer>, String> {
    let mut peers = vec![Peer::new(OURS, Some(&ours()?))];
    let find = |name: &str, file: &str| {
        let given = given.iter().find(|peer| peer.name == name).cloned();
        given.or_else(|| {
            let paths = FOLDERS.map(|folder| Path::new(folder).join(file));
            let path = paths.into_iter().find(|path| path.is_file())?;
            Some(Peer::new(name, Some(&path)))
        })
    };
    let known = KNOWN.iter().filter_map(|(name, file)| find(name, file));
    for peer in known {
        let is_reference = peer.name == REFERENCE;
        peers.push(peer.clone());
        if is_reference {
            let name = NULL.to_owned();
            peers.push(Peer { name, ..peer });
            peers.push(Peer::new("glibc", None));
        }
    }
    let is_known = |peer: &&Peer| KNOWN.iter().any(|(name, _)| *name == peer.name);
    peers.extend(given.iter().filter(|peer| !is_known(peer)).cloned());
    if !peers.iter().any(|peer| peer.name == REFERENCE) {
        return Err("mimalloc is not installed: --peer mimalloc=LIBRARY names it".to_owned());
    }
    let fixed = [OURS, REFERENCE, NULL];
    peers.retain(|peer| {
        only.is_empty() || fixed.contains(&peer.name.as_str()) || only.contains(&peer.name)
    });
    Ok(peers)
}

/// The preloaded library of this build, beside this program.
fn ours() -> Result<PathBuf, String> {
    let this = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
    let path = this.with_file_name("libquarry_malloc.so");
    match path.is_file() {
        true => Ok(path),
        false => Err(format!("{}: no such file", path.display())),
    }
}
