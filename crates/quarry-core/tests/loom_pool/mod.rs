//! Models of the page pool: the ring, double puts, the end of a pool, pieces.

use std::sync::Arc;

use loom::sync::atomic::{AtomicUsize, Ordering};

use quarry_core::era::Era;
use quarry_core::page::{PageAllocator, Pfn};
use quarry_core::pool::{
    NoMapper, PagePool, Pending, PoolError, PoolOwner, PoolParams, PoolState, Put,
};

use super::loom_machine::{LoomMachine, be};
use super::{CPU0, CPU1, NODE, explore, spawn};

type Pages = PageAllocator<LoomMachine>;

/// Threads need what lives as long as they may: each run leaks nothing but takes it back here.
struct World {
    pages: *mut Pages,
}

impl World {
    fn new() -> (Self, &'static Pages) {
        Self::on(LoomMachine::new())
    }

    /// On a machine whose CPUs have lanes.
    fn with_lanes() -> (Self, &'static Pages) {
        Self::on(LoomMachine::stepping())
    }

    fn on(machine: LoomMachine) -> (Self, &'static Pages) {
        be(CPU0);
        let pages = PageAllocator::new(machine, Era::V6_18).unwrap();
        let pages = Box::into_raw(Box::new(pages));
        // SAFETY: `finish` frees it when all threads have been joined.
        (Self { pages }, unsafe { &*pages })
    }

    /// All puts are done: a pool that was pending ends, and every page has come back.
    fn finish_pending(self, mut ended: Result<(), Pending<'static, LoomMachine, NoMapper>>) {
        while let Err(pending) = ended {
            ended = pending.finish();
        }
        self.finish();
    }

    /// Every page has come back.
    fn finish(self) {
        // SAFETY: `new` made it, and no code uses it any more.
        let pages = unsafe { Box::from_raw(self.pages) };
        let census = pages.check_consistency().unwrap();
        assert_eq!((census.pool, census.allocated), (0, 0), "{census:?}");
    }
}

fn pool(pages: &'static Pages, pool_size: u32) -> PoolOwner<'static, LoomMachine> {
    let params = PoolParams {
        pool_size,
        ..PoolParams::default()
    };
    PoolOwner::create(pages, Era::V6_18, &params).unwrap()
}

/// Takes all pages that the pool and the page allocator have, which must be different ones.
fn take_all(owner: &mut PoolOwner<'static, LoomMachine>) -> Vec<Pfn> {
    let mut all: Vec<Pfn> = std::iter::from_fn(|| owner.alloc()).collect();
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count, "a page in two places");
    all
}

fn end(owner: PoolOwner<'static, LoomMachine>) {
    let mut ended = owner.destroy();
    while let Err(pending) = ended {
        loom::thread::yield_now();
        ended = pending.finish();
    }
}

/// Takes all six pages of the machine out of the pool, each once, puts them and ends the pool.
fn end_with_all(mut owner: PoolOwner<'static, LoomMachine>, world: World) {
    let all = take_all(&mut owner);
    assert_eq!(all.len(), 6);
    all.into_iter().for_each(|pfn| {
        // SAFETY: only this put has the page.
        unsafe { owner.put(pfn) }.unwrap();
    });
    end(owner);
    world.finish();
}

/// Puts from two CPUs against a refill: no page is lost or in two places.
#[test]
fn puts_against_a_refill() {
    explore(|| {
        let (world, pages) = World::new();
        let mut owner = pool(pages, 2);
        let got: Vec<Pfn> = (0..3).map(|_| owner.alloc().unwrap()).collect();
        // One page is left in the alloc cache.
        let last = owner.alloc().unwrap();
        let threads: Vec<_> = [(CPU1, got[0]), (NODE, got[1])]
            .map(|(me, pfn)| {
                let pool = owner.handle();
                spawn(move || {
                    be(me);
                    // SAFETY: only this put has the page.
                    unsafe { pool.put(pfn) }.unwrap();
                })
            })
            .into();
        let more = owner.alloc();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        for pfn in [got[2], last].into_iter().chain(more) {
            // SAFETY: only this put has the page.
            unsafe { owner.put(pfn) }.unwrap();
        }
        end_with_all(owner, world);
    });
}

/// Two pages that go home with one call, against a put and a refill. In a ring for one entry the
/// put and the first page of the call may take a slot more than it is for.
fn bulk_against_a_put(pool_size: u32) {
    explore(move || {
        let (world, pages) = World::new();
        let mut owner = pool(pages, pool_size);
        let got: Vec<Pfn> = (0..3).map(|_| owner.alloc().unwrap()).collect();
        let handle = owner.handle();
        let mut slots = [Some(got[0]), None, Some(got[1])];
        let thread = spawn(move || {
            be(CPU1);
            // SAFETY: only this put has the pages.
            unsafe { handle.put_bulk(&mut slots) }.unwrap();
            assert_eq!(slots, [None; 3]);
        });
        // SAFETY: only this put has the page.
        unsafe { owner.pool().put(got[2]) }.unwrap();
        let mut more = [None; 2];
        let filled = owner.alloc_bulk(&mut more);
        assert!(filled > 0);
        thread.join().unwrap();
        // SAFETY: only this put has the pages.
        unsafe { owner.put_bulk(&mut more) }.unwrap();
        end_with_all(owner, world);
    });
}

#[test]
fn a_bulk_put_against_a_put() {
    bulk_against_a_put(2);
}

#[test]
fn a_bulk_put_against_a_put_in_a_ring_for_one() {
    bulk_against_a_put(1);
}

/// Two producers that look at a ring for one entry at the same moment.
#[test]
fn two_puts_into_a_ring_for_one() {
    explore(|| {
        let (world, pages) = World::new();
        let mut owner = pool(pages, 1);
        let got = [(); 2].map(|()| owner.alloc().unwrap());
        let handle = owner.handle();
        let thread = spawn(move || {
            be(CPU1);
            // SAFETY: only this put has the page.
            unsafe { handle.put(got[0]) }.unwrap()
        });
        // SAFETY: only this put has the page.
        let put = unsafe { owner.pool().put(got[1]) }.unwrap();
        let puts = [thread.join().unwrap(), put];
        let ring = puts.iter().filter(|&&put| put == Put::Ring).count() as u64;
        let stats = owner.pool().stats();
        assert!(ring >= 1);
        assert_eq!((stats.ring, stats.ring_full), (ring, 2 - ring));
        end_with_all(owner, world);
    });
}

/// The last pages come home with one call while the pool is destroyed and a handle is dropped.
#[test]
fn the_last_bulk_put_against_the_end() {
    explore(|| {
        let (world, pages) = World::new();
        let mut owner = pool(pages, 2);
        let mut slots = [None; 2];
        assert_eq!(owner.alloc_bulk(&mut slots), 2);
        let raw = owner.pool().raw();
        let thread = spawn(move || {
            be(CPU1);
            // SAFETY: the pages are in flight and put once.
            unsafe { raw.put_bulk(&mut slots) }.unwrap();
        });
        let pending = owner.destroy();
        thread.join().unwrap();
        world.finish_pending(pending);
    });
}

/// Puts that break their contract, of a page that no code takes meanwhile: whatever they return, the
/// page is in one place afterwards.
fn put_twice(by_owner: bool) {
    explore(move || {
        let (world, pages) = World::new();
        let mut owner = pool(pages, 2);
        let pfn = owner.alloc().unwrap();
        let pool = owner.handle();
        let thread = spawn(move || {
            be(CPU1);
            // SAFETY: the contract is broken on purpose; no code takes released pages meanwhile.
            unsafe { pool.put(pfn) }
        });
        let mine = if by_owner {
            // SAFETY: the contract is broken on purpose; no code takes released pages meanwhile.
            unsafe { owner.put(pfn) }
        } else {
            // SAFETY: the contract is broken on purpose; no code takes released pages meanwhile.
            unsafe { owner.pool().put(pfn) }
        };
        let theirs = thread.join().unwrap();
        assert!(mine.is_ok() || theirs.is_ok());
        end_with_all(owner, world);
    });
}

#[test]
fn of_two_puts_from_elsewhere_one_has_effect() {
    put_twice(false);
}

#[test]
fn of_two_puts_one_by_the_owner_one_has_effect() {
    put_twice(true);
}

/// The last page comes home while the pool is destroyed and a handle is dropped.
#[test]
fn the_last_put_against_the_end() {
    explore(|| {
        let (world, pages) = World::new();
        let mut owner = pool(pages, 2);
        let pfn = owner.alloc().unwrap();
        let handle = owner.handle();
        let raw = handle.raw();
        let thread = spawn(move || {
            be(CPU1);
            // SAFETY: the page is in flight and put once.
            unsafe { raw.put(pfn, 0) }.unwrap();
        });
        drop(handle);
        // Dropped or not, what is pending ends with the put.
        let pending = owner.destroy();
        thread.join().unwrap();
        world.finish_pending(pending);
    });
}

/// A page's last two users leave: its packet's, through the pool, and a second one.
#[test]
fn a_put_against_another_users_put_page() {
    explore(|| {
        let (world, pages) = World::new();
        let mut owner = pool(pages, 2);
        let pfn = owner.alloc().unwrap();
        // SAFETY: the page is this thread's.
        unsafe { pages.get_page(pfn) }.unwrap();
        let thread = spawn(move || {
            be(CPU1);
            // SAFETY: one of the two references is this thread's.
            unsafe { pages.put_page(pfn) }.unwrap()
        });
        // SAFETY: only this put has the page or the piece.
        let put = unsafe { owner.pool().put(pfn) }.unwrap();
        let freed = thread.join().unwrap();
        assert!(!freed || put == Put::Released);
        end(owner);
        world.finish();
    });
}

/// The pieces of a page come home while its owner gives it up: one of the three has the page.
#[test]
fn pieces_against_their_owner() {
    explore(|| {
        let (world, pages) = World::new();
        let mut owner = pool(pages, 2);
        let pieces = [(); 2].map(|()| owner.alloc_piece(2048).unwrap());
        assert_eq!(pieces[0].pfn, pieces[1].pfn);
        let homes = Arc::new(AtomicUsize::new(0));
        let pool: PagePool<'_, _> = owner.handle();
        let theirs = Arc::clone(&homes);
        let thread = spawn(move || {
            be(CPU1);
            // SAFETY: only this put has the page or the piece.
            let put = unsafe { pool.put_piece(pieces[0].pfn, pieces[0].offset) }.unwrap();
            theirs.fetch_add(usize::from(put != Put::Piece), Ordering::Relaxed);
        });
        let next = owner.alloc_piece(4096).unwrap();
        // SAFETY: only this put has the page or the piece.
        let put = unsafe { owner.put_piece(pieces[1].pfn, pieces[1].offset) }.unwrap();
        homes.fetch_add(usize::from(put != Put::Piece), Ordering::Relaxed);
        thread.join().unwrap();
        assert_eq!(homes.load(Ordering::Relaxed), 1);
        // SAFETY: no other code puts the page any more.
        let again = unsafe { owner.put_piece(pieces[1].pfn, pieces[1].offset) }.unwrap_err();
        assert!(matches!(
            again,
            PoolError::NotInFlight(_) | PoolError::NotOfPool(_)
        ));
        assert_ne!(owner.pool().state_of(pieces[1].pfn), PoolState::InPieces);
        // SAFETY: only this put has the page or the piece.
        unsafe { owner.put_piece(next.pfn, next.offset) }.unwrap();
        end(owner);
        world.finish();
    });
}

/// More pages than a lane has entries go home by one CPU's, while the owner takes them.
#[test]
fn a_lane_goes_round() {
    explore(|| {
        let (world, pages) = World::with_lanes();
        let mut owner = pool(pages, 4);
        let got = [(); 5].map(|()| owner.alloc().unwrap());
        let pool = owner.handle();
        let thread = spawn(move || {
            be(CPU1);
            for pfn in got {
                // SAFETY: only this put has the page.
                assert_eq!(unsafe { pool.put(pfn) }, Ok(Put::Ring));
            }
        });
        let more = [(); 3].map(|()| owner.alloc());
        thread.join().unwrap();
        for pfn in more.into_iter().flatten() {
            // SAFETY: only this put has the page.
            unsafe { owner.put(pfn) }.unwrap();
        }
        end_with_all(owner, world);
    });
}

/// Two threads of one CPU, whose lane is not there yet.
#[test]
fn two_puts_make_one_lane() {
    explore(|| {
        let (world, pages) = World::with_lanes();
        let mut owner = pool(pages, 4);
        let got = [(); 2].map(|()| owner.alloc().unwrap());
        let threads = got.map(|pfn| {
            let pool = owner.handle();
            spawn(move || {
                be(CPU1);
                // SAFETY: only this put has the page.
                assert_eq!(unsafe { pool.put(pfn) }, Ok(Put::Ring));
            })
        });
        for thread in threads {
            thread.join().unwrap();
        }
        let stats = owner.pool().stats();
        assert_eq!((stats.ring, stats.pages_ring), (2, 2));
        end_with_all(owner, world);
    });
}

/// The last pages come home by a lane, one by one or together, while the pool is destroyed.
fn lane_against_the_end(together: bool) {
    explore(move || {
        let (world, pages) = World::with_lanes();
        let mut owner = pool(pages, 2);
        let mut slots = [None; 3];
        assert_eq!(owner.alloc_bulk(&mut slots), 3);
        let raw = owner.pool().raw();
        // The lane is there already.
        be(CPU1);
        // SAFETY: only this put has the page.
        unsafe { raw.put(slots[2].take().unwrap(), 0) }.unwrap();
        be(CPU0);
        let thread = spawn(move || {
            be(CPU1);
            if together {
                // SAFETY: the pages are in flight and put once.
                unsafe { raw.put_bulk(&mut slots) }.unwrap();
                return;
            }
            for pfn in slots.into_iter().flatten() {
                // SAFETY: the page is in flight and put once.
                unsafe { raw.put(pfn, 0) }.unwrap();
            }
        });
        let pending = owner.destroy();
        thread.join().unwrap();
        world.finish_pending(pending);
    });
}

#[test]
fn the_last_puts_by_a_lane_against_the_end() {
    lane_against_the_end(false);
}

#[test]
fn the_last_bulk_put_by_a_lane_against_the_end() {
    lane_against_the_end(true);
}
