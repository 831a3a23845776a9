//! What each operation accesses, step by step: one table per design and era, to be read as its cost.
//!
//! A step is as the machine sees it ([`Step`](quarry_sim::Step)): `slot` and `free slot` are the
//! per-CPU slot, `lock`, `try` and `unlock` spin locks by class, all others accesses with the
//! structure that they are attributed to and their length in bytes. Lock words and slot words are the
//! machine's and have no step of their own.
//!
//! All operations are on a cache of 1024-byte objects, on one node with two CPUs and 4 KiB pages, of
//! which CPU 0 has allocated 40:
//!
//! | operation | what it is |
//! |---|---|
//! | `alloc` | an allocation after a free on the same CPU |
//! | `free` | the free of that object |
//! | `remote free` | CPU 1 frees the first of the 40, as its first free |
//! | `remote free 2` | CPU 1 frees the second of them |
//! | `remote alloc` | CPU 1 allocates, right after |
//!
//! What moves many objects at once is shown of 64-byte objects: CPU 0 has allocated 40 and the
//! rest of its state was flushed. Steps that repeat stand in parentheses:
//!
//! | operation | what it is |
//! |---|---|
//! | `refill` | the next allocation |
//! | `bulk alloc` | 16 objects in one call, right after |
//! | `bulk free` | the free of these in one call |
//! | `flush` | all CPUs give back what they keep |
//! | `drain` | of the frees of 440 objects, the last that takes a lock |
//! | `new slab` | the first allocation of an object of 2048 bytes |

mod pages;
mod pool;
mod sheaf;
mod slab;
mod slob;
mod slub;
mod slubq;

use quarry_core::design::Design;
use quarry_core::era::Era;
use quarry_sim::VirtualMachine;

use crate::model::scenario::{give, on, sized, small, take};

/// Steps of operations by their names, as they are written above.
pub(crate) type Tables = &'static [(&'static str, &'static str)];

/// The steps of one operation, equal neighbours as one with their number.
fn steps(machine: &VirtualMachine, f: impl FnOnce()) -> String {
    let (steps, ()) = machine.record_steps(f);
    let mut lines: Vec<(String, u32)> = Vec::new();
    for step in steps {
        let text = step.to_string();
        match lines.last_mut() {
            Some((last, count)) if *last == text => *count += 1,
            _ => lines.push((text, 1)),
        }
    }
    let line = |(text, count): (String, u32)| match count {
        1 => text,
        _ => format!("{text} x{count}"),
    };
    let lines: Vec<String> = lines.into_iter().map(line).collect();
    lines.join(", ")
}

/// The steps of one operation on many objects; groups that repeat stand once, with their number.
fn grouped_steps(machine: &VirtualMachine, f: impl FnOnce()) -> String {
    let (steps, ()) = machine.record_steps(f);
    let steps: Vec<String> = steps.iter().map(ToString::to_string).collect();
    let mut lines = Vec::new();
    let mut rest = &steps[..];
    while !rest.is_empty() {
        let (period, times) = repeats(rest);
        let group = rest[..period].join(", ");
        lines.push(match (period, times) {
            (_, 1) => group,
            (1, _) => format!("{group} x{times}"),
            _ => format!("({group}) x{times}"),
        });
        rest = &rest[period * times..];
    }
    lines.join(", ")
}

/// Of the groups that steps begin with, the shortest one that repeats, and how often it stands there;
/// the first step if none does.
fn repeats(steps: &[String]) -> (usize, usize) {
    let times = |period: usize| {
        let mut groups = steps.chunks_exact(period);
        groups
            .by_ref()
            .take_while(|group| *group == &steps[..period])
            .count()
    };
    let repeating = (1..=8).find(|&period| period <= steps.len() && times(period) > 1);
    repeating.map_or((1, 1), |period| (period, times(period)))
}

/// What the operations do in one era.
fn observed<D: Design>(era: Era) -> Vec<(&'static str, String)> {
    let heap = small::<D>(era, 2);
    let cache = sized(&heap, "table", 1024);
    let mut object = None;
    let objects = take(cache, 40);
    give(cache, &[objects[39]]);
    let mut rows = vec![("alloc", steps(heap.machine(), || object = cache.alloc()))];
    let object = object.expect("memory");
    rows.push(("free", steps(heap.machine(), || give(cache, &[object]))));
    on(&heap, 1);
    rows.push((
        "remote free",
        steps(heap.machine(), || give(cache, &objects[..1])),
    ));
    rows.push((
        "remote free 2",
        steps(heap.machine(), || give(cache, &objects[1..2])),
    ));
    rows.push((
        "remote alloc",
        steps(heap.machine(), || assert!(cache.alloc().is_some())),
    ));
    rows
}

/// What the operations on many objects do in one era.
fn observed_many<D: Design>(era: Era) -> Vec<(&'static str, String)> {
    let heap = small::<D>(era, 2);
    let machine = heap.machine();
    let cache = sized(&heap, "table", 64);
    let mut objects = take(cache, 40);
    cache.flush();
    let mut slots = [None; 16];
    let mut rows = vec![(
        "refill",
        grouped_steps(machine, || objects.extend(cache.alloc())),
    )];
    let alloc = || assert!(cache.alloc_bulk(&mut slots));
    rows.push(("bulk alloc", grouped_steps(machine, alloc)));
    // SAFETY: the objects were allocated just now.
    let free = || unsafe { cache.free_bulk(&mut slots) }.expect("live objects");
    rows.push(("bulk free", grouped_steps(machine, free)));
    rows.push((
        "flush",
        grouped_steps(machine, || assert_eq!(cache.flush(), 0)),
    ));
    objects.extend(take(cache, 400));
    let frees = objects
        .iter()
        .map(|&object| grouped_steps(machine, || give(cache, &[object])));
    let drain = frees.filter(|free| free.contains("lock ")).last();
    rows.push(("drain", drain.unwrap_or_default()));
    let large = sized(&heap, "large", 2048);
    let alloc = || assert!(large.alloc().is_some());
    rows.push(("new slab", grouped_steps(machine, alloc)));
    rows
}

/// Compares all tables of operations on many objects of a design.
fn operations_on_many<D: Design>(tables: &[(Era, Tables)]) {
    compare(D::NAME, tables, observed_many::<D>);
}

/// Compares all tables of a design.
fn operations<D: Design>(tables: &[(Era, Tables)]) {
    compare(D::NAME, tables, observed::<D>);
}

/// Compares tables with what is observed; what differs is printed as it is.
fn compare(
    name: &str,
    tables: &[(Era, Tables)],
    observed: impl Fn(Era) -> Vec<(&'static str, String)>,
) {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut wrong = String::new();
    for (era, table) in tables {
        let expected: Vec<_> = table
            .iter()
            .map(|(name, text)| (*name, words(text)))
            .collect();
        let observed = observed(*era);
        if observed != expected {
            wrong += &format!("{era}\n");
            for (name, text) in observed {
                wrong += &format!("{name}: {text}\n");
            }
        }
    }
    assert!(wrong.is_empty(), "{name} does this:\n{wrong}");
}
