//! Page pools against a naive model: every page is in exactly one place, counters are exact, and
//! all memory comes back.

mod batch;
mod bulk;
mod end;
mod pieces;
mod script;

use crate::prelude::*;
use proptest::collection::vec;
use proptest::prelude::*;
use quarry_core::machine::Cpus as _;
use quarry_core::pool::{PageBatch, PagePool, PieceError, PoolStats};
use script::{Op, Shape, ops, shapes};
use std::collections::VecDeque;

/// Scripts that a soak tries a property on.
const CASES: u32 = 300;

/// The model's state of a pool. Which of a slow allocation's pages comes next is the page allocator's affair:
/// the alloc cache is a set, and of some pages only their number is known.
#[derive(Default)]
struct Expected {
    cached: BTreeSet<Pfn>,
    unseen: usize,
    ring: VecDeque<Pfn>,
    /// Pages in flight, with the CPU that allocated them.
    whole: BTreeMap<Pfn, CpuId>,
    /// Pages in pieces with the offsets in use, and whether pieces are still cut from it.
    pieces: BTreeMap<Pfn, BTreeSet<u32>>,
    open: Option<Pfn>,
    stats: PoolStats,
}

impl Expected {
    fn cached_count(&self) -> usize {
        self.cached.len() + self.unseen
    }
}

struct Pool<'p> {
    owner: PoolOwner<'p, VirtualMachine>,
    handle: PagePool<'p, VirtualMachine>,
    expected: Expected,
    shape: Shape,
    batch: PageBatch<'p, VirtualMachine>,
    /// The CPU that began the batch.
    batch_cpu: CpuId,
}

struct World<'p> {
    pages: &'p PageAllocator<VirtualMachine>,
    setup: Setup,
    era: Era,
    pools: Vec<Pool<'p>>,
    /// References beyond the first, of pages in flight or released.
    extra: BTreeMap<Pfn, u32>,
    /// Pages that left their pools while they had other users.
    released: BTreeMap<Pfn, u32>,
    plain: Vec<(Pfn, u32)>,
}

impl<'p> World<'p> {
    fn make(&self, shape: Shape) -> Pool<'p> {
        let params = PoolParams {
            name: "model",
            order: shape.order,
            pool_size: shape.pool_size,
            node: shape.node.map(|node| NodeId(node % self.setup.nodes)),
        };
        let owner = PoolOwner::create(self.pages, self.era, &params).expect("a pool");
        Pool {
            handle: owner.handle(),
            batch: owner.pool().batch(),
            batch_cpu: CpuId(0),
            owner,
            expected: Expected::default(),
            shape,
        }
    }

    fn run_on(&self, cpu: u16) -> CpuId {
        let cpu = CpuId(u32::from(cpu) % self.setup.cpus);
        self.pages.machine().run_on(cpu);
        cpu
    }

    /// The node whose pages a pool prefers now.
    fn node(&self, pool: usize, cpu: CpuId) -> NodeId {
        let node = self.pools[pool].shape.node;
        let of_cpu = || self.pages.machine().node_of_cpu(cpu);
        node.map_or_else(of_cpu, |node| NodeId(node % self.setup.nodes))
    }

    /// The part of an allocation before a page of the alloc cache is handed out.
    fn expect_fill(&mut self, at: usize, cpu: CpuId) {
        let node = self.node(at, cpu);
        let pages = self.pages;
        let expected = &mut self.pools[at].expected;
        let mut moved = 0;
        for taken in 0..REFILL_PAGES {
            let Some(pfn) = expected.ring.pop_front() else {
                expected.stats.empty += u64::from(taken == 0);
                break;
            };
            if pages.node_of(pfn) != Some(node) {
                expected.stats.waive += 1;
                break;
            }
            expected.cached.insert(pfn);
            moved += 1;
        }
        expected.stats.refill += u64::from(moved > 0);
    }

    /// Allocates a page or the page of a piece, and checks where it came from.
    fn alloc(&mut self, at: usize, cpu: CpuId) -> Check<Option<Pfn>> {
        let slow = self.expect_alloc(at, cpu);
        let site = CallSite::code(0x1000 + at as u64);
        let got = self.pools[at].owner.alloc_at(site);
        let Some(pfn) = got else {
            ensure!(slow, "pages were at hand");
            return Ok(None);
        };
        self.check_alloc(at, pfn, slow)?;
        Ok(Some(pfn))
    }

    /// The part of an allocation before a page is handed out. Returns true if none is at hand.
    fn expect_alloc(&mut self, at: usize, cpu: CpuId) -> bool {
        let expected = &mut self.pools[at].expected;
        if expected.cached_count() > 0 {
            expected.stats.fast += 1;
            return false;
        }
        self.expect_fill(at, cpu);
        self.pools[at].expected.cached_count() == 0
    }

    /// An allocation that [`Self::expect_alloc`] began brought a page.
    fn check_alloc(&mut self, at: usize, pfn: Pfn, slow: bool) -> Check {
        if slow {
            self.check_slow(at, pfn)
        } else {
            self.take_cached(at, pfn)
        }
    }

    /// A kernel's bulk call may return fewer pages if memory is short or the lists are held.
    fn exact(&self) -> bool {
        self.setup.pages == 0 && self.setup.slot_per_mille == 0
    }

    /// A slow allocation brings pages without an owner.
    fn check_slow(&mut self, at: usize, pfn: Pfn) -> Check {
        ensure!(!self.known(pfn), "{pfn:?} has an owner");
        let bulk = if self.pools[at].shape.order > 0 {
            self.pools[at].expected.stats.slow_high_order += 1;
            1
        } else {
            self.pools[at].expected.stats.slow += 1;
            if self.era < Era::V6_1 {
                1
            } else {
                REFILL_PAGES
            }
        };
        let cached = self.pools[at].handle.stats().pages_cached as usize;
        let exact = self.exact();
        ensure!(
            cached + 1 == bulk || !exact && cached < bulk,
            "{cached} left of {bulk}"
        );
        self.pools[at].expected.unseen = cached;
        Ok(())
    }

    /// A page came out of the alloc cache.
    fn take_cached(&mut self, at: usize, pfn: Pfn) -> Check {
        if self.pools[at].expected.cached.remove(&pfn) {
            return Ok(());
        }
        ensure!(!self.known(pfn), "{pfn:?} has an owner");
        let unseen = &mut self.pools[at].expected.unseen;
        ensure!(*unseen > 0, "{pfn:?} was not cached");
        *unseen -= 1;
        Ok(())
    }

    fn known(&self, pfn: Pfn) -> bool {
        let in_pool = self.pools.iter().any(|pool| {
            let known = &pool.expected;
            known.cached.contains(&pfn)
                || known.ring.contains(&pfn)
                || known.whole.contains_key(&pfn)
                || known.pieces.contains_key(&pfn)
                || pool.batch.pages().contains(&pfn)
        });
        in_pool || self.released.contains_key(&pfn) || self.plain.iter().any(|&(at, _)| at == pfn)
    }

    /// Destination of a page that is put.
    fn expect_put(&mut self, at: usize, pfn: Pfn, by_owner: bool) -> Put {
        let extra = self.extra.remove(&pfn).unwrap_or(0);
        let Pool {
            expected, shape, ..
        } = &mut self.pools[at];
        if extra > 0 {
            expected.stats.released_refcnt += 1;
            self.released.insert(pfn, extra);
            return Put::Released;
        }
        if by_owner && expected.cached_count() < CACHE_PAGES {
            expected.stats.cached += 1;
            expected.cached.insert(pfn);
            return Put::Cached;
        }
        expected.stats.cache_full += u64::from(by_owner);
        if expected.ring.len() < shape.pool_size as usize {
            expected.stats.ring += 1;
            expected.ring.push_back(pfn);
            return Put::Ring;
        }
        expected.stats.ring_full += 1;
        Put::Released
    }

    fn put(&mut self, at: usize, pfn: Pfn, by_owner: bool) -> Check {
        self.pools[at].expected.whole.remove(&pfn);
        let expected = self.expect_put(at, pfn, by_owner);
        let pool = &mut self.pools[at];
        let put = if by_owner {
            pool.owner.lone_put(pfn)
        } else {
            pool.handle.lone_put(pfn)
        };
        ensure_eq!(put, Ok(expected), "a put of {pfn:?}");
        Ok(())
    }

    /// Pages in flight, whole: their pools and numbers.
    fn in_flight(&self) -> Vec<(usize, Pfn)> {
        let pools = self.pools.iter().enumerate();
        pools
            .flat_map(|(at, pool)| pool.expected.whole.keys().map(move |&pfn| (at, pfn)))
            .collect()
    }

    fn step(&mut self, op: &Op) -> Check {
        let pools = self.pools.len();
        match *op {
            Op::Alloc { pool, cpu, count } => {
                let (at, cpu) = (usize::from(pool) % pools, self.run_on(cpu));
                for _ in 0..count {
                    let Some(pfn) = self.alloc(at, cpu)? else {
                        break;
                    };
                    self.pools[at].expected.whole.insert(pfn, cpu);
                    ensure_eq!(self.pages.page_count(pfn), 1, "references to {pfn:?}");
                }
            }
            Op::Put {
                pick,
                cpu,
                count,
                owner,
            } => {
                self.run_on(cpu);
                let in_flight = self.in_flight();
                let from = usize::from(pick) % in_flight.len().max(1);
                for &(at, pfn) in in_flight[from..].iter().take(count.into()) {
                    self.put(at, pfn, owner)?;
                }
            }
            Op::AllocBulk {
                pool,
                cpu,
                count,
                holes,
            } => {
                let (at, cpu) = (usize::from(pool) % pools, self.run_on(cpu));
                // Where slow allocations may bring less, not more than one is followed.
                let (calls, count) = if self.exact() { (1, count) } else { (count, 1) };
                for _ in 0..calls {
                    self.alloc_bulk(at, cpu, count.into(), holes.into())?;
                }
            }
            Op::PutBulk {
                pick,
                cpu,
                count,
                owner,
            } => {
                self.run_on(cpu);
                let in_flight = self.in_flight();
                let from = usize::from(pick) % in_flight.len().max(1);
                let Some(&(at, _)) = in_flight.get(from) else {
                    return Ok(());
                };
                let same = in_flight[from..].iter().filter(|(of, _)| *of == at);
                let pfns: Vec<Pfn> = same.map(|&(_, pfn)| pfn).take(count.into()).collect();
                self.put_bulk(at, &pfns, owner)?;
            }
            Op::FillBatch { pool, cpu, count } => {
                let (at, cpu) = (usize::from(pool) % pools, self.run_on(cpu));
                let (calls, count) = if self.exact() { (1, count) } else { (count, 1) };
                for _ in 0..calls {
                    self.fill_batch(at, cpu, count.into())?;
                }
            }
            Op::PutBatch { pool, cpu, owner } => {
                self.run_on(cpu);
                self.put_batch(usize::from(pool) % pools, owner)?;
            }
            Op::PopBatch { pool, count } => {
                self.pop_batch(usize::from(pool) % pools, count.into())?;
            }
            Op::Piece { pool, cpu, bytes } => {
                let cpu = self.run_on(cpu);
                self.piece(usize::from(pool) % pools, cpu, bytes)?;
            }
            Op::PutPiece { pick, cpu, owner } => {
                self.run_on(cpu);
                let pools = self.pools.iter().enumerate();
                let pieces = pools.flat_map(|(at, pool)| {
                    let pages = pool.expected.pieces.iter();
                    pages.flat_map(move |(&pfn, all)| all.iter().map(move |&o| (at, pfn, o)))
                });
                let all: Vec<_> = pieces.collect();
                if let Some(&(at, pfn, offset)) = all.get(usize::from(pick) % all.len().max(1)) {
                    self.put_piece(at, pfn, offset, owner)?;
                }
            }
            Op::Get { pick } => {
                let mut all: Vec<Pfn> = self.in_flight().iter().map(|&(_, pfn)| pfn).collect();
                let pieces = self.pools.iter().flat_map(|pool| &pool.expected.pieces);
                all.extend(
                    pieces
                        .filter(|(_, used)| !used.is_empty())
                        .map(|(&pfn, _)| pfn),
                );
                if let Some(&pfn) = all.get(usize::from(pick) % all.len().max(1)) {
                    ensure_eq!(self.pages.get_number(pfn), Ok(()), "get_page");
                    *self.extra.entry(pfn).or_default() += 1;
                }
            }
            Op::Unget { pick, cpu } => {
                self.run_on(cpu);
                self.unget(pick)?;
            }
            Op::Wrong { pick, pool } => self.wrong(pick, usize::from(pool) % pools)?,
            Op::Plain { cpu, order, free } => {
                self.run_on(cpu);
                if free {
                    if let Some((pfn, order)) = self.plain.pop() {
                        ensure_eq!(self.pages.free_number(pfn, order), Ok(()), "a free");
                    }
                } else if let Some(pfn) = self.pages.alloc(order, None) {
                    ensure!(!self.known(pfn), "{pfn:?} has an owner");
                    self.plain.push((pfn, order));
                }
            }
            Op::Replace { pool } => {
                let at = usize::from(pool) % pools;
                let shape = self.pools[at].shape;
                self.end(at)?;
                let pool = self.make(shape);
                self.pools.push(pool);
            }
        }
        Ok(())
    }

    fn unget(&mut self, pick: u16) -> Check {
        let kept: Vec<Pfn> = self.extra.keys().copied().collect();
        let gone: Vec<Pfn> = self.released.keys().copied().collect();
        let all = [kept.as_slice(), gone.as_slice()].concat();
        let Some(&pfn) = all.get(usize::from(pick) % all.len().max(1)) else {
            return Ok(());
        };
        let in_pool = self.extra.contains_key(&pfn);
        let counts = if in_pool {
            &mut self.extra
        } else {
            &mut self.released
        };
        let count = counts.get_mut(&pfn).expect("picked among them");
        *count -= 1;
        let last = *count == 0;
        if last {
            counts.remove(&pfn);
        }
        ensure_eq!(
            self.pages.put_number(pfn),
            Ok(last && !in_pool),
            "put_page of {pfn:?}"
        );
        Ok(())
    }

    /// Every page is where the model says.
    fn audit(&self) -> Check {
        let mut pool_pages = 0;
        for (at, pool) in self.pools.iter().enumerate() {
            let known = &pool.expected;
            let flown = known.pieces.iter();
            let busy = flown.filter(|(pfn, used)| known.open != Some(**pfn) || !used.is_empty());
            let inflight = (known.whole.len() + pool.batch.len() + busy.count()) as u64;
            let expected = PoolStats {
                pages_cached: known.cached_count() as u64,
                pages_ring: known.ring.len() as u64,
                inflight,
                ..known.stats
            };
            ensure_eq!(pool.handle.stats(), expected, "counters of pool {at}");
            pool_pages += (known.unseen as u64) << pool.shape.order;
            let (first, others) = pool.batch.pages().split_at(pool.batch.len().min(1));
            for (pages, state) in [
                (
                    known.cached.iter().copied().collect::<Vec<_>>(),
                    PoolState::InPool,
                ),
                (known.ring.iter().copied().collect(), PoolState::InPool),
                (known.whole.keys().copied().collect(), PoolState::InFlight),
                (known.pieces.keys().copied().collect(), PoolState::InPieces),
                (first.to_vec(), PoolState::InBatch),
                (others.to_vec(), PoolState::InPool),
            ] {
                for pfn in &pages {
                    ensure_eq!(pool.handle.state_of(*pfn), state, "the state of {pfn:?}");
                }
                pool_pages += (pages.len() as u64) << pool.shape.order;
            }
        }
        // What became of released blocks is not followed.
        if self.setup.remote_per_mille == 0 {
            let census = self.pages.check_consistency().map_err(|e| e.to_string())?;
            ensure_eq!(census.pool, pool_pages, "pages of pools");
            if self.released.is_empty() {
                let plain: u64 = self.plain.iter().map(|&(_, order)| 1 << order).sum();
                ensure_eq!(census.allocated, plain, "allocated pages");
            }
        }
        Ok(())
    }
}

fn check(setup: Setup, era: Era, shapes: &[Shape], ops: &[Op]) -> Check {
    let pages = PageAllocator::new(setup.machine(), era).map_err(|error| error.to_string())?;
    let mut world = World {
        pages: &pages,
        setup,
        era,
        pools: Vec::new(),
        extra: BTreeMap::new(),
        released: BTreeMap::new(),
        plain: Vec::new(),
    };
    for &shape in shapes {
        let pool = world.make(shape);
        world.pools.push(pool);
    }
    for (number, op) in ops.iter().enumerate() {
        let done = world.step(op).and_then(|()| world.audit());
        done.map_err(|error| format!("operation {number}, {op:?}: {error}"))?;
    }
    while !world.pools.is_empty() {
        world.end(0)?;
    }
    while !world.released.is_empty() {
        world.unget(0)?;
    }
    for (pfn, order) in std::mem::take(&mut world.plain) {
        ensure_eq!(pages.free_number(pfn, order), Ok(()), "a free at the end");
    }
    if setup.remote_per_mille == 0 {
        let census = pages
            .check_consistency()
            .map_err(|error| error.to_string())?;
        ensure_eq!((census.pool, census.allocated), (0, 0), "what is left");
    }
    Ok(())
}

fn agrees_with_the_model(name: &str, era: Era) {
    check_property(
        name,
        CASES,
        (setups(), shapes(), ops()),
        |(setup, shapes, ops)| check(setup, era, &shapes, &ops),
    );
}

#[test]
fn pools_5_9_agree_with_the_model() {
    agrees_with_the_model("pools_5_9_agree_with_the_model", Era::V5_9);
}

#[test]
fn pools_6_1_agree_with_the_model() {
    agrees_with_the_model("pools_6_1_agree_with_the_model", Era::V6_1);
}

#[test]
fn pools_6_18_agree_with_the_model() {
    agrees_with_the_model("pools_6_18_agree_with_the_model", Era::V6_18);
}
