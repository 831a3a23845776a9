//! A load of the caller's.

use schemars::JsonSchema;
use serde::Serialize;

use super::workload::{WITH_ANOTHER_MACHINE, Workload};
use crate::net::NetRules;
use crate::world::Scenario;
use crate::world::sim::remote;

/// A load that the caller writes: a function that connects ends and adds tasks. `examples/own_load.rs` is one.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize)]
pub struct Own {
    /// Name in reports.
    pub name: &'static str,
    /// Size that `set_up` is given.
    pub size: u32,
    /// Bytes of its largest message.
    pub largest_message: u32,
    /// Operations after which its tasks have returned by themselves. `None` if it runs for a time: its tasks then
    /// return when [`Task::is_over`](crate::world::Task::is_over) says so.
    pub operations: Option<u64>,
    /// Fills a scenario, by the size and the run's seed.
    #[serde(skip)]
    pub set_up: fn(&mut Scenario, size: u32, seed: u64),
}

/// By all but the function: two of these may be one in the program.
impl PartialEq for Own {
    fn eq(&self, other: &Self) -> bool {
        let fields = |it: &Self| (it.name, it.size, it.largest_message, it.operations);
        fields(self) == fields(other)
    }
}

impl Eq for Own {}

impl Own {
    /// The scenario, to count what is in it.
    fn scenario(&self) -> Scenario {
        let mut scenario = Scenario::default();
        (self.set_up)(&mut scenario, self.size, 0);
        scenario
    }
}

impl Workload for Own {
    fn name(&self) -> &'static str {
        self.name
    }

    fn size(&self) -> (&'static str, u32) {
        ("parts", self.size)
    }

    fn tasks(&self) -> u64 {
        self.scenario().tasks.len() as u64
    }

    fn connections(&self) -> u64 {
        self.scenario().connections.len() as u64
    }

    fn messages(&self) -> [u32; 2] {
        [self.largest_message; 2]
    }

    fn connection_bytes(&self, message: u64, rules: &NetRules, _page_bytes: u64) -> u64 {
        u64::from(rules.send_buffer) + message
    }

    fn virtual_only(&self) -> Option<&'static str> {
        let scenario = self.scenario();
        if !scenario.kinds.is_empty() {
            return Some("with processes' objects");
        }
        (remote(&scenario.connections) > 0).then_some(WITH_ANOTHER_MACHINE)
    }

    fn operations(&self) -> Option<u64> {
        self.operations
    }

    fn set_up(&self, scenario: &mut Scenario, seed: u64) {
        (self.set_up)(scenario, self.size, seed);
    }
}
