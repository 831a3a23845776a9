//! Per-CPU arrays of tokens behind slot locks. Every token has a word that names its owner, and
//! every slot one that names its user, so two threads inside one slot are seen.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use quarry_core::machine::{CpuId, Cpus as _, Memory as _, PERCPU_QUIESCED, SlotLock, Slots};
use quarry_host::{HostMachine, Mode, SlotIndex, broken};

/// Tokens that fit into one slot.
pub(crate) const SLOT_TOKENS: usize = 64;
/// Owner of tokens that a signal handler could not put back.
const STASHED: u32 = u32::MAX;

/// The lock operations of a run.
#[derive(Clone, Copy)]
pub(crate) struct Locks {
    pub(crate) name: &'static str,
    pub(crate) local: unsafe fn(&HostMachine, NonNull<SlotLock>) -> Option<NonNull<SlotLock>>,
    pub(crate) remote: fn(&HostMachine, &SlotLock, CpuId) -> bool,
}

/// The machine's own operations.
pub(crate) const CORRECT: Locks = Locks {
    name: "correct",
    local: <HostMachine as Slots>::percpu_try_lock,
    remote: <HostMachine as Slots>::percpu_lock_remote,
};
/// Nothing keeps the check of a word and the store together.
pub(crate) const UNPROTECTED: Locks = Locks {
    name: "unprotected",
    local: broken::try_lock_unprotected,
    ..CORRECT
};
/// Remote acquisition does not wait for sequences in flight.
pub(crate) const NO_BARRIER: Locks = Locks {
    name: "no barrier",
    remote: broken::lock_remote_without_barrier,
    ..CORRECT
};

/// The fields are atomic so that a broken lock breaks the counts and not the test program.
#[repr(C, align(64))]
struct Slot {
    lock: SlotLock,
    user: AtomicU32,
    count: AtomicU32,
    tokens: [AtomicU32; SLOT_TOKENS],
}

/// All tokens and where they may be.
pub(crate) struct Arena {
    pub(crate) machine: HostMachine,
    pub(crate) locks: Locks,
    /// Owner by token; 0 while it lies in a slot. Token 0 does not exist.
    owners: Vec<AtomicU32>,
    /// Tokens that a signal handler could not put back.
    stash: Vec<AtomicBool>,
    pub(crate) clashes: AtomicU64,
    pub(crate) missed: AtomicU64,
}

impl Arena {
    /// Fills three quarters of every slot and returns `extra` more tokens without an owner.
    pub(crate) fn new(machine: HostMachine, locks: Locks, extra: usize) -> (Self, Vec<u32>) {
        let per_slot = SLOT_TOKENS * 3 / 4;
        let tokens = machine.topology().cpus as usize * per_slot + extra;
        let arena = Self {
            machine,
            locks,
            owners: (0..=tokens).map(|_| AtomicU32::new(0)).collect(),
            stash: (0..=tokens).map(|_| AtomicBool::new(false)).collect(),
            clashes: AtomicU64::new(0),
            missed: AtomicU64::new(0),
        };
        let mut all = 1..=tokens as u32;
        for cpu in arena.cpus() {
            let slot = arena.slot(cpu);
            slot.count.store(per_slot as u32, Relaxed);
            for place in &slot.tokens[..per_slot] {
                place.store(all.next().unwrap(), Relaxed);
            }
        }
        // The first barrier of a process asks the kernel for permission. In a storm that takes seconds, and all slots
        // are claimed meanwhile.
        let first = arena.slot(CpuId(0));
        assert!(arena.machine.percpu_lock_remote(&first.lock, CpuId(0)));
        first.lock.release();
        (arena, all.collect())
    }

    pub(crate) fn cpus(&self) -> impl Iterator<Item = CpuId> + use<> {
        (0..self.machine.topology().cpus).map(CpuId)
    }

    pub(crate) fn tokens(&self) -> usize {
        self.owners.len() - 1
    }

    fn slot0(&self) -> NonNull<SlotLock> {
        self.machine.ranges().percpu.base.cast()
    }

    fn slot(&self, cpu: CpuId) -> &Slot {
        let distance = (cpu.0 as usize) << HostMachine::PERCPU_SHIFT;
        // SAFETY: the CPU is one of the machine's, so the area is inside the per-CPU range.
        let slot = unsafe { self.slot0().byte_add(distance) }.cast::<Slot>();
        // SAFETY: the range is zero-filled, a valid `Slot`, and lives as long as the machine; all
        // fields are atomic.
        unsafe { slot.as_ref() }
    }

    fn clash_unless(&self, fine: bool) {
        if !fine {
            self.clashes.fetch_add(1, Relaxed);
        }
    }

    /// Runs `f` in a slot whose word the caller holds, then frees the word.
    fn inside<R>(&self, slot: &Slot, me: u32, f: impl FnOnce(&Slot) -> R) -> R {
        self.clash_unless(slot.user.load(Relaxed) == 0);
        slot.user.store(me, Relaxed);
        let result = f(slot);
        self.clash_unless(slot.user.load(Relaxed) == me);
        slot.user.store(0, Relaxed);
        slot.lock.release();
        result
    }

    fn local<R>(&self, me: u32, f: impl FnOnce(&Slot) -> R) -> Option<R> {
        // SAFETY: `slot0` is CPU 0's place in the per-CPU range.
        let lock = unsafe { (self.locks.local)(&self.machine, self.slot0()) }?;
        // SAFETY: the word is the first field of the running CPU's `Slot` (`slot`).
        let slot = unsafe { lock.cast::<Slot>().as_ref() };
        Some(self.inside(slot, me, f))
    }

    fn remote<R>(&self, cpu: CpuId, me: u32, f: impl FnOnce(&Slot) -> R) -> Option<R> {
        let slot = self.slot(cpu);
        (self.locks.remote)(&self.machine, &slot.lock, cpu).then(|| self.inside(slot, me, f))
    }

    fn pop_from(&self, slot: &Slot, me: u32) -> Option<u32> {
        let left = slot.count.load(Relaxed).checked_sub(1)?;
        let token = slot.tokens.get(left as usize)?.load(Relaxed);
        slot.count.store(left, Relaxed);
        self.clash_unless(token != 0 && self.owners[token as usize].swap(me, Relaxed) == 0);
        Some(token)
    }

    fn push_to(&self, slot: &Slot, me: u32, token: u32) -> bool {
        let count = slot.count.load(Relaxed);
        let Some(place) = slot.tokens.get(count as usize) else {
            return false;
        };
        self.clash_unless(self.owners[token as usize].swap(0, Relaxed) == me);
        place.store(token, Relaxed);
        slot.count.store(count + 1, Relaxed);
        true
    }

    /// Takes a token from the running CPU's slot.
    pub(crate) fn pop(&self, me: u32) -> Option<u32> {
        self.local(me, |slot| self.pop_from(slot, me)).flatten()
    }

    /// Puts a token into the running CPU's slot, if it is free and not full.
    pub(crate) fn push(&self, me: u32, token: u32) -> bool {
        self.local(me, |slot| self.push_to(slot, me, token))
            .unwrap_or(false)
    }

    /// Makes the caller the owner of a token without one.
    pub(crate) fn adopt(&self, me: u32, token: u32) {
        self.owners[token as usize].store(me, Relaxed);
    }

    /// Takes half of another CPU's tokens; `false` if its slot could not be had.
    pub(crate) fn drain(&self, cpu: CpuId, me: u32, hand: &mut Vec<u32>) -> bool {
        let half = |slot: &Slot| {
            for _ in 0..slot.count.load(Relaxed).div_ceil(2) {
                // The hand has room for all tokens of a slot; it never grows inside.
                hand.extend(self.pop_from(slot, me));
            }
        };
        self.remote(cpu, me, half).is_some()
    }

    /// Puts tokens into another CPU's slot until it is full.
    pub(crate) fn refill(&self, cpu: CpuId, me: u32, hand: &mut Vec<u32>) {
        self.remote(cpu, me, |slot| {
            while let Some(&token) = hand.last() {
                if !self.push_to(slot, me, token) {
                    break;
                }
                hand.pop();
            }
        });
    }

    /// A pair as a signal handler does it, which has no place of its own to keep a token.
    pub(crate) fn handler_pair(&self, me: u32) {
        if let Some(token) = self.pop(me)
            && !self.push(me, token)
        {
            self.owners[token as usize].store(STASHED, Relaxed);
            self.stash[token as usize].store(true, Relaxed);
        }
    }

    /// Takes over token `number`, modulo their number, if a handler left it.
    pub(crate) fn unstash(&self, me: u32, number: u64) -> Option<u32> {
        let token = 1 + (number % self.tokens() as u64) as u32;
        let found = self.stash[token as usize].swap(false, Relaxed);
        found.then(|| self.adopt(me, token));
        found.then_some(token)
    }

    /// Holds all slots for a fork.
    pub(crate) fn quiesce(&self) {
        for cpu in self.cpus() {
            let lock = &self.slot(cpu).lock;
            if (self.locks.remote)(&self.machine, lock, cpu) {
                lock.word().store(PERCPU_QUIESCED, Relaxed);
            } else {
                self.missed.fetch_add(1, Relaxed);
            }
        }
    }

    /// Frees what [`Arena::quiesce`] holds; how many.
    pub(crate) fn resume(&self) -> u32 {
        let held = |cpu: &CpuId| self.slot(*cpu).lock.word().load(Relaxed) == PERCPU_QUIESCED;
        self.cpus()
            .filter(held)
            .map(|cpu| self.slot(cpu).lock.release())
            .count() as u32
    }

    /// Counts every token that lies in a slot or in the stash. No other code may be at work.
    pub(crate) fn census(&self, found: &mut [u8]) {
        for cpu in self.cpus() {
            let slot = self.slot(cpu);
            let count = (slot.count.load(Relaxed) as usize).min(SLOT_TOKENS);
            for token in &slot.tokens[..count] {
                let token = token.load(Relaxed) as usize;
                self.clash_unless(self.owners[token].load(Relaxed) == 0);
                found[token] = found[token].saturating_add(1);
            }
        }
        for (count, stashed) in found.iter_mut().zip(&self.stash) {
            *count = count.saturating_add(u8::from(stashed.load(Relaxed)));
        }
    }
}

/// The machine of a run.
pub(crate) fn machine(mode: Mode, slot_index: SlotIndex) -> HostMachine {
    let builder = HostMachine::builder()
        .memory_bytes(1 << 22)
        .meta_bytes(1 << 22);
    let builder = builder.mode(mode).slot_index(slot_index);
    builder.build().expect("a machine")
}
