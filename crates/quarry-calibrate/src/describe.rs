//! Figures as a machine: costs with ranges and sources.

use chrono::Utc;
use quarry_machines::{Caches, Cost, Key, Machine, Topology, Unit};

use crate::cpuinfo::CpuInfo;
use crate::measure::Figures;
use crate::sample::Sample;
use crate::sysfs::Computer;

/// The machine of some figures; what they do not have is taken over from another one.
pub(crate) fn machine(
    name: &str,
    cpu: &CpuInfo,
    computer: &Computer,
    figures: &Figures,
    donor: &Machine,
) -> Machine {
    let date = date();
    let by = format!("measured by quarry calibrate on {date}, {}", cpu.model);
    let describe = Describe {
        computer,
        figures,
        donor,
        by,
    };
    let Computer {
        sockets,
        clusters,
        cpus,
        nodes,
        line_bytes,
        ..
    } = *computer;
    let costs = Key::ALL
        .iter()
        .filter_map(|(key, ..)| Some((*key, describe.cost(*key)?)));
    Machine::new(
        name,
        &format!(
            "{}, {} CPUs, calibrated on {date}",
            cpu.model,
            computer.all_cpus()
        ),
        digits(figures.ghz.value),
        Topology {
            sockets,
            clusters,
            cpus,
            nodes,
            line_bytes,
            source: describe.source(),
        },
        describe.caches(),
        costs,
    )
}

struct Describe<'a> {
    computer: &'a Computer,
    figures: &'a Figures,
    donor: &'a Machine,
    /// The source of what was measured.
    by: String,
}

impl Describe<'_> {
    /// Sources of shape, caches and clock.
    fn source(&self) -> String {
        let Sample { low, high, .. } = self.figures.ghz.map(digits);
        let notes = self.computer.notes.iter().map(|note| format!("; {note}"));
        format!(
            "/sys/devices/system; the clock is that of a chain of additions and rotations ({low} to {high} GHz); whether \
             the last cache is inclusive or hashed is as on {}{}",
            self.donor.name,
            notes.collect::<String>()
        )
    }

    fn caches(&self) -> Caches {
        let mut caches = self.computer.caches;
        let like = self.donor.caches.llc;
        caches.llc = caches.llc.map(|llc| quarry_machines::Cache {
            inclusive: like.is_some_and(|like| like.inclusive),
            hashed: like.is_none_or(|like| like.hashed),
            ..llc
        });
        caches
    }

    /// A cost; `None` of what the computer does not have.
    fn cost(&self, key: Key) -> Option<Cost> {
        if !self.has(key) {
            return None;
        }
        let Some((sample, unit, how)) = self.measured(key) else {
            return self.taken_over(key);
        };
        let Sample { value, low, high } = sample.map(digits);
        Some(Cost {
            value,
            low,
            high,
            unit,
            source: format!("{}: {how}", self.by),
            unverified: false,
        })
    }

    fn has(&self, key: Key) -> bool {
        let Computer {
            sockets,
            clusters,
            nodes,
            caches,
            ..
        } = self.computer;
        match key {
            Key::L2 => caches.l2.is_some(),
            Key::Llc => caches.llc.is_some(),
            Key::CleanSocket | Key::DirtySocket | Key::UpgradeSocket => *clusters > 1,
            Key::CleanRemote | Key::DirtyRemote | Key::UpgradeRemote => *sockets > 1,
            Key::MemoryRemote => *nodes > 1,
            // Buses between sockets ended before any kernel that runs this.
            Key::Bus => false,
            _ => true,
        }
    }

    /// A figure in the unit of the machine's file, and how it was measured.
    fn measured(&self, key: Key) -> Option<(Sample, Unit, String)> {
        let figures = self.figures;
        let ghz = figures.ghz.value;
        let cycles = |sample: Sample, how: &str| {
            Some((sample.map(|ns| ns * ghz), Unit::Cycles, how.to_string()))
        };
        let ns = |sample: Sample, how: &str| Some((sample, Unit::Ns, how.to_string()));
        let loads = "loads that wait for each other";
        let [cluster, socket, far] = figures.between;
        let between = |pair: Option<crate::measure::Between>, state: &str| {
            let pair = pair?;
            let (sample, how) = match state {
                "clean" => (pair.clean, "lines that it has unchanged"),
                "dirty" => (pair.dirty, "lines that it has changed"),
                _ => (
                    pair.upgrade,
                    "lines that both have, by additions; without the addition itself",
                ),
            };
            let [from, to] = pair.cpus;
            Some((sample, Unit::Ns, format!("CPU {to} from CPU {from}, {how}")))
        };
        match key {
            Key::L1 => cycles(figures.l1, loads),
            Key::L2 => cycles(figures.l2?, loads),
            Key::Llc => cycles(figures.llc?, loads),
            Key::CleanCluster => between(cluster, "clean"),
            Key::CleanSocket => between(socket, "clean"),
            Key::CleanRemote => between(far, "clean"),
            Key::DirtyCluster => between(cluster, "dirty"),
            Key::DirtySocket => between(socket, "dirty"),
            Key::DirtyRemote => between(far, "dirty"),
            Key::UpgradeCluster => between(cluster, "upgrade"),
            Key::UpgradeSocket => between(socket, "upgrade"),
            Key::UpgradeRemote => between(far, "upgrade"),
            Key::MemoryLocal => ns(figures.memory, loads),
            Key::MemoryRemote => ns(
                figures.memory_remote?,
                "loads of memory that a CPU of another socket touched first",
            ),
            Key::Atomic => cycles(
                figures.atomic,
                "a locked addition after a store to another line, less two stores",
            ),
            Key::Misses => Some((
                figures.misses_lines,
                Unit::Lines,
                "a load that waits, by a load of 8, 16 or 32 walks side by side".to_string(),
            )),
            Key::Copy => {
                let Sample { value, low, high } = figures.fill_kib;
                let copy = figures.copy_kib;
                let both = Sample {
                    value,
                    low: low.min(copy.low),
                    high: high.max(copy.high),
                };
                let bytes = both.map(|ns| (1024.0 / ns / ghz).max(1.0));
                Some((
                    bytes,
                    Unit::BytesPerCycle,
                    "pages of 4 KiB filled; the range has copies, too".to_string(),
                ))
            }
            Key::Syscall => ns(figures.syscall, "getppid"),
            Key::UnixMessage => ns(
                figures.unix_message?,
                "100 bytes that a thread writes to a Unix socket and reads, less two calls; with the allocations of its buffers",
            ),
            Key::Switch => ns(
                figures.switch,
                "two threads of one CPU that wake each other by futex",
            ),
            Key::RemoteWake => ns(
                figures.wake?.less(figures.switch),
                "two threads on two CPUs that wake each other by futex, less the same on one CPU",
            ),
            _ => None,
        }
    }

    /// Cost that another machine has. A distance that it does not have is as the one before it.
    fn taken_over(&self, key: Key) -> Option<Cost> {
        let nearer = |key: Key| match key {
            Key::CleanRemote => Some(Key::CleanSocket),
            Key::CleanSocket => Some(Key::CleanCluster),
            Key::DirtyRemote => Some(Key::DirtySocket),
            Key::DirtySocket => Some(Key::DirtyCluster),
            Key::UpgradeRemote => Some(Key::UpgradeSocket),
            Key::UpgradeSocket => Some(Key::UpgradeCluster),
            Key::MemoryRemote => Some(Key::MemoryLocal),
            _ => None,
        };
        let mut from = key;
        let cost = loop {
            match self.donor.cost(from) {
                Some(cost) => break cost,
                None => from = nearer(from)?,
            }
        };
        let why = match key {
            Key::CleanCluster | Key::DirtyCluster | Key::UpgradeCluster => {
                "needs two usable CPUs that share a cache"
            }
            Key::CleanSocket | Key::DirtySocket | Key::UpgradeSocket => {
                "needs usable CPUs of two clusters of a socket"
            }
            Key::CleanRemote | Key::DirtyRemote | Key::UpgradeRemote | Key::MemoryRemote => {
                "needs usable CPUs of two sockets"
            }
            Key::RemoteWake => "needs two usable CPUs",
            _ => "no process can measure it",
        };
        Some(Cost {
            source: format!(
                "not measured ({why}); {} of {}: {}",
                from.path(),
                self.donor.name,
                cost.source
            ),
            unverified: true,
            ..cost.clone()
        })
    }
}

/// A number with four digits that count.
fn digits(number: f64) -> f64 {
    let text = format!("{number:.3e}");
    text.parse().unwrap_or(number)
}

/// Today, as in 2026-01-31.
fn date() -> String {
    Utc::now().date_naive().to_string()
}

#[cfg(test)]
mod tests;
