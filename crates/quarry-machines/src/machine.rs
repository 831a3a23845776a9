//! A machine: its shape and its costs.

use std::path::Path;

use quarry_core::era::Era;
use quarry_core::machine::MAX_NODES;
use quarry_sim::Config;
use quarry_sim::time::{LockKind, TIMED_CPUS_MAX};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bundled::BUNDLED;
use crate::cost::Cost;
use crate::draw::Draw;
use crate::error::MachineError;
use crate::key::Key;

/// CPUs, nodes and lines of a machine.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// Sockets.
    pub sockets: u32,
    /// Clusters per socket.
    pub clusters: u32,
    /// CPUs per cluster; they share a last-level cache.
    pub cpus: u32,
    /// Memory nodes: one, or one per socket.
    pub nodes: u32,
    /// Bytes of a cache line.
    pub line_bytes: u32,
    /// Source of these numbers.
    pub source: String,
}

impl Topology {
    /// CPUs of a socket.
    #[must_use]
    pub fn socket_cpus(&self) -> u32 {
        self.clusters * self.cpus
    }

    /// All CPUs.
    #[must_use]
    pub fn all_cpus(&self) -> u32 {
        self.sockets * self.socket_cpus()
    }
}

/// A cache of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// Size in bytes.
    pub bytes: u64,
    /// Ways of a set.
    pub ways: u32,
    /// True if a last-level cache holds all that its CPUs' own caches hold.
    #[serde(default)]
    pub inclusive: bool,
    /// True if a hash of the whole address selects the set of a last-level cache.
    #[serde(default)]
    pub hashed: bool,
}

/// The caches of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Caches {
    /// First-level data cache of a CPU.
    pub l1: Cache,
    /// Second-level cache of a CPU.
    pub l2: Option<Cache>,
    /// Last-level cache of a cluster.
    pub llc: Option<Cache>,
}

/// A machine as its file describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Name: that of its file.
    pub name: String,
    /// Description, one line.
    pub about: String,
    /// Clock in GHz.
    pub ghz: f64,
    /// Mechanism of spin locks, if it differs from that of x86 kernels of the era.
    pub spin_locks: Option<LockKind>,
    /// CPUs, nodes and lines.
    pub topology: Topology,
    /// Caches.
    pub caches: Caches,
    /// Costs in the order of [`Key::ALL`]; `None` where the machine has no such thing.
    pub(crate) costs: Vec<Option<Cost>>,
}

impl Machine {
    /// A bundled machine by its name, or one from a file ([`Self::file`]).
    ///
    /// # Errors
    ///
    /// [`MachineError`], which names key and line of an invalid value.
    pub fn open(name: &str) -> Result<Self, MachineError> {
        match Self::file(name) {
            Some(path) => Self::parse_file(path, &Self::read(path)?),
            None => Self::bundled(name),
        }
    }

    /// The file that a name stands for: it has a slash, or `.toml` at its end. `None` for a bundled machine.
    #[must_use]
    pub fn file(name: &str) -> Option<&Path> {
        let path = Path::new(name);
        let is_bundled = BUNDLED.iter().any(|(known, _)| *known == name);
        let is_file = name.contains('/') || path.extension().is_some_and(|it| it == "toml");
        (is_file && !is_bundled).then_some(path)
    }

    /// The text of a machine's file.
    ///
    /// # Errors
    ///
    /// [`MachineError::Read`].
    pub fn read(path: &Path) -> Result<String, MachineError> {
        std::fs::read_to_string(path).map_err(|source| MachineError::Read {
            path: path.to_path_buf(),
            source,
        })
    }

    /// The machine of a file's text, which is not read again. It has the file's name without `.toml`.
    ///
    /// # Errors
    ///
    /// As [`Self::parse`].
    pub fn parse_file(path: &Path, text: &str) -> Result<Self, MachineError> {
        let name = path.file_stem().unwrap_or_default();
        Self::parse(&name.to_string_lossy(), text)
    }

    /// The costs that the machine has.
    pub fn costs(&self) -> impl Iterator<Item = (Key, &Cost)> {
        let all = Key::ALL.iter().zip(&self.costs);
        all.filter_map(|((key, ..), cost)| Some((*key, cost.as_ref()?)))
    }

    /// A machine of its parts. It is checked when its text is read ([`Machine::to_text`], [`Machine::parse`]).
    #[must_use]
    pub fn new(
        name: &str,
        about: &str,
        ghz: f64,
        topology: Topology,
        caches: Caches,
        costs: impl IntoIterator<Item = (Key, Cost)>,
    ) -> Self {
        let machine = Self {
            name: name.to_string(),
            about: about.to_string(),
            ghz,
            spin_locks: None,
            topology,
            caches,
            costs: vec![None; Key::COUNT],
        };
        let with = |machine: Self, (key, cost)| machine.with(key, cost);
        costs.into_iter().fold(machine, with)
    }

    /// One of its costs, if it has that.
    #[must_use]
    pub fn cost(&self, key: Key) -> Option<&Cost> {
        self.costs.get(key as usize)?.as_ref()
    }

    /// The same machine with another cost.
    #[must_use]
    pub fn with(mut self, key: Key, cost: Cost) -> Self {
        self.costs[key as usize] = Some(cost);
        self
    }

    /// The same machine whose costs are those of a draw, as a file of its own can have them.
    #[must_use]
    pub fn drawn(mut self, draw: &Draw) -> Self {
        for (key, ..) in Key::ALL {
            if let Some(cost) = &mut self.costs[key as usize] {
                cost.value = cost.at(draw.place(key));
            }
        }
        self
    }

    /// A virtual machine with n of the machine's CPUs, which fill its sockets one after the other: the last one may have
    /// a part of its CPUs only. CPU 0 is the first one of the first socket. More CPUs than the machine has are more
    /// sockets like its own ([`Machine::beyond`]). What is not about time stays as in `base`.
    ///
    /// # Errors
    ///
    /// [`MachineError::Cpus`] if n is 0, or more than 8 such sockets have, or 512. A machine with one socket has no
    /// costs of others, and so no more CPUs than that.
    pub fn config(
        &self,
        cpus: u32,
        era: Era,
        draw: &Draw,
        seed: u64,
        base: Config,
    ) -> Result<Config, MachineError> {
        let sockets = self.sockets(cpus)?;
        let nodes = match self.topology.nodes {
            1 => 1,
            _ => sockets,
        };
        Ok(Config {
            cpus,
            nodes,
            cache_line: self.topology.line_bytes,
            time: Some(self.model(era, draw, seed)),
            ..base
        })
    }

    /// Most CPUs of a virtual machine of this kind.
    fn most_cpus(&self) -> u32 {
        let Topology { sockets, .. } = self.topology;
        let sockets = match sockets {
            1 => 1,
            several => several.max(MAX_NODES as u32),
        };
        (sockets * self.topology.socket_cpus()).min(TIMED_CPUS_MAX)
    }

    /// Words that say which sockets n CPUs stand for, if the machine itself has fewer.
    #[must_use]
    pub fn beyond(&self, cpus: u32) -> Option<String> {
        let all = self.topology.all_cpus();
        (cpus > all).then(|| {
            format!(
                "{} has {all} CPUs; {cpus} are {} sockets like its {}, each as far from the others as these are",
                self.name,
                cpus.div_ceil(self.topology.socket_cpus()),
                self.topology.sockets
            )
        })
    }

    /// The sockets that n CPUs fill, the last one perhaps in part.
    fn sockets(&self, cpus: u32) -> Result<u32, MachineError> {
        let most = self.most_cpus();
        if (1..=most).contains(&cpus) {
            return Ok(cpus.div_ceil(self.topology.socket_cpus()));
        }
        let others: Vec<&str> = BUNDLED
            .iter()
            .filter(|(name, _)| {
                Self::bundled(name).is_ok_and(|other| cpus > 0 && cpus <= other.most_cpus())
            })
            .map(|(name, _)| *name)
            .collect();
        let or = match others.is_empty() {
            true => String::new(),
            false => format!("; as many can be had of {}", others.join(", ")),
        };
        Err(MachineError::Cpus {
            name: self.name.clone(),
            cpus,
            advice: format!("take 1 to {most}{or}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use quarry_sim::Rng;

    use super::*;

    #[test]
    fn a_drawn_machine_costs_what_the_draw_says() {
        let machine = Machine::bundled("milan-2x64").unwrap();
        let draw = Draw::random(&mut Rng::new(3));
        let drawn = machine.clone().drawn(&draw);
        let read = Machine::parse("milan-2x64", &drawn.to_text()).unwrap();
        let config =
            |machine: &Machine, draw| machine.config(8, Era::V7_0, draw, 1, Config::default());
        let of_file = config(&read, &Draw::VALUES).unwrap();
        assert_eq!(of_file, config(&machine, &draw).unwrap());
        assert_ne!(of_file, config(&machine, &Draw::VALUES).unwrap());
    }

    #[test]
    fn cpus_fill_sockets() {
        let machine = Machine::bundled("milan-2x64").unwrap();
        let config = |cpus| machine.config(cpus, Era::V7_0, &Draw::VALUES, 1, Config::default());
        let shape = |cpus| config(cpus).map(|config| (config.cpus, config.nodes));
        assert_eq!(shape(2).unwrap(), (2, 1));
        assert_eq!(shape(64).unwrap(), (64, 1));
        assert_eq!(shape(128).unwrap(), (128, 2));
        config(128).unwrap().check().unwrap();
        // A part of the second socket, and sockets that the machine does not have.
        assert_eq!(shape(65).unwrap(), (65, 2));
        assert_eq!(shape(512).unwrap(), (512, 8));
        assert_eq!(machine.beyond(128), None);
        assert_eq!(
            machine.beyond(500).unwrap(),
            "milan-2x64 has 128 CPUs; 500 are 8 sockets like its 2, each as far from the others as these are"
        );
        let error = shape(0).unwrap_err().to_string();
        assert_eq!(error, "0 CPUs on milan-2x64: take 1 to 512");
        assert_eq!(
            shape(513).unwrap_err().to_string(),
            "513 CPUs on milan-2x64: take 1 to 512"
        );
        for (name, cpus, nodes) in [
            ("turin-2x192", 384, 2),
            ("skylake-sp-8x28", 224, 8),
            ("turin-2x192", 512, 3),
        ] {
            let machine = Machine::bundled(name).unwrap();
            let config = machine.config(cpus, Era::V7_0, &Draw::VALUES, 1, Config::default());
            let config = config.unwrap();
            config.check().unwrap();
            assert_eq!((config.cpus, config.nodes), (cpus, nodes));
        }
        let guest = Machine::bundled("power9-16").unwrap();
        let error = guest.config(17, Era::V5_9, &Draw::VALUES, 1, Config::default());
        let error = error.unwrap_err().to_string();
        assert_eq!(
            error,
            "17 CPUs on power9-16: take 1 to 16; as many can be had of clovertown-2x4, barcelona-2x4, \
             harpertown-2x4, haswell-ep-2x12, skylake-sp-8x28, ice-lake-sp-2x32, milan-2x64, turin-2x192"
        );
    }

    #[test]
    fn one_memory_controller_is_one_node() {
        let machine = Machine::bundled("harpertown-2x4").unwrap();
        let config = machine.config(8, Era::V2_6_35, &Draw::VALUES, 1, Config::default());
        assert_eq!(config.unwrap().nodes, 1);
    }

    #[test]
    fn a_name_is_bundled_or_a_file() {
        assert!(matches!(
            Machine::open("haswell"),
            Err(MachineError::Unknown { .. })
        ));
        let error = Machine::open("./no-such.toml").unwrap_err().to_string();
        assert!(error.starts_with("cannot read ./no-such.toml: "), "{error}");
        assert_eq!(Machine::open("power9-16").unwrap().topology.line_bytes, 128);
    }
}
