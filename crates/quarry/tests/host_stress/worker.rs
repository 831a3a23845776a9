//! A thread that allocates, hands over and frees.

use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;

use quarry::kernel::design::Design;
use quarry::kernel::machine::Machine;

use super::owner::{Held, Source};
use super::storm::{self, Place};
use super::sys::{self, Random};
use super::world::World;

/// Objects that a worker keeps at most.
const HAND: usize = 160;
/// Objects of the largest bulk call.
const BULK: usize = 24;

pub(crate) struct Worker<'w, M: Machine, D: Design> {
    pub(crate) world: &'w World<M, D>,
    pub(crate) random: Random,
    pub(crate) hand: Vec<Held>,
    pub(crate) place: &'w Place<'w>,
}

impl<'w, M: Machine + Send + Sync, D: Design> Worker<'w, M, D> {
    pub(crate) fn new(world: &'w World<M, D>, place: &'w Place<'w>) -> Self {
        Self {
            world,
            random: Random(0x9e37_79b9 + place.index as u64 * 77_777),
            // Never grows: `Place::enter` says why.
            hand: Vec::with_capacity(HAND + BULK),
            place,
        }
    }

    /// Works until it is stopped or something is wrong, then frees all. Returns the number of operations.
    pub(crate) fn run(&mut self) -> u64 {
        self.place.enter();
        let mut ops = 0;
        while !self.place.is_over() && self.world.clashes.load(Relaxed) == 0 {
            self.step();
            ops += 1;
        }
        while let Some(held) = self.hand.pop() {
            self.world.free(held, false);
        }
        storm::leave();
        ops
    }

    fn step(&mut self) {
        let dice = self.random.below(1000);
        let room = self.hand.len() < HAND;
        match dice {
            0..380 if room => self.alloc(),
            380..400 if room => self.alloc_bulk(),
            400..500 if room => self.kmalloc(),
            500..540 => self.exchange(),
            540..560 => self.free_bulk(),
            990 => sys::pin(
                0,
                self.place.allowed[self.random.below(self.place.allowed.len())],
            ),
            991..993 => std::thread::yield_now(),
            _ => self.free(),
        }
    }

    fn alloc(&mut self) {
        let number = self.random.below(self.world.caches.len());
        // Large objects take long to fill.
        let number = number.min(self.random.below(self.world.caches.len()));
        self.hand.extend(self.world.alloc(number, false));
    }

    fn kmalloc(&mut self) {
        let shift = 3 + self.random.below(9);
        let shift = if self.random.below(100) == 0 {
            14
        } else {
            shift
        };
        let bytes = (1 << shift) - 8 * self.random.below(1 << shift >> 4 | 1);
        self.hand.extend(self.world.kmalloc(bytes));
    }

    fn alloc_bulk(&mut self) {
        let number = 1 + self.random.below(self.world.caches.len() - 1);
        let mut batch = [None; BULK];
        let batch = &mut batch[..1 + self.random.below(BULK)];
        let all = self.world.caches[number].alloc_bulk(batch);
        self.world.note_miss(!all, false);
        let bytes = World::<M, D>::bytes(number);
        for object in batch.iter().flatten().filter(|_| all) {
            let source = Source::Cache(number);
            self.hand.push(self.world.own(*object, bytes, source));
        }
    }

    fn free_bulk(&mut self) {
        let number = 1 + self.random.below(self.world.caches.len() - 1);
        let mut batch: [Option<NonNull<u8>>; BULK] = [None; BULK];
        let mut places = batch.iter_mut();
        let mut at = 0;
        while at < self.hand.len() {
            if self.hand[at].source != Source::Cache(number) {
                at += 1;
                continue;
            }
            let Some(place) = places.next() else { break };
            let held = self.hand.swap_remove(at);
            self.world.check(&held, false);
            *place = Some(held.object);
        }
        self.world.free_bulk(number, &mut batch);
    }

    fn free(&mut self) {
        if !self.hand.is_empty() {
            let place = self.random.below(self.hand.len());
            let held = self.hand.swap_remove(place);
            self.world.free(held, false);
        }
    }

    /// Gives objects to the worker that opens the mailbox next, and takes others.
    fn exchange(&mut self) {
        let mailbox = self.random.below(self.world.mailboxes.len());
        let Ok(mut letters) = self.world.mailboxes[mailbox].try_lock() else {
            return;
        };
        for _ in 0..self.random.below(8) {
            if letters.len() < letters.capacity() {
                letters.extend(self.hand.pop());
            }
        }
        for _ in 0..self.random.below(8) {
            if self.hand.len() < HAND && !letters.is_empty() {
                let place = self.random.below(letters.len());
                self.hand.push(letters.swap_remove(place));
            }
        }
    }
}
