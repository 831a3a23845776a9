//! Timed operations on objects.

use std::hint::black_box;
use std::ptr::NonNull;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::common::pin;
use crate::times::{timed, wait};

/// Most objects that are alive at a time in any pattern.
pub(crate) const LIVE_MAX: usize = 1024;

/// An allocator under test. Implementations are statically dispatched inside the loops.
pub(crate) trait Allocator: Sync {
    fn alloc(&self) -> NonNull<u8>;
    /// Frees an object that `alloc` returned.
    fn free(&self, object: NonNull<u8>);
    fn alloc_many(&self, slots: &mut [Option<NonNull<u8>>]) {
        for slot in slots {
            *slot = Some(self.alloc());
        }
    }
    fn free_many(&self, slots: &mut [Option<NonNull<u8>>]) {
        for slot in slots {
            if let Some(object) = slot.take() {
                self.free(object);
            }
        }
    }
}

/// Objects handed over at a time when another thread frees.
const HAND_OVER: usize = 64;
/// Hand-overs in flight.
const RING: usize = LIVE_MAX / HAND_OVER;

/// A way of allocating and freeing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pattern {
    /// Allocate one, free it.
    Single,
    /// Allocate n, free them in the same order.
    Batch(usize),
    /// The same with one call each way, where the allocator has such calls.
    Bulk(usize),
    /// One thread allocates, another one on another CPU frees.
    OtherThread,
}

impl Pattern {
    pub(crate) const ALL: [Self; 5] = [
        Self::Single,
        Self::Batch(8),
        Self::Batch(64),
        Self::Bulk(16),
        Self::OtherThread,
    ];

    pub(crate) fn name(self) -> String {
        match self {
            Self::Single => "single".into(),
            Self::Batch(n) => format!("batch {n}"),
            Self::Bulk(n) => format!("bulk {n}"),
            Self::OtherThread => "other thread".into(),
        }
    }
}

#[inline(always)]
fn use_object(object: NonNull<u8>) -> NonNull<u8> {
    // Volatile, so that the object is written even though no code reads it; the calls themselves
    // are opaque to the compiler.
    // SAFETY: every arm hands out at least 8 aligned bytes that no other code uses.
    unsafe { object.cast::<u64>().write_volatile(1) };
    object
}

/// Nanoseconds per object.
pub(crate) fn time<A: Allocator>(
    allocator: &A,
    pattern: Pattern,
    objects: usize,
    cpu: usize,
) -> f64 {
    let elapsed_ns = match pattern {
        Pattern::Single => timed(|| {
            for _ in 0..objects {
                allocator.free(use_object(allocator.alloc()));
            }
        }),
        Pattern::Batch(8) => batches::<_, 8>(allocator, objects),
        Pattern::Batch(_) => batches::<_, 64>(allocator, objects),
        Pattern::Bulk(_) => bulk::<_, 16>(allocator, objects),
        Pattern::OtherThread => other_thread(allocator, objects, cpu),
    };
    elapsed_ns / objects as f64
}

#[inline(never)]
fn batches<A: Allocator, const N: usize>(allocator: &A, objects: usize) -> f64 {
    let mut batch = [NonNull::dangling(); N];
    // The length is hidden, or the compiler unrolls small batches into N copies of every
    // allocator's fast path, which says more about the loop than about the allocator.
    let batch = &mut batch[..black_box(N)];
    timed(|| {
        for _ in 0..objects / N {
            for slot in batch.iter_mut() {
                *slot = use_object(allocator.alloc());
            }
            for &slot in batch.iter() {
                allocator.free(slot);
            }
        }
    })
}

#[inline(never)]
fn bulk<A: Allocator, const N: usize>(allocator: &A, objects: usize) -> f64 {
    let mut slots = [None; N];
    timed(|| {
        for _ in 0..objects / N {
            allocator.alloc_many(&mut slots);
            slots.iter().flatten().for_each(|&object| {
                use_object(object);
            });
            allocator.free_many(&mut slots);
        }
    })
}

type HandOver = [AtomicPtr<u8>; HAND_OVER];

/// A ring of hand-overs, each full or empty.
struct Ring {
    full: [AtomicBool; RING],
    objects: [HandOver; RING],
}

fn other_thread<A: Allocator>(allocator: &A, objects: usize, cpu: usize) -> f64 {
    let ring = Ring {
        full: std::array::from_fn(|_| AtomicBool::new(false)),
        objects: std::array::from_fn(|_| {
            std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut()))
        }),
    };
    let rounds = objects / HAND_OVER;
    let start = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(cpu ^ 1);
            start.wait();
            for round in 0..rounds {
                let at = round % RING;
                wait(&ring.full[at], true);
                for object in &ring.objects[at] {
                    let object = object.load(Ordering::Relaxed);
                    allocator.free(NonNull::new(object).expect("a handed object"));
                }
                // Release: the slots may be filled again.
                ring.full[at].store(false, Ordering::Release);
            }
        });
        start.wait();
        timed(|| {
            for round in 0..rounds {
                let at = round % RING;
                wait(&ring.full[at], false);
                for slot in &ring.objects[at] {
                    slot.store(use_object(allocator.alloc()).as_ptr(), Ordering::Relaxed);
                }
                // Release: hands the objects over.
                ring.full[at].store(true, Ordering::Release);
            }
            for full in &ring.full {
                wait(full, false);
            }
        })
    })
}
