//! The causes of claims, counted.

use std::path::{Path, PathBuf};

use quarry_lab::plan::Existing;

use super::ASKED;
use super::memory::booted;
use super::replay::{SOURCES, planned, run};

/// A cache at the end of a replay.
struct Lists {
    cache: String,
    /// Bytes from object to object.
    size: u64,
    /// Pages of all its slabs, and the order of one.
    pages: u64,
    order: u64,
    /// Slabs on the lists of CPUs that have some.
    slabs: Vec<u64>,
}

/// Replays a recording, as the default asks or with the patch, and reads what its caches' files say.
fn lists(source: &str, asked: &str) -> (u64, Vec<Lists>) {
    let source = SOURCES.iter().find(|one| one.name == source).unwrap();
    let asked = ASKED.iter().find(|one| one.name == asked).unwrap();
    let name = format!(
        "quarry-{}-{}-{}",
        source.name,
        asked.name,
        std::process::id()
    );
    let folder = std::env::temp_dir().join(name);
    let (mut plan, mut input) = planned(source, asked).unwrap();
    input.booted = Some(booted().unwrap());
    plan.inspect_into(&folder, Existing::Keep).unwrap();
    let slabs = run(&plan, &input).unwrap().slabs;
    let caches = folder.join(plan.runs[0].folder()).join("slab");
    let caches = std::fs::read_dir(caches).unwrap();
    let all = caches.map(|cache| of_cache(&cache.unwrap().path()));
    let all = all.collect();
    std::fs::remove_dir_all(&folder).unwrap();
    (slabs, all)
}

fn of_cache(cache: &Path) -> Lists {
    let file = |name: &str| std::fs::read_to_string(PathBuf::from(cache).join(name)).unwrap();
    let text = file("slabs_cpu_partial");
    // Objects and slabs of all, then `C1=2(2)` of each CPU that has some.
    let cpus = text.split_whitespace().skip(1);
    let slabs = cpus.map(|cpu| {
        let (_, count) = cpu.split_once('=').unwrap();
        let slabs = count.trim_end_matches(')').split_once('(').unwrap().1;
        slabs.parse().unwrap()
    });
    let number = |name: &str| {
        let text = file(name);
        let first = text.split_whitespace().next().unwrap();
        first.parse::<u64>().unwrap()
    };
    let order = number("order");
    Lists {
        order,
        pages: number("slabs") << order,
        cache: cache.file_name().unwrap().to_string_lossy().into_owned(),
        size: number("slab_size"),
        slabs: slabs.collect(),
    }
}

/// Slabs on lists of caches that the patch limits, and the most on one list.
fn limited(all: &[Lists]) -> (u64, u64) {
    let limited = all.iter().filter(|cache| cache.size >= 4096);
    let slabs = limited.flat_map(|cache| &cache.slabs);
    (slabs.clone().sum(), slabs.copied().max().unwrap_or(0))
}

#[test]
fn the_patch_takes_nothing_from_the_lists_of_few_tasks() {
    let (slabs, default) = lists("hackbench", "default");
    let on_lists: u64 = default.iter().flat_map(|cache| &cache.slabs).sum();
    assert_eq!((slabs, on_lists), (1014, 102));
    assert_eq!(limited(&default), (25, 2));
    let pages = |order| -> u64 {
        let caches = default.iter().filter(|cache| cache.order == order);
        caches.map(|cache| cache.pages).sum()
    };
    assert_eq!([0, 1, 2, 3].map(pages), [841, 134, 216, 416]);
    let (slabs, patched) = lists("hackbench", "patched");
    assert_eq!((slabs, limited(&patched)), (1014, (25, 2)));
}

#[test]
fn with_many_tasks_the_patch_cuts_the_lists_of_tasks() {
    let (slabs, default) = lists("hackbench of 320", "default");
    let on_lists: u64 = default.iter().flat_map(|cache| &cache.slabs).sum();
    assert_eq!((slabs, on_lists), (1819, 760));
    let tasks = |all: &[Lists]| {
        let tasks = all.iter().find(|cache| cache.cache == "task_struct");
        tasks.unwrap().slabs.iter().sum::<u64>()
    };
    let (_, patched) = lists("hackbench of 320", "patched");
    assert_eq!((tasks(&default), tasks(&patched)), (48, 24));
}
