//! CPUs, caches and nodes as the kernel describes them below `/sys/devices/system`.
//!
//! Hyper-threads are left out, as in the bundled machines: of each core the first thread counts. A cluster is the cores
//! that share the last-level cache. Where sockets or clusters are of different sizes, the smallest one counts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use quarry_machines::{Cache, Caches};
use quarry_sim::time::TIMED_CPUS_MAX;

use crate::error::CalibrateError;

/// A core, by its first thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Core {
    /// Number of that CPU.
    pub cpu: u32,
    /// Its socket, from 0 on.
    pub socket: u32,
    /// Its cluster, from 0 on, over all sockets.
    pub cluster: u32,
}

/// A computer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Computer {
    /// All cores that are online.
    pub cores: Vec<Core>,
    /// Sockets.
    pub sockets: u32,
    /// Clusters of a socket.
    pub clusters: u32,
    /// Cores of a cluster.
    pub cpus: u32,
    /// Nodes of memory: one, or one for each socket.
    pub nodes: u32,
    /// Bytes of a line.
    pub line_bytes: u32,
    /// Data caches; whether the last one is inclusive or hashed the kernel does not say.
    pub caches: Caches,
    /// Properties of the computer that the description leaves out or assumes.
    pub notes: Vec<String>,
}

/// A data cache of a CPU.
struct Found {
    level: u32,
    cache: Cache,
    line_bytes: u32,
    /// CPUs that share it, as the kernel lists them.
    shared: String,
}

impl Computer {
    /// Reads the kernel's description: `/sys/devices/system`.
    ///
    /// # Errors
    ///
    /// [`CalibrateError`]: a file is missing or has an invalid value.
    pub fn read(root: &Path) -> Result<Self, CalibrateError> {
        let cpus = list(&root.join("cpu/online"))?;
        let mut notes = Vec::new();
        let mut places = BTreeMap::new();
        let mut caches = None;
        for &cpu in &cpus {
            let at = root.join(format!("cpu/cpu{cpu}"));
            let siblings = list(&at.join("topology/thread_siblings_list"))?;
            if siblings.first().is_some_and(|first| *first != cpu) {
                continue;
            }
            let socket = number(&at.join("topology/physical_package_id"))?;
            let found = found(&at.join("cache"), &mut notes)?;
            let last = last_level(&found, siblings.len());
            let cluster = last.map_or_else(String::new, |last| found[last].shared.clone());
            places.insert(cpu, (socket, cluster));
            caches.get_or_insert((found, last));
        }
        let (found, last) = caches.ok_or_else(|| CalibrateError::NoCpu("none".to_string()))?;
        let nodes = list(&root.join("node/online")).map_or(1, |nodes| nodes.len() as u32);
        let line_bytes = found.first().map_or(64, |cache| cache.line_bytes);
        let mut computer = Self {
            cores: numbered(&places),
            sockets: 0,
            clusters: 0,
            cpus: 0,
            nodes,
            line_bytes,
            caches: levels(&found, last, &root.join("cpu/cpu0/cache"))?,
            notes,
        };
        computer.shape(cpus.len());
        Ok(computer)
    }

    /// Sockets, clusters and CPUs that all are of one size, and not more than a machine with clocks has.
    fn shape(&mut self, online: usize) {
        let mut sizes: BTreeMap<u32, BTreeMap<u32, u32>> = BTreeMap::new();
        for core in &self.cores {
            *sizes
                .entry(core.socket)
                .or_default()
                .entry(core.cluster)
                .or_default() += 1;
        }
        self.sockets = sizes.len() as u32;
        let clusters = sizes.values().map(|clusters| clusters.len() as u32);
        self.clusters = clusters.min().unwrap_or(1);
        let cpus = sizes.values().flat_map(BTreeMap::values).copied();
        self.cpus = cpus.min().unwrap_or(1);
        if self.all_cpus() < self.cores.len() as u32 {
            let note = "sockets or clusters differ in size: each counts as the smallest";
            self.notes.push(note.to_string());
        }
        while self.all_cpus() > TIMED_CPUS_MAX {
            match self.clusters {
                1 => self.cpus -= 1,
                _ => self.clusters -= 1,
            }
        }
        let (cores, all) = (self.cores.len(), self.all_cpus());
        if cores as u32 > TIMED_CPUS_MAX {
            self.notes.push(format!(
                "{all} of {cores} cores, as a machine with clocks has at most {TIMED_CPUS_MAX}"
            ));
        }
        if cores < online {
            self.notes
                .push(format!("{online} hyper-threads count as {cores} CPUs"));
        }
        if ![1, self.sockets].contains(&self.nodes) {
            let (nodes, sockets) = (self.nodes, self.sockets);
            self.notes.push(format!(
                "{nodes} nodes count as one for each of {sockets} sockets"
            ));
            self.nodes = sockets;
        }
    }

    /// CPUs of the description.
    #[must_use]
    pub fn all_cpus(&self) -> u32 {
        self.sockets * self.clusters * self.cpus
    }
}

/// Cores with their sockets and clusters counted from 0.
fn numbered(places: &BTreeMap<u32, (u32, String)>) -> Vec<Core> {
    let sockets: BTreeSet<u32> = places.values().map(|(socket, _)| *socket).collect();
    let clusters: Vec<&(u32, String)> = places.values().fold(Vec::new(), |mut known, place| {
        if !known.contains(&place) {
            known.push(place);
        }
        known
    });
    let core = |(&cpu, place): (&u32, &(u32, String))| Core {
        cpu,
        socket: sockets.range(..place.0).count() as u32,
        cluster: clusters
            .iter()
            .position(|known| *known == place)
            .unwrap_or(0) as u32,
    };
    places.iter().map(core).collect()
}

/// The data caches of a CPU, the nearest first.
fn found(folder: &Path, notes: &mut Vec<String>) -> Result<Vec<Found>, CalibrateError> {
    let mut caches = Vec::new();
    for index in 0.. {
        let at = folder.join(format!("index{index}"));
        if !at.exists() {
            break;
        }
        if text(&at.join("type"))? == "Instruction" {
            continue;
        }
        let level = number(&at.join("level"))?;
        let bytes = bytes(&at.join("size"))?;
        let line_bytes = number(&at.join("coherency_line_size"))?;
        // Some virtual machines and architectures report no ways.
        let ways = number(&at.join("ways_of_associativity")).unwrap_or(0);
        let whole =
            |ways: &u32| bytes.is_multiple_of(u64::from(*ways) * u64::from(line_bytes.max(1)));
        let taken = (1..=if ways == 0 { 8 } else { ways }).rev().find(whole);
        let taken = taken.unwrap_or(1);
        if taken != ways {
            let note = format!("level {level} has {taken} ways by assumption");
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
        caches.push(Found {
            level,
            cache: Cache {
                bytes,
                ways: taken,
                inclusive: false,
                hashed: false,
            },
            line_bytes,
            shared: text(&at.join("shared_cpu_list"))?,
        });
    }
    caches.sort_by_key(|cache| cache.level);
    Ok(caches)
}

/// The cache that a cluster shares: the highest one from level 3 on, or a second one of several cores.
fn last_level(found: &[Found], threads: usize) -> Option<usize> {
    let last = found.last()?;
    let sharers = parse_list(&last.shared).map_or(1, |cpus| cpus.len());
    let shared = last.level >= 3 || (last.level == 2 && sharers > threads);
    shared.then(|| found.len() - 1)
}

/// Caches by their part in a machine.
fn levels(found: &[Found], last: Option<usize>, folder: &Path) -> Result<Caches, CalibrateError> {
    let own = &found[..last.unwrap_or(found.len())];
    let Some(l1) = own.first().filter(|cache| cache.level == 1) else {
        return Err(CalibrateError::NoCache {
            path: folder.to_path_buf(),
        });
    };
    let l2 = own.iter().find(|cache| cache.level == 2);
    Ok(Caches {
        l1: l1.cache,
        l2: l2.map(|cache| cache.cache),
        llc: last.map(|last| found[last].cache),
    })
}

fn text(path: &Path) -> Result<String, CalibrateError> {
    let text = std::fs::read_to_string(path).map_err(|source| CalibrateError::Read {
        path: path.to_path_buf(),
        source,
    })?;
    Ok(text.trim().to_string())
}

fn wrong(path: &Path, text: &str, expected: &'static str) -> CalibrateError {
    CalibrateError::Value {
        path: PathBuf::from(path),
        text: text.to_string(),
        expected,
    }
}

fn number(path: &Path) -> Result<u32, CalibrateError> {
    let text = text(path)?;
    text.parse().map_err(|_| wrong(path, &text, "a number"))
}

/// A size as the kernel prints it: `32K`.
fn bytes(path: &Path) -> Result<u64, CalibrateError> {
    let text = text(path)?;
    let units = [("K", 10), ("M", 20), ("G", 30), ("", 0)];
    let split = units
        .iter()
        .find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)));
    let size = split.and_then(|(digits, shift)| digits.parse::<u64>().ok()?.checked_shl(*shift));
    size.filter(|size| *size > 0)
        .ok_or_else(|| wrong(path, &text, "a size such as 32K"))
}

fn list(path: &Path) -> Result<Vec<u32>, CalibrateError> {
    let text = text(path)?;
    let list = parse_list(&text).filter(|list| !list.is_empty());
    list.ok_or_else(|| wrong(path, &text, "a list such as 0-3,8"))
}

/// The numbers of a list such as `0-3,8`.
fn parse_list(text: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        numbers.extend(first..=last.min(first.saturating_add(1 << 16)));
    }
    Some(numbers)
}

#[cfg(test)]
mod tests;
