//! Slabinfo, sysfs, the files about pages and sysctls of a heap of this process, read and written
//! while threads use it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::{small, while_in_use};
use quarry::kernel::heap::Cache;
use quarry::kernel::inspect::{SLABINFO_HEADER, Source};
use quarry::kernel::page::SYSCTLS;
use quarry::{
    CacheSpec, Design, Era, HostMachine, Magazine, Mode, PageAllocator, PageFile, SheafCache, Slub,
    Slubq, SysfsError,
};

const THREADS: usize = 4;
/// Objects that a thread holds at once.
const HELD: usize = 200;
/// Rounds of reading and writing everything. Each waits some hundred times for a thread that runs.
const ROUNDS: u64 = 12;

/// Allocates and frees until it is stopped; each object's first word names its holder.
fn churn<D: Design>(
    cache: Cache<'_, HostMachine, D>,
    thread: u64,
    turns: &AtomicU64,
    stop: &AtomicBool,
) {
    let mut held = Vec::new();
    let mut allocs = 0;
    while !stop.load(Ordering::Relaxed) {
        turns.fetch_add(1, Ordering::Relaxed);
        while held.len() < HELD {
            let object = cache.alloc().expect("memory").cast::<u64>();
            allocs += 1;
            // SAFETY: the object is fresh, of 320 bytes, and aligned to a word.
            unsafe { object.write(thread << 32 | allocs) };
            held.push((object, allocs));
        }
        for _ in 0..HELD / 2 {
            let at = allocs as usize * 31 % held.len();
            let (object, number) = held.swap_remove(at);
            // SAFETY: this thread holds the object and wrote the word.
            let found = unsafe { object.read() };
            assert_eq!(found, thread << 32 | number, "an object of thread {thread}");
            // SAFETY: allocated from this cache, and given up here.
            unsafe { cache.free(object.cast()) }.expect("a live object");
        }
    }
    for (object, _) in held {
        // SAFETY: as above.
        unsafe { cache.free(object.cast()) }.expect("a live object");
    }
}

/// Reads every attribute, clears every counter, and sets every tunable to other values in turn.
fn inspect<D: Design>(cache: &Cache<'_, HostMachine, D>, round: u64) {
    let era = cache.head().era();
    for attribute in cache.sysfs_attributes() {
        let (name, mut text) = (attribute.name, String::new());
        match cache.sysfs_read(name, &mut text) {
            Ok(()) | Err(SysfsError::NotTracked { .. }) => (),
            Err(error) => panic!("{name}: {error}"),
        }
        let value = match attribute.source {
            Source::Statistic => "0".to_string(),
            Source::Action(_) => "1".to_string(),
            _ if !attribute.writable(D::TUNABLES, era) => continue,
            _ => match D::TUNABLES.of(era).find(|tunable| tunable.name == name) {
                Some(tunable) => (tunable.min + 5 + round % 60).to_string(),
                None => continue,
            },
        };
        match cache.sysfs_write(name, &value) {
            Ok(()) | Err(SysfsError::Busy { .. } | SysfsError::NotAtRest { .. }) => (),
            // Memory of queues that a busy CPU may still use stays reserved.
            Err(SysfsError::Refused { .. }) => (),
            Err(error) => panic!("{name}: {error}"),
        }
    }
}

/// Reads all files about pages, and moves the limit of the page lists.
fn inspect_pages(pages: &PageAllocator<HostMachine>, era: Era, round: u64) {
    for file in PageFile::ALL {
        let mut text = String::new();
        pages.write_page_file(file, &mut text).unwrap();
        assert!(text.ends_with('\n'), "{}", file.name());
    }
    let mut sysctls = SYSCTLS.of(era);
    let fraction = sysctls.find(|sysctl| sysctl.name.contains("pagelist"));
    let fraction = fraction.expect("the eras of hosts have it").name;
    pages.set_sysctl(fraction, 8 + round % 4096).unwrap();
    assert_eq!(pages.sysctl(fraction), Some(8 + round % 4096));
    pages.set_sysctl(fraction, 7).unwrap_err();
}

/// Free pages, those on lists and those in use are all pages.
fn pages_add_up(pages: &PageAllocator<HostMachine>) {
    let mut text = String::new();
    pages
        .write_page_file(PageFile::Zoneinfo, &mut text)
        .unwrap();
    let sum = |name: &str| -> u64 {
        let values = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix(name));
        values
            .map(|value| value.trim().parse::<u64>().unwrap())
            .sum()
    };
    let mut vmstat = String::new();
    pages
        .write_page_file(PageFile::Vmstat, &mut vmstat)
        .unwrap();
    let counter = |name: &str| -> u64 {
        let mut values = vmstat.lines().filter_map(|line| line.strip_prefix(name));
        values.next().unwrap().trim().parse().unwrap()
    };
    assert_eq!(sum("nr_free_pages "), counter("nr_free_pages "));
    let in_use = counter("pgalloc_normal ") - counter("pgfree ");
    assert_eq!(
        sum("nr_free_pages ") + sum("count:") + in_use,
        sum("present ")
    );
}

fn inspected_while_in_use<D: Design>() {
    let heap = small::<D>(Mode::Auto).leak();
    let spec = CacheSpec::new("busy", 320);
    let cache = heap.create_cache(&spec).unwrap();
    let turns = AtomicU64::new(0);
    let churn = |thread: usize, stop: &AtomicBool| churn(cache, thread as u64, &turns, stop);
    while_in_use(THREADS, churn, || {
        // A busy machine may let all rounds pass before a thread runs.
        let idle = || turns.load(Ordering::Relaxed) < 2 * THREADS as u64;
        let goes_on = |round: &u64| *round < ROUNDS || idle();
        for round in (0..).take_while(goes_on) {
            let mut text = String::new();
            heap.write_slabinfo(&mut text).unwrap();
            assert!(text.starts_with(SLABINFO_HEADER) && text.contains("\nbusy "));
            inspect(&cache, round);
            inspect_pages(heap.pages(), heap.era(), round);
        }
    });
    // At rest all is consistent, nothing is lost and nothing stays.
    cache.sysfs_write("validate", "1").unwrap();
    let mut live = 0;
    cache.for_each_live(|_| live += 1).expect("at rest");
    assert_eq!(live, 0);
    cache.sysfs_write("shrink", "1").unwrap();
    let mut slabs = String::new();
    cache.sysfs_read("slabs", &mut slabs).unwrap();
    assert_eq!(slabs, "0\n");
    pages_add_up(heap.pages());
}

#[test]
fn slub_is_inspected_while_in_use() {
    inspected_while_in_use::<Slub>();
}

#[test]
fn sheaf_is_inspected_while_in_use() {
    inspected_while_in_use::<SheafCache>();
}

#[test]
fn magazine_is_inspected_while_in_use() {
    inspected_while_in_use::<Magazine>();
}

#[test]
fn slubq_is_inspected_while_in_use() {
    inspected_while_in_use::<Slubq>();
}
