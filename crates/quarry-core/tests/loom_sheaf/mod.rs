//! Models of sheaves: two CPUs exchange sheaves of one object with a barn that keeps one full and one
//! empty, and flushes take what they have.
//!
//! The barn, its sheaves and their entries are ordinary memory. The machine watches the accesses that
//! the design accounts for: two that nothing orders end the model, whatever values they had.

use std::sync::Arc;

use quarry_core::design::CacheSpec;
use quarry_core::era::Era;
use quarry_core::geometry::BootParams;
use quarry_core::heap::Heap;
use quarry_core::machine::{Line, LockClass};
use quarry_core::sheaf::SheafCache;

use super::loom_machine::{LoomMachine, Me, be};
use super::{
    CPU0, CPU1, NODE, Objects, alloc, cache, explore_within, finish, free, spawn, switches,
};

type SheafHeap = Heap<LoomMachine, SheafCache>;

/// Objects before the frees that a model begins with.
const OBJECTS: usize = 5;

/// Script of one thread.
#[derive(Clone, Copy, Debug)]
enum Does {
    Alloc,
    Free(usize),
    Flush,
    Shrink,
}

/// CPUs of the frees before: each CPU has a full main and a full spare sheaf after two frees, and the barn a
/// full one after a third.
type Before = &'static [(Me, usize)];

/// Makes the machine of a run.
type MakeMachine = fn() -> LoomMachine;

const WATCHING: MakeMachine = || LoomMachine::new().watching(&[Line::Node, Line::CpuQueue]);

fn heap(machine: LoomMachine, era: Era) -> SheafHeap {
    let boot = BootParams {
        slub_max_order: Some(0),
        ..BootParams::default()
    };
    let heap = SheafHeap::new(machine, era, boot).unwrap();
    let spec = CacheSpec {
        sheaf_capacity: 1,
        ..CacheSpec::new("model", 1024)
    };
    let cache = heap.create_cache(&spec).unwrap();
    for (name, value) in [("sheaf_capacity", 1), ("barn_full", 1), ("barn_empty", 1)] {
        assert!(cache.set_attribute(name, value), "{name}");
    }
    heap
}

/// Runs each actor on its own thread, and checks what is left. Flushes and shrinks are long: one forced
/// switch is in all places of them, two are too many to explore.
fn model(era: Era, machine: MakeMachine, before: Before, actors: &'static [(Me, Does)]) {
    let long = actors
        .iter()
        .any(|(_, does)| matches!(does, Does::Flush | Does::Shrink));
    let switches = if long { 1 } else { switches(era, Era::V7_0) };
    explore_within(switches, move || {
        be(CPU0);
        let heap = Arc::new(heap(machine(), era));
        let mut objects: Objects = (0..OBJECTS).map(|_| alloc(&heap).unwrap()).collect();
        for &(me, number) in before {
            be(me);
            free(&heap, std::mem::take(&mut objects[number]));
        }
        let threads: Vec<_> = actors
            .iter()
            .map(|&(me, does)| {
                let heap = Arc::clone(&heap);
                let object = match does {
                    Does::Free(number) => std::mem::take(&mut objects[number]),
                    _ => 0,
                };
                spawn(move || {
                    be(me);
                    match does {
                        Does::Alloc => return alloc(&heap),
                        Does::Free(_) => free(&heap, object),
                        Does::Flush => drop(cache(&heap).flush()),
                        Does::Shrink => drop(cache(&heap).shrink()),
                    }
                    None
                })
            })
            .collect();
        objects.extend(threads.into_iter().filter_map(|t| t.join().unwrap()));
        be(CPU0);
        finish(&heap, objects);
    });
}

/// Sheaves over slabs, and over CPU slabs.
fn both_eras(before: Before, actors: &'static [(Me, Does)]) {
    for era in [Era::V7_0, Era::V6_18] {
        model(era, WATCHING, before, actors);
    }
}

/// CPU 1 has two full sheaves and gave one to the barn: it gives another while CPU 0 takes that one.
fn exchange(machine: MakeMachine) {
    model(
        Era::V7_0,
        machine,
        &[(CPU1, 0), (CPU1, 1), (CPU1, 2)],
        &[(CPU0, Does::Alloc), (CPU1, Does::Free(3))],
    );
}

#[test]
fn a_full_sheaf_for_the_barn_against_one_from_it() {
    exchange(WATCHING);
}

#[test]
fn a_full_sheaf_comes_while_another_cpu_has_none() {
    both_eras(
        &[(CPU1, 0), (CPU1, 1)],
        &[(CPU0, Does::Alloc), (CPU1, Does::Free(2))],
    );
}

#[test]
fn a_free_into_the_barn_against_a_shrink() {
    both_eras(
        &[(CPU0, 0), (CPU0, 1), (CPU0, 2)],
        &[(CPU0, Does::Free(3)), (CPU1, Does::Shrink)],
    );
}

#[test]
fn an_allocation_against_a_flush_of_its_cpu() {
    both_eras(
        &[(CPU0, 0), (CPU0, 1)],
        &[(CPU0, Does::Alloc), (CPU1, Does::Flush)],
    );
}

#[test]
fn an_allocation_from_the_barn_against_a_free_past_the_sheaves() {
    both_eras(
        &[(CPU1, 0), (CPU1, 1), (CPU1, 2)],
        &[(CPU0, Does::Alloc), (NODE, Does::Free(3))],
    );
}

/// The exchange is broken: no code is kept out of the barn meanwhile.
#[test]
#[should_panic]
fn without_the_barns_lock_an_exchange_clashes() {
    exchange(|| WATCHING().without(LockClass::Barn));
}
