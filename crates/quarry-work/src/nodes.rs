//! Memory of nodes that is in use before a run.

use std::path::Path;

use quarry_ask::{Json, Kind, Value};
use quarry_core::design::Design;
use quarry_core::machine::{CpuId, Cpus as _, NodeId};
use quarry_core::page::{MAX_ORDER, MigrateType, ZoneReport};
use quarry_designs::units;
use quarry_sim::Config;
use quarry_sim::driver::Driver;

use crate::error::WorkError;

/// Memory of a node that is free before a run; others use the rest of it, and do nothing.
///
/// Written as the kernel's command line has sizes by node (`hugetlb_cma=`): `1:256M`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeFree {
    /// The node.
    pub node: u32,
    /// Bytes that are free.
    pub bytes: u64,
}

impl Value for NodeFree {
    const KIND: Kind = Kind::Text;

    fn parse(text: &str, _: &Path) -> Result<Self, String> {
        let (node, bytes) = text
            .split_once(':')
            .ok_or_else(|| format!("{text:?} has no node: write NODE:BYTES, such as 1:256M"))?;
        let node = node.trim().parse();
        let node = node.map_err(|_| format!("{text:?}: the node must be a number from 0 on"))?;
        let bytes = units::parse_bytes(bytes.trim())?;
        Ok(Self { node, bytes })
    }

    fn json(&self) -> Json {
        format!("{}:{}", self.node, self.bytes).into()
    }
}

impl NodeFree {
    /// Refuses nodes that the machine does not have, and one that is named twice.
    pub(crate) fn check(all: &[Self], machine: &str, config: &Config) -> Result<(), WorkError> {
        for (at, free) in all.iter().enumerate() {
            check("node-free", free.node, machine, config)?;
            if all[..at].iter().any(|other| other.node == free.node) {
                let message = format!("node-free names node {} twice", free.node);
                return Err(WorkError::Usage(message));
            }
        }
        Ok(())
    }

    /// Puts memory in use for good until this much of each node is free: movable blocks as large as can be. No time passes
    /// meanwhile.
    pub(crate) fn leave<D: Design>(
        all: &[Self],
        driver: &mut Driver<'_, D>,
    ) -> Result<(), WorkError> {
        driver.uncounted(|driver| {
            let left = all.iter().try_for_each(|free| free.leave_one(driver));
            driver.run_on(CpuId(0));
            left
        })
    }

    fn leave_one<D: Design>(self, driver: &Driver<'_, D>) -> Result<(), WorkError> {
        let machine = driver.machine();
        let cpus = (0..machine.topology().cpus).map(CpuId);
        let on_node = |cpu: &CpuId| machine.node_of_cpu(*cpu) == NodeId(self.node);
        let zones = driver.pages().zone_reports();
        let of_node = |zone: &ZoneReport| zone.id.node == NodeId(self.node);
        let free: u64 = zones.filter(of_node).map(|zone| zone.free_pages).sum();
        let page_bytes = machine.topology().page_size() as u64;
        let Some(mut used) = free.checked_sub(self.bytes / page_bytes) else {
            let (node, has) = (self.node, (free * page_bytes) >> 20);
            return Err(WorkError::Usage(format!(
                "node-free must be at most {has}M, which node {node} has; or give the machine more memory"
            )));
        };
        // A CPU of the node takes them, from its own node's zone.
        let Some(cpu) = cpus.into_iter().find(on_node) else {
            return Ok(());
        };
        driver.run_on(cpu);
        for order in (0..=MAX_ORDER).rev() {
            while used >= 1 << order {
                // Receipts end here: nothing frees these blocks.
                match driver.alloc_old_pages(order, MigrateType::Movable) {
                    Some(_) => used -= 1 << order,
                    None => break,
                }
            }
        }
        Ok(())
    }
}

/// Refuses a node that the machine does not have.
pub(crate) fn check(
    option: &str,
    node: u32,
    machine: &str,
    config: &Config,
) -> Result<(), WorkError> {
    if node < config.nodes {
        return Ok(());
    }
    let nodes = match config.nodes {
        1 => "1 node".to_string(),
        several => format!("{several} nodes"),
    };
    Err(WorkError::Usage(format!(
        "{option}: there is no node {node}; {machine} has {nodes}, the first is 0"
    )))
}
