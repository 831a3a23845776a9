//! The nodes of the CPUs, from `/sys/devices/system/node`, without allocating.
//!
//! # Rules
//!
//! * The machine's nodes are the system's nodes that are online and have both memory and a CPU that the
//!   machine serves. They are numbered from 0 in the system's order; their system numbers may have gaps.
//! * `has_memory` lists the nodes with memory, or `has_normal_memory` if that cannot be read; if
//!   neither can, all are taken to have some. A node without memory may then become one of the machine's:
//!   its part of the machine's memory cannot be bound to it (`HostMachine::bind_error`), and is where
//!   the system puts it.
//! * A node with memory only (CXL, high-bandwidth memory) is left out: no thread is local to it.
//! * CPUs of a node without memory belong to the nearest of the machine's nodes by the system's table
//!   of distances, the lowest of several; to the following node if there is no such table.
//! * A CPU on no node's list, because it is offline, belongs to the node of the CPU numbered before
//!   it. The first such ones belong to node 0. When it comes online it may be less local than it could
//!   be, and nothing else: only CPUs on lists share a node's memory ([`Nodes::listed`]), as virtual
//!   machines may announce many times the CPUs that they ever have. If none is on a list, all do.
//! * A system that lists one node or none, as most computers and all kernels without NUMA do, has
//!   one. So has, with a reason ([`NumaUse::reason`]), one with lists that cannot be parsed, without a
//!   list of nodes, or with more than [`MAX_NODES`] such nodes.

use core::fmt;

use quarry_core::machine::{CpuId, MAX_CPUS, MAX_NODES, NodeId};

use crate::os;
use crate::topology::{LIST_BYTES, Sysfs, list, number};

/// Node numbers are below this in all kernels.
const SYSTEM_NODES: u32 = os::NODE_MASK_BITS;
/// The entry of a CPU that was on no list.
const UNKNOWN: u8 = u8::MAX;

/// Number of memory nodes in use, and the reason if the system has more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumaUse {
    /// Nodes of the machine.
    pub nodes: u32,
    /// The reason for one node whatever the system has; `None` if nothing was left out.
    pub reason: Option<NumaUnavailable>,
}

/// The reason for which a machine has one node whatever the system has.
#[derive(Clone, Copy, PartialEq, Eq)]
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
        /// Number of such nodes.
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

quarry_core::debug_is_display!(NumaUnavailable);

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

    /// Two nodes, both of the system's node 0, with `first` and `second` CPUs on their lists. CPUs with
    /// even numbers are the second's.
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

impl Sysfs<'_> {
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
