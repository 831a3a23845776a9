//! Shapes of virtual machines.

use quarry_core::machine::{MAX_CPUS, MAX_NODES};

use crate::time::{CacheLevel, TIMED_CPUS_MAX, TimeModel};

/// Sizes in bytes that pages can have: those of x86-64, arm64 and ppc64 kernels.
pub const PAGE_BYTES: [u64; 3] = [4096, 16384, 65536];

/// Most pages of a machine: 8 TiB of 4 KiB pages, whose descriptors take 128 GiB of address space.
pub const PAGES_MAX: u64 = 1 << 31;

/// Shape of a virtual machine; [`Config::check`] rejects contradictory ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// CPUs, 1..=4096.
    pub cpus: u32,
    /// NUMA nodes, 1..=8 and at most one per CPU.
    pub nodes: u32,
    /// Bytes of a page: one of [`PAGE_BYTES`].
    pub page_bytes: u64,
    /// Bytes of memory, 1 to [`PAGES_MAX`] pages; rounded down to whole ones. Only what is used
    /// becomes resident.
    pub memory_bytes: u64,
    /// Bytes of a cache line: a power of two from 8 to 256.
    pub cache_line: u32,
    /// Try-locks that fail on purpose.
    pub faults: Option<Faults>,
    /// Costs of steps, on a machine whose CPUs have clocks.
    pub time: Option<TimeModel>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            cpus: 1,
            nodes: 1,
            page_bytes: 4096,
            memory_bytes: 16 << 30,
            cache_line: 64,
            faults: None,
            time: None,
        }
    }
}

impl Config {
    /// Rejects invalid values, without asking the operating system for anything.
    ///
    /// # Errors
    ///
    /// Any [`ConfigError`] but [`ConfigError::Reserve`].
    pub fn check(&self) -> Result<(), ConfigError> {
        let Self {
            cpus,
            nodes,
            page_bytes,
            memory_bytes,
            cache_line,
            faults: _,
            time,
        } = *self;
        if cpus == 0 || cpus > MAX_CPUS {
            return Err(ConfigError::Cpus(cpus));
        }
        if nodes == 0 || nodes > cpus || nodes as usize > MAX_NODES {
            return Err(ConfigError::Nodes { nodes, cpus });
        }
        if !PAGE_BYTES.contains(&page_bytes) {
            return Err(ConfigError::PageBytes(page_bytes));
        }
        if !cache_line.is_power_of_two() || !(8..=256).contains(&cache_line) {
            return Err(ConfigError::CacheLine(cache_line));
        }
        if !(1..=PAGES_MAX).contains(&(memory_bytes / page_bytes)) {
            return Err(ConfigError::Memory {
                memory_bytes,
                page_bytes,
            });
        }
        if let Some(TimeModel { lines, .. }) = time {
            let (cluster, socket) = (lines.cluster_cpus, lines.socket_cpus);
            if cluster == 0 || socket == 0 || !socket.is_multiple_of(cluster) {
                return Err(ConfigError::Clusters { cluster, socket });
            }
            if lines.misses == 0 {
                return Err(ConfigError::Misses);
            }
            if cpus > TIMED_CPUS_MAX {
                return Err(ConfigError::TimedCpus(cpus));
            }
            let levels = [
                ("l1", Some(lines.l1)),
                ("l2", lines.l2),
                ("llc", lines.llc.map(|llc| llc.level)),
            ];
            let wrong = |(_, level): &(_, Option<CacheLevel>)| {
                level.is_some_and(|level| !level.holds_whole_sets(cache_line))
            };
            if let Some((name, Some(level))) = levels.into_iter().find(wrong) {
                return Err(ConfigError::Cache { name, level });
            }
        }
        Ok(())
    }
}

/// Rates at which try-locks fail, as if another thread held them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// Decides which ones.
    pub seed: u64,
    /// Attempts on the CPU's own slot that fail, of 1000.
    pub slot_per_mille: u16,
    /// Attempts on another CPU's slot that fail, of 1000.
    pub remote_per_mille: u16,
}

/// Reason for which a machine is refused.
#[derive(Debug)]
pub enum ConfigError {
    /// The number of CPUs is out of range.
    Cpus(u32),
    /// The number of nodes is out of range.
    Nodes {
        /// Nodes asked for.
        nodes: u32,
        /// CPUs asked for.
        cpus: u32,
    },
    /// The page size is not one of [`PAGE_BYTES`].
    PageBytes(u64),
    /// The cache line is not a power of two from 8 bytes to 256.
    CacheLine(u32),
    /// There is not even one page of memory, or more than [`PAGES_MAX`] pages.
    Memory {
        /// Bytes asked for.
        memory_bytes: u64,
        /// Bytes of a page.
        page_bytes: u64,
    },
    /// The CPUs of a cluster, or of a socket, are 0, or a socket is no number of clusters.
    Clusters {
        /// CPUs of a cluster.
        cluster: u32,
        /// CPUs of a socket.
        socket: u32,
    },
    /// A CPU fetches no line at a time.
    Misses,
    /// More CPUs than [`TIMED_CPUS_MAX`], with clocks.
    TimedCpus(u32),
    /// A cache is no number of whole sets.
    Cache {
        /// Name of the cache.
        name: &'static str,
        /// The requested size and ways.
        level: CacheLevel,
    },
    /// The operating system refuses the address space.
    Reserve {
        /// Bytes asked for.
        bytes: u64,
        /// Its answer.
        source: std::io::Error,
    },
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cpus(cpus) => write!(f, "{cpus} CPUs: a machine has 1 to {MAX_CPUS}"),
            Self::Nodes { nodes, cpus } => write!(
                f,
                "{nodes} nodes with {cpus} CPUs: a machine has 1 to {MAX_NODES} nodes and at \
                 least one CPU in each"
            ),
            Self::PageBytes(bytes) => {
                write!(
                    f,
                    "page size {bytes}: valid sizes are 4096, 16384 and 65536 (4k, 16k, 64k)"
                )
            }
            Self::CacheLine(bytes) => {
                write!(
                    f,
                    "cache line of {bytes} bytes: it is a power of two from 8 to 256"
                )
            }
            Self::Memory {
                memory_bytes,
                page_bytes,
            } => {
                write!(
                    f,
                    "{memory_bytes} bytes of memory with pages of {page_bytes} bytes: a machine \
                     has 1 to 2^{} pages",
                    PAGES_MAX.ilog2()
                )?;
                if PAGE_BYTES.contains(page_bytes) {
                    let (least, most) = (page_bytes >> 10, (page_bytes * PAGES_MAX) >> 40);
                    write!(f, "; give it {least}k to {most}T")?;
                }
                Ok(())
            }
            Self::Clusters { cluster, socket } => write!(
                f,
                "clusters of {cluster} CPUs in sockets of {socket}: a cluster has at least one CPU, and a socket \
                 a number of clusters"
            ),
            Self::Misses => f.write_str("0 misses at a time: a CPU fetches at least one line"),
            Self::TimedCpus(cpus) => write!(
                f,
                "{cpus} CPUs with clocks: a machine with clocks has 1 to {TIMED_CPUS_MAX}"
            ),
            Self::Cache { name, level } => write!(
                f,
                "{name} of {} bytes and {} ways: a cache is one or more sets of that number of lines",
                level.bytes, level.ways
            ),
            Self::Reserve { bytes, source } => write!(
                f,
                "the operating system refuses to reserve {bytes} bytes of address space ({source}); \
                 ask for less memory or fewer CPUs, or raise the limit (ulimit -v)"
            ),
        }
    }
}

impl std::error::Error for ConfigError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Reserve { source, .. } => Some(source),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VirtualMachine;

    /// Message about a configuration; a machine is refused with the same words.
    fn refused(change: impl FnOnce(&mut Config)) -> String {
        let mut config = Config::default();
        change(&mut config);
        let checked = config.check().map_err(|error| error.to_string());
        let made = VirtualMachine::new(config).map(|_| ());
        assert_eq!(made.map_err(|error| error.to_string()), checked);
        checked.expect_err("a refusal")
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let cpus = refused(|config| config.cpus = MAX_CPUS + 1);
        assert_eq!(cpus, "4097 CPUs: a machine has 1 to 4096");
        let nodes = refused(|config| config.nodes = 2);
        assert!(nodes.starts_with("2 nodes with 1 CPUs"), "{nodes}");
        let nodes = refused(|config| (config.cpus, config.nodes) = (16, MAX_NODES as u32 + 1));
        assert!(nodes.starts_with("9 nodes with 16 CPUs"), "{nodes}");
        for bytes in [0, 1, 8192] {
            let pages = refused(|config| config.page_bytes = bytes);
            assert!(pages.starts_with(&format!("page size {bytes}: ")));
        }
        for bytes in [0, 4, 24, 512] {
            let line = refused(|config| config.cache_line = bytes);
            assert!(line.starts_with(&format!("cache line of {bytes} bytes")));
        }
    }

    #[test]
    fn clocks_that_cannot_be_are_refused() {
        let refused = |change: fn(&mut Config, &mut TimeModel)| {
            refused(|config| {
                let mut model = crate::time::tests::MODEL;
                change(config, &mut model);
                config.time = Some(model);
            })
        };
        let cpus = refused(|config, _| config.cpus = TIMED_CPUS_MAX + 1);
        assert_eq!(
            cpus,
            "513 CPUs with clocks: a machine with clocks has 1 to 512"
        );
        let clusters = refused(|_, model| model.lines.cluster_cpus = 0);
        assert!(clusters.starts_with("clusters of 0 CPUs in sockets of 8"));
        let sockets = refused(|_, model| model.lines.socket_cpus = 6);
        assert!(sockets.starts_with("clusters of 4 CPUs in sockets of 6"));
        let cache = refused(|_, model| model.lines.l1.bytes = 1000);
        assert!(cache.starts_with("l1 of 1000 bytes and 8 ways"), "{cache}");
        let cache = refused(|_, model| model.lines.llc.as_mut().unwrap().level.ways = 0);
        assert!(cache.starts_with("llc of 4194304 bytes and 0 ways"));
        let misses = refused(|_, model| model.lines.misses = 0);
        assert!(misses.starts_with("0 misses at a time"), "{misses}");
        // As large as it can be.
        let whole = Config {
            cpus: TIMED_CPUS_MAX,
            time: Some(crate::time::tests::MODEL),
            ..Config::default()
        };
        assert!(whole.check().is_ok());
    }

    #[test]
    fn memory_that_is_refused_is_told_what_there_can_be() {
        for (page_bytes, hint) in [
            (4096, "give it 4k to 8T"),
            (16384, "give it 16k to 32T"),
            (65536, "give it 64k to 128T"),
        ] {
            let config = |memory_bytes| Config {
                page_bytes,
                memory_bytes,
                ..Config::default()
            };
            for memory_bytes in [page_bytes, (PAGES_MAX + 1) * page_bytes - 1] {
                assert!(config(memory_bytes).check().is_ok(), "{memory_bytes}");
            }
            for memory_bytes in [page_bytes - 1, (PAGES_MAX + 1) * page_bytes, u64::MAX] {
                let text = refused(|it| *it = config(memory_bytes));
                let expected = format!("1 to 2^31 pages; {hint}");
                assert!(text.ends_with(&expected), "{text}");
            }
        }
        // The variant is public, so callers can make such a value.
        for page_bytes in [0, 1, u64::MAX] {
            let error = ConfigError::Memory {
                memory_bytes: 1,
                page_bytes,
            };
            assert!(error.to_string().ends_with("1 to 2^31 pages"), "{error}");
        }
    }
}
