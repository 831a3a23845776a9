//! hackbench: groups of tasks in which each sender writes to each receiver.

use serde::Serialize;

use crate::world::{Over, Task, Transport, World, receive_all};

/// What hackbench is asked to do; names and defaults are the program's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Hackbench {
    /// Groups.
    pub groups: u32,
    /// Senders of a group, and receivers.
    pub descriptors: u32,
    /// Messages that a sender writes to each receiver.
    pub loops: u32,
    /// Bytes of a message.
    pub bytes: u32,
    /// What they go through: Unix sockets, datagrams or pipes.
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

impl Hackbench {
    /// Tasks.
    #[must_use]
    pub fn tasks(&self) -> u64 {
        (2 * u64::from(self.groups)).saturating_mul(self.descriptors.into())
    }

    /// Messages of the whole run.
    #[must_use]
    pub fn messages(&self) -> u64 {
        let pairs = u64::from(self.descriptors)
            .pow(2)
            .saturating_mul(self.groups.into());
        pairs.saturating_mul(self.loops.into())
    }

    /// Sets it up. Each receiver has a connection of its own, into which all senders of its group write.
    pub(crate) fn set_up(&self, world: &mut World) {
        let it = *self;
        for _ in 0..it.groups {
            let mut outs = Vec::new();
            for _ in 0..it.descriptors {
                let (out, at) = world.connect(it.transport);
                outs.push(out);
                world.spawn(Box::new(move |task: &dyn Task| {
                    for _ in 0..u64::from(it.descriptors) * u64::from(it.loops) {
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
                world.spawn(Box::new(move |task: &dyn Task| {
                    for _ in 0..it.loops {
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
