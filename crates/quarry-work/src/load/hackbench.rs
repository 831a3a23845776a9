//! hackbench: groups of tasks in which each sender writes to each receiver.

use schemars::JsonSchema;
use serde::Serialize;

use super::workload::Workload;
use crate::net::NetRules;
use crate::world::{DATAGRAMS_MAX, Over, PIPE_PAGES, Scenario, Task, Transport, receive_all};

/// Bytes of a datagram, at most: a send buffer has room for it with its head and shared info.
const DATAGRAM_BYTES_MAX: u32 = 64 << 10;

/// Options of hackbench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Hackbench {
    /// Groups.
    pub groups: u32,
    /// Senders in a group, and receivers.
    pub descriptors: u32,
    /// Messages that a sender writes to each receiver.
    pub loops: u32,
    /// Bytes of a message.
    pub bytes: u32,
    /// Medium of the messages: Unix sockets, datagrams or pipes.
    #[schemars(with = "String")]
    pub transport: Transport,
}

impl Default for Hackbench {
    fn default() -> Self {
        Self {
            groups: 10,
            descriptors: 20,
            loops: 100,
            bytes: 100,
            transport: Transport::Unix,
        }
    }
}

impl Workload for Hackbench {
    fn name(&self) -> &'static str {
        "hackbench"
    }

    fn size(&self) -> (&'static str, u32) {
        ("groups", self.groups)
    }

    fn tasks(&self) -> u64 {
        self.connections().saturating_mul(2)
    }

    fn connections(&self) -> u64 {
        u64::from(self.groups) * u64::from(self.descriptors)
    }

    fn messages(&self) -> [u32; 2] {
        [self.bytes; 2]
    }

    fn connection_bytes(&self, message: u64, rules: &NetRules, page_bytes: u64) -> u64 {
        let senders = u64::from(self.descriptors) * message;
        match self.transport {
            Transport::Pipe => (PIPE_PAGES + 1) * page_bytes,
            Transport::Datagram => DATAGRAMS_MAX as u64 * message + senders,
            _ => u64::from(rules.send_buffer) + senders,
        }
    }

    fn operations(&self) -> Option<u64> {
        let pairs = self.connections().saturating_mul(self.descriptors.into());
        Some(pairs.saturating_mul(self.loops.into()))
    }

    fn full(&self, rules: &NetRules, page_bytes: u64) -> u32 {
        let bytes = u64::from(self.bytes);
        let messages = match self.transport {
            Transport::Pipe if bytes <= page_bytes => PIPE_PAGES * (page_bytes / bytes),
            Transport::Pipe => 1,
            Transport::Datagram => DATAGRAMS_MAX as u64 + 1,
            _ => rules.full(self.bytes).into(),
        };
        messages as u32
    }

    fn contradiction(&self) -> Option<String> {
        if self.descriptors == 0 || self.loops == 0 {
            return Some("fds and loops must be at least 1".to_string());
        }
        match self.transport {
            Transport::Tcp | Transport::Remote(_) => {
                let reason = "hackbench over TCP: its tasks use Unix sockets, datagrams or pipes";
                Some(reason.to_string())
            }
            Transport::Datagram if self.bytes > DATAGRAM_BYTES_MAX => Some(format!(
                "datagrams of {} bytes: {DATAGRAM_BYTES_MAX} at most; a stream takes more",
                self.bytes
            )),
            _ => None,
        }
    }

    /// Each receiver has a connection of its own, into which all senders of its group write. Senders write the loops of
    /// the warm-up first.
    fn set_up(&self, scenario: &mut Scenario, _seed: u64) {
        let it = *self;
        let warm_up = scenario.warm_up;
        let loops = it.loops + warm_up.div_ceil(it.descriptors);
        for _ in 0..it.groups {
            let mut outs = Vec::new();
            for _ in 0..it.descriptors {
                let (out, at) = scenario.connect(it.transport);
                outs.push(out);
                scenario.spawn(Box::new(move |task: &dyn Task| {
                    for n in 0..u64::from(it.descriptors) * u64::from(loops) {
                        if warm_up > 0 && n == u64::from(warm_up) {
                            task.warmed_up();
                        }
                        if receive_all(task, at, it.bytes)?.bytes == 0 {
                            return Err(Over);
                        }
                        task.done(1, it.bytes.into());
                    }
                    Ok(())
                }));
            }
            for _ in 0..it.descriptors {
                let outs = outs.clone();
                scenario.spawn(Box::new(move |task: &dyn Task| {
                    for _ in 0..loops {
                        for out in &outs {
                            task.send(*out, it.bytes, 0)?;
                        }
                    }
                    Ok(())
                }));
            }
        }
    }
}
