//! Pools that end while their pages come home: by frames and batches, from several threads, from
//! signal handlers that interrupt them in the middle of a put, by lanes and by the ring.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::pool::{is_marked, mark};
use crate::{alone, small, sys};
use quarry::kernel::pool::PoolParams;
use quarry::{Frame, FrameBatch, Mode, PagePool, Slub};

const CONSUMERS: usize = 3;
const TIME: Duration = Duration::from_secs(2);

/// A frame that a signal handler may drop: 0 free, 1 being filled, 2 full, 3 being emptied.
struct Place(AtomicU8, UnsafeCell<MaybeUninit<Frame>>);

// SAFETY: the frame belongs to the thread that moved the state from 0 to 1 or from 2 to 3.
unsafe impl Sync for Place {}

static PLACES: [Place; 32] =
    [const { Place(AtomicU8::new(0), UnsafeCell::new(MaybeUninit::uninit())) }; 32];
static HANDLED: AtomicU64 = AtomicU64::new(0);
/// The threads that are interrupted.
static THREADS: [AtomicI32; CONSUMERS + 1] = [const { AtomicI32::new(0) }; CONSUMERS + 1];

fn take(place: &Place) -> Option<Frame> {
    let state = &place.0;
    state
        .compare_exchange(2, 3, Ordering::Acquire, Ordering::Relaxed)
        .ok()?;
    // SAFETY: the state was 2, so what is there is this caller's now.
    let inside = unsafe { &*place.1.get() };
    // SAFETY: it is a frame.
    let frame = unsafe { inside.assume_init_read() };
    state.store(0, Ordering::Release);
    Some(frame)
}

/// Leaves a frame to the next signal; returns it if there is no place.
fn leave(frame: Frame) -> Option<Frame> {
    for place in &PLACES {
        let state = &place.0;
        if state
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
        {
            // SAFETY: the state was 0, so the place is free and this caller's now.
            unsafe { (*place.1.get()).write(frame) };
            state.store(2, Ordering::Release);
            return None;
        }
    }
    Some(frame)
}

extern "C" fn on_signal(_: libc::c_int) {
    for frame in PLACES.iter().filter_map(take).take(3) {
        drop(frame);
        HANDLED.fetch_add(1, Ordering::Relaxed);
    }
}

fn check(frame: &[u8], number: u64) {
    assert!(
        is_marked(frame, number),
        "frame {number} had a second owner"
    );
}

#[expect(clippy::large_enum_variant, reason = "as a user would send batches")]
enum Parcel {
    Frame(Frame, u64),
    Batch(FrameBatch, u64),
}

fn consume(parcels: Receiver<Parcel>, thread: &AtomicI32) {
    thread.store(sys::thread_number(), Ordering::Relaxed);
    let mut kept: Vec<Option<Frame>> = Vec::new();
    for (turn, parcel) in parcels.into_iter().enumerate() {
        match parcel {
            Parcel::Frame(frame, number) => {
                check(&frame, number);
                match turn % 3 {
                    0 => drop(leave(frame)),
                    1 => kept.push(Some(frame)),
                    _ => drop(frame),
                }
                if kept.len() > 20 {
                    Frame::put_bulk(&mut kept);
                    kept.clear();
                }
            }
            Parcel::Batch(mut batch, number) => {
                batch.frames().for_each(|frame| check(frame, number));
                if turn % 4 == 0
                    && let Some(frame) = batch.pop()
                {
                    check(&frame, number);
                    drop(leave(frame));
                }
                batch.frames_mut().for_each(|frame| mark(frame, !number));
            }
        }
    }
    thread.store(0, Ordering::Relaxed);
}

/// Fills a pool's frames and sends them on, and ends the pool while they are away.
fn produce(pool: PagePool, consumers: &[SyncSender<Parcel>], number: &mut u64) {
    let mut pool = pool;
    for turn in 0..1_000_usize {
        *number += 1;
        let number = *number;
        let consumer = &consumers[turn % CONSUMERS];
        let parcel = if turn % 3 == 0 {
            let mut batch = pool.batch();
            let wanted = 1 + turn * 7 % 64;
            if pool.fill_batch(&mut batch, wanted).expect("an empty batch") == 0 {
                thread::yield_now();
                continue;
            }
            batch.frames_mut().for_each(|frame| mark(frame, number));
            Parcel::Batch(batch, number)
        } else {
            let Some(mut frame) = pool.alloc() else {
                thread::yield_now();
                continue;
            };
            mark(&mut frame, number);
            Parcel::Frame(frame, number)
        };
        match consumer.try_send(parcel) {
            Ok(()) => {}
            Err(TrySendError::Full(Parcel::Frame(frame, number))) => {
                check(&frame, number);
                pool.recycle(frame);
            }
            Err(TrySendError::Full(Parcel::Batch(mut batch, number))) => {
                batch.frames().for_each(|frame| check(frame, number));
                pool.recycle_batch(&mut batch);
            }
            Err(TrySendError::Disconnected(_)) => panic!("a consumer failed"),
        }
    }
    assert_eq!(pool.stats().stale, 0);
    if let Err(pending) = pool.destroy() {
        drop(pending.finish());
    }
}

#[test]
fn pools_end_while_their_pages_come_home() {
    let _alone = alone();
    let heap = small::<Slub>(Mode::Auto).leak();
    sys::handle_signal(on_signal);
    THREADS[CONSUMERS].store(sys::thread_number(), Ordering::Relaxed);
    let stop = AtomicBool::new(false);
    let end = Instant::now() + TIME;
    thread::scope(|scope| {
        let (senders, receivers): (Vec<_>, Vec<_>) =
            (0..CONSUMERS).map(|_| sync_channel(32)).unzip();
        let consumers: Vec<_> = receivers
            .into_iter()
            .zip(&THREADS)
            .map(|(parcels, thread)| scope.spawn(|| consume(parcels, thread)))
            .collect();
        let stop = &stop;
        let disturber = scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                for thread in &THREADS {
                    let number = thread.load(Ordering::Relaxed);
                    if number != 0 {
                        sys::signal(number);
                    }
                }
                thread::sleep(Duration::from_micros(30));
            }
        });
        let mut number = 0;
        for size in [2, 3, 8, 65, 504, 1024].into_iter().cycle() {
            let params = PoolParams {
                pool_size: size,
                ..PoolParams::default()
            };
            let pool = PagePool::new(heap.pages(), heap.era(), &params).expect("a pool");
            produce(pool, &senders, &mut number);
            if Instant::now() > end {
                break;
            }
        }
        drop(senders);
        for consumer in consumers {
            consumer.join().expect("a consumer");
        }
        stop.store(true, Ordering::Relaxed);
        disturber.join().expect("the disturber");
    });
    PLACES.iter().filter_map(take).for_each(drop);
    assert!(
        HANDLED.load(Ordering::Relaxed) > 0,
        "no frame was put by a handler"
    );
    let census = heap.pages().check_consistency().expect("consistent pages");
    assert_eq!((census.pool, census.allocated), (0, 0), "{census:?}");
}
