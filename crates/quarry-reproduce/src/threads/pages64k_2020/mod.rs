//! Thread 002: slab memory with 64 KiB pages, October 2020.
//!
//! Memory after boot is predicted from snapshots, memory after loads by replays, and hackbench's time is simulated.

mod boots;
mod hackbench;
mod memory;
mod objects;
mod replay;
#[cfg(test)]
mod tests;

use quarry_designs::Setting as Tunable;

use super::Thread;
use crate::plan::Experiment;
use crate::published::{CPU_PARTIAL, CPU_PARTIAL_PATCH, MAX_CPUS, MAX_ORDER, PAGE_SIZES};
use crate::results::Results;
use crate::setting::Mode;
use crate::show::{Plot, Table};
use crate::spec::ClaimSpec;

pub(super) const THREAD: Thread = Thread {
    name: "pages64k-2020",
    title: "Higher slub memory consumption on 64K page-size systems? (October 2020)",
    question: "Right after boot slabs take three times the memory with 64 KiB pages that they take with 4 KiB. Which tunable \
               saves how much of it, and does hackbench lose time?",
    taken: "No number. Memory is predicted from boots of Debian 12 on another kernel and from replays, so ratios are compared, \
            not kilobytes. Beside a replay stands what the thread has after boot, and for the patch after hackbench.",
    why: "A slab of 64 KiB has sixteen times the objects that a CPU needs at boot, and each CPU keeps a slab, and partial slabs, of \
          each cache. Orders above 0 multiply that for large objects. What a load leaves on CPUs' lists is what a smaller \
          cpu_partial saves; the patch limits only objects of 4 KiB and more. hackbench takes most objects from slabs that it has, \
          and neither the patch nor the order changes the caches of its messages.",
    experiments,
    claims,
    others: Vec::new,
    show,
};

/// The thread's kernel, to which snapshots are taken first, and on which recordings are replayed.
const KERNEL: &str = "slub@5.9";

/// Question to a snapshot, or to a replay.
struct Asked {
    name: &'static str,
    settings: &'static [(&'static str, u64)],
    page_bytes: Option<u64>,
    possible_cpus: u32,
}

impl Asked {
    /// The tunables that are set.
    fn tunables(&self) -> Vec<Tunable> {
        let settings = self.settings.iter();
        settings
            .map(|(name, value)| Tunable::of(name, *value))
            .collect()
    }
}

/// CPUs that may come: the thread's `maxcpus`. [`CPUS`] of them are there. Its default has the memory of this number.
const POSSIBLE_CPUS: u32 = 64;
/// CPUs of the thread's machine.
const CPUS: u32 = 16;

/// Tunable that says to a machine that has all of its CPUs how many objects a slab should hold where others may come:
/// `4 * (fls(nr_cpu_ids) + 1)`, as the thread has it.
fn min_objects(possible_cpus: u32) -> Tunable {
    let fls = u64::from(possible_cpus.ilog2() + 1);
    Tunable::of("slub_min_objects", 4 * (fls + 1))
}

const fn asked(name: &'static str, settings: &'static [(&'static str, u64)]) -> Asked {
    Asked {
        name,
        settings,
        page_bytes: None,
        possible_cpus: POSSIBLE_CPUS,
    }
}

const ASKED: [Asked; 10] = [
    asked("default", &[]),
    asked("slub_max_order=2", &[("slub_max_order", 2)]),
    asked("slub_max_order=1", &[("slub_max_order", 1)]),
    asked("cpu_partial=0", &[("slub_cpu_partial", 0)]),
    asked("cpu_partial=2", &[("slub_cpu_partial", 2)]),
    asked("cpu_partial=4", &[("slub_cpu_partial", 4)]),
    asked("patched", &[("slub_cpu_partial_by_size", 1)]),
    Asked {
        page_bytes: Some(4096),
        ..asked("4 KiB pages", &[])
    },
    Asked {
        possible_cpus: 256,
        ..asked("maxcpus=256", &[])
    },
    Asked {
        possible_cpus: 512,
        ..asked("maxcpus=512", &[])
    },
];

/// By how many per cent memory after boot changed in the thread.
fn after_boot() -> [(&'static str, Option<f64>); 9] {
    let of_order = |order: &str| MAX_ORDER.number("slab_memory_kb", &[("slub_max_order", order)]);
    let of_partial = |value: &str| CPU_PARTIAL.number("slab_memory_kb", &[("cpu_partial", value)]);
    let of_cpus = |cpus: &str| MAX_CPUS.number("slab_memory_kb", &[("maxcpus", cpus)]);
    let pages = |bytes: &str| PAGE_SIZES.number("slab_memory_kb", &[("page_size", bytes)]);
    let default = of_partial("default");
    let patched = CPU_PARTIAL_PATCH.number("slab_memory_post_boot_kb", &[("variant", "patched")]);
    [
        ("4 KiB pages", change(pages("4096"), pages("65536"))),
        ("slub_max_order=2", change(of_order("2"), of_order("3"))),
        ("slub_max_order=1", change(of_order("1"), of_order("3"))),
        ("cpu_partial=4", change(of_partial("4"), default)),
        ("cpu_partial=2", change(of_partial("2"), default)),
        ("cpu_partial=0", change(of_partial("0"), default)),
        ("patched", change(patched, default)),
        ("maxcpus=256", change(of_cpus("256"), of_cpus("64"))),
        ("maxcpus=512", change(of_cpus("512"), of_cpus("64"))),
    ]
}

/// By how many per cent a number is above another.
fn change(now: Option<f64>, then: Option<f64>) -> Option<f64> {
    Some(100.0 * (now? / then? - 1.0))
}

fn experiments(mode: Mode) -> Vec<Experiment> {
    let mut all = memory::experiments();
    all.extend(replay::experiments());
    all.extend(objects::experiments());
    all.extend(hackbench::experiments(mode));
    all
}

fn claims() -> Vec<ClaimSpec> {
    let parts = [memory::claims(), replay::claims(), hackbench::claims()];
    parts.into_iter().flatten().collect()
}

fn show(results: &Results) -> (Vec<Table>, Vec<Plot>) {
    let (mut tables, plot) = memory::show(results);
    tables.extend(objects::show(results));
    tables.extend(replay::show(results));
    tables.push(hackbench::show(results));
    (tables, vec![plot])
}
