//! Recorded boots: `tests/data/boots/README.md` and `tests/data/cpus/README.md` say how.

use std::path::{Path, PathBuf};

use quarry_core::era::Era;

/// A boot of a kernel on a machine.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Boot {
    pub(crate) architecture: String,
    pub(crate) release: String,
    pub(crate) page_kib: u64,
    pub(crate) cpus: u32,
    pub(crate) run: u32,
}

impl Boot {
    /// The boot of a file `ppc64le-64k-6.1.176-16cpus-1.json.gz`, or `7.3.4-2cpus-1.json.gz` of x86-64 with 4 KiB pages.
    fn parse(name: &str) -> Option<Self> {
        let words: Vec<&str> = name.strip_suffix(".json.gz")?.split('-').collect();
        let (architecture, pages, rest) = match words[..] {
            [architecture, pages, ref rest @ ..] if rest.len() == 3 => (architecture, pages, rest),
            ref rest => ("x86_64", "4k", rest),
        };
        let [release, cpus, run] = *rest else {
            return None;
        };
        Some(Self {
            architecture: architecture.to_string(),
            release: release.to_string(),
            page_kib: pages.strip_suffix('k')?.parse().ok()?,
            cpus: cpus.strip_suffix("cpus")?.parse().ok()?,
            run: run.parse().ok()?,
        })
    }

    pub(crate) fn era(&self) -> Era {
        Era::parse(&self.release).unwrap()
    }
}

/// The boots in a folder of `tests/data`, with their files.
pub(crate) fn boots(folder: &str) -> Vec<(Boot, PathBuf)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(folder);
    let entries = std::fs::read_dir(folder).unwrap();
    entries
        .filter_map(|entry| {
            let path = entry.unwrap().path();
            Some((Boot::parse(path.file_name()?.to_str()?)?, path))
        })
        .collect()
}
