//! Timed operations on pages.

use std::hint::black_box;
use std::sync::Barrier;

use crate::common::pin;
pub(crate) use crate::hand_over::{HAND_OVER, handed_over};
use crate::times::timed;

/// A way of allocating and freeing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pattern {
    /// Allocate a page, free it.
    Single,
    /// Allocate 64 pages one by one, free them in the same order.
    Batch64,
    /// 32 pages with one call each way.
    Bulk32,
    /// 64 pages with one call each way.
    Bulk64,
    /// Allocate a block of 8 pages, free it.
    Order3,
    /// [`Pattern::Single`] on two threads at once, on two CPUs.
    TwoSingle,
    /// [`Pattern::Bulk32`] on two threads at once, on two CPUs.
    TwoBulk32,
    /// One thread allocates 64 pages with one call, one on another CPU frees them so.
    OtherThread,
    /// The same with two calls of 32 each.
    OtherBulk32,
    /// The same one by one.
    OtherSingle,
}

impl Pattern {
    pub(crate) const ALL: [Self; 10] = [
        Self::Single,
        Self::Batch64,
        Self::Bulk32,
        Self::Bulk64,
        Self::Order3,
        Self::TwoSingle,
        Self::TwoBulk32,
        Self::OtherThread,
        Self::OtherBulk32,
        Self::OtherSingle,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Batch64 => "64 singles",
            Self::Bulk32 => "bulk 32",
            Self::Bulk64 => "bulk 64",
            Self::Order3 => "order 3",
            Self::TwoSingle => "2 threads, single",
            Self::TwoBulk32 => "2 threads, bulk 32",
            Self::OtherThread => "other thread",
            Self::OtherBulk32 => "other thread, bulk 32",
            Self::OtherSingle => "other thread, single",
        }
    }
}

/// A source of pages.
pub(crate) trait Source: Sync {
    type Page: Copy + Send;
    fn get(&self) -> Self::Page;
    fn put(&self, page: Self::Page);
    fn get_many(&self, slots: &mut [Option<Self::Page>]);
    fn put_many(&self, slots: &mut [Option<Self::Page>]);

    /// Fills all slots with calls for one page.
    fn get_each(&self, slots: &mut [Option<Self::Page>]) {
        slots.fill_with(|| Some(self.get()));
    }

    /// Empties all slots with calls for one page.
    fn put_each(&self, slots: &mut [Option<Self::Page>]) {
        for page in slots.iter_mut().filter_map(Option::take) {
            self.put(page);
        }
    }
}

#[inline(never)]
pub(crate) fn singles<S: Source>(source: &S, pages: usize) -> f64 {
    timed(|| {
        for _ in 0..pages {
            source.put(black_box(source.get()));
        }
    })
}

#[inline(never)]
pub(crate) fn batches<S: Source>(source: &S, pages: usize) -> f64 {
    let mut batch = [None; HAND_OVER];
    // Hide the length from the compiler, which would unroll the loops to a fast path per page.
    let batch = &mut batch[..black_box(HAND_OVER)];
    timed(|| {
        for _ in 0..pages / HAND_OVER {
            for slot in batch.iter_mut() {
                *slot = Some(source.get());
            }
            for slot in batch.iter_mut() {
                if let Some(page) = slot.take() {
                    source.put(page);
                }
            }
        }
    })
}

#[inline(never)]
pub(crate) fn bulk<S: Source, const N: usize>(source: &S, pages: usize) -> f64 {
    let mut slots = [None; N];
    timed(|| {
        for _ in 0..pages / N {
            source.get_many(&mut slots);
            black_box(&mut slots);
            source.put_many(&mut slots);
        }
    })
}

/// Nanoseconds of the slower of two threads that do the same on two CPUs at once.
pub(crate) fn on_two(cpu: usize, work: impl Fn() -> f64 + Sync) -> f64 {
    let start = Barrier::new(2);
    std::thread::scope(|scope| {
        let second = scope.spawn(|| {
            pin(cpu ^ 1);
            start.wait();
            work()
        });
        start.wait();
        let first = work();
        first.max(second.join().expect("the second thread"))
    })
}

/// Pages go in calls for `CALL` of them; `enter` and `leave` frame the second thread.
pub(crate) fn other_thread<S: Source, const CALL: usize>(
    source: &S,
    pages: usize,
    cpu: usize,
    enter: impl Fn() + Sync,
    leave: impl Fn() + Sync,
) -> f64 {
    handed_over(
        pages,
        cpu,
        || [None; HAND_OVER],
        |slots| {
            if CALL == 1 {
                source.get_each(slots);
            } else {
                slots
                    .chunks_mut(CALL)
                    .for_each(|call| source.get_many(call));
            }
        },
        |slots| {
            if CALL == 1 {
                source.put_each(slots);
            } else {
                slots
                    .chunks_mut(CALL)
                    .for_each(|call| source.put_many(call));
            }
        },
        enter,
        leave,
    )
}
