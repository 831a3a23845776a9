//! A load of the caller's.

use serde::Serialize;

use crate::world::World;

/// A load that the caller writes: a function that connects ends and adds tasks. `examples/own_load.rs` is one.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Own {
    /// Its name in reports.
    pub name: &'static str,
    /// How large it is: what `set_up` is given.
    pub size: u32,
    /// Bytes of its largest message.
    pub largest_message: u32,
    /// Operations after which its tasks have returned by themselves. `None` if it runs for a time: its tasks then
    /// return when [`Task::is_over`](crate::world::Task::is_over) says so.
    pub operations: Option<u64>,
    /// Fills a world, by the size and the run's seed.
    #[serde(skip)]
    pub set_up: fn(&mut World, size: u32, seed: u64),
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
    /// A world that is set up, to count what is in it.
    pub(super) fn world(&self) -> World {
        let mut world = World::default();
        (self.set_up)(&mut world, self.size, 0);
        world
    }
}
