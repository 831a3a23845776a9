//! Costs and shape that a virtual machine takes from a machine.

use quarry_core::era::Era;
use quarry_core::machine::Work;
use quarry_sim::time::{CacheLevel, LastLevel, LineCosts, LockKind, TimeModel};

use crate::cost::Unit;
use crate::draw::Draw;
use crate::key::Key;
use crate::machine::{Cache, Caches, Machine};

impl Machine {
    /// The costs of a draw, with the locks of an era. `seed` decides what is left to chance.
    #[must_use]
    pub fn model(&self, era: Era, draw: &Draw, seed: u64) -> TimeModel {
        let drawn = Drawn {
            machine: self,
            draw,
        };
        TimeModel {
            lines: drawn.lines(),
            work: Work::ALL.map(|(work, _)| drawn.ps(work_key(work))),
            fill_kib: drawn.fill_kib(),
            locks: self.spin_locks.unwrap_or_else(|| LockKind::of(era)),
            seed,
        }
    }
}

/// The cost of a kind of work.
const fn work_key(work: Work) -> Key {
    match work {
        Work::Call => Key::Call,
        Work::SlowPath => Key::SlowPath,
        Work::BulkObject => Key::BulkObject,
        Work::SlabObject => Key::SlabObject,
        Work::DrainObject => Key::DrainObject,
        Work::PageCall => Key::PageCall,
        Work::BuddyStep => Key::BuddyStep,
        Work::ZoneTake => Key::ZoneTake,
        Work::ZoneGive => Key::ZoneGive,
        Work::IrqSave => Key::IrqSave,
        Work::IrqDisable => Key::IrqDisable,
        Work::Preempt => Key::Preempt,
        Work::LocalLock => Key::LocalLock,
        Work::LocalCmpxchg => Key::LocalCmpxchg,
        Work::Ipi => Key::Ipi,
        Work::RemoteWake => Key::RemoteWake,
        Work::Switch => Key::Switch,
        Work::Syscall => Key::Syscall,
    }
}

/// A machine with values for its costs.
struct Drawn<'a> {
    machine: &'a Machine,
    draw: &'a Draw,
}

impl Machine {
    /// A cost as its value says, in nanoseconds; 0 of what the machine does not have.
    #[must_use]
    pub fn nominal_ns(&self, key: Key) -> f64 {
        self.drawn_ns(key, &Draw::VALUES)
    }

    /// A cost of a draw, in nanoseconds, or the number of what is counted; 0 of what the machine does not have.
    #[must_use]
    pub fn drawn_ns(&self, key: Key, draw: &Draw) -> f64 {
        Drawn {
            machine: self,
            draw,
        }
        .ns(key)
    }

    /// A cost of a draw, in picoseconds; 0 of what the machine does not have.
    #[must_use]
    pub fn drawn_ps(&self, key: Key, draw: &Draw) -> u64 {
        Drawn {
            machine: self,
            draw,
        }
        .ps(key)
    }
}

impl Drawn<'_> {
    fn at(&self, key: Key) -> Option<(f64, Unit)> {
        let cost = self.machine.cost(key)?;
        Some((cost.at(self.draw.place(key)), cost.unit))
    }

    fn ns(&self, key: Key) -> f64 {
        match self.at(key) {
            Some((cycles, Unit::Cycles)) => cycles / self.machine.ghz,
            Some((ns, _)) => ns,
            None => 0.0,
        }
    }

    /// A time in picoseconds; 0 of what the machine does not have.
    fn ps(&self, key: Key) -> u64 {
        (self.ns(key) * 1000.0).round() as u64
    }

    /// Times by distance. A distance that the machine does not have costs what the one before it costs: it does not occur.
    fn by_distance(&self, keys: [Key; 3]) -> [u64; 3] {
        let mut last = 0;
        keys.map(|key| {
            last = if self.at(key).is_some() {
                self.ps(key)
            } else {
                last
            };
            last
        })
    }

    fn lines(&self) -> LineCosts {
        let Caches { l1, l2, llc } = self.machine.caches;
        let level = |cache: Cache, key| CacheLevel {
            bytes: cache.bytes,
            ways: cache.ways,
            hit: self.ps(key),
        };
        let topology = &self.machine.topology;
        let memory = self.ps(Key::MemoryLocal);
        let remote = self
            .at(Key::MemoryRemote)
            .map(|_| self.ps(Key::MemoryRemote));
        LineCosts {
            l1: level(l1, Key::L1),
            l2: l2.map(|cache| level(cache, Key::L2)),
            llc: llc.map(|cache| LastLevel {
                level: level(cache, Key::Llc),
                inclusive: cache.inclusive,
                hashed: cache.hashed,
            }),
            clean: self.by_distance([Key::CleanCluster, Key::CleanSocket, Key::CleanRemote]),
            transfer: self.by_distance([Key::DirtyCluster, Key::DirtySocket, Key::DirtyRemote]),
            upgrade: self.by_distance([
                Key::UpgradeCluster,
                Key::UpgradeSocket,
                Key::UpgradeRemote,
            ]),
            memory: [memory, remote.unwrap_or(memory)],
            atomic: self.ps(Key::Atomic),
            misses: self
                .at(Key::Misses)
                .map_or(1, |(lines, _)| lines.round() as u32),
            window: self.ps(Key::Window),
            bus: self.ps(Key::Bus),
            cluster_cpus: topology.cpus,
            socket_cpus: topology.socket_cpus(),
        }
    }

    fn fill_kib(&self) -> u64 {
        let ps = self
            .at(Key::Copy)
            .map(|(bytes, _)| 1024.0 / bytes / self.machine.ghz * 1000.0);
        ps.unwrap_or(0.0).round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_picoseconds_of_the_draw() {
        let machine = Machine::bundled("haswell-ep-2x12").unwrap();
        let model = machine.model(Era::V4_13, &Draw::VALUES, 1);
        // 4 and 54 cycles at 2.5 GHz; 111 and 146 ns; 1024 bytes at 54 a cycle.
        assert_eq!(model.lines.l1.hit, 1_600);
        assert_eq!(model.lines.llc.unwrap().level.hit, 21_600);
        assert_eq!(model.lines.transfer, [50_000, 50_000, 111_000]);
        assert_eq!(model.lines.memory, [93_000, 146_000]);
        assert_eq!(model.fill_kib, 7_585);
        assert_eq!(model.work[Work::IrqSave as usize], 14_800);
        assert_eq!((model.locks, model.lines.misses), (LockKind::Queued, 10));
        let far = machine.model(Era::V3_18, &Draw::end(Key::DirtyRemote, true), 1);
        assert_eq!(far.lines.transfer, [50_000, 50_000, 118_000]);
        assert_eq!(far.locks, LockKind::Ticket);
        let guest = Machine::bundled("power9-16").unwrap();
        assert_eq!(
            guest.model(Era::V5_9, &Draw::VALUES, 1).locks,
            LockKind::TestAndSet
        );
    }
}
