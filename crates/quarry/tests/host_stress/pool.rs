//! Page pools on real threads: receivers allocate and fill frames, consumers check and drop them or
//! send them back, and processes fork meanwhile.
//!
//! Every frame in flight carries a number that no other has. The control hands one frame out twice
//! and must be noticed. `QUARRY_STRESS_SECONDS` lengthens the runs.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use crate::{Way, alone, small, sys};
use quarry::{
    Design as _, Era, Fragment, Frame, Hardening, HostHeap, Mapper, Mode, PagePool, PoolParams,
    PoolStats, Slub,
};

const RECEIVERS: u64 = 2;
const CONSUMERS: usize = 3;

fn heap(mode: Mode) -> &'static HostHeap<Slub> {
    small(mode).leak()
}

fn duration() -> Duration {
    let seconds = std::env::var("QUARRY_STRESS_SECONDS").ok();
    let seconds = seconds.and_then(|text| text.parse().ok()).unwrap_or(0.4);
    Duration::from_secs_f64(seconds)
}

fn pool(heap: &'static HostHeap<Slub>, pool_size: u32) -> PagePool {
    let params = PoolParams {
        name: "storm",
        pool_size,
        ..PoolParams::default()
    };
    PagePool::new(heap.pages(), Era::V6_18, &params).unwrap()
}

/// Fills memory with a number, in its first and last words.
pub(crate) fn mark(memory: &mut [u8], number: u64) {
    let bytes = number.to_le_bytes();
    let last = memory.len() - bytes.len();
    memory[..bytes.len()].copy_from_slice(&bytes);
    memory[last..].copy_from_slice(&bytes);
}

pub(crate) fn is_marked(memory: &[u8], number: u64) -> bool {
    let bytes = number.to_le_bytes();
    memory.starts_with(&bytes) && memory.ends_with(&bytes)
}

/// A packet under way.
enum Packet {
    Whole(Frame, u64),
    Part(Fragment, u64),
}

struct Storm {
    stop: AtomicBool,
    clashes: AtomicU64,
    consumed: AtomicU64,
}

impl Storm {
    fn new() -> Self {
        Self {
            stop: AtomicBool::new(false),
            clashes: AtomicU64::new(0),
            consumed: AtomicU64::new(0),
        }
    }

    fn check(&self, memory: &[u8], number: u64) {
        if !is_marked(memory, number) {
            self.clashes.fetch_add(1, Ordering::Relaxed);
        }
        self.consumed.fetch_add(1, Ordering::Relaxed);
    }

    /// Allocates, fills, and hands over; takes back what consumers return.
    fn receive(
        &self,
        me: u64,
        mut pool: PagePool,
        to: &[SyncSender<Packet>],
        back: &Receiver<Frame>,
    ) -> PagePool {
        let mut number = me << 48;
        let mut burst = [const { None }; 8];
        while !self.stop.load(Ordering::Relaxed) {
            number += 1;
            let packet = if number.is_multiple_of(5) {
                let Ok(mut part) = pool.alloc_fragment(64 + number as u32 % 1900) else {
                    continue;
                };
                mark(&mut part, number);
                Packet::Part(part, number)
            } else {
                let Some(mut frame) = pool.alloc() else {
                    continue;
                };
                mark(&mut frame, number);
                Packet::Whole(frame, number)
            };
            // A full queue drops the packet here, on the receiver's own thread.
            let _ = to[number as usize % to.len()].try_send(packet);
            if number.is_multiple_of(11) {
                pool.alloc_bulk(&mut burst);
                burst
                    .iter_mut()
                    .flatten()
                    .for_each(|frame| mark(frame, number));
                for frame in burst.iter().flatten() {
                    self.check(frame, number);
                }
                Frame::put_bulk(&mut burst[..3]);
                pool.recycle_bulk(&mut burst);
            }
            let returned = burst.iter_mut().zip(back.try_iter());
            returned.for_each(|(slot, frame)| *slot = Some(frame));
            pool.recycle_bulk(&mut burst);
            while let Ok(frame) = back.try_recv() {
                pool.recycle(frame);
            }
        }
        pool
    }

    fn consume(&self, from: &Receiver<Packet>, back: &[SyncSender<Frame>]) {
        let mut burst = Vec::new();
        for packet in from {
            match packet {
                Packet::Whole(frame, number) => {
                    self.check(&frame, number);
                    if number.is_multiple_of(4) {
                        // Frames of both pools go home together.
                        burst.push(Some(frame));
                        if burst.len() == 20 {
                            Frame::put_bulk(&mut burst);
                            burst.clear();
                        }
                    } else if number.is_multiple_of(3) {
                        let _ = back[(number >> 48) as usize].try_send(frame);
                    }
                }
                Packet::Part(part, number) => self.check(&part, number),
            }
        }
    }

    /// Runs for a while; the receivers' pools come back.
    fn run(&self, pools: Vec<PagePool>) -> Vec<PagePool> {
        let (back_in, back_out): (Vec<_>, Vec<_>) = pools.iter().map(|_| sync_channel(64)).unzip();
        let (to, from): (Vec<_>, Vec<_>) = (0..CONSUMERS).map(|_| sync_channel(256)).unzip();
        thread::scope(|scope| {
            for from in from {
                let back = back_in.clone();
                scope.spawn(move || self.consume(&from, &back));
            }
            let receivers: Vec<_> = (0..)
                .zip(pools.into_iter().zip(back_out))
                .map(|(me, (pool, back))| {
                    let to = to.clone();
                    scope.spawn(move || self.receive(me, pool, &to, &back))
                })
                .collect();
            drop(to);
            drop(back_in);
            thread::sleep(duration());
            self.stop.store(true, Ordering::Relaxed);
            let ended = receivers.into_iter().map(|thread| thread.join().unwrap());
            ended.collect()
        })
    }
}

/// Everything that was handed out came back somewhere.
fn balance(stats: &PoolStats) {
    let back = stats.cached + stats.ring + stats.ring_full;
    // The page that parts are cut from is neither put nor in flight.
    let open = stats.allocs() - back;
    assert!(open <= 1, "{stats:?}");
    assert_eq!(
        (stats.inflight, stats.released_refcnt, stats.stale),
        (0, 0, 0)
    );
}

fn storm(way: Way) {
    let heap = way.heap::<Slub>(Slub::DEFAULT_ERA, Hardening::NONE);
    let storm = Storm::new();
    let pools = (0..RECEIVERS).map(|me| pool(heap, 8 << (5 * me))).collect();
    let pools = storm.run(pools);
    assert_eq!(storm.clashes.load(Ordering::Relaxed), 0);
    assert!(storm.consumed.load(Ordering::Relaxed) > 0);
    for pool in pools {
        let stats = pool.stats();
        eprintln!("{way:?}: {stats:?}");
        assert!(stats.ring > 0 && stats.cached > 0, "{stats:?}");
        balance(&stats);
        pool.destroy().unwrap();
    }
    let census = heap.pages().check_consistency().unwrap();
    assert_eq!((census.pool, census.allocated), (0, 0), "{census:?}");
}

#[test]
fn receivers_and_consumers_with_sequences() {
    let _alone = alone();
    storm(Way::Auto);
}

#[test]
fn receivers_and_consumers_with_ids() {
    let _alone = alone();
    storm(Way::Ids);
}

#[test]
fn receivers_and_consumers_without() {
    let _alone = alone();
    storm(Way::Fallback);
}

/// Two frames of one page: what the storm checks would not hold.
#[test]
fn control_a_page_handed_out_twice_is_noticed() {
    let _alone = alone();
    let heap = heap(Mode::Auto);
    let mut pool = pool(heap, 8);
    let storm = Storm::new();
    let mut first = pool.alloc().unwrap();
    // SAFETY: none: that is the mistake. The two are not used at the same time.
    let mut second = unsafe { pool.from_raw(first.pfn()) };
    mark(&mut first, 1);
    mark(&mut second, 2);
    storm.check(&first, 1);
    assert_eq!(storm.clashes.load(Ordering::Relaxed), 1);
    let _ = second.into_raw();
}

#[test]
fn a_pool_that_cannot_go_names_its_holders() {
    let _alone = alone();
    let heap = heap(Mode::Auto);
    let mut pool = pool(heap, 64);
    let (line, frame) = (line!(), pool.alloc().unwrap());
    let (go, wait) = sync_channel::<()>(0);
    let holder = thread::spawn(move || {
        let _ = wait.recv();
        drop(frame);
    });
    let pending = pool.destroy().unwrap_err();
    let report = pending.report();
    let [only] = report.holders() else {
        panic!("{report}")
    };
    assert_eq!(only.site.location().unwrap().line(), line);
    assert_eq!((only.pages, report.pages), (1, 1));
    let cpus = thread::available_parallelism().unwrap().get() as u32;
    assert!(only.cpu.0 < cpus.max(4096), "{report}");
    drop(go);
    holder.join().unwrap();
    pending.finish().unwrap();
    assert_eq!(heap.pages().check_consistency().unwrap().pool, 0);
}

/// Frames given up to hardware come back by their numbers, and are at the addresses that it got.
#[test]
fn frames_have_numbers_and_places() {
    let _alone = alone();
    let heap = heap(Mode::Auto);
    let mut pool = pool(heap, 64);
    let memory = pool.memory();
    let mut frame = pool.alloc().unwrap();
    mark(&mut frame, 77);
    let place = frame.as_ptr().addr() - memory.cast::<u8>().addr().get();
    assert_eq!(place, frame.pfn().0 as usize * pool.frame_bytes());
    assert!(place + frame.len() <= memory.len());
    let pfn = frame.into_raw();
    assert_eq!(pool.stats().inflight, 1);
    // SAFETY: the page is the pool's and not held by its number, so the call refuses it.
    let freed = unsafe { heap.pages().free(pfn, 0) };
    assert!(freed.is_err(), "it is the pool's");
    // SAFETY: the number came from `into_raw` just now.
    let frame = unsafe { pool.from_raw(pfn) };
    assert!(is_marked(&frame, 77));
    frame.put_used(64);
    assert_eq!(pool.stats().ring, 1);
    pool.destroy().unwrap();
}

/// A child of a fork uses the pool even if another thread had reserved a slot of the ring.
#[test]
fn children_of_a_fork_use_the_pool() {
    let _alone = alone();
    let heap = heap(Mode::Auto);
    let mut mine = pool(heap, 64);
    let storm = Storm::new();
    let (to, from) = sync_channel::<Frame>(64);
    let failures = thread::scope(|scope| {
        let storm = &storm;
        scope.spawn(move || {
            while !storm.stop.load(Ordering::Relaxed) {
                drop(from.recv_timeout(Duration::from_millis(1)));
            }
        });
        let mut failures = 0;
        for _ in 0..20 {
            for _ in 0..100 {
                if let Some(frame) = mine.alloc() {
                    let _ = to.try_send(frame);
                }
            }
            let child = sys::fork(|| i32::from(!(0..200).all(|_| mine.alloc().is_some())));
            failures += u32::from(sys::wait(child, Duration::from_secs(10)) != Some(0));
        }
        storm.stop.store(true, Ordering::Relaxed);
        failures
    });
    assert_eq!(failures, 0);
    mine.destroy().unwrap();
}

/// The mappings of a device: pages are numbered one after the other, from `self.0` on.
struct Counting(AtomicU64);

impl Mapper for Counting {
    fn map(&self, _block: NonNull<u8>, _bytes: usize) -> Option<u64> {
        Some(self.0.fetch_add(1, Ordering::Relaxed))
    }

    fn unmap(&self, _mapping: u64, _bytes: usize) {}
}

/// A driver that programs a device with a number gets none for a page that the pool did not map.
#[test]
fn a_pool_knows_mappings_of_its_own_frames_only() {
    let _alone = alone();
    let mapped = |first: u64| {
        let heap = heap(Mode::Fallback);
        let mapper = Counting(AtomicU64::new(first));
        let params = PoolParams::default();
        PagePool::new_mapped(heap.pages(), Era::V6_18, &params, mapper).unwrap()
    };
    let [mut here, mut there] = [1000, 2000].map(mapped);
    let (mine, foreign) = (here.alloc().unwrap(), there.alloc().unwrap());
    assert_eq!(mine.pfn(), foreign.pfn(), "heaps number their pages alike");
    let of = |frame| {
        let first = |pool: &PagePool<Counting>| pool.mapping_of(frame).map(|known| known / 1000);
        (first(&here), first(&there))
    };
    assert_eq!(of(&mine), (Some(1), None));
    assert_eq!(of(&foreign), (None, Some(2)));
    drop((mine, foreign));
    for pool in [here, there] {
        assert!(pool.destroy().is_ok());
    }
}

/// Heaps number their pages alike: a frame of one must not be taken for a page of the other.
#[test]
fn frames_go_home_to_their_own_heap() {
    let _alone = alone();
    let heaps = [Mode::Fallback, Mode::Fallback].map(heap);
    let [mut here, mut there] = heaps.map(|heap| pool(heap, 16));
    let (mut mine, foreign) = (here.alloc().unwrap(), there.alloc().unwrap());
    assert_eq!(
        mine.pfn(),
        foreign.pfn(),
        "fresh heaps hand out the same numbers"
    );
    mark(&mut mine, 7);
    here.recycle(foreign);
    assert_eq!((here.stats().cached, there.stats().ring), (0, 1));
    let mut others: Vec<_> = (0..64).map(|_| here.alloc().unwrap()).collect();
    others.iter_mut().for_each(|frame| mark(frame, 8));
    assert!(is_marked(&mine, 7), "the frame is still this thread's");
    drop(others);
    drop(mine);
    for pool in [here, there] {
        assert!(pool.destroy().is_ok());
    }
}
