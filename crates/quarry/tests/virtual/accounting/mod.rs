//! The accesses of each operation, step by step: tables to be read as its cost.
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

mod designs;
mod pages;
mod pool;

use crate::prelude::*;

/// Operations and their steps.
type Rows = BTreeMap<String, String>;

/// Reads tables as text: a line with a subject and a release, then indented rows, whose further lines are indented
/// deeper. An entry has the rows in which it differs from the entry in front of it.
fn tables(text: &str) -> Vec<(String, Era, Rows)> {
    let mut tables: Vec<(String, Era, Rows)> = Vec::new();
    let mut last = String::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let indent = line.len() - line.trim_start().len();
        match (indent, tables.last_mut()) {
            (0, before) => {
                let rows = before.map_or_else(Rows::new, |(.., rows)| rows.clone());
                let (subject, release) = line.split_once(' ').expect("a subject and a release");
                let era = Era::parse(release).expect("a release");
                tables.push((subject.to_owned(), era, rows));
            }
            (4, Some((.., rows))) => {
                let (name, steps) = line.trim_start().split_once(": ").expect("a row");
                name.clone_into(&mut last);
                rows.insert(last.clone(), steps.to_owned());
            }
            (_, Some((.., rows))) => {
                let steps = rows.get_mut(&last).expect("a row to continue");
                *steps += " ";
                *steps += line.trim_start();
            }
            (_, None) => panic!("a row without a subject: {line}"),
        }
    }
    tables
}

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

/// Finds the shortest group of steps that repeats from the start. Returns its length and number; 1 and 1 if no group
/// repeats.
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

/// Operations of a machine with their steps, in the order in which they were done.
struct Recorded<'m> {
    machine: &'m VirtualMachine,
    rows: Vec<(&'static str, String)>,
}

impl<'m> Recorded<'m> {
    fn new(machine: &'m VirtualMachine) -> Self {
        let rows = Vec::new();
        Self { machine, rows }
    }

    fn add(&mut self, name: &'static str, f: impl FnOnce()) {
        self.rows.push((name, steps(self.machine, f)));
    }

    fn add_grouped(&mut self, name: &'static str, f: impl FnOnce()) {
        self.rows.push((name, grouped_steps(self.machine, f)));
    }
}

/// Records the operations in one era.
fn observed<D: Design>(era: Era) -> Vec<(&'static str, String)> {
    let heap = small::<D>(era, 2);
    let cache = sized(&heap, "table", 1024);
    let mut object = None;
    let objects = take(cache, 40);
    give(cache, &[objects[39]]);
    let mut rows = Recorded::new(heap.machine());
    rows.add("alloc", || object = cache.alloc());
    let object = object.expect("memory");
    rows.add("free", || give(cache, &[object]));
    on(&heap, 1);
    rows.add("remote free", || give(cache, &objects[..1]));
    rows.add("remote free 2", || give(cache, &objects[1..2]));
    rows.add("remote alloc", || assert!(cache.alloc().is_some()));
    rows.rows
}

/// Records the operations on many objects in one era.
fn observed_many<D: Design>(era: Era) -> Vec<(&'static str, String)> {
    let heap = small::<D>(era, 2);
    let machine = heap.machine();
    let cache = sized(&heap, "table", 64);
    let mut objects = take(cache, 40);
    cache.flush();
    let mut slots = [None; 16];
    let mut rows = Recorded::new(machine);
    rows.add_grouped("refill", || objects.extend(cache.alloc()));
    let alloc = || assert!(cache.alloc_bulk(&mut slots));
    rows.add_grouped("bulk alloc", alloc);
    // SAFETY: the objects were allocated just now.
    let free = || unsafe { cache.free_bulk(&mut slots) }.expect("live objects");
    rows.add_grouped("bulk free", free);
    rows.add_grouped("flush", || assert_eq!(cache.flush(), 0));
    objects.extend(take(cache, 400));
    let frees = objects
        .iter()
        .map(|&object| grouped_steps(machine, || give(cache, &[object])));
    let drain = frees.filter(|free| free.contains("lock ")).last();
    rows.rows.push(("drain", drain.unwrap_or_default()));
    let large = sized(&heap, "large", 2048);
    let alloc = || assert!(large.alloc().is_some());
    rows.add_grouped("new slab", alloc);
    rows.rows
}

/// Compares the tables of a subject with what is observed; what differs is printed as it is.
fn compare(subject: &str, text: &str, observed: impl Fn(Era) -> Vec<(&'static str, String)>) {
    let mut wrong = String::new();
    let tables = tables(text).into_iter();
    for (_, era, expected) in tables.filter(|(of, ..)| of == subject) {
        let observed = observed(era).into_iter();
        let observed: Rows = observed
            .map(|(name, steps)| (name.to_owned(), steps))
            .collect();
        if observed != expected {
            wrong += &format!("{subject} {era}\n");
            for (name, steps) in observed {
                wrong += &format!("    {name}: {steps}\n");
            }
        }
    }
    assert!(wrong.is_empty(), "this is done:\n{wrong}");
}
