//! The drivers' page cache and page reuse, against a model that keeps its own counts.

use std::collections::VecDeque;

use quarry_core::era::Era;
use quarry_core::machine::{CpuId, Machine as _};
use quarry_core::page::{PageAllocator, Pfn, SharedBlock};
use quarry_sim::{Config, Rng, VirtualMachine};

use super::*;

fn boot(cpus: u32, nodes: u32, era: Era) -> PageAllocator<VirtualMachine> {
    let config = Config {
        cpus,
        nodes,
        memory_bytes: 1 << 30,
        ..Config::default()
    };
    PageAllocator::new(VirtualMachine::new(config).unwrap(), era).unwrap()
}

/// Next thing that happens to a driver's pages; numbers choose among those that there are.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A page is wanted for a work entry.
    Want,
    /// A packet arrives in a posted page, and the driver has finished with the page.
    Pass(usize),
    /// A reader has finished with a packet.
    Read(usize),
    /// The driver has finished with a posted page that nothing was received in.
    Return(usize),
}

impl Step {
    fn random(rng: &mut Rng) -> Self {
        let number = rng.below(1 << 20) as usize;
        match rng.below(10) {
            0..3 => Self::Want,
            3..6 => Self::Pass(number),
            6..9 => Self::Read(number),
            _ => Self::Return(number),
        }
    }
}

type Block<'p> = SharedBlock<'p, VirtualMachine>;

/// Model of the cache, by its documentation alone.
#[derive(Default)]
struct Model {
    posted: Vec<Pfn>,
    ring: VecDeque<Pfn>,
    readers: Vec<Pfn>,
    stats: RxCacheStats,
}

impl Model {
    fn readers_of(&self, pfn: Pfn) -> usize {
        self.readers.iter().filter(|&&held| held == pfn).count()
    }

    /// The page that `get` returns.
    fn get(&mut self) -> Option<Pfn> {
        let Some(&oldest) = self.ring.front() else {
            self.stats.cache_empty += 1;
            return None;
        };
        if self.readers_of(oldest) > 0 {
            self.stats.cache_busy += 1;
            return None;
        }
        self.stats.cache_reuse += 1;
        self.ring.pop_front()
    }

    fn put(&mut self, pfn: Pfn, capacity: usize, waived: bool) {
        if self.ring.len() == capacity {
            self.stats.cache_full += 1;
        } else if waived {
            self.stats.cache_waive += 1;
        } else {
            self.ring.push_back(pfn);
        }
    }
}

/// The references that the driver and readers have.
#[derive(Default)]
struct Hands<'p> {
    posted: Vec<Block<'p>>,
    readers: Vec<Block<'p>>,
}

fn choose<T>(from: &mut Vec<T>, number: usize) -> Option<T> {
    (!from.is_empty()).then(|| from.swap_remove(number % from.len()))
}

/// Every page is in exactly one place, with the references that follow from it.
fn check_places(pages: &PageAllocator<VirtualMachine>, model: &Model) {
    let mut driver: Vec<Pfn> = model.posted.iter().chain(&model.ring).copied().collect();
    driver.sort();
    for pair in driver.windows(2) {
        assert_ne!(pair[0], pair[1], "a page is in two places");
    }
    let mut all = driver.clone();
    all.extend(&model.readers);
    all.sort();
    all.dedup();
    for &pfn in &all {
        let mine = usize::from(driver.binary_search(&pfn).is_ok());
        let count = (mine + model.readers_of(pfn)) as u32;
        assert_eq!(pages.page_count(pfn), count, "references to {pfn:?}");
    }
    let census = pages.check_consistency().unwrap();
    assert_eq!(census.allocated, all.len() as u64, "allocated pages");
}

/// One step of a driver on a CPU, done to the cache and to the model.
fn take_step<'p>(
    cache: &mut RxCache<'p, VirtualMachine>,
    (model, hands): (&mut Model, &mut Hands<'p>),
    pages: &'p PageAllocator<VirtualMachine>,
    waives_remote: bool,
    step: Step,
) {
    let node = pages.machine().current_node();
    let capacity = cache.capacity();
    let mut put = |model: &mut Model, block: Block<'p>| {
        let waived = waives_remote && pages.node_of(block.pfn()) != Some(node);
        model.put(block.pfn(), capacity, waived);
        cache.put(block);
    };
    match step {
        Step::Want => {
            let got = cache.get();
            assert_eq!(got.as_ref().map(Block::pfn), model.get(), "the page taken");
            let page = got.or_else(|| pages.alloc_shared(0)).expect("memory");
            model.posted.push(page.pfn());
            hands.posted.push(page);
        }
        Step::Pass(number) => {
            if let Some(block) = choose(&mut hands.posted, number) {
                let pfn = choose(&mut model.posted, number).unwrap();
                hands.readers.push(block.share().unwrap());
                model.readers.push(pfn);
                put(model, block);
            }
        }
        Step::Read(number) => {
            drop(choose(&mut hands.readers, number));
            choose(&mut model.readers, number);
        }
        Step::Return(number) => {
            choose(&mut model.posted, number);
            if let Some(block) = choose(&mut hands.posted, number) {
                put(model, block);
            }
        }
    }
}

#[test]
fn the_page_cache_agrees_with_the_model() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let era = [Era::V4_13, Era::V5_9][rng.below(2) as usize];
        let pages = boot(4, 2, era);
        let mut cache = RxCache::new(&pages, era, 2 << rng.below(4)).unwrap();
        let (mut model, mut hands) = (Model::default(), Hands::default());
        for _ in 0..rng.below(120) {
            pages.machine().run_on(CpuId(rng.below(4) as u32));
            let step = Step::random(&mut rng);
            let both = (&mut model, &mut hands);
            take_step(&mut cache, both, &pages, era > Era::V4_13, step);
            let ring: VecDeque<Pfn> = cache.iter().collect();
            assert_eq!(ring, model.ring, "the ring, seed {seed}");
            assert_eq!(cache.stats(), model.stats, "counters, seed {seed}");
            check_places(&pages, &model);
        }
        drop((cache, hands));
        check_places(&pages, &Model::default());
    }
}

/// One page that a reader holds, at the head, and 254 idle ones behind it: nothing is reused until
/// that one comes home.
#[test]
fn a_held_page_at_the_head_blocks_the_idle_ones() {
    let pages = boot(1, 1, Era::V4_13);
    let mut cache = RxCache::new(&pages, Era::V4_13, CACHE_ENTRIES).unwrap();
    assert_eq!(cache.capacity(), 255);
    assert!(cache.get().is_none());
    let blocks = || (0..256).map(|_| pages.alloc_shared(0).unwrap());
    let blocks: Vec<Block<'_>> = blocks().collect();
    let all: Vec<Pfn> = blocks.iter().map(Block::pfn).collect();
    let reader = blocks[0].share().unwrap();
    for block in blocks {
        cache.put(block);
    }
    assert_eq!(cache.len(), 255);
    assert_eq!(pages.page_count(all[255]), 0, "the ring was full");
    for _ in 0..10 {
        assert!(cache.get().is_none());
    }
    drop(reader);
    for &page in &all[..255] {
        assert_eq!(cache.get().map(|block| block.pfn()), Some(page));
    }
    let stats = RxCacheStats {
        cache_reuse: 255,
        cache_empty: 1,
        cache_busy: 10,
        cache_full: 1,
        cache_waive: 0,
    };
    assert_eq!((cache.stats(), cache.stats().gets()), (stats, 266));
}

#[test]
fn a_dropped_ring_gives_its_pages_back() {
    let pages = boot(1, 1, Era::V4_13);
    let free = pages.stats().free_pages;
    let mut cache = RxCache::new(&pages, Era::V4_13, 512).unwrap();
    for _ in 0..100 {
        cache.put(pages.alloc_shared(0).unwrap());
    }
    drop(cache);
    assert_eq!(pages.stats().free_pages, free);
}

#[test]
fn impossible_rings_are_refused() {
    let pages = boot(1, 1, Era::V4_13);
    for entries in [0, 1, 3, 255] {
        let cache = RxCache::new(&pages, Era::V4_13, entries);
        assert!(cache.is_none(), "{entries}");
    }
}

/// Two full frames in a 4 KiB page, or five of 64 bytes; each packet carries a reference, the driver
/// gives up its own when no more fits.
#[test]
fn a_page_is_reused_as_long_as_a_full_buffer_fits() {
    let pages = boot(1, 1, Era::V4_13);
    let buffer = RxBuffer::linear(1500, 12).unwrap();
    for (frame_bytes, packets) in [(1514, 2), (64, 5), (1000, 2)] {
        let mut page = RxPage::new(pages.alloc_shared(0).unwrap());
        let pfn = page.pfn();
        let mut packets_of = Vec::new();
        loop {
            packets_of.push(page.receive(frame_bytes).unwrap());
            if !page.reusable(&pages, &buffer) {
                break;
            }
        }
        assert_eq!(packets_of.len(), packets, "{frame_bytes}");
        assert_eq!(pages.page_count(pfn), packets as u32 + 1);
        drop(page);
        for left in (0..packets).rev() {
            packets_of.pop();
            assert_eq!(pages.page_count(pfn), left as u32);
        }
    }
}

/// A page of another node is neither posted again nor, after 4.13, kept.
#[test]
fn pages_of_another_node() {
    for (era, kept) in [(Era::V4_13, 1), (Era::V5_9, 0)] {
        let pages = boot(2, 2, era);
        let mut cache = RxCache::new(&pages, era, 8).unwrap();
        let mut page = RxPage::new(pages.alloc_shared(0).unwrap());
        let packet = page.receive(64).unwrap();
        let buffer = RxBuffer::linear(1500, 12).unwrap();
        assert!(page.reusable(&pages, &buffer));
        pages.machine().run_on(CpuId(1));
        assert!(!page.reusable(&pages, &buffer));
        cache.put(page.into_block());
        assert_eq!(cache.len(), kept);
        assert_eq!(cache.stats().cache_waive, 1 - kept as u64);
        assert_eq!(packet.count(), 1 + kept as u32);
    }
}
