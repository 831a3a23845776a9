//! Model of the per-CPU word: sequences on one CPU, remote acquisitions from others.
//!
//! Built by `RUSTFLAGS="--cfg loom" cargo test -p kquarry-host --release --test loom`.
//!
//! What the kernel guarantees is modelled by a `Mutex` per CPU: which sequence runs there. Starting
//! one preempts, and so aborts, the one before; a barrier aborts it too; a commit is one step with
//! the check that it was not aborted. The remote side is the crate's own `protocol`.
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

use quarry_core::machine::{PERCPU_FREE, PERCPU_OWNER};
use quarry_host::protocol::{self, Kernel, Word};

/// Restarts that a modelled sequence makes before it gives up, which any thread may.
const RESTARTS: u32 = 2;

/// One CPU: a slot, and the scheduler's knowledge of the sequence in flight.
struct Cpu {
    word: AtomicU32,
    state: UnsafeCell<u32>,
    /// Number of the sequence in flight; 0 if there is none.
    in_flight: Mutex<u32>,
}

impl Cpu {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            word: AtomicU32::new(PERCPU_FREE),
            state: UnsafeCell::new(0),
            in_flight: Mutex::new(0),
        })
    }

    /// The restartable sequence; `number` is the thread's own. Whether it took the word.
    fn try_lock(&self, number: u32) -> bool {
        for _ in 0..RESTARTS {
            // Arm and start: a thread that was inside has been preempted.
            *self.in_flight.lock().unwrap() = number;
            // Acquire: pairs with the Release in `release`.
            if self.word.load(Ordering::Acquire) != PERCPU_FREE {
                return false;
            }
            let mut in_flight = self.in_flight.lock().unwrap();
            if *in_flight == number {
                // A plain store in reality. Loom would let it come before a claim that it
                // overwrites, though the claim replaced the 0 in front of both; coherence forbids
                // that, and an exchange says so.
                self.word.swap(PERCPU_OWNER, Ordering::Relaxed);
                *in_flight = 0;
                return true;
            }
        }
        false
    }

    /// Uses the state and frees the word. The cell reports two users at a time, and a use that is
    /// not ordered after the one before.
    fn use_and_release(&self) {
        self.state.with_mut(|state| {
            // SAFETY: the caller holds the word; that this suffices is what the model checks.
            unsafe { *state += 1 }
        });
        // Release: pairs with the Acquire in `try_lock` and in `Word::exchange`. An exchange for
        // the same reason as in `try_lock`.
        self.word.swap(PERCPU_FREE, Ordering::Release);
    }
}

impl Word for Cpu {
    fn look(&self) -> u32 {
        self.word.load(Ordering::Relaxed)
    }

    fn exchange(&self, from: u32, to: u32) -> bool {
        // Acquire: pairs with the Release in `use_and_release`.
        self.word
            .compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }
}

/// The barrier's effect in a model.
#[derive(Clone, Copy)]
enum Barrier {
    /// Aborts what is in flight.
    Works,
    /// Nothing.
    Missing,
    /// Reports a failure.
    Fails,
}

struct Model<'a> {
    cpu: &'a Cpu,
    barrier: Barrier,
}

impl Kernel for Model<'_> {
    fn barrier(&self) -> bool {
        match self.barrier {
            Barrier::Works => *self.cpu.in_flight.lock().unwrap() = 0,
            Barrier::Missing => {}
            Barrier::Fails => return false,
        }
        true
    }

    fn pause(&self, _: u32) {
        thread::yield_now();
    }
}

/// Takes the CPU's word from elsewhere and uses its state; how often.
fn remote(cpu: &Cpu, claim: u32, barrier: Barrier) -> u32 {
    let taken = protocol::acquire(cpu, &Model { cpu, barrier }, claim, 2);
    taken.then(|| cpu.use_and_release());
    u32::from(taken)
}

/// Runs `locals` threads on one CPU and a remote one for each claim.
fn model(locals: u32, claims: &'static [u32], barrier: Barrier) {
    let mut builder = loom::model::Builder::new();
    // More threads, fewer forced switches: without `QUARRY_SOAK` every model ends within seconds. Four threads with three
    // switches take minutes.
    let soak = std::env::var_os("QUARRY_SOAK").is_some();
    builder.preemption_bound = Some(match (locals as usize + claims.len(), soak) {
        (..=2, _) | (3, true) => 4,
        (3, false) | (_, true) => 3,
        (_, false) => 2,
    });
    builder.check(move || {
        let cpu = Cpu::new();
        let mut threads = Vec::new();
        for number in 1..=locals {
            let cpu = Arc::clone(&cpu);
            threads.push(thread::spawn(move || {
                let taken = cpu.try_lock(number);
                taken.then(|| cpu.use_and_release());
                u32::from(taken)
            }));
        }
        let (&last, others) = claims.split_last().unwrap();
        for &claim in others {
            let cpu = Arc::clone(&cpu);
            threads.push(thread::spawn(move || remote(&cpu, claim, barrier)));
        }
        let mut taken = remote(&cpu, last, barrier);
        for thread in threads {
            taken += thread.join().unwrap();
        }
        assert_eq!(cpu.word.load(Ordering::Acquire), PERCPU_FREE);
        // SAFETY: all threads have ended.
        let uses = cpu.state.with(|state| unsafe { *state });
        assert_eq!(uses, taken, "a use was overwritten");
    });
}

const ONE: &[u32] = &[protocol::claim(0)];
const TWO: &[u32] = &[protocol::claim(0), protocol::claim(1)];
const EQUAL: &[u32] = &[protocol::claim(0), protocol::claim(0)];

#[test]
fn one_local_one_remote() {
    model(1, ONE, Barrier::Works);
}

#[test]
fn two_locals_one_remote() {
    model(2, ONE, Barrier::Works);
}

#[test]
fn one_local_two_remotes() {
    model(1, TWO, Barrier::Works);
}

#[test]
fn two_locals_two_remotes() {
    model(2, TWO, Barrier::Works);
}

#[test]
fn a_failing_barrier_withdraws_the_claim() {
    model(2, ONE, Barrier::Fails);
}

#[test]
#[should_panic]
fn without_barrier_clash() {
    model(1, ONE, Barrier::Missing);
}

#[test]
#[should_panic]
fn equal_claims_clash() {
    model(2, EQUAL, Barrier::Works);
}

#[test]
fn fallback_excludes() {
    loom::model(|| {
        let cpu = Cpu::new();
        let other = Arc::clone(&cpu);
        let local = thread::spawn(move || {
            let taken = other.exchange(PERCPU_FREE, PERCPU_OWNER);
            taken.then(|| other.use_and_release());
        });
        let kernel = Model {
            cpu: &cpu,
            barrier: Barrier::Missing,
        };
        if protocol::acquire_fallback(&*cpu, &kernel, 2) {
            cpu.use_and_release();
        }
        local.join().unwrap();
        assert_eq!(cpu.word.load(Ordering::Acquire), PERCPU_FREE);
    });
}
