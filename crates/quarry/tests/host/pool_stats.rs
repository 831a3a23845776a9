//! A pool's counters while it is in use: those of entries in lanes are computed from what two threads
//! write, and must not go back for a third one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use quarry::HostMachine;
use quarry::kernel::era::Era;
use quarry::kernel::page::PageAllocator;
use quarry::kernel::pool::{PoolOwner, PoolParams, PoolStats};

const TIME: Duration = Duration::from_millis(700);

/// Looks at the counters until it is stopped. Returns the number of looks that saw one fall.
fn watch(stop: &AtomicBool, stats: impl Fn() -> PoolStats) -> (u64, u64) {
    let (mut looks, mut back) = (0, 0);
    let mut before = 0;
    while !stop.load(Ordering::Relaxed) {
        let ring = stats().ring;
        back += u64::from(ring < before);
        before = ring;
        looks += 1;
    }
    (looks, back)
}

#[test]
fn what_came_home_by_lanes_is_never_less_than_before() {
    let machine = HostMachine::builder().memory_bytes(64 << 20);
    let machine = machine.build().expect("a machine");
    let pages = PageAllocator::new(machine, Era::V6_18).unwrap();
    let mut owner = PoolOwner::create(&pages, Era::V6_18, &PoolParams::default()).unwrap();
    let stop = &AtomicBool::new(false);
    let (send, receive) = sync_channel(64);
    let (looks, back) = thread::scope(|scope| {
        let (putter, watcher) = (owner.handle(), owner.handle());
        scope.spawn(move || {
            for mut batch in receive {
                putter.put_batch(&mut batch).unwrap();
            }
        });
        let watcher = scope.spawn(move || watch(stop, || watcher.stats()));
        let begin = Instant::now();
        while begin.elapsed() < TIME {
            let mut batch = owner.pool().batch();
            owner.fill_batch(&mut batch, 13).unwrap();
            send.send(batch).unwrap();
        }
        drop(send);
        stop.store(true, Ordering::Relaxed);
        watcher.join().unwrap()
    });
    assert!(looks > 0);
    assert_eq!(back, 0, "of {looks} looks");
    owner.destroy().unwrap();
}
