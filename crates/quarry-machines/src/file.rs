//! Reading a machine from its file.

use std::collections::BTreeMap;

use quarry_sim::Rng;
use quarry_sim::time::{LockKind, TIMED_CPUS_MAX};
use serde::Deserialize;
use toml::Spanned;
use toml::de::DeTable;

use crate::cost::{Cost, Unit};
use crate::defaults;
use crate::draw::Draw;
use crate::error::MachineError;
use crate::key::Key;
use crate::machine::{Cache, Caches, Machine, Topology};

type Costs = BTreeMap<String, RawCost>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    about: String,
    ghz: f64,
    spin_locks: Option<String>,
    topology: Topology,
    cache: Caches,
    latency: Costs,
    throughput: Costs,
    work: Costs,
    #[serde(default)]
    network: Costs,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCost {
    cycles: Option<f64>,
    ns: Option<f64>,
    lines: Option<f64>,
    bytes_per_cycle: Option<f64>,
    queues: Option<f64>,
    low: f64,
    high: f64,
    source: String,
    #[serde(default)]
    unverified: bool,
}

/// The names of locks in files.
pub(crate) const LOCKS: [(&str, LockKind); 3] = [
    ("test-and-set", LockKind::TestAndSet),
    ("ticket", LockKind::Ticket),
    ("queued", LockKind::Queued),
];

impl Machine {
    /// A machine from the text of its file.
    ///
    /// # Errors
    ///
    /// [`MachineError::Syntax`] or [`MachineError::Value`].
    pub fn parse(name: &str, text: &str) -> Result<Self, MachineError> {
        let raw: Raw = toml::from_str(text).map_err(|error| MachineError::Syntax {
            name: name.to_string(),
            message: match error.span() {
                // In one line, unlike the parser's own picture of the place.
                Some(span) => {
                    let line = text.get(..span.start).unwrap_or(text).matches('\n').count() + 1;
                    format!("line {line}: {}", error.message())
                }
                None => error.message().to_string(),
            },
        })?;
        Reader { name, text }.machine(raw)
    }

    /// The draw of a number: 0 are the values of the costs, another one is anywhere in the ranges, such that a larger distance
    /// still costs more, as in every real machine. The same number is the same draw.
    #[must_use]
    pub fn draw(&self, number: u32) -> Draw {
        /// Draws are rarely refused; a machine whose ranges allow none keeps its values.
        const TRIES: usize = 1000;
        let mut rng = Rng::new(number.into());
        let mut draws = std::iter::repeat_with(|| Draw::random(&mut rng)).take(TRIES);
        let is_machine = |draw: &Draw| {
            let text = self.clone().drawn(draw).to_text();
            Self::parse("a draw", &text).is_ok()
        };
        let drawn = draws.find(|draw| number > 0 && is_machine(draw));
        drawn.unwrap_or(Draw::VALUES)
    }
}

/// A file that is read.
struct Reader<'a> {
    name: &'a str,
    text: &'a str,
}

impl Reader<'_> {
    /// The error about a value, which its path in the file names.
    fn wrong(&self, key: &str, problem: impl Into<String>) -> MachineError {
        MachineError::Value {
            name: self.name.to_string(),
            line: self.line(key),
            key: key.to_string(),
            problem: problem.into(),
        }
    }

    /// Line of a value, or of the table that lacks it.
    fn line(&self, key: &str) -> usize {
        let file = DeTable::parse(self.text).ok();
        let mut table = file.as_ref().map(Spanned::get_ref);
        let mut start = 0;
        for name in key.split('.') {
            let Some(value) = table.and_then(|table| table.get(name)) else {
                break;
            };
            start = value.span().start;
            table = value.get_ref().as_table();
        }
        let before = self.text.get(..start).unwrap_or(self.text);
        before.matches('\n').count() + 1
    }

    fn machine(&self, raw: Raw) -> Result<Machine, MachineError> {
        let ghz = raw.ghz;
        if !(0.1..=20.0).contains(&ghz) {
            return Err(self.wrong("ghz", format!("{ghz}: a core has 0.1 to 20")));
        }
        let spin_locks = raw.spin_locks.as_deref().map(|text| self.locks(text));
        let spin_locks = spin_locks.transpose()?;
        self.check_topology(&raw.topology)?;
        self.check_caches(&raw.cache, raw.topology.line_bytes)?;
        let machine = Machine {
            name: self.name.to_string(),
            ghz,
            spin_locks,
            costs: self.costs(&raw)?,
            about: raw.about,
            topology: raw.topology,
            caches: raw.cache,
        };
        self.check_order(&machine)?;
        Ok(machine.with_common())
    }

    fn locks(&self, text: &str) -> Result<LockKind, MachineError> {
        let found = LOCKS.iter().find(|(name, _)| *name == text);
        found.map(|(_, kind)| *kind).ok_or_else(|| {
            let known = LOCKS.map(|(name, _)| name).join(", ");
            self.wrong("spin_locks", format!("{text:?}: locks are {known}"))
        })
    }

    fn check_topology(&self, topology: &Topology) -> Result<(), MachineError> {
        let counts = [
            ("topology.sockets", topology.sockets),
            ("topology.clusters", topology.clusters),
            ("topology.cpus", topology.cpus),
        ];
        for (key, count) in counts {
            if !(1..=TIMED_CPUS_MAX).contains(&count) {
                return Err(self.wrong(key, format!("{count}: 1 to {TIMED_CPUS_MAX}")));
            }
        }
        let all = topology.all_cpus();
        if all > TIMED_CPUS_MAX {
            let problem = format!("{all} CPUs: a machine with clocks has 1 to {TIMED_CPUS_MAX}");
            return Err(self.wrong("topology", problem));
        }
        if ![1, topology.sockets].contains(&topology.nodes) {
            let problem = format!("{}: 1, or one for each socket", topology.nodes);
            return Err(self.wrong("topology.nodes", problem));
        }
        let bytes = topology.line_bytes;
        if !bytes.is_power_of_two() || !(8..=256).contains(&bytes) {
            let problem = format!("{bytes}: a power of two from 8 to 256");
            return Err(self.wrong("topology.line_bytes", problem));
        }
        Ok(())
    }

    fn check_caches(&self, caches: &Caches, line_bytes: u32) -> Result<(), MachineError> {
        let mut smaller = 0;
        let all = [
            ("cache.l1", Some(caches.l1)),
            ("cache.l2", caches.l2),
            ("cache.llc", caches.llc),
        ];
        for (key, cache) in all {
            let Some(cache) = cache else { continue };
            let Cache { bytes, ways, .. } = cache;
            let set_bytes = u64::from(ways) * u64::from(line_bytes);
            if bytes == 0 || set_bytes == 0 || !bytes.is_multiple_of(set_bytes) {
                let problem = format!(
                    "{bytes} bytes and {ways} ways: whole sets of lines of {line_bytes} bytes"
                );
                return Err(self.wrong(key, problem));
            }
            if bytes <= smaller {
                let problem =
                    format!("{bytes} bytes: more than the {smaller} of the cache before it");
                return Err(self.wrong(key, problem));
            }
            if (cache.inclusive || cache.hashed) && key != "cache.llc" {
                let problem = "only the last-level cache may be inclusive or hashed";
                return Err(self.wrong(key, problem));
            }
            smaller = bytes;
        }
        Ok(())
    }

    fn costs(&self, raw: &Raw) -> Result<Vec<Option<Cost>>, MachineError> {
        let (topology, caches) = (&raw.topology, &raw.cache);
        let sections = [
            ("latency", &raw.latency),
            ("throughput", &raw.throughput),
            ("work", &raw.work),
            ("network", &raw.network),
        ];
        let mut costs = vec![None; Key::COUNT];
        for (section, entries) in sections {
            for (name, cost) in entries {
                let found = Key::ALL
                    .iter()
                    .find(|(_, of, known)| *of == section && known == name);
                let Some((key, ..)) = found else {
                    let of = Key::ALL.iter().filter(|(_, of, _)| *of == section);
                    let known: Vec<&str> = of.map(|(.., name)| *name).collect();
                    let problem = format!("no such cost; there are {}", known.join(", "));
                    return Err(self.wrong(&format!("{section}.{name}"), problem));
                };
                if let Err(why) = has(*key, topology, caches) {
                    let problem = format!("{why}; remove one of the two");
                    return Err(self.wrong(&key.path(), problem));
                }
                costs[*key as usize] = Some(self.cost(*key, cost)?);
            }
            let missing = Key::ALL.iter().find(|(key, of, _)| {
                *of == section
                    && *key != Key::Bus
                    && !defaults::has(*key)
                    && costs[*key as usize].is_none()
                    && has(*key, topology, caches).is_ok()
            });
            if let Some((key, ..)) = missing {
                let problem = format!(
                    "missing in [{section}]: calibrate again (quarry calibrate -o FILE), or take the line of a bundled machine \
                     (quarry machines haswell-ep-2x12 --toml)"
                );
                return Err(self.wrong(&key.path(), problem));
            }
        }
        Ok(costs)
    }

    fn cost(&self, key: Key, raw: &RawCost) -> Result<Cost, MachineError> {
        let wrong = |problem: String| Err(self.wrong(&key.path(), problem));
        let units = [
            (Unit::Cycles, raw.cycles),
            (Unit::Ns, raw.ns),
            (Unit::Lines, raw.lines),
            (Unit::BytesPerCycle, raw.bytes_per_cycle),
            (Unit::Queues, raw.queues),
        ];
        let given: Vec<(Unit, f64)> = units
            .into_iter()
            .filter_map(|(unit, value)| Some((unit, value?)))
            .collect();
        let &[(unit, value)] = given.as_slice() else {
            let units = "cycles, ns, lines, bytes_per_cycle or queues";
            return wrong(format!("one value is needed: {units}"));
        };
        if !key.has_unit(unit) {
            return wrong(format!("it is not counted in {}", unit.name()));
        }
        let RawCost { low, high, .. } = *raw;
        // A fetch of less than a line at a time, or a copy of nothing, takes for ever.
        let least = match unit {
            Unit::Lines | Unit::BytesPerCycle | Unit::Queues => 1.0,
            Unit::Cycles | Unit::Ns => 0.0,
        };
        for (name, number) in [(unit.name(), value), ("low", low), ("high", high)] {
            if !(least..=1e9).contains(&number) {
                return wrong(format!("{name} = {number}: {least} to 1000000000"));
            }
        }
        if !(low..=high).contains(&value) {
            return wrong(format!(
                "{value} is not between low = {low} and high = {high}"
            ));
        }
        if raw.source.trim().is_empty() {
            return wrong("the source is empty; say where the value is from".to_string());
        }
        Ok(Cost {
            value,
            low,
            high,
            unit,
            source: raw.source.clone(),
            unverified: raw.unverified,
        })
    }

    /// Rejects a larger distance with a smaller cost.
    fn check_order(&self, machine: &Machine) -> Result<(), MachineError> {
        let chains: [&[Key]; 5] = [
            &[
                Key::L1,
                Key::L2,
                Key::Llc,
                Key::MemoryLocal,
                Key::MemoryRemote,
            ],
            &[Key::CleanCluster, Key::CleanSocket, Key::CleanRemote],
            &[Key::DirtyCluster, Key::DirtySocket, Key::DirtyRemote],
            &[Key::UpgradeCluster, Key::UpgradeSocket, Key::UpgradeRemote],
            &[Key::L1, Key::DirtyCluster],
        ];
        for chain in chains {
            let there = |key: &&Key| machine.costs[**key as usize].is_some();
            let there: Vec<Key> = chain.iter().filter(there).copied().collect();
            for pair in there.windows(2) {
                let [near, far] = [pair[0], pair[1]].map(|key| (key, machine.nominal_ns(key)));
                if near.1 > far.1 {
                    let problem = format!(
                        "{:.1} ns is less than {} with {:.1} ns",
                        far.1,
                        near.0.path(),
                        near.1
                    );
                    return Err(self.wrong(&far.0.path(), problem));
                }
            }
        }
        Ok(())
    }
}

/// Says if a machine of a shape has a cost; the error is the reason why it has not.
fn has(key: Key, topology: &Topology, caches: &Caches) -> Result<(), &'static str> {
    match key {
        Key::L2 if caches.l2.is_none() => Err("there is no cache.l2"),
        Key::Llc if caches.llc.is_none() => Err("there is no cache.llc"),
        Key::CleanSocket | Key::DirtySocket | Key::UpgradeSocket if topology.clusters == 1 => {
            Err("a socket is one cluster")
        }
        Key::CleanRemote | Key::DirtyRemote | Key::UpgradeRemote if topology.sockets == 1 => {
            Err("there is one socket")
        }
        Key::MemoryRemote if topology.nodes == 1 => Err("there is one node"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundled::BUNDLED;

    #[test]
    fn draws_have_numbers() {
        for (name, text) in BUNDLED {
            let machine = Machine::parse(name, text).unwrap();
            assert_eq!(machine.draw(0), Draw::VALUES);
            let draws: Vec<Draw> = (1..6).map(|number| machine.draw(number)).collect();
            assert!(draws.iter().all(|draw| *draw != Draw::VALUES), "{name}");
            assert!(draws.windows(2).all(|pair| pair[0] != pair[1]), "{name}");
            assert_eq!(machine.draw(3), draws[2]);
        }
    }

    /// Message about the Haswell's file with one text replaced.
    fn refused(from: &str, to: &str) -> String {
        let (name, text) = BUNDLED
            .iter()
            .find(|(name, _)| name.starts_with("haswell"))
            .unwrap();
        assert!(text.contains(from), "{from}");
        let error = Machine::parse(name, &text.replacen(from, to, 1)).unwrap_err();
        error.to_string()
    }

    #[test]
    fn what_is_missing_is_named() {
        let (_, text) = BUNDLED
            .iter()
            .find(|(name, _)| name.starts_with("haswell"))
            .unwrap();
        let line = text
            .lines()
            .find(|line| line.starts_with("irq_save"))
            .unwrap();
        assert_eq!(
            refused(line, ""),
            "haswell-ep-2x12, line 36: work.irq_save: missing in [work]: calibrate again (quarry calibrate -o FILE), or take the line of a bundled machine (quarry machines haswell-ep-2x12 --toml)"
        );
        let error = refused("ghz = 2.5\n", "");
        assert!(error.contains("missing field `ghz`"), "{error}");
        let error = refused("ways = 8 }", "}");
        assert!(
            error.contains("line 13") && error.contains("missing field `ways`"),
            "{error}"
        );
    }

    #[test]
    fn what_cannot_be_is_named_with_its_line() {
        for (from, to, expected) in [
            (
                "cycles = 4, low = 4",
                "cycles = -4, low = -4",
                "line 18: latency.l1: cycles = -4: 0 to 1000000000",
            ),
            (
                "cycles = 4, low = 4",
                "cycles = 4, low = 5",
                "line 18: latency.l1: 4 is not between low = 5 and high = 4",
            ),
            (
                "cycles = 4, low = 4",
                "low = 4",
                "line 18: latency.l1: one value is needed: cycles, ns, lines, bytes_per_cycle or queues",
            ),
            (
                "cycles = 4, low = 4",
                "lines = 4, low = 4",
                "line 18: latency.l1: it is not counted in lines",
            ),
            (
                "lines = 10, low = 8",
                "lines = 0, low = 0",
                "line 32: throughput.misses: lines = 0: 1 to 1000000000",
            ),
            (
                "cycles = 54, low = 50, high = 58",
                "cycles = 5, low = 5, high = 5",
                "line 20: latency.llc: 2.0 ns is less than latency.l2 with 4.8 ns",
            ),
            (
                "misses = {",
                "mises = {",
                "line 32: throughput.mises: no such cost; there are misses, window, copy",
            ),
            (
                "ghz = 2.5",
                "ghz = 0",
                "line 2: ghz: 0: a core has 0.1 to 20",
            ),
            (
                "ghz = 2.5",
                "ghz = 2.5\nspin_locks = \"fair\"",
                "line 3: spin_locks: \"fair\": locks are test-and-set, ticket, queued",
            ),
            (
                "nodes = 2",
                "nodes = 3",
                "line 8: topology.nodes: 3: 1, or one for each socket",
            ),
            (
                "nodes = 2",
                "nodes = 1",
                "line 28: latency.memory_remote: there is one node; remove one of the two",
            ),
            (
                "clusters = 1",
                "clusters = 0",
                "line 6: topology.clusters: 0: 1 to 512",
            ),
            (
                "cpus = 12",
                "cpus = 257",
                "line 4: topology: 514 CPUs: a machine with clocks has 1 to 512",
            ),
            (
                "line_bytes = 64",
                "line_bytes = 48",
                "line 9: topology.line_bytes: 48: a power of two from 8 to 256",
            ),
            (
                "bytes = 262144",
                "bytes = 262145",
                "line 14: cache.l2: 262145 bytes and 8 ways: whole sets of lines of 64 bytes",
            ),
            (
                "bytes = 262144",
                "bytes = 16384",
                "line 14: cache.l2: 16384 bytes: more than the 32768 of the cache before it",
            ),
            (
                "ways = 8 }",
                "ways = 8, inclusive = true }",
                "line 13: cache.l1: only the last-level cache may be inclusive or hashed",
            ),
            ("; Molka: 96\"", "\", unverified = 1", "line 27"),
        ] {
            let error = refused(from, to);
            assert!(
                error.contains(expected),
                "{error}\n  instead of\n{expected}"
            );
        }
        let (name, text) = BUNDLED[0];
        let l2 = text.replacen(
            "[latency]",
            "[latency]\nl2 = { cycles = 9, low = 9, high = 9, source = \"x\" }",
            1,
        );
        let error = Machine::parse(name, &l2).unwrap_err().to_string();
        assert!(
            error.contains("latency.l2: there is no cache.l2"),
            "{error}"
        );
    }

    #[test]
    fn a_source_is_not_empty() {
        let error = refused("source = \"as irq_save\"", "source = \" \"");
        assert!(
            error.contains("work.local_lock: the source is empty"),
            "{error}"
        );
    }
}
