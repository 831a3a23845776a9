//! Who has a line of memory, and what it costs to get it.
//!
//! A line is in one CPU's caches alone (exclusive, perhaps changed), in several CPUs' (shared), in the last-level caches
//! of clusters, or in memory alone. A read fetches it from the nearest place; a write takes it away from all others.
//! A cluster's cache has what its CPUs fetched ([`LastLevel::inclusive`]), or what left their own caches.
//!
//! # What is left out
//!
//! An exclusive line counts as changed. Writing changed lines back to memory takes no time.

use std::cell::RefCell;
use std::ops::Range;

use quarry_core::machine::Access;

use super::caches::Tags;
use super::costs::{Distance, LineCosts};
use super::counters::LineMoves;
use super::directory::{Directory, LineId};
use super::flights::Flights;
use super::line::{Few, Line};

/// Most lines that [`Lines::look_ahead`] looks at.
pub(crate) const LOOKED_AHEAD: usize = 16;

/// The caches of a CPU.
struct Own {
    l1: Tags,
    l2: Option<Tags>,
}

struct State {
    directory: Directory,
    flights: Flights,
    moves: LineMoves,
    own: Vec<Own>,
    llc: Vec<Tags>,
    /// When the bus of each socket is free.
    buses_ps: Vec<u64>,
}

/// The lines of a machine.
pub(crate) struct Lines {
    costs: LineCosts,
    state: RefCell<State>,
}

/// An access of a CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineAccess {
    pub(crate) cpu: u32,
    pub(crate) line: usize,
    pub(crate) access: Access,
    /// The line's memory is on the CPU's own node.
    pub(crate) local: bool,
    /// It follows another access of the same run.
    pub(crate) follows: bool,
    /// Time for which its request has been under way.
    pub(crate) asked_ps: u64,
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
            asked_ps: 0,
        }
    }
}

/// Cost of fetching a line.
#[derive(Clone, Copy, Debug)]
struct Fetch {
    ps: u64,
    /// Distance of its other end.
    from: Distance,
    /// A CPU there, if it is one: its socket's bus is crossed, too.
    at: Option<u32>,
    /// It is a copy of a line that stays unchanged.
    is_copy: bool,
}

impl Fetch {
    /// A line that comes whole: no other CPU gets it meanwhile.
    fn whole(ps: u64, from: Distance, at: Option<u32>) -> Self {
        Self {
            ps,
            from,
            at,
            is_copy: false,
        }
    }
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
            state: RefCell::new(State {
                directory: Directory::default(),
                flights: Flights::new(),
                moves: LineMoves::default(),
                own: (0..cpus).map(own).collect(),
                llc: llc.collect(),
                buses_ps: vec![0; sockets],
            }),
        }
    }

    /// Their costs.
    pub(crate) fn costs(&self) -> &LineCosts {
        &self.costs
    }

    /// True if the clusters' caches have all lines that their CPUs have.
    fn is_inclusive(&self) -> bool {
        self.costs.llc.is_some_and(|llc| llc.inclusive)
    }

    /// Lines that moved so far.
    pub(crate) fn moves(&self) -> LineMoves {
        self.state.borrow().moves
    }

    /// It is a CPU's turn: no CPU does anything before this moment any more.
    pub(crate) fn pass(&self, now_ps: u64) {
        self.state.borrow_mut().flights.pass(now_ps);
    }

    /// A CPU reads a line from a moment on. Returns the moment at which it has it.
    pub(crate) fn read(&self, cpu: u32, line: usize, now_ps: u64) -> u64 {
        self.access(LineAccess::new(cpu, line, Access::Read), now_ps)
    }

    /// As [`Lines::read`], of a CPU whose request was sent some time ago and has come to the line's owner.
    pub(crate) fn read_asked(&self, cpu: u32, line: usize, asked_ps: u64, now_ps: u64) -> u64 {
        let access = LineAccess {
            asked_ps,
            ..LineAccess::new(cpu, line, Access::Read)
        };
        self.access(access, now_ps)
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
        let state = &mut *self.state.borrow_mut();
        let id = state.directory.id(access.line);
        if let Some(done_ps) = self.hit(state, id, access, now_ps) {
            return done_ps;
        }
        match access.access {
            Access::Read | Access::Check | Access::Prefetch => {
                self.share(state, id, access, now_ps)
            }
            Access::Write | Access::Store => self.own(state, id, access, now_ps),
            Access::Atomic => self.own(state, id, access, now_ps) + self.costs.atomic,
        }
    }

    /// [`Lines::access`] to a line that the CPU has, to itself unless it reads; `None` if other CPUs would notice.
    #[inline(always)]
    pub(crate) fn at_hand(&self, access: LineAccess, now_ps: u64) -> Option<u64> {
        let state = &mut *self.state.borrow_mut();
        let id = state.directory.id(access.line);
        self.hit(state, id, access, now_ps)
    }

    /// Looks at what fetching some lines that follow each other will look at, and changes nothing. These tables are
    /// much larger than the host's caches: so it fetches their parts side by side.
    pub(crate) fn look_ahead(&self, cpu: u32, lines: Range<usize>) {
        let state = &*self.state.borrow();
        let Some(llc) = state.llc.get((cpu / self.costs.cluster_cpus) as usize) else {
            return;
        };
        let own = &state.own[cpu as usize];
        let own = own.l2.as_ref().unwrap_or(&own.l1);
        let mut gone = [None; LOOKED_AHEAD];
        for (line, gone) in lines.zip(&mut gone) {
            let comes = match self.is_inclusive() {
                true => Some(line),
                false => own.next_to_leave(line).map(|id| state.directory.line(id)),
            };
            *gone = comes.and_then(|line| llc.next_to_leave(line));
        }
        let held = gone.into_iter().flatten();
        std::hint::black_box(
            held.filter(|&id| state.directory.has(id, cpu, true))
                .count(),
        );
    }

    /// A device writes to a line: no cache has it any more, but the first cluster's if it is `cached`.
    pub(crate) fn device_write(&self, line: usize, cached: bool) {
        let state = &mut *self.state.borrow_mut();
        let id = state.directory.id(line);
        state.directory.set(id, Line::default());
        if cached {
            self.keep_in_cluster(state, 0, id);
        }
    }

    /// Keeps a line with its CPU until the write to it is seen: no other CPU gets it before.
    pub(crate) fn keep_until(&self, line: usize, seen_ps: u64) {
        let state = &mut *self.state.borrow_mut();
        let id = state.directory.id(line);
        state.flights.move_for(id, 0, seen_ps);
    }

    #[inline(always)]
    fn hit(&self, state: &mut State, id: LineId, access: LineAccess, now_ps: u64) -> Option<u64> {
        let exclusive = !access.access.reads();
        if !state.directory.has(id, access.cpu, exclusive) {
            return None;
        }
        let done_ps = now_ps + self.near(state, id, access);
        let atomic = access.access == Access::Atomic;
        Some(done_ps + if atomic { self.costs.atomic } else { 0 })
    }

    /// Fetches a line that the CPU does not have, to read it.
    #[inline]
    fn share(&self, state: &mut State, id: LineId, access: LineAccess, now_ps: u64) -> u64 {
        let cpu = access.cpu;
        let mut at = state.directory.get(id);
        let fetch = self.fetch(&mut state.moves, &at, access);
        at.holders = at.holders.with(cpu);
        // What the own cluster's cache has is no other CPU's.
        let elsewhere = at.clusters.without(cpu / self.costs.cluster_cpus);
        at.exclusive = at.holders == Few::one(cpu) && elsewhere == Few::default();
        state.directory.set(id, at);
        let end_ps = self.come(state, id, access, fetch, now_ps);
        self.keep(state, id, access);
        end_ps
    }

    /// Gets a line that the CPU does not have to itself, to write to it.
    #[inline]
    fn own(&self, state: &mut State, id: LineId, access: LineAccess, now_ps: u64) -> u64 {
        let cpu = access.cpu;
        let at = state.directory.get(id);
        let costs = &self.costs;
        let own_cluster = cpu / costs.cluster_cpus;
        let first = |cluster| cluster * costs.cluster_cpus;
        let others = at.holders.without(cpu).each();
        let others = others.chain(at.clusters.without(own_cluster).each().map(first));
        let others = others.map(|other| (costs.distance(cpu, other), other));
        // A write is done when the last other cache has dropped the line, so the farthest one decides. A read takes it
        // from the nearest one (`fetch`).
        let farthest = others.max();
        let had = at.holders.has(cpu);
        let fetch = match farthest {
            // Another CPU may have changed it: its cache sends the line and drops it. The common case of a lock or a
            // freelist that moves between CPUs.
            Some(other) if at.exclusive => Some(self.transfer(&mut state.moves, other)),
            // One cluster's cache alone has it, unchanged, and no CPU does: no copy is to be invalidated, and the line
            // costs the same as for a read.
            Some(_) if at.is_left_over() => Some(self.fetch(&mut state.moves, &at, access)),
            // Several have it unchanged. One request invalidates all, and brings the line to a CPU that has no copy: so
            // there is no `fetch` besides.
            Some((distance, other)) => {
                state.moves.upgrades[distance as usize] += 1;
                let ps = costs.upgrade[distance as usize];
                Some(Fetch::whole(ps, distance, Some(other)))
            }
            // No other CPU has a copy, and the own one is good: the write needs no other cache, and its cost is that of
            // the own caches (below).
            None if had => None,
            // Memory, or the own cluster's cache.
            None => Some(self.fetch(&mut state.moves, &at, access)),
        };
        // An inclusive cache keeps what its CPU writes to, or it would not have all of that CPU's lines; an exclusive one
        // gives the line up to the CPU.
        let kept = self.is_inclusive() && at.clusters.has(own_cluster);
        let own = Line {
            holders: Few::one(cpu),
            clusters: match kept {
                true => Few::one(own_cluster),
                false => Few::default(),
            },
            exclusive: true,
        };
        state.directory.set(id, own);
        let Some(fetch) = fetch else {
            return now_ps + self.near(state, id, access);
        };
        let fetch = Fetch {
            is_copy: false,
            ..fetch
        };
        let end_ps = self.come(state, id, access, fetch, now_ps);
        // After the directory has the new owner: what leaves the own caches may be another line of the same CPU.
        self.keep(state, id, access);
        end_ps
    }

    /// Lets a line come: over the buses between its ends, when these and the line itself are free. Returns when
    /// it is there.
    #[inline]
    fn come(
        &self,
        state: &mut State,
        id: LineId,
        access: LineAccess,
        fetch: Fetch,
        now_ps: u64,
    ) -> u64 {
        let costs = &self.costs;
        // The owner has a line until it is asked for it. A cache that sends copies is busy with them from then on.
        let asked_ps = access.asked_ps.min(fetch.ps / 2);
        let (ps, mut begin_ps) = match fetch.is_copy {
            _ if access.follows => (fetch.ps / u64::from(costs.misses), now_ps),
            true => (fetch.ps, now_ps - asked_ps),
            false => (fetch.ps - asked_ps, now_ps),
        };
        if costs.bus > 0 && fetch.from > Distance::Cluster {
            let socket = |cpu: u32| (cpu / costs.socket_cpus) as usize;
            // Caches on such buses do not send what they have unchanged: memory does, which has it, too.
            let other = fetch.at.filter(|_| !fetch.is_copy);
            let ends = [access.cpu, other.unwrap_or(access.cpu)].map(socket);
            let free_ps = ends.map(|end| state.buses_ps[end]).into_iter().max();
            begin_ps = begin_ps.max(free_ps.unwrap_or(0));
            for end in ends {
                state.buses_ps[end] = begin_ps + costs.bus;
            }
        }
        // The cache that has copies of a line sends one after the other; on their ways they overlap.
        let busy_ps = match costs.llc {
            Some(llc) if fetch.is_copy => ps.min(llc.level.hit),
            _ => ps,
        };
        state.flights.move_for(id, busy_ps, begin_ps) + (ps - busy_ps)
    }

    /// Cost of a line that one of the CPU's own caches has. The lines of a run come side by side, and a store or
    /// prefetch does not wait for the second cache.
    #[inline(always)]
    fn near(&self, state: &mut State, id: LineId, access: LineAccess) -> u64 {
        let LineAccess { cpu, line, .. } = access;
        let own = &mut state.own[cpu as usize];
        let mut hit = self.costs.l1.hit;
        let first = own.l1.touch(line, id);
        if let Some((l2, level)) = own.l2.as_mut().zip(self.costs.l2) {
            l2.touch(line, id);
            if !first {
                own.l1.bring(line, id);
                if !matches!(access.access, Access::Store | Access::Prefetch) {
                    hit = level.hit;
                }
            }
        }
        match access.follows {
            true => hit / u64::from(self.costs.misses),
            false => hit,
        }
    }

    /// Keeps a line that was fetched in the CPU's own caches, and in the cluster's if that has all of them. Else
    /// what has to leave them stays in the cluster's.
    #[inline]
    fn keep(&self, state: &mut State, id: LineId, access: LineAccess) {
        let LineAccess { cpu, line, .. } = access;
        let own = &mut state.own[cpu as usize];
        let from_l1 = own.l1.bring(line, id);
        let left = match &mut own.l2 {
            Some(l2) => l2.bring(line, id),
            None => from_l1,
        };
        let cluster = cpu / self.costs.cluster_cpus;
        if self.is_inclusive() {
            self.keep_in_cluster(state, cluster, id);
        }
        let Some(left) = left else {
            return;
        };
        let mut at = state.directory.get(left);
        if !at.holders.has(cpu) {
            // Tags are not told when another CPU takes a line away, so a tag that leaves may stand for a line that the
            // CPU no longer has.
            return;
        }
        at.holders = at.holders.without(cpu);
        at.exclusive &= at.holders != Few::default();
        state.directory.set(left, at);
        if !self.is_inclusive() {
            self.keep_in_cluster(state, cluster, left);
        }
    }

    #[inline]
    fn keep_in_cluster(&self, state: &mut State, cluster: u32, id: LineId) {
        let Some(llc) = state.llc.get_mut(cluster as usize) else {
            return;
        };
        let gone = llc.bring(state.directory.line(id), id);
        let mut at = state.directory.get(id);
        at.clusters = at.clusters.with(cluster);
        state.directory.set(id, at);
        let Some(gone) = gone else {
            return;
        };
        let mut at = state.directory.get(gone);
        at.clusters = at.clusters.without(cluster);
        // What an inclusive cache drops, its CPUs lose as well.
        if self.is_inclusive() {
            let first = cluster * self.costs.cluster_cpus;
            let near = first..first + self.costs.cluster_cpus;
            at.holders = near.fold(at.holders, Few::without);
            at.exclusive &= at.holders != Few::default();
        }
        state.directory.set(gone, at);
    }

    /// Cost of a line that the CPU does not have, from the nearest place that has it.
    #[inline]
    fn fetch(&self, moves: &mut LineMoves, at: &Line, access: LineAccess) -> Fetch {
        let LineAccess { cpu, local, .. } = access;
        let costs = &self.costs;
        let own = cpu / costs.cluster_cpus;
        if let Some(llc) = costs.llc.filter(|_| at.clusters.has(own) && !at.exclusive) {
            moves.llc += 1;
            return Fetch {
                is_copy: true,
                ..Fetch::whole(llc.level.hit, Distance::Cluster, None)
            };
        }
        let of_cpus = at.holders.each();
        let first = |cluster| cluster * costs.cluster_cpus;
        let of_clusters = at.clusters.each();
        let of_clusters = of_clusters.map(first);
        let others = of_cpus.chain(of_clusters);
        let others = others.map(|other| (costs.distance(cpu, other), other));
        match others.min() {
            Some(other) if at.exclusive => self.transfer(moves, other),
            Some((distance, other)) => {
                moves.clean[distance as usize] += 1;
                let ps = costs.clean[distance as usize];
                Fetch {
                    is_copy: true,
                    ..Fetch::whole(ps, distance, Some(other))
                }
            }
            None => {
                moves.memory[usize::from(!local)] += 1;
                let ps = costs.memory[usize::from(!local)];
                Fetch::whole(ps, Distance::Socket, None)
            }
        }
    }

    fn transfer(&self, moves: &mut LineMoves, (distance, other): (Distance, u32)) -> Fetch {
        moves.transfers[distance as usize] += 1;
        let ps = self.costs.transfer[distance as usize];
        Fetch::whole(ps, distance, Some(other))
    }
}

#[cfg(test)]
pub(super) mod tests;
