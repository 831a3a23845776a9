//! The allocators that are compared.

use std::cell::{RefCell, UnsafeCell};
use std::hint::black_box;

use quarry_core::era::Era;
use quarry_core::page::{PageAllocator, PageConfig, Pfn};
use quarry_core::pool::{PagePool, PoolOwner, PoolParams};
use quarry_host::{HostMachine, HugePages};

use crate::dpdk::Mempool;
use crate::patterns::{
    HAND_OVER, Pattern, Source, batches, bulk, handed_over, on_two, other_thread, singles,
};
use crate::times::timed;

/// One arm of the comparison.
pub(crate) trait Arm {
    fn name(&self) -> &'static str;
    /// Nanoseconds per page (per block for larger orders); `None` if the arm has no such thing.
    fn time(&self, pattern: Pattern, pages: usize, cpu: usize) -> Option<f64>;
}

/// The page allocator under test.
pub(crate) fn page_allocator() -> PageAllocator<HostMachine> {
    let machine = HostMachine::builder()
        .memory_bytes(4 << 30)
        .huge_pages(HugePages::Transparent)
        .build()
        .expect("address space for pages");
    let huge = machine.huge_pages();
    let (mode, abi) = (machine.mode(), machine.rseq_abi());
    eprintln!("pages: {mode:?}, {abi:?}, {:?} pages", huge.in_use);
    PageAllocator::with_config(machine, &PageConfig::in_process(Era::V6_18))
        .expect("a fresh machine")
}

/// Blocks of one order.
struct Blocks<'p, const ORDER: u32> {
    pages: &'p PageAllocator<HostMachine>,
}

impl<const ORDER: u32> Source for Blocks<'_, ORDER> {
    type Page = Pfn;

    #[inline(always)]
    fn get(&self) -> Pfn {
        self.pages.alloc(ORDER, None).expect("memory")
    }

    #[inline(always)]
    fn put(&self, page: Pfn) {
        // SAFETY: the patterns free each block once, on one thread.
        let freed = unsafe { self.pages.free(page, ORDER) };
        freed.expect("a live block");
    }

    fn get_many(&self, slots: &mut [Option<Pfn>]) {
        // A preempted holder of the CPU's lists makes a call fill less.
        while self.pages.alloc_bulk(None, slots) < slots.len() {}
    }

    fn put_many(&self, slots: &mut [Option<Pfn>]) {
        // SAFETY: as in `put`.
        let freed = unsafe { self.pages.free_bulk(slots) };
        freed.expect("live pages");
    }
}

struct Pages<'p> {
    name: &'static str,
    pages: &'p PageAllocator<HostMachine>,
}

impl Arm for Pages<'_> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn time(&self, pattern: Pattern, pages: usize, cpu: usize) -> Option<f64> {
        let single = Blocks::<'_, 0> { pages: self.pages };
        let eights = Blocks::<'_, 3> { pages: self.pages };
        let ns = match pattern {
            Pattern::Single => singles(&single, pages),
            Pattern::Batch64 => batches(&single, pages),
            Pattern::Bulk32 => bulk::<_, 32>(&single, pages),
            Pattern::Bulk64 => bulk::<_, 64>(&single, pages),
            Pattern::Order3 => singles(&eights, pages),
            Pattern::TwoSingle => on_two(cpu, || singles(&single, pages)),
            Pattern::TwoBulk32 => on_two(cpu, || bulk::<_, 32>(&single, pages)),
            Pattern::OtherThread => other_thread::<_, 64>(&single, pages, cpu, || (), || ()),
            Pattern::OtherBulk32 => other_thread::<_, 32>(&single, pages, cpu, || (), || ()),
            Pattern::OtherSingle => other_thread::<_, 1>(&single, pages, cpu, || (), || ()),
        };
        Some(ns / pages as f64)
    }
}

/// Pages with handles.
struct OwnedArm<'p> {
    pages: &'p PageAllocator<HostMachine>,
}

impl OwnedArm<'_> {
    #[inline(never)]
    fn singles(&self, pages: usize) -> f64 {
        timed(|| {
            for _ in 0..pages {
                drop(black_box(self.pages.alloc_owned(0).expect("memory")));
            }
        })
    }
}

impl Arm for OwnedArm<'_> {
    fn name(&self) -> &'static str {
        "owned pages"
    }

    fn time(&self, pattern: Pattern, pages: usize, cpu: usize) -> Option<f64> {
        let ns = match pattern {
            Pattern::Single => self.singles(pages),
            Pattern::TwoSingle => on_two(cpu, || self.singles(pages)),
            Pattern::Batch64
            | Pattern::Bulk32
            | Pattern::Bulk64
            | Pattern::TwoBulk32
            | Pattern::Order3
            | Pattern::OtherThread
            | Pattern::OtherBulk32
            | Pattern::OtherSingle => return None,
        };
        Some(ns / pages as f64)
    }
}

fn pool_owner(pages: &PageAllocator<HostMachine>) -> PoolOwner<'_, HostMachine> {
    let params = PoolParams {
        name: "bench",
        ..PoolParams::default()
    };
    PoolOwner::create(pages, Era::V6_18, &params).expect("a pool")
}

/// A page pool. With `RING` pages go back through the ring, as from any thread; else as the owner's.
struct PoolPages<'p, const RING: bool> {
    owner: UnsafeCell<PoolOwner<'p, HostMachine>>,
    pool: PagePool<'p, HostMachine>,
}

// SAFETY: in every pattern one thread gets, and only with `RING` another one puts; that uses the
// shared handle alone.
unsafe impl<const RING: bool> Sync for PoolPages<'_, RING> {}

impl<'p, const RING: bool> PoolPages<'p, RING> {
    fn new(pages: &'p PageAllocator<HostMachine>) -> Self {
        let owner = pool_owner(pages);
        Self {
            pool: owner.handle(),
            owner: owner.into(),
        }
    }
}

impl<const RING: bool> Source for PoolPages<'_, RING> {
    type Page = Pfn;

    #[inline(always)]
    fn get(&self) -> Pfn {
        // SAFETY: one thread gets, and puts if the owner puts; no reference outlives a call.
        unsafe { &mut *self.owner.get() }.alloc().expect("memory")
    }

    #[inline(always)]
    fn put(&self, page: Pfn) {
        let put = if RING {
            // SAFETY: the thread that got the page puts it, once.
            unsafe { self.pool.put(page) }
        } else {
            // SAFETY: as in `get`.
            let owner = unsafe { &mut *self.owner.get() };
            // SAFETY: the thread that got the page puts it, once.
            unsafe { owner.put(page) }
        };
        put.expect("a page in flight");
    }

    fn get_many(&self, slots: &mut [Option<Pfn>]) {
        // SAFETY: as in `get`.
        let owner = unsafe { &mut *self.owner.get() };
        assert_eq!(owner.alloc_bulk(slots), slots.len(), "memory");
    }

    fn put_many(&self, slots: &mut [Option<Pfn>]) {
        let put = if RING {
            // SAFETY: the thread that got the pages puts them, once.
            unsafe { self.pool.put_bulk(slots) }
        } else {
            // SAFETY: as in `get`.
            let owner = unsafe { &mut *self.owner.get() };
            // SAFETY: the thread that got the pages puts them, once.
            unsafe { owner.put_bulk(slots) }
        };
        put.expect("pages in flight");
    }
}

/// A page pool's batches, given back by the owner, or by its ring from another thread.
struct Batches<'p> {
    pages: &'p PageAllocator<HostMachine>,
}

impl Batches<'_> {
    /// `N` pages at a time.
    #[inline(never)]
    fn bulk<const N: usize>(&self, pages: usize) -> f64 {
        let mut owner = pool_owner(self.pages);
        let mut batch = owner.pool().batch();
        timed(|| {
            for _ in 0..pages / N {
                let got = owner.fill_batch(&mut batch, N);
                assert_eq!(got, Ok(N), "memory");
                black_box(&mut batch);
                owner.put_batch(&mut batch).expect("a batch of the pool");
            }
        })
    }

    fn other_thread<const CALL: usize>(&self, pages: usize, cpu: usize) -> f64 {
        let owner = RefCell::new(pool_owner(self.pages));
        let pool = owner.borrow().handle();
        handed_over(
            pages,
            cpu,
            || [pool.batch(), pool.batch()],
            |batches| {
                for batch in &mut batches[..HAND_OVER / CALL] {
                    let got = owner.borrow_mut().fill_batch(batch, CALL);
                    assert_eq!(got, Ok(CALL), "memory");
                }
            },
            |batches| {
                for batch in batches {
                    pool.put_batch(batch).expect("a batch of the pool");
                }
            },
            || (),
            || (),
        )
    }
}

impl Arm for Batches<'_> {
    fn name(&self) -> &'static str {
        "pool, batches"
    }

    fn time(&self, pattern: Pattern, pages: usize, cpu: usize) -> Option<f64> {
        let ns = match pattern {
            Pattern::Single => self.bulk::<1>(pages),
            Pattern::Bulk32 => self.bulk::<32>(pages),
            Pattern::Bulk64 => self.bulk::<64>(pages),
            Pattern::TwoSingle => on_two(cpu, || self.bulk::<1>(pages)),
            Pattern::TwoBulk32 => on_two(cpu, || self.bulk::<32>(pages)),
            Pattern::OtherThread => self.other_thread::<64>(pages, cpu),
            Pattern::OtherBulk32 => self.other_thread::<32>(pages, cpu),
            Pattern::Batch64 | Pattern::Order3 | Pattern::OtherSingle => return None,
        };
        Some(ns / pages as f64)
    }
}

struct Pool<'p, const RING: bool> {
    name: &'static str,
    pages: &'p PageAllocator<HostMachine>,
}

impl<const RING: bool> Arm for Pool<'_, RING> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn time(&self, pattern: Pattern, pages: usize, cpu: usize) -> Option<f64> {
        let new = || PoolPages::<'_, RING>::new(self.pages);
        let ns = match pattern {
            Pattern::Single => singles(&new(), pages),
            Pattern::Batch64 => batches(&new(), pages),
            Pattern::TwoSingle => on_two(cpu, || singles(&new(), pages)),
            Pattern::Bulk32 => bulk::<_, 32>(&new(), pages),
            Pattern::Bulk64 => bulk::<_, 64>(&new(), pages),
            Pattern::TwoBulk32 => on_two(cpu, || bulk::<_, 32>(&new(), pages)),
            Pattern::OtherThread if RING => other_thread::<_, 64>(&new(), pages, cpu, || (), || ()),
            Pattern::OtherBulk32 if RING => other_thread::<_, 32>(&new(), pages, cpu, || (), || ()),
            Pattern::OtherSingle if RING => other_thread::<_, 1>(&new(), pages, cpu, || (), || ()),
            Pattern::Order3
            | Pattern::OtherThread
            | Pattern::OtherBulk32
            | Pattern::OtherSingle => return None,
        };
        Some(ns / pages as f64)
    }
}

struct Dpdk(Mempool);

impl Arm for Dpdk {
    fn name(&self) -> &'static str {
        "DPDK mempool"
    }

    fn time(&self, pattern: Pattern, pages: usize, cpu: usize) -> Option<f64> {
        Some(self.0.time(pattern, pages, cpu)? / pages as f64)
    }
}

/// All arms; the mempool if there is one.
pub(crate) fn arms(
    pages: &PageAllocator<HostMachine>,
    mempool: Option<Mempool>,
) -> Vec<Box<dyn Arm + '_>> {
    let page_arm = |name| -> Box<dyn Arm + '_> { Box::new(Pages { name, pages }) };
    let mut arms: Vec<Box<dyn Arm + '_>> = vec![
        page_arm("page allocator"),
        page_arm("again (null)"),
        Box::new(OwnedArm { pages }),
    ];
    arms.push(Box::new(Pool::<'_, false> {
        name: "page pool",
        pages,
    }));
    arms.push(Box::new(Pool::<'_, true> {
        name: "pool, by its ring",
        pages,
    }));
    arms.push(Box::new(Batches { pages }));
    arms.extend(mempool.map(|mempool| -> Box<dyn Arm + '_> { Box::new(Dpdk(mempool)) }));
    arms
}
