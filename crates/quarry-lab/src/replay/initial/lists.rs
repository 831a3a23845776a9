//! Lists of the slabs that CPUs took: those on the CPUs' own lists, and the order of the others on the nodes'.

use super::seen::RowSeen;
use super::shape::Slab;

/// The slabs with free places that a CPU took, in that order, without the one that it allocated from
/// when the part began.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Takes {
    pub(super) cpu: u16,
    pub(super) slabs: Vec<Slab>,
    /// Number of them that were on its own list.
    pub(super) listed: usize,
}

/// Slabs that each CPU took. `placed` marks slabs that CPUs allocated from when the part began.
pub(super) fn takes(seen: &RowSeen, placed: &[bool]) -> Vec<Takes> {
    let of_cpu = |cpu: u16| {
        let taken = seen.taken.iter().copied();
        let own = taken.filter(|at| !placed[*at] && seen.slabs[*at].cpu == cpu);
        own.map(|at| Slab::seen(at, seen.slabs[at].free)).collect()
    };
    let users = seen.users.iter().map(|user| Takes {
        cpu: user.cpu,
        slabs: of_cpu(user.cpu),
        listed: 0,
    });
    users.collect()
}

impl Takes {
    /// The slabs that it took from nodes' lists.
    pub(super) fn on_nodes(&self) -> &[Slab] {
        &self.slabs[self.listed..]
    }
}

/// Puts slabs on the CPUs' own lists, at most `listed_max` on each: in turn, until the nodes' lists have no more than the
/// `known_free` free places that they had.
fn share_out(takes: &mut [Takes], listed_max: usize, known_free: u64) {
    takes.iter_mut().for_each(|takes| takes.listed = 0);
    let all = takes.iter().flat_map(|takes| &takes.slabs);
    let all: u64 = all.map(|slab| slab.free).sum();
    let mut on_cpus = all.saturating_sub(known_free);
    for at in 0..listed_max {
        for takes in &mut *takes {
            if let Some(slab) = takes.slabs.get(at).filter(|_| on_cpus > 0) {
                on_cpus = on_cpus.saturating_sub(slab.free);
                takes.listed = at + 1;
            }
        }
    }
}

/// Decides how many slabs of each CPU were on its own list, at most `listed_max`: as many as `told`
/// says by CPU; not if it is empty, or would leave the nodes' lists more than the `known_free` free
/// places that they had; then it is of another moment. True if it was heeded.
pub(super) fn decide(
    takes: &mut [Takes],
    listed_max: usize,
    told: &[u64],
    known_free: u64,
) -> bool {
    for takes in &mut *takes {
        let slabs = told.get(usize::from(takes.cpu)).copied().unwrap_or(0);
        let slabs = usize::try_from(slabs).unwrap_or(usize::MAX);
        takes.listed = slabs.min(listed_max).min(takes.slabs.len());
    }
    let on_nodes = takes.iter().flat_map(Takes::on_nodes);
    let on_nodes: u64 = on_nodes.map(|slab| slab.free).sum();
    let heeded = !told.is_empty() && on_nodes <= known_free;
    if !heeded {
        share_out(takes, listed_max, known_free);
    }
    heeded
}

/// The slabs that were on the nodes' lists, in the order of the lists. A CPU that comes there takes the
/// first one and moves `more_max` others to its own list, whose last one it uses first.
pub(super) fn nodes_order(taken: &[usize], takes: &[Takes], more_max: usize) -> Vec<Slab> {
    let mut left: Vec<&[Slab]> = takes.iter().map(Takes::on_nodes).collect();
    let mut order = Vec::new();
    for at in taken {
        let is_next =
            |slabs: &&mut &[Slab]| slabs.first().is_some_and(|slab| slab.seen == Some(*at));
        if let Some(slabs) = left.iter_mut().find(is_next) {
            let (visit, later) = slabs.split_at(slabs.len().min(1 + more_max));
            order.push(visit[0]);
            order.extend(visit[1..].iter().rev());
            *slabs = later;
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes of a CPU, by free places; the slabs are numbered from `first`.
    fn of_cpu(cpu: u16, first: usize, free: &[u32]) -> Takes {
        let slabs = (first..).zip(free).map(|(at, free)| Slab::seen(at, *free));
        Takes {
            cpu,
            slabs: slabs.collect(),
            listed: 0,
        }
    }

    /// kmalloc-cg-2k in a recording of 6.18 whose sysfs, just before, showed lists of 3 and 2 slabs.
    fn recorded() -> [Takes; 2] {
        [
            of_cpu(0, 0, &[4, 13, 15, 2, 2]),
            of_cpu(1, 5, &[6, 5, 5, 10, 10, 4, 1, 8]),
        ]
    }

    fn listed(mut takes: [Takes; 2], listed_max: usize, known_free: u64) -> [usize; 2] {
        share_out(&mut takes, listed_max, known_free);
        takes.map(|takes| takes.listed)
    }

    #[test]
    fn what_the_nodes_had_not_was_on_cpus() {
        assert_eq!(listed(recorded(), 3, 42), [3, 2]);
        // With 43 places on lists the nodes have more than is known; the next sum is 48.
        assert_eq!(listed(recorded(), 3, 40), [3, 3]);
        // All were on the nodes' lists; as much as lists hold was not.
        assert_eq!(listed(recorded(), 3, 85), [0, 0]);
        assert_eq!(listed(recorded(), 3, 100), [0, 0]);
        assert_eq!(listed(recorded(), 3, 0), [3, 3]);
        assert_eq!(listed(recorded(), 0, 0), [0, 0]);
        share_out(&mut [], 3, 5);
    }

    #[test]
    fn what_is_told_is_heeded_if_it_can_be() {
        let listed = |told: &[u64], known_free| {
            let mut takes = recorded();
            let heeded = decide(&mut takes, 3, told, known_free);
            (heeded, takes.map(|takes| takes.listed))
        };
        assert_eq!(listed(&[], 42), (false, [3, 2]));
        assert_eq!(listed(&[3, 2], 42), (true, [3, 2]));
        // Not more than a list holds, nor than the CPU is seen to take.
        assert_eq!(listed(&[9, 3], 42), (true, [3, 3]));
        assert_eq!(listed(&[0, 0], 100), (true, [0, 0]));
        // The nodes had less than that would leave them.
        assert_eq!(listed(&[3, 1], 42), (false, [3, 2]));
        assert_eq!(listed(&[3], 40), (false, [3, 3]));
    }

    #[test]
    fn a_visit_brings_several_slabs() {
        let mut takes = recorded();
        (takes[0].listed, takes[1].listed) = (3, 2);
        // CPU 1 comes twice before CPU 0 does.
        let taken = [0, 5, 1, 6, 7, 2, 8, 9, 10, 11, 12, 3, 4];
        let at = |slabs: Vec<Slab>| -> Vec<usize> {
            slabs.iter().filter_map(|slab| slab.seen).collect()
        };
        assert_eq!(
            at(nodes_order(&taken, &takes, 2)),
            [7, 9, 8, 10, 12, 11, 3, 4]
        );
        assert_eq!(
            at(nodes_order(&taken, &takes, 0)),
            [7, 8, 9, 10, 11, 12, 3, 4]
        );
    }
}
