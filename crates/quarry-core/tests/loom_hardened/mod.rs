//! Models of the ring of a hardened cache. Both threads are on one CPU, as after a move between the look at the CPU's number and the
//! exchange, so they meet in the same places.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::Arc;

use quarry_core::design::CacheSpec;
use quarry_core::era::Era;
use quarry_core::geometry::{BootParams, Hardening};
use quarry_core::heap::Cache;
use quarry_core::slub::Slub;

use super::loom_machine::{LoomMachine, be};
use super::{CPU0, Contents, ModelHeap, Objects, alloc, cache, explore, finish, spawn};

/// Objects of the model: those of a slab.
const OBJECTS: usize = 2;

/// A heap, and the memory of each object of its cache, as the model checks it.
struct World {
    heap: ModelHeap,
    contents: HashMap<usize, Contents>,
}

impl World {
    fn new() -> (Arc<Self>, Objects) {
        be(CPU0);
        let boot = BootParams {
            slub_max_order: Some(0),
            hardening: Hardening::DELAY,
            ..BootParams::default()
        };
        let heap = ModelHeap::new(LoomMachine::new(), Era::V6_18, boot).unwrap();
        heap.create_cache(&CacheSpec::new("model", 1900)).unwrap();
        let objects: Objects = (0..OBJECTS).map(|_| alloc(&heap).unwrap()).collect();
        let contents = objects
            .iter()
            .map(|&object| (object, Contents(loom::cell::UnsafeCell::new(0))))
            .collect();
        (Arc::new(Self { heap, contents }), objects)
    }

    /// The cache. Its search takes a lock, so a thread makes it before what the model is about.
    fn cache(&self) -> Cache<'_, LoomMachine, Slub> {
        cache(&self.heap)
    }

    /// Uses an object for the last time, and frees it.
    fn end(&self, cache: Cache<'_, LoomMachine, Slub>, object: usize) {
        self.contents[&object].change();
        let object = NonNull::new(std::ptr::with_exposed_provenance_mut(object)).unwrap();
        // SAFETY: every object is freed once.
        unsafe { cache.free(object) }.unwrap();
    }

    /// Allocates an object, and uses it if it is one of the model's.
    fn begin(&self, cache: Cache<'_, LoomMachine, Slub>) -> Option<usize> {
        let object = cache.alloc()?.expose_provenance().get();
        if let Some(contents) = self.contents.get(&object) {
            contents.change();
        }
        Some(object)
    }
}

/// Frees the first object while another thread frees the second, drains the ring if it `drains`, and allocates one.
fn model(drains: bool) {
    explore(move || {
        let (world, objects) = World::new();
        let (other, second) = (Arc::clone(&world), objects[1]);
        let thread = spawn(move || {
            be(CPU0);
            let cache = other.cache();
            other.end(cache, second);
            if drains {
                cache.flush();
            }
            other.begin(cache)
        });
        let cache = world.cache();
        world.end(cache, objects[0]);
        let left = thread.join().unwrap();
        finish(&world.heap, left.into_iter().collect());
    });
}

/// The next user of what one thread throws out of the ring comes after the last one, another thread.
#[test]
fn an_object_out_of_the_ring_comes_after_its_last_user() {
    model(false);
}

/// A drain and a free never have one object both, and none is lost.
#[test]
fn a_drain_against_a_free() {
    model(true);
}
