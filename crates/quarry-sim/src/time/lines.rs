//! Who has a line of memory, and what it costs to get it.
//!
//! A line is in one CPU's caches alone (exclusive, perhaps changed), in several CPUs' (shared), in the last-level caches
//! of clusters, or in memory alone. A read fetches it from the nearest place; a write takes it away from all others.
//! A cluster's cache has what its CPUs fetched ([`LastLevel::inclusive`]), or what left their own caches.
//!
//! # What is left out
//!
//! An exclusive line counts as changed. Writing changed lines back to memory takes no time.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use quarry_core::machine::Access;
use rustc_hash::FxBuildHasher;

use super::caches::Tags;
use super::costs::{Distance, LineCosts};
use super::line::{Few, Line};

/// Lines that moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineMoves {
    /// From the own cluster's last-level cache.
    pub llc: u64,
    /// From a cache that had it unchanged, by [`Distance`].
    pub clean: [u64; 3],
    /// From a CPU that may have changed it, by [`Distance`].
    pub transfers: [u64; 3],
    /// Taken away from others that shared them, by the farthest one's [`Distance`].
    pub upgrades: [u64; 3],
    /// From memory: of the CPU's own node, and of another one.
    pub memory: [u64; 2],
}

/// The caches of a CPU.
struct Own {
    l1: Tags,
    l2: Option<Tags>,
}

struct State {
    lines: HashMap<usize, Line, FxBuildHasher>,
    own: Vec<Own>,
    llc: Vec<Tags>,
    /// When the bus of each socket is free.
    buses_ps: Vec<u64>,
}

/// The lines of a machine.
pub(crate) struct Lines {
    costs: LineCosts,
    moves: Cell<LineMoves>,
    state: RefCell<State>,
}

/// An access of a CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineAccess {
    pub(crate) cpu: u32,
    pub(crate) line: usize,
    pub(crate) access: Access,
    /// Whether the line's memory is on the CPU's own node.
    pub(crate) local: bool,
    /// Whether it follows another one of the same run.
    pub(crate) follows: bool,
}

impl LineAccess {
    /// A CPU's access to one line, with its memory near.
    pub(crate) fn new(cpu: u32, line: usize, access: Access) -> Self {
        Self {
            cpu,
            line,
            access,
            local: true,
            follows: false,
        }
    }
}

/// What fetching a line costs.
#[derive(Clone, Copy, Debug)]
struct Fetch {
    ps: u64,
    /// How far away its other end is, which says whose buses it crosses.
    from: Distance,
}

impl Lines {
    /// Lines that no cache has.
    pub(crate) fn new(cpus: u32, line_bytes: u32, costs: LineCosts) -> Self {
        let own = |_| Own {
            l1: Tags::new(costs.l1, line_bytes, false),
            l2: costs.l2.map(|level| Tags::new(level, line_bytes, false)),
        };
        let clusters = 0..cpus.div_ceil(costs.cluster_cpus);
        let llc = clusters.filter_map(|_| {
            costs
                .llc
                .map(|llc| Tags::new(llc.level, line_bytes, llc.hashed))
        });
        let sockets = cpus.div_ceil(costs.socket_cpus) as usize;
        Self {
            costs,
            moves: Cell::default(),
            state: RefCell::new(State {
                lines: HashMap::default(),
                own: (0..cpus).map(own).collect(),
                llc: llc.collect(),
                buses_ps: vec![0; sockets],
            }),
        }
    }

    /// What they cost.
    pub(crate) fn costs(&self) -> &LineCosts {
        &self.costs
    }

    /// Lines that moved so far.
    pub(crate) fn moves(&self) -> LineMoves {
        self.moves.get()
    }

    fn count(&self, f: impl FnOnce(&mut LineMoves)) {
        let mut moves = self.moves.get();
        f(&mut moves);
        self.moves.set(moves);
    }

    /// A CPU reads a line from a moment on. Returns the moment at which it has it.
    pub(crate) fn read(&self, cpu: u32, line: usize, now_ps: u64) -> u64 {
        self.access(LineAccess::new(cpu, line, Access::Read), now_ps)
    }

    /// A CPU writes to a line from a moment on. Returns the moment at which it has done so.
    pub(crate) fn write(&self, cpu: u32, line: usize, now_ps: u64) -> u64 {
        self.access(LineAccess::new(cpu, line, Access::Write), now_ps)
    }

    /// As [`Lines::write`], by an atomic operation.
    pub(crate) fn atomic(&self, cpu: u32, line: usize, now_ps: u64) -> u64 {
        self.access(LineAccess::new(cpu, line, Access::Atomic), now_ps)
    }

    /// A CPU accesses a line from a moment on. Returns the moment at which it has done so.
    pub(crate) fn access(&self, access: LineAccess, now_ps: u64) -> u64 {
        self.at_hand(access, now_ps)
            .unwrap_or_else(|| match access.access {
                Access::Read => self.share(access, now_ps),
                Access::Write => self.own(access, now_ps),
                Access::Atomic => self.own(access, now_ps) + self.costs.atomic,
            })
    }

    /// A device writes to a line: no cache has it any more, but the first cluster's if it is `cached`.
    pub(crate) fn device_write(&self, line: usize, cached: bool) {
        let state = &mut *self.state.borrow_mut();
        let at = state.lines.entry(line).or_default();
        at.holders = Few::default();
        at.clusters = Few::default();
        at.exclusive = false;
        if cached {
            self.keep_in_cluster(state, 0, line);
        }
    }

    /// What a CPU wrote to a line is seen at a moment: no other CPU gets it before.
    pub(crate) fn keep_until(&self, line: usize, seen_ps: u64) {
        if let Some(at) = self.state.borrow_mut().lines.get_mut(&line) {
            at.move_for(0, seen_ps);
        }
    }

    /// [`Lines::access`] to a line that the CPU has, to itself unless it reads; `None` if other CPUs would notice.
    pub(crate) fn at_hand(&self, access: LineAccess, now_ps: u64) -> Option<u64> {
        let LineAccess {
            cpu, line, access, ..
        } = access;
        let state = &mut *self.state.borrow_mut();
        let at = state.lines.get(&line)?;
        if !at.holders.has(cpu) || (access != Access::Read && !at.exclusive) {
            return None;
        }
        let done_ps = now_ps + self.hit(state, cpu, line);
        let atomic = access == Access::Atomic;
        Some(done_ps + if atomic { self.costs.atomic } else { 0 })
    }

    /// Fetches a line that the CPU does not have, to read it.
    fn share(&self, access: LineAccess, now_ps: u64) -> u64 {
        let cpu = access.cpu;
        let state = &mut *self.state.borrow_mut();
        let at = state.lines.entry(access.line).or_default();
        let fetch = self.fetch(at, access);
        at.holders = at.holders.with(cpu);
        at.exclusive = at.holders == Few::one(cpu) && at.clusters == Few::default();
        let end_ps = self.come(state, access, fetch, now_ps);
        self.keep(state, cpu, access.line);
        end_ps
    }

    /// Gets a line that the CPU does not have to itself, to write to it.
    fn own(&self, access: LineAccess, now_ps: u64) -> u64 {
        let LineAccess { cpu, line, .. } = access;
        let state = &mut *self.state.borrow_mut();
        let at = state.lines.entry(line).or_default();
        let costs = &self.costs;
        let own_cluster = cpu / costs.cluster_cpus;
        let first = |cluster| cluster * costs.cluster_cpus;
        let others = at.holders.without(cpu).each();
        let others = others.chain(at.clusters.without(own_cluster).each().map(first));
        let farthest = others.map(|other| costs.distance(cpu, other)).max();
        let had = at.holders.has(cpu);
        let fetch = match farthest {
            Some(distance) if at.exclusive => Some(self.transfer(distance)),
            Some(distance) => {
                // Without the line itself the same request fetches it.
                self.count(|moves| moves.upgrades[distance as usize] += 1);
                let ps = costs.upgrade[distance as usize];
                Some(Fetch { ps, from: distance })
            }
            None if had => None,
            None => Some(self.fetch(at, access)),
        };
        at.holders = Few::one(cpu);
        at.clusters = Few::default();
        at.exclusive = true;
        let Some(fetch) = fetch else {
            // No other cache but the own cluster's had it.
            return now_ps + self.hit(state, cpu, line);
        };
        let end_ps = self.come(state, access, fetch, now_ps);
        self.keep(state, cpu, line);
        end_ps
    }

    /// Lets a line come: over the buses between its ends, when these and the line itself are free. Returns when
    /// it is there.
    fn come(&self, state: &mut State, access: LineAccess, fetch: Fetch, now_ps: u64) -> u64 {
        let costs = &self.costs;
        let ps = match access.follows {
            true => fetch.ps / u64::from(costs.misses),
            false => fetch.ps,
        };
        let mut begin_ps = now_ps;
        if costs.bus > 0 && fetch.from > Distance::Cluster {
            let own = (access.cpu / costs.socket_cpus) as usize;
            // Machines with buses have two sockets at most, so another one is the other one.
            let crossed = match fetch.from {
                Distance::Remote => &mut state.buses_ps[..],
                _ => &mut state.buses_ps[own..=own],
            };
            let free_ps = crossed.iter().copied().max();
            begin_ps = begin_ps.max(free_ps.unwrap_or(0));
            crossed.fill(begin_ps + costs.bus);
        }
        let at = state.lines.entry(access.line).or_default();
        at.move_for(ps, begin_ps)
    }

    /// What a line costs that one of the CPU's own caches has.
    fn hit(&self, state: &mut State, cpu: u32, line: usize) -> u64 {
        let own = &mut state.own[cpu as usize];
        let first = own.l1.touch(line);
        let Some((l2, level)) = own.l2.as_mut().zip(self.costs.l2) else {
            return self.costs.l1.hit;
        };
        l2.touch(line);
        if first {
            return self.costs.l1.hit;
        }
        own.l1.bring(line);
        level.hit
    }

    /// Keeps a line that was fetched in the CPU's own caches, and in the cluster's if that has all of them. Else
    /// what has to leave them stays in the cluster's.
    fn keep(&self, state: &mut State, cpu: u32, line: usize) {
        let own = &mut state.own[cpu as usize];
        let from_l1 = own.l1.bring(line);
        let left = own.l2.as_mut().map_or(from_l1, |l2| l2.bring(line));
        let cluster = cpu / self.costs.cluster_cpus;
        let inclusive = self.costs.llc.is_some_and(|llc| llc.inclusive);
        if inclusive {
            self.keep_in_cluster(state, cluster, line);
        }
        // Another CPU may have taken it away before.
        let left = left.and_then(|left| Some((left, state.lines.get_mut(&left)?)));
        let Some((left, at)) = left.filter(|(_, at)| at.holders.has(cpu)) else {
            return;
        };
        at.holders = at.holders.without(cpu);
        at.exclusive &= at.holders != Few::default();
        if !inclusive {
            self.keep_in_cluster(state, cluster, left);
        }
    }

    fn keep_in_cluster(&self, state: &mut State, cluster: u32, line: usize) {
        let Some(llc) = state.llc.get_mut(cluster as usize) else {
            return;
        };
        let gone = llc.bring(line);
        if let Some(at) = state.lines.get_mut(&line) {
            at.clusters = at.clusters.with(cluster);
        }
        let Some(at) = gone.and_then(|gone| state.lines.get_mut(&gone)) else {
            return;
        };
        at.clusters = at.clusters.without(cluster);
        if self.costs.llc.is_some_and(|llc| llc.inclusive) {
            let first = cluster * self.costs.cluster_cpus;
            let near = first..first + self.costs.cluster_cpus;
            at.holders = near.fold(at.holders, Few::without);
            at.exclusive &= at.holders != Few::default();
        }
    }

    /// What a line costs that the CPU does not have: from the nearest place that has it.
    fn fetch(&self, at: &Line, access: LineAccess) -> Fetch {
        let LineAccess { cpu, local, .. } = access;
        let costs = &self.costs;
        let own = cpu / costs.cluster_cpus;
        if let Some(llc) = costs.llc.filter(|_| at.clusters.has(own) && !at.exclusive) {
            self.count(|moves| moves.llc += 1);
            return Fetch {
                ps: llc.level.hit,
                from: Distance::Cluster,
            };
        }
        let of_cpus = at.holders.each().map(|other| costs.distance(cpu, other));
        let first = |cluster| cluster * costs.cluster_cpus;
        let of_clusters = at.clusters.each();
        let of_clusters = of_clusters.map(|cluster| costs.distance(cpu, first(cluster)));
        match of_cpus.chain(of_clusters).min() {
            Some(distance) if at.exclusive => self.transfer(distance),
            Some(distance) => {
                self.count(|moves| moves.clean[distance as usize] += 1);
                let ps = costs.clean[distance as usize];
                Fetch { ps, from: distance }
            }
            None => {
                self.count(|moves| moves.memory[usize::from(!local)] += 1);
                Fetch {
                    ps: costs.memory[usize::from(!local)],
                    from: Distance::Socket,
                }
            }
        }
    }

    fn transfer(&self, distance: Distance) -> Fetch {
        self.count(|moves| moves.transfers[distance as usize] += 1);
        let ps = self.costs.transfer[distance as usize];
        Fetch { ps, from: distance }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::CacheLevel;
    use super::super::costs::LastLevel;
    use super::*;

    const fn level(lines: u64, hit: u64) -> CacheLevel {
        CacheLevel {
            bytes: lines * 64,
            ways: 2,
            hit,
        }
    }

    /// Figures that show in sums which costs they are made of.
    pub(crate) const COSTS: LineCosts = LineCosts {
        l1: level(4, 1),
        l2: Some(level(16, 4)),
        llc: Some(LastLevel {
            level: level(64, 11),
            inclusive: false,
            hashed: false,
        }),
        clean: [15, 40, 80],
        transfer: [20, 50, 100],
        upgrade: [30, 70, 150],
        memory: [90, 130],
        atomic: 5,
        misses: 10,
        bus: 0,
        cluster_cpus: 2,
        socket_cpus: 4,
    };

    fn lines() -> Lines {
        Lines::new(8, 64, COSTS)
    }

    #[test]
    fn an_access_costs_what_the_distance_costs() {
        let lines = lines();
        // From memory, then at hand.
        assert_eq!(lines.read(0, 7, 0), 90);
        assert_eq!(lines.write(0, 7, 100), 101);
        // From the neighbour, the same socket, the other socket.
        assert_eq!(lines.write(1, 7, 200), 220);
        assert_eq!(lines.write(2, 7, 300), 350);
        assert_eq!(lines.write(4, 7, 400), 500);
        assert_eq!(lines.atomic(4, 7, 600), 606);
    }

    #[test]
    fn a_shared_line_is_read_near_and_written_dear() {
        let lines = lines();
        lines.write(0, 7, 0);
        assert_eq!(lines.read(4, 7, 1000), 1100);
        assert_eq!(lines.read(5, 7, 2000), 2015, "from CPU 4, not from CPU 0");
        assert_eq!(lines.write(5, 7, 3000), 3150, "CPU 0 is the farthest");
        assert_eq!(lines.read(0, 7, 4000), 4100, "it was taken away");
    }

    #[test]
    fn transfers_of_a_line_wait_for_each_other() {
        let lines = lines();
        lines.write(0, 7, 0);
        let ends: Vec<u64> = [1, 2, 4].map(|cpu| lines.read(cpu, 7, 1000)).to_vec();
        assert_eq!(ends, [1020, 1060, 1140]);
        // Another line is not concerned.
        assert_eq!(lines.read(1, 8, 1000), 1090);
    }

    #[test]
    fn lines_leave_caches_that_are_full_for_the_next_ones() {
        let lines = lines();
        let now_ps = Cell::new(0);
        let cost = |cpu, line| {
            now_ps.set(now_ps.get() + 1000);
            lines.read(cpu, line, now_ps.get()) - now_ps.get()
        };
        // Three lines of one set of the first cache, which has two sets of two.
        for line in [0, 2, 4] {
            assert_eq!(cost(0, line), 90);
        }
        assert_eq!((cost(0, 4), cost(0, 0), cost(0, 0)), (1, 4, 1));
        // Three of one set of the second, which has eight sets.
        for line in [8, 16] {
            assert_eq!(cost(0, line), 90);
        }
        assert_eq!(cost(0, 0), 11, "the cluster's cache has it");
        // Its neighbour shares the cache, the other socket is far from it.
        assert_eq!(cost(0, 8), 11);
        assert_eq!(lines.moves().memory, [5, 0]);
    }

    #[test]
    fn what_leaves_a_cache_that_has_all_leaves_the_cpus_too() {
        let llc = LastLevel {
            level: level(16, 11),
            inclusive: true,
            hashed: false,
        };
        let costs = LineCosts {
            llc: Some(llc),
            ..COSTS
        };
        let lines = Lines::new(8, 64, costs);
        // Three lines of one set of the last cache, which has eight sets of two.
        for (n, line) in [0, 8, 16].into_iter().enumerate() {
            let now_ps = n as u64 * 1000;
            assert_eq!(lines.read(0, line, now_ps), now_ps + 90);
        }
        assert_eq!(lines.read(0, 0, 5000), 5090, "gone with the last level's");
        assert_eq!(lines.read(1, 0, 6000), 6020, "CPU 0 may have changed it");
        assert_eq!(lines.read(1, 16, 7000), 7020);
        // Both have it now, so the cluster's cache serves it.
        lines.write(2, 0, 8000);
        lines.read(0, 0, 9000);
        assert_eq!(lines.read(1, 0, 10_000), 10_011);
    }

    #[test]
    fn memory_of_another_node_is_farther_and_lines_of_a_run_overlap() {
        let lines = lines();
        let read = |line, local, follows, now_ps| {
            let access = LineAccess {
                local,
                follows,
                ..LineAccess::new(0, line, Access::Read)
            };
            lines.access(access, now_ps) - now_ps
        };
        assert_eq!(read(1, true, false, 0), 90);
        assert_eq!(read(2, false, false, 1000), 130);
        assert_eq!(read(3, true, true, 2000), 9, "a tenth");
        assert_eq!(read(3, true, true, 3000), 1, "at hand");
        assert_eq!(lines.moves().memory, [2, 1]);
    }

    #[test]
    fn what_crosses_a_bus_keeps_it_busy() {
        let lines = Lines::new(8, 64, LineCosts { bus: 18, ..COSTS });
        let read = |cpu, line| lines.read(cpu, line, 0);
        // Two from memory by the same socket, then one by the other.
        assert_eq!([read(0, 1), read(1, 2), read(4, 3)], [90, 108, 90]);
        // Between clusters of a socket; within one no bus is crossed.
        assert_eq!(lines.read(2, 1, 1000), 1050);
        assert_eq!(
            lines.read(1, 3, 1000),
            1118,
            "both buses, and waits for one"
        );
        assert_eq!(lines.read(0, 2, 1000), 1020);
        assert_eq!(
            lines.read(5, 9, 1018),
            1126,
            "the other socket's was crossed"
        );
    }
}
