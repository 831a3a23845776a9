//! Free objects that a kernel counts as active: slabinfo and sysfs hide them, a debugger reads them.
//!
//! `contrib/quarry_snapshot.py` writes them with drgn, as the key `hidden` of a snapshot's JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::slabinfo::{Slabinfo, SlabinfoRow};

/// Slabs of a list by the free objects of each: a key of 3 with the value 2 is two slabs with three free objects each.
pub type SlabsByFree = BTreeMap<u64, u64>;

/// State that the kernel's reports hide, at the moment of the snapshot's slabinfo.
///
/// ```
/// use quarry_snapshot::HiddenState;
///
/// let text = r#"{"read_by": "drgn 0.3.0", "caches": {"pid": {
///     "cpus": {"0": {"slab_free": 5, "partial": {"3": 2}}}, "nodes": {"0": {"partial": {"7": 1}}}}}}"#;
/// let hidden: HiddenState = serde_json::from_str(text)?;
/// assert_eq!(hidden.caches["pid"].held_objects(), 5 + 2 * 3);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HiddenState {
    /// Program that read it, with its version.
    pub read_by: String,
    /// State of each cache, by its name in slabinfo. Of a cache that is missing nothing is known.
    pub caches: BTreeMap<String, HiddenCache>,
}

/// Hidden state of a cache.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HiddenCache {
    /// Holdings of CPUs that have any, by the CPU's number.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub cpus: BTreeMap<u32, HiddenCpu>,
    /// Lists and barns of nodes, by the node's number.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<u32, HiddenNode>,
}

/// Free objects that a CPU holds of a cache.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HiddenCpu {
    /// Free objects of the slab that the CPU allocates from; left out if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slab_free: Option<u64>,
    /// Slabs on the CPU's partial list.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub partial: SlabsByFree,
    /// Objects in the main sheaf; left out if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub main: Option<u64>,
    /// Objects in the spare sheaf; left out if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spare: Option<u64>,
    /// Objects in the sheaf that gathers those freed by RCU; left out if there is none. They are freed, but cannot be
    /// allocated before a grace period ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rcu_free: Option<u64>,
}

/// Free objects of a cache on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HiddenNode {
    /// Slabs on the node's partial list. The kernel counts these free objects, but not slab by slab.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub partial: SlabsByFree,
    /// Full sheaves in the barn.
    #[serde(skip_serializing_if = "is_zero")]
    pub full_sheaves: u64,
    /// Objects in these sheaves.
    #[serde(skip_serializing_if = "is_zero")]
    pub full_sheaf_objects: u64,
    /// Empty sheaves in the barn.
    #[serde(skip_serializing_if = "is_zero")]
    pub empty_sheaves: u64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

fn sum(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

fn slabs_of(slabs: &SlabsByFree) -> u64 {
    sum(slabs.values().copied())
}

fn free_of(slabs: &SlabsByFree) -> u64 {
    let free = slabs.iter();
    sum(free.map(|(free, slabs)| free.saturating_mul(*slabs)))
}

impl HiddenCpu {
    /// Free objects in sheaves.
    #[must_use]
    pub fn in_sheaves(&self) -> u64 {
        let sheaves = [self.main, self.spare, self.rcu_free];
        sum(sheaves.into_iter().flatten())
    }
}

impl HiddenCache {
    /// Free objects that the kernel counts as active: of CPUs' slabs and lists, in sheaves and in barns.
    #[must_use]
    pub fn held_objects(&self) -> u64 {
        let in_slabs = sum(self.cpu_slabs()).saturating_add(self.listed_free());
        in_slabs.saturating_add(self.in_sheaves())
    }

    /// Free objects of each slab that a CPU allocates from.
    pub fn cpu_slabs(&self) -> impl Iterator<Item = u64> + Clone {
        self.cpus.values().filter_map(|cpu| cpu.slab_free)
    }

    /// Free objects of slabs on CPUs' partial lists.
    #[must_use]
    pub fn listed_free(&self) -> u64 {
        sum(self.cpus.values().map(|cpu| free_of(&cpu.partial)))
    }

    /// Slabs on CPUs' partial lists.
    #[must_use]
    pub fn listed_slabs(&self) -> u64 {
        sum(self.cpus.values().map(|cpu| slabs_of(&cpu.partial)))
    }

    /// Objects in sheaves, those of barns included.
    #[must_use]
    pub fn in_sheaves(&self) -> u64 {
        let of_cpus = sum(self.cpus.values().map(HiddenCpu::in_sheaves));
        let of_barns = sum(self.nodes.values().map(|node| node.full_sheaf_objects));
        of_cpus.saturating_add(of_barns)
    }

    /// Sheaves beside the main ones: spare ones, those for RCU, and those of barns.
    #[must_use]
    pub fn sheaves_beside_main(&self) -> u64 {
        let of_cpu =
            |cpu: &HiddenCpu| u64::from(cpu.spare.is_some()) + u64::from(cpu.rcu_free.is_some());
        let of_cpus = sum(self.cpus.values().map(of_cpu));
        let of_barns = self.nodes.values();
        let of_barns =
            sum(of_barns.map(|node| node.full_sheaves.saturating_add(node.empty_sheaves)));
        of_cpus.saturating_add(of_barns)
    }

    /// Slabs on nodes' lists.
    #[must_use]
    pub fn partial_slabs(&self) -> u64 {
        sum(self.nodes.values().map(|node| slabs_of(&node.partial)))
    }

    /// Free objects of slabs on nodes' lists.
    #[must_use]
    pub fn partial_free(&self) -> u64 {
        sum(self.nodes.values().map(|node| free_of(&node.partial)))
    }

    /// Slabs that were read, those of CPUs, their lists and nodes' lists: the free objects of each, and how many there are.
    /// All other slabs are full.
    pub fn open_slabs(&self) -> impl Iterator<Item = (u64, u64)> {
        let of_cpus = self.cpu_slabs().map(|free| (free, 1));
        let lists = self.cpus.values().map(|cpu| &cpu.partial);
        let lists = lists.chain(self.nodes.values().map(|node| &node.partial));
        of_cpus.chain(lists.flatten().map(|(free, slabs)| (*free, *slabs)))
    }

    /// Contradiction to the cache's row in slabinfo, if there is one.
    fn contradiction(&self, row: &SlabinfoRow) -> Option<String> {
        let free = self.open_slabs().map(|(free, _)| free).max().unwrap_or(0);
        let slabs = sum(self.open_slabs().map(|(_, slabs)| slabs));
        let on_nodes = row.num_objs.saturating_sub(row.active_objs);
        let (held, found) = (self.held_objects(), self.partial_free());
        match () {
            () if free > row.objperslab => Some(format!(
                "a slab has {free} free objects, but room for {}",
                row.objperslab
            )),
            () if slabs > row.num_slabs => {
                Some(format!("{slabs} slabs, slabinfo has {}", row.num_slabs))
            }
            () if held > row.active_objs => Some(format!(
                "{held} free objects on CPUs and in sheaves, slabinfo has {} active ones",
                row.active_objs
            )),
            () if found != on_nodes => Some(format!(
                "{found} free objects on the nodes' lists, slabinfo has {on_nodes}"
            )),
            () => None,
        }
    }
}

impl HiddenState {
    /// Checks that it can be of a report's moment.
    pub(crate) fn check(&self, report: &Slabinfo) -> Result<(), String> {
        for (name, cache) in &self.caches {
            let Some(row) = report.row(name) else {
                return Err(format!("{name} is not in slabinfo"));
            };
            if let Some(what) = cache.contradiction(row) {
                return Err(format!("{name}: {what}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod pairs;
#[cfg(test)]
mod tests;
