//! Which node a CPU belongs to, from `/sys/devices/system/node`, without allocating.
//!
//! # Rules
//!
//! * The machine's nodes are those of the system's that are online and have both memory and a CPU
//!   that the machine serves, numbered from 0 in the system's order. Their system numbers may have
//!   gaps.
//! * Which nodes have memory says `has_memory`, or `has_normal_memory` where that cannot be read; where
//!   neither can, all are taken to have some. A node without memory may then become one of the machine's:
//!   its part of the machine's memory cannot be bound to it (`HostMachine::bind_error`), and lies where
//!   the system puts it.
//! * A node with memory only (CXL, high-bandwidth memory) is left out: no thread is local to it.
//! * CPUs of a node without memory belong to the nearest of the machine's nodes by the system's table
//!   of distances, the lowest of several; to the following node if there is no such table.
//! * A CPU on no node's list, because it is offline, belongs to the node of the CPU that is numbered
//!   before it, the first such ones to node 0. When it comes online it may be less local than it could
//!   be, and nothing else: only CPUs on lists share a node's memory ([`Nodes::listed`]), as virtual
//!   machines may announce many times the CPUs that they ever have. If none is on a list, all do.
//! * A system that tells of one node or none, as most computers and all kernels without NUMA do, has
//!   one. So has, with a reason ([`NumaUse::reason`]), one that tells what cannot be understood, hides
//!   its list of nodes, or has more than [`MAX_NODES`] such nodes.

use core::ffi::CStr;
use core::fmt::{self, Write};

use quarry_core::machine::{CpuId, MAX_CPUS, MAX_NODES, NodeId};

use crate::os;
use crate::topology::{LIST_BYTES, list, number};

/// Node numbers are below this in all kernels.
const SYSTEM_NODES: u32 = os::NODE_MASK_BITS;
/// Longest path of a file, with the zero byte at its end.
const PATH_BYTES: usize = 256;
/// The entry of a CPU that was on no list.
const UNKNOWN: u8 = u8::MAX;

/// How many memory nodes are in use, and why not those that the system has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumaUse {
    /// Nodes of the machine.
    pub nodes: u32,
    /// Why it is one node whatever the system has; `None` if nothing was left out.
    pub reason: Option<NumaUnavailable>,
}

/// Why a machine has one node whatever the system has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NumaUnavailable {
    /// Neither CPUs nor nodes can be read in `/sys/devices/system`.
    NoSysfs,
    /// The list of the system's nodes is missing though the system tells of nodes, or is too long; or
    /// it, or the list of those with memory, is none.
    Nodes,
    /// A node's list of CPUs is missing, is too long, is none, or names a CPU of another node.
    Cpus {
        /// The node's number in the system.
        node: u32,
    },
    /// There are more nodes with CPUs and memory than a machine can have.
    TooMany {
        /// How many there are.
        nodes: u32,
    },
}

impl fmt::Display for NumaUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NoSysfs => f.write_str(
                "neither CPUs nor nodes can be read below /sys/devices/system; is sysfs mounted?",
            ),
            Self::Nodes => write!(
                f,
                "in /sys/devices/system/node, online is missing or has {LIST_BYTES} bytes or more, \
                 or one of online, has_memory and has_normal_memory is not a list of nodes; is a \
                 part of sysfs masked?"
            ),
            Self::Cpus { node } => write!(
                f,
                "/sys/devices/system/node/node{node}/cpulist is missing, is not a list of CPUs, \
                 names a CPU of another node, or has {LIST_BYTES} bytes or more"
            ),
            Self::TooMany { nodes } => write!(
                f,
                "{nodes} nodes have CPUs and memory, and {MAX_NODES} are supported"
            ),
        }
    }
}

impl core::error::Error for NumaUnavailable {}

/// The machine's nodes.
pub(crate) struct Nodes {
    /// Node of each CPU.
    of_cpu: [u8; MAX_CPUS as usize],
    /// The system's number of each node.
    system: [u32; MAX_NODES],
    /// CPUs of each node that are on lists.
    listed: [u32; MAX_NODES],
    in_use: NumaUse,
}

impl Nodes {
    /// The nodes of the CPUs below `cpus` on this computer.
    pub(crate) fn of_this_computer(cpus: u32) -> Self {
        Self::read(&Sysfs { root: "/sys" }, cpus)
    }

    fn read(sysfs: &Sysfs<'_>, cpus: u32) -> Self {
        let cpus = cpus.min(MAX_CPUS);
        let mut nodes = Self::one(cpus, None);
        if let Err(reason) = nodes.fill(sysfs, cpus) {
            nodes = Self::one(cpus, Some(reason));
        }
        nodes
    }

    fn one(cpus: u32, reason: Option<NumaUnavailable>) -> Self {
        let mut listed = [0; MAX_NODES];
        listed[0] = cpus;
        Self {
            of_cpu: [0; MAX_CPUS as usize],
            system: [0; MAX_NODES],
            listed,
            in_use: NumaUse { nodes: 1, reason },
        }
    }

    /// Two nodes of which the CPUs with even numbers are the second's, all of the system's node 0,
    /// with so many CPUs on their lists.
    #[cfg(test)]
    pub(crate) fn alternating(first: u32, second: u32) -> Self {
        let mut listed = [0; MAX_NODES];
        listed[..2].copy_from_slice(&[first, second]);
        Self {
            listed,
            of_cpu: core::array::from_fn(|cpu| u8::from(cpu.is_multiple_of(2))),
            in_use: NumaUse {
                nodes: 2,
                reason: None,
            },
            ..Self::one(0, None)
        }
    }

    pub(crate) fn in_use(&self) -> NumaUse {
        self.in_use
    }

    /// Node of a CPU, which is below [`MAX_CPUS`].
    #[inline(always)]
    pub(crate) fn of_cpu(&self, cpu: CpuId) -> NodeId {
        NodeId(u32::from(self.of_cpu[(cpu.0 % MAX_CPUS) as usize]))
    }

    /// CPUs of a node that were on lists; 0 if the machine has no such node.
    pub(crate) fn listed(&self, node: NodeId) -> u32 {
        self.listed.get(node.0 as usize).copied().unwrap_or(0)
    }

    /// The system's number of a node; `None` if the machine has no such node or there is one only.
    pub(crate) fn system_node(&self, node: NodeId) -> Option<u32> {
        let several = self.in_use.nodes > 1 && node.0 < self.in_use.nodes;
        several.then(|| self.system[node.0 as usize])
    }

    fn fill(&mut self, sysfs: &Sysfs<'_>, cpus: u32) -> Result<(), NumaUnavailable> {
        let Some(online) = sysfs.node_set("online")? else {
            // Sandboxes may hide its files; a kernel without NUMA has no such folder.
            if sysfs.exists("node") {
                return Err(NumaUnavailable::Nodes);
            }
            let mut buffer = [0; LIST_BYTES];
            let cpus = sysfs.read(&mut buffer, format_args!("cpu/possible"));
            return cpus.map(|_| ()).ok_or(NumaUnavailable::NoSysfs);
        };
        let memory = match sysfs.node_set("has_memory")? {
            // Older kernels have no such file, and sandboxes may hide both.
            None => sysfs.node_set("has_normal_memory")?.unwrap_or(online),
            Some(memory) => memory,
        };
        let mut seen = CpuSet::EMPTY;
        let mut members = NodeSet::EMPTY;
        for system in online.iter() {
            if sysfs.each_cpu(system, cpus, |cpu| seen.insert(cpu))? && memory.contains(system) {
                members.insert(system);
            }
        }
        let count = members.iter().count() as u32;
        if count > MAX_NODES as u32 {
            return Err(NumaUnavailable::TooMany { nodes: count });
        }
        if count < 2 {
            let listed = seen.iter().count() as u32;
            if listed > 0 {
                self.listed[0] = listed;
            }
            return Ok(());
        }
        self.listed[0] = 0;
        for (node, system) in self.system.iter_mut().zip(members.iter()) {
            *node = system;
        }
        self.of_cpu.fill(UNKNOWN);
        for system in online.iter() {
            let node = self.nearest(sysfs, system, &online, count as usize);
            sysfs.each_cpu(system, cpus, |cpu| {
                self.of_cpu[cpu as usize] = node;
                self.listed[usize::from(node)] += 1;
                true
            })?;
        }
        let mut before = 0;
        for node in &mut self.of_cpu {
            if *node == UNKNOWN {
                *node = before;
            }
            before = *node;
        }
        self.in_use.nodes = count;
        Ok(())
    }

    /// The machine's node that is nearest to one of the system's, itself if it is one.
    fn nearest(&self, sysfs: &Sysfs<'_>, system: u32, online: &NodeSet, count: usize) -> u8 {
        let members = &self.system[..count];
        let own = members.iter().position(|&member| member == system);
        let nearest = own.or_else(|| {
            let mut buffer = [0; LIST_BYTES];
            let text = sysfs.read(&mut buffer, format_args!("node/node{system}/distance"))?;
            let distances = text.split(u8::is_ascii_whitespace);
            let distances = distances.filter(|word| !word.is_empty()).map(number);
            let known = online.iter().zip(distances).filter_map(|(node, distance)| {
                let member = members.iter().position(|&member| member == node)?;
                Some((distance?, member))
            });
            known.min().map(|(_, member)| member)
        });
        let following = || members.iter().position(|&member| member > system);
        nearest.or_else(following).unwrap_or(0) as u8
    }
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.in_use.fmt(f)
    }
}

/// A set of the numbers below `64 * WORDS`.
#[derive(Clone, Copy)]
struct Set<const WORDS: usize>([u64; WORDS]);

type NodeSet = Set<{ SYSTEM_NODES as usize / 64 }>;
type CpuSet = Set<{ MAX_CPUS as usize / 64 }>;

impl<const WORDS: usize> Set<WORDS> {
    const EMPTY: Self = Self([0; WORDS]);

    /// `false` if the number was in the set, or cannot be.
    fn insert(&mut self, number: u32) -> bool {
        let Some(word) = self.0.get_mut(number as usize / 64) else {
            return false;
        };
        let bit = 1 << (number % 64);
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    fn contains(&self, number: u32) -> bool {
        let word = self.0.get(number as usize / 64);
        word.is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    fn iter(&self) -> impl Iterator<Item = u32> {
        (0..64 * WORDS as u32).filter(|&number| self.contains(number))
    }
}

/// Files as the kernel lays them out below `/sys`.
struct Sysfs<'a> {
    root: &'a str,
}

impl Sysfs<'_> {
    /// A file below `/sys/devices/system`, if it can be read whole.
    fn read<'b>(&self, buffer: &'b mut [u8], name: fmt::Arguments<'_>) -> Option<&'b [u8]> {
        let path = self.path(name)?;
        let bytes = buffer.len();
        os::read_file(path.as_c_str()?, buffer).filter(|text| text.len() < bytes)
    }

    /// Whether there is a folder of this name below `/sys/devices/system`.
    fn exists(&self, name: &str) -> bool {
        let path = self.path(format_args!("{name}"));
        path.is_some_and(|path| path.as_c_str().is_some_and(os::exists))
    }

    fn path(&self, name: fmt::Arguments<'_>) -> Option<Path> {
        let mut path = Path {
            bytes: [0; PATH_BYTES],
            length: 0,
        };
        write!(path, "{}/devices/system/{name}", self.root).ok()?;
        Some(path)
    }

    /// A list of nodes; `None` if there is no such file, or it is too long.
    fn node_set(&self, name: &str) -> Result<Option<NodeSet>, NumaUnavailable> {
        let mut buffer = [0; LIST_BYTES];
        let Some(text) = self.read(&mut buffer, format_args!("node/{name}")) else {
            return Ok(None);
        };
        let mut nodes = NodeSet::EMPTY;
        for range in list(text) {
            let range = range.filter(|&(_, last)| last < SYSTEM_NODES);
            let (first, last) = range.ok_or(NumaUnavailable::Nodes)?;
            (first..=last).for_each(|node| {
                nodes.insert(node);
            });
        }
        Ok(Some(nodes))
    }

    /// Calls `f` with each CPU of a node that is below `cpus`; whether there was one. `f` says
    /// whether the CPU can be this node's.
    fn each_cpu(
        &self,
        node: u32,
        cpus: u32,
        mut f: impl FnMut(u32) -> bool,
    ) -> Result<bool, NumaUnavailable> {
        let nonsense = NumaUnavailable::Cpus { node };
        let mut buffer = [0; LIST_BYTES];
        let text = self.read(&mut buffer, format_args!("node/node{node}/cpulist"));
        let mut any = false;
        for range in list(text.ok_or(nonsense)?) {
            let (first, last) = range.ok_or(nonsense)?;
            for cpu in first..cpus.min(last.saturating_add(1)) {
                any = true;
                if !f(cpu) {
                    return Err(nonsense);
                }
            }
        }
        Ok(any)
    }
}

/// A path whose last byte stays zero.
struct Path {
    bytes: [u8; PATH_BYTES],
    length: usize,
}

impl Path {
    fn as_c_str(&self) -> Option<&CStr> {
        CStr::from_bytes_until_nul(&self.bytes).ok()
    }
}

impl Write for Path {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let end = self.length + part.len();
        let room = self.bytes[..PATH_BYTES - 1].get_mut(self.length..end);
        room.ok_or(fmt::Error)?.copy_from_slice(part.as_bytes());
        self.length = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    /// A folder that looks like `/sys`, gone when dropped.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let name = format!("quarry-sysfs-{}-{name}", std::process::id());
            let tree = Self(std::env::temp_dir().join(name));
            for (name, text) in files {
                let path = tree.0.join("devices/system").join(name);
                fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
                fs::write(path, format!("{text}\n")).expect("a file");
            }
            tree
        }

        fn nodes(&self, cpus: u32) -> Nodes {
            let root = self.0.to_str().expect("UTF-8");
            Nodes::read(&Sysfs { root }, cpus)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            // What is left of a test is no error of it.
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// The nodes that a tree gives `cpus` CPUs: their system numbers, and each CPU's node.
    fn dealt(name: &str, cpus: u32, files: &[(&str, &str)]) -> (Vec<u32>, Vec<u32>) {
        let nodes = Tree::new(name, files).nodes(cpus);
        assert_eq!(nodes.in_use().reason, None, "{name}");
        let system = (0..nodes.in_use().nodes).filter_map(|node| nodes.system_node(NodeId(node)));
        let of_cpu = (0..cpus).map(|cpu| nodes.of_cpu(CpuId(cpu)).0);
        (system.collect(), of_cpu.collect())
    }

    /// CPUs that share each node's memory, of a machine for `cpus` CPUs.
    fn listed(name: &str, cpus: u32, files: &[(&str, &str)]) -> Vec<u32> {
        let nodes = Tree::new(name, files).nodes(cpus);
        let all = (0..nodes.in_use().nodes).map(|node| nodes.listed(NodeId(node)));
        all.collect()
    }

    fn reason(name: &str, files: &[(&str, &str)]) -> Option<NumaUnavailable> {
        let nodes = Tree::new(name, files).nodes(8);
        assert_eq!(nodes.in_use().nodes, 1, "{name}");
        assert!((0..8).all(|cpu| nodes.of_cpu(CpuId(cpu)) == NodeId(0)));
        assert_eq!(nodes.system_node(NodeId(0)), None, "memory may be anywhere");
        nodes.in_use().reason
    }

    #[test]
    #[cfg_attr(miri, ignore = "no files")]
    fn second_hyper_threads_are_on_the_node_of_their_cores() {
        let (system, of_cpu) = dealt(
            "threads",
            64,
            &[
                ("node/online", "0-1"),
                ("node/has_memory", "0-1"),
                ("node/node0/cpulist", "0-15,32-47"),
                ("node/node1/cpulist", "16-31,48-63"),
            ],
        );
        assert_eq!(system, [0, 1]);
        for (cpu, node) in of_cpu.into_iter().enumerate() {
            assert_eq!(node, cpu as u32 / 16 % 2, "CPU {cpu}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "no files")]
    fn nodes_may_be_many_uneven_and_numbered_with_gaps() {
        let four = dealt(
            "four",
            9,
            &[
                ("node/online", "0,2,8,252"),
                ("node/has_memory", "0,2,8,252"),
                ("node/node0/cpulist", "0,4"),
                ("node/node2/cpulist", "1,5"),
                ("node/node8/cpulist", "2,6,8"),
                ("node/node252/cpulist", "3,7"),
            ],
        );
        assert_eq!(four, (vec![0, 2, 8, 252], vec![0, 1, 2, 3, 0, 1, 2, 3, 2]));
    }

    #[test]
    #[cfg_attr(miri, ignore = "no files")]
    fn nodes_with_memory_only_are_left_out() {
        let (system, of_cpu) = dealt(
            "memory-only",
            4,
            &[
                ("node/online", "0-3"),
                ("node/has_normal_memory", "0-3"),
                ("node/node0/cpulist", ""),
                ("node/node1/cpulist", "0-1"),
                ("node/node2/cpulist", ""),
                ("node/node3/cpulist", "2-3"),
            ],
        );
        assert_eq!((system, of_cpu), (vec![1, 3], vec![0, 0, 1, 1]));
    }

    #[test]
    #[cfg_attr(miri, ignore = "no files")]
    fn cpus_without_memory_belong_to_the_nearest_node() {
        let mut files = vec![
            ("node/online", "0-3"),
            ("node/has_memory", "0,2-3"),
            ("node/node0/cpulist", "0"),
            ("node/node1/cpulist", "1-2"),
            ("node/node2/cpulist", "3"),
            ("node/node3/cpulist", "4"),
        ];
        let (_, following) = dealt("memoryless", 5, &files);
        assert_eq!(following, [0, 1, 1, 1, 2]);
        files.push(("node/node1/distance", "21 10 31 12"));
        let (system, nearest) = dealt("memoryless-distance", 5, &files);
        assert_eq!((system, nearest), (vec![0, 2, 3], vec![0, 2, 2, 1, 2]));
    }

    #[test]
    #[cfg_attr(miri, ignore = "no files")]
    fn all_nodes_have_memory_where_no_file_says_which() {
        let mut files = vec![
            ("node/online", "0-2"),
            ("node/node0/cpulist", "0"),
            ("node/node1/cpulist", "1"),
            ("node/node2/cpulist", "2"),
        ];
        assert_eq!(dealt("memory-unknown", 3, &files).0, [0, 1, 2]);
        files.push(("node/has_normal_memory", "0,2"));
        assert_eq!(dealt("memory-normal", 3, &files).0, [0, 2]);
        files.push(("node/has_memory", "0-1"));
        assert_eq!(dealt("memory-known", 3, &files).0, [0, 1]);
        // One that is too long is one that cannot be read.
        let long = "0,".repeat(LIST_BYTES);
        files.last_mut().expect("has_memory").1 = &long;
        assert_eq!(dealt("memory-long", 3, &files).0, [0, 2]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "no files")]
    fn offline_and_unserved_cpus() {
        let files = [
            ("node/online", "0-1"),
            ("node/has_memory", "0-1"),
            ("node/node0/cpulist", "1-2"),
            ("node/node1/cpulist", "5-6"),
        ];
        let (_, of_cpu) = dealt("offline", 8, &files);
        assert_eq!(of_cpu, [0, 0, 0, 0, 0, 1, 1, 1]);
        assert_eq!(listed("offline-listed", 8, &files), [2, 2]);
        // A machine for the first CPUs only has no thread on node 1.
        let (system, of_cpu) = dealt("unserved", 4, &files);
        assert_eq!((system, of_cpu), (vec![], vec![0; 4]));
        assert_eq!(listed("unserved-listed", 4, &files), [2]);
        assert_eq!(listed("unserved-all", 1, &files), [1], "none is on a list");
    }

    /// Virtual machines announce CPUs that may be plugged in later.
    #[test]
    #[cfg_attr(miri, ignore = "no files")]
    fn only_cpus_on_lists_share_memory() {
        let mut files = vec![
            ("node/online", "0-1"),
            ("cpu/possible", "0-255"),
            ("node/node0/cpulist", "0-15"),
            ("node/node1/cpulist", "16-31"),
        ];
        assert_eq!(listed("plug", 256, &files), [16, 16]);
        files[0].1 = "0";
        assert_eq!(listed("plug-one", 256, &files), [16]);
        // A node without memory lends its CPUs to the others.
        files[0].1 = "0-1";
        files.push(("node/has_memory", "1"));
        assert_eq!(listed("plug-memory", 256, &files), [32]);
        files.extend([("node/node2/cpulist", "32-35"), ("node/has_memory", "0,2")]);
        files[0].1 = "0-2";
        assert_eq!(listed("plug-nearest", 256, &files), [16, 20]);
        assert_eq!(
            listed("plug-none", 256, &[("cpu/possible", "0-255")]),
            [256]
        );
        let lost = [("node/online", "0")];
        assert_eq!(listed("plug-lost", 256, &lost), [256]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "no files")]
    fn one_node_or_none_needs_no_reason() {
        let one = [("node/online", "0"), ("node/node0/cpulist", "0-7")];
        assert_eq!(reason("one", &one), None);
        assert_eq!(reason("no-numa", &[("cpu/possible", "0-7")]), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "no files")]
    fn nonsense_has_a_reason() {
        assert_eq!(reason("nothing", &[]), Some(NumaUnavailable::NoSysfs));
        for online in ["0-", "0-1024", "zero", "4294967295"] {
            let files = [("node/online", online)];
            assert_eq!(reason("nodes", &files), Some(NumaUnavailable::Nodes));
        }
        let huge = "0,".repeat(LIST_BYTES);
        let masked = [("node/possible", "0-1"), ("cpu/possible", "0-7")];
        assert_eq!(reason("masked", &masked), Some(NumaUnavailable::Nodes));
        for memory in ["node/has_memory", "node/has_normal_memory"] {
            let files = [
                ("node/online", "0-1"),
                (memory, "0-"),
                ("node/node0/cpulist", "0-3"),
                ("node/node1/cpulist", "4-7"),
            ];
            assert_eq!(reason("memory", &files), Some(NumaUnavailable::Nodes));
        }
        let long = [("node/online", &*huge), ("cpu/possible", "0-7")];
        assert_eq!(reason("long", &long), Some(NumaUnavailable::Nodes));
        for cpulist in ["4-8,x", "7-4", "4294967296", "3-7", &huge] {
            let files = [
                ("node/online", "0-1"),
                ("node/node0/cpulist", "0-3"),
                ("node/node1/cpulist", cpulist),
            ];
            let expected = Some(NumaUnavailable::Cpus { node: 1 });
            assert_eq!(reason("cpus", &files), expected, "{cpulist:.9}");
        }
        let lost = [("node/online", "0"), ("cpu/possible", "0-7")];
        assert_eq!(
            reason("lost", &lost),
            Some(NumaUnavailable::Cpus { node: 0 })
        );
    }

    #[test]
    #[cfg_attr(miri, ignore = "no files")]
    fn more_nodes_than_a_machine_can_have() {
        let lists: Vec<(String, String)> = (0..9)
            .map(|node| (format!("node/node{node}/cpulist"), node.to_string()))
            .collect();
        let mut files = vec![("node/online", "0-8")];
        files.extend(lists.iter().map(|(name, text)| (&**name, &**text)));
        let nodes = Tree::new("nine", &files).nodes(9);
        let reason = NumaUnavailable::TooMany { nodes: 9 };
        assert_eq!(nodes.in_use().reason, Some(reason));
        assert!(reason.to_string().contains("9 nodes"), "{reason}");
        // The ninth is not served.
        assert_eq!(Tree::new("eight", &files).nodes(8).in_use().nodes, 8);
    }

    #[test]
    fn paths_that_are_too_long_are_not_cut() {
        let root = "/x".repeat(PATH_BYTES);
        let nodes = Nodes::read(&Sysfs { root: &root }, 8);
        assert_eq!(nodes.in_use().reason, Some(NumaUnavailable::NoSysfs));
    }

    #[test]
    #[cfg_attr(miri, ignore = "no files")]
    fn this_computer_is_understood() {
        let nodes = Nodes::of_this_computer(MAX_CPUS);
        let NumaUse {
            nodes: count,
            reason,
        } = nodes.in_use();
        assert!((1..=MAX_NODES as u32).contains(&count), "{count} nodes");
        // Whatever was understood, every CPU has a node.
        for cpu in (0..MAX_CPUS).map(CpuId) {
            let node = nodes.of_cpu(cpu);
            assert!(
                node.0 < count,
                "CPU {} on node {} of {count}",
                cpu.0,
                node.0
            );
        }
        // A sandbox may hide any of the files.
        if let Some(reason) = reason {
            assert_eq!(count, 1, "{reason}");
            std::eprintln!("skipped: {reason}");
        }
    }
}
