//! netperf's TCP_RR: pairs that send a byte to and fro.

use schemars::JsonSchema;
use serde::Serialize;

use super::workload::{WITH_ANOTHER_MACHINE, Workload};
use crate::world::{Scenario, Task, Transport, receive_all};

/// Bytes of a request or an answer between two machines, at most: the data of an Ethernet frame with TCP's options.
const FRAME_BYTES_MAX: u32 = 1448;

/// Parameters of TCP_RR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct TcpRr {
    /// Pairs of a client and a server.
    pub pairs: u32,
    /// Bytes of a request.
    pub request: u32,
    /// Bytes of a response.
    pub response: u32,
    /// True if the servers are on another machine, which is not simulated.
    pub remote: bool,
}

impl Default for TcpRr {
    fn default() -> Self {
        Self {
            pairs: 8,
            request: 1,
            response: 1,
            remote: false,
        }
    }
}

impl Workload for TcpRr {
    fn name(&self) -> &'static str {
        "tcp_rr"
    }

    fn size(&self) -> (&'static str, u32) {
        ("pairs", self.pairs)
    }

    fn tasks(&self) -> u64 {
        let ends = if self.remote { 1 } else { 2 };
        ends * u64::from(self.pairs)
    }

    fn connections(&self) -> u64 {
        self.pairs.into()
    }

    fn messages(&self) -> [u32; 2] {
        [self.request, self.response]
    }

    fn virtual_only(&self) -> Option<&'static str> {
        self.remote.then_some(WITH_ANOTHER_MACHINE)
    }

    fn contradiction(&self) -> Option<String> {
        let larger = self.request.max(self.response);
        (self.remote && larger > FRAME_BYTES_MAX).then(|| {
            format!(
                "{larger} bytes between two machines: {FRAME_BYTES_MAX} at most, as frames are not split"
            )
        })
    }

    fn set_up(&self, scenario: &mut Scenario, _seed: u64) {
        let it = *self;
        for _ in 0..it.pairs {
            let (client, server) = scenario.connect(match it.remote {
                true => Transport::Remote(it.response),
                false => Transport::Tcp,
            });
            scenario.spawn(Box::new(move |task: &dyn Task| {
                while !task.is_over() {
                    task.send(client, it.request, 0)?;
                    receive_all(task, client, it.response)?;
                    task.done(1, u64::from(it.request) + u64::from(it.response));
                }
                task.close(client);
                Ok(())
            }));
            if it.remote {
                continue;
            }
            scenario.spawn(Box::new(move |task: &dyn Task| {
                while receive_all(task, server, it.request)?.bytes > 0 {
                    task.send(server, it.response, 0)?;
                }
                Ok(())
            }));
        }
    }
}
