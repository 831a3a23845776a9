//! Objects that other threads free than those that made them.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::{Mutex, mpsc};
use std::thread;

use rayon::prelude::*;

use super::{Block, Random, block};

/// A thread replaces random objects of 8 to 1,000 bytes in an array for a while, then ends and hands the array to a new one.
pub(super) fn server() {
    fn turn(mut objects: Vec<Block>, seed: u64, turns: usize) {
        let mut random = Random::new(seed);
        let live = objects.len();
        for _ in 0..100_000 {
            let (at, bytes) = (random.below(live), 8 + random.below(993));
            objects[at] = block(bytes);
        }
        if turns > 0 {
            let next = thread::spawn(move || turn(objects, seed + 1, turns - 1));
            next.join().expect("no turn panics");
        }
    }
    thread::scope(|scope| {
        for line in 0..4 {
            scope.spawn(move || {
                let mut random = Random::new(line);
                let objects = (0..5000).map(|_| block(8 + random.below(993)));
                turn(objects.collect(), line * 1000, 30);
            });
        }
    });
}

/// One thread makes batches of objects of 64 bytes, another one frees them; both ways at once.
pub(super) fn producer() {
    thread::scope(|scope| {
        for _ in 0..2 {
            let (send, receive) = mpsc::sync_channel::<Vec<Block>>(64);
            scope.spawn(move || {
                for _ in 0..40_000 {
                    let batch = (0..120).map(|_| block(64)).collect();
                    send.send(batch).expect("the consumer runs");
                }
            });
            scope.spawn(move || receive.into_iter().for_each(drop));
        }
    });
}

/// Threads that start and end, and leave half of what they allocated to those that come later.
pub(super) fn ending() {
    let left: Mutex<Vec<Vec<Block>>> = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for line in 0..4 {
            let left = &left;
            scope.spawn(move || {
                for turn in 0..250 {
                    let work = move || {
                        let mut random = Random::new(line * 1000 + turn);
                        let found = left.lock().expect("no holder panics").pop();
                        let mut own: Vec<_> =
                            (0..2000).map(|_| block(8 + random.below(500))).collect();
                        drop(found);
                        let rest = own.split_off(1000);
                        left.lock().expect("no holder panics").push(rest);
                        black_box(own);
                    };
                    thread::scope(|inner| inner.spawn(work).join()).expect("no turn panics");
                }
            });
        }
    });
}

/// Strings of 8 bytes, made and compared by the threads of a pool.
pub(super) fn strings() {
    for turn in 0..12_u64 {
        let mut all: Vec<String> = (0..400_000_u64)
            .into_par_iter()
            .map(|number| {
                let mut random = Random::new(number + turn);
                format!("{:08x}", random.next() as u32)
            })
            .collect();
        all.par_sort_unstable();
        black_box(all);
    }
}

/// A map from strings to strings, in parts behind locks, that four threads change.
pub(super) fn map() {
    type Part = Mutex<HashMap<String, String>>;
    let parts: Vec<Part> = (0..64).map(|_| Part::default()).collect();
    thread::scope(|scope| {
        for thread in 0..4 {
            let parts = &parts;
            scope.spawn(move || {
                let mut random = Random::new(thread);
                for _ in 0..600_000 {
                    let number = random.below(100_000);
                    let part = &parts[number % parts.len()];
                    let key = format!("key {number}");
                    let mut part = part.lock().expect("no holder panics");
                    match random.below(4) {
                        0 => {
                            part.remove(&key);
                        }
                        _ => {
                            part.insert(key, "v".repeat(10 + random.below(100)));
                        }
                    }
                }
            });
        }
    });
    black_box(parts);
}
