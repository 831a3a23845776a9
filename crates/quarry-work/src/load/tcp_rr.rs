//! netperf's TCP_RR: pairs that send a byte to and fro.

use serde::Serialize;

use crate::world::{Task, Transport, World, receive_all};

/// What TCP_RR is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TcpRr {
    /// Pairs of a client and a server.
    pub pairs: u32,
    /// Bytes of a request and of a response.
    pub request: u32,
    /// Bytes of a response.
    pub response: u32,
    /// Whether the servers are on another machine, which is not simulated.
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

impl TcpRr {
    /// Tasks.
    #[must_use]
    pub fn tasks(&self) -> u64 {
        let ends = if self.remote { 1 } else { 2 };
        ends * u64::from(self.pairs)
    }

    /// Sets it up.
    pub(crate) fn set_up(&self, world: &mut World) {
        let it = *self;
        for _ in 0..it.pairs {
            let (client, server) = world.connect(match it.remote {
                true => Transport::Remote(it.response),
                false => Transport::Tcp,
            });
            world.spawn(Box::new(move |task: &dyn Task| {
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
            world.spawn(Box::new(move |task: &dyn Task| {
                while receive_all(task, server, it.request)?.bytes > 0 {
                    task.send(server, it.response, 0)?;
                }
                Ok(())
            }));
        }
    }
}
