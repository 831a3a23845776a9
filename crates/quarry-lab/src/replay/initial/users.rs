//! Which CPUs allocate from which cache, in the order of their first allocation.

use std::collections::HashMap;

use quarry_core::geometry::KmallocClass;

use super::{Preparation, kmalloc_class, kmalloc_kind};
use crate::error::LabError;
use crate::replay::part::{Phase, Window};

/// A cache as the recording tells it: kind and class of a kmalloc, or one of the input's caches.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum User {
    Kmalloc(usize, u32),
    Group(usize),
}

/// The CPUs of every cache that the replayed part allocates from.
pub(super) struct Users {
    cpus: HashMap<User, Vec<u16>>,
    machine_cpus: u16,
}

impl Users {
    /// Reads the replayed part once.
    pub(super) fn scan(preparation: &Preparation<'_>) -> Result<Self, LabError> {
        let input = preparation.input;
        // A machine has at most 4096 CPUs.
        let machine_cpus = preparation.spec.config.cpus as u16;
        let mut cpus: HashMap<User, Vec<u16>> = HashMap::new();
        let mut window = Window::new(input.part, input.file.meta().first_time_ns);
        let (mut events, mut chunk) = (input.file.events(), Vec::new());
        'read: while events.next_chunk(&mut chunk)? {
            for event in &chunk {
                match window.phase(event.time_ns) {
                    Phase::Before => continue,
                    Phase::In => {}
                    Phase::After => break 'read,
                }
                if event.kind.is_page() || event.kind.is_free() {
                    continue;
                }
                let user = if event.kind.is_kmalloc() {
                    let bytes = event.bytes_req;
                    let class = kmalloc_class(preparation.kmalloc, &preparation.params, bytes);
                    class.map(|class| User::Kmalloc(kmalloc_kind(event.flags), class.index))
                } else {
                    let group = input.cache_of.get(usize::from(event.cache));
                    group.map(|group| User::Group((*group).into()))
                };
                let Some(user) = user else { continue };
                let cpus = cpus.entry(user).or_default();
                let cpu = event.cpu % machine_cpus;
                if !cpus.contains(&cpu) {
                    cpus.push(cpu);
                }
            }
        }
        Ok(Self { cpus, machine_cpus })
    }

    /// All CPUs: first those that allocate from a cache, in the order in which they do.
    pub(super) fn cpus(
        &self,
        kmalloc: Option<(usize, KmallocClass)>,
        groups: &[usize],
    ) -> Vec<u16> {
        let kmalloc = kmalloc.map(|(kind, class)| User::Kmalloc(kind, class.index));
        let groups = groups.iter().map(|group| User::Group(*group));
        let mut order = Vec::with_capacity(self.machine_cpus.into());
        let mut seen = vec![false; self.machine_cpus.into()];
        let users = kmalloc.into_iter().chain(groups);
        let first = users.filter_map(|user| self.cpus.get(&user)).flatten();
        for cpu in first.copied().chain(0..self.machine_cpus) {
            if !std::mem::replace(&mut seen[usize::from(cpu)], true) {
                order.push(cpu);
            }
        }
        order
    }
}
