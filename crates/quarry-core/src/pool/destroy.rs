//! The end of a pool (`page_pool_destroy()`): at once, or when its last page in flight comes home.

use core::fmt;

use super::inflight::InFlightReport;
use super::map::Mapper;
use super::stats::count;
use super::{PagePool, PoolOwner, RawPool};
use crate::machine::Machine;

impl<'p, M: Machine, H: Mapper> PoolOwner<'p, M, H> {
    /// Releases all pages that the pool has, and the pool with them. Handles stay valid; pages put
    /// from now on are released.
    ///
    /// # Errors
    ///
    /// [`Pending`] while pages are in flight: it says who has them. The pool goes by itself when
    /// the last one is put ([`Pending`] names an exception).
    pub fn destroy(self) -> Result<(), Pending<'p, M, H>> {
        let pending = Pending {
            pool: self.pool.clone(),
        };
        drop(self);
        pending.finish()
    }
}

impl<M: Machine, H: Mapper> Drop for PoolOwner<'_, M, H> {
    fn drop(&mut self) {
        self.close_open();
        let raw = self.pool.raw();
        while let Some(pfn) = self.pop() {
            count(&raw.body().owner.dropped);
            raw.release_home(pfn);
        }
        raw.release_rest();
    }
}

impl<M: Machine, H: Mapper> RawPool<'_, M, H> {
    /// Lets no more pages in and releases those in the lanes and the ring. Whether none is in flight.
    /// Only for the owner, or for [`Pending`] after it.
    fn release_rest(self) -> bool {
        let body = self.body();
        let machine = self.pages.machine();
        // Lanes first: what finds its lane closed goes to the ring.
        body.lanes.close(machine);
        body.ring.close();
        // One by one: the mapper may panic, and the entry must have been taken by then.
        while let Some(pfn) = body.lanes.take_one::<M>() {
            self.release_home(pfn);
        }
        // A producer that stays inside may be a thread that a fork left behind. Its page is still in
        // flight, so the pool does not go while it touches it (I4).
        body.ring.drain(machine, |pfn| self.release_home(pfn));
        body.held() == 0
    }
}

/// A pool that was destroyed while pages are in flight. It goes when the last one is put, whether
/// this is kept or dropped. There is one exception: a thread may be stopped in the middle of a put for
/// longer than the destruction waits for it. It keeps its page and those behind it in the ring or its
/// CPU's lane, and the lane may go on taking pages. A caller that must have these back keeps this and
/// looks again.
pub struct Pending<'p, M: Machine, H: Mapper> {
    pool: PagePool<'p, M, H>,
}

impl<'p, M: Machine, H: Mapper> Pending<'p, M, H> {
    /// Looks again.
    ///
    /// # Errors
    ///
    /// Itself, while pages are in flight.
    pub fn finish(self) -> Result<(), Self> {
        if self.pool.raw().release_rest() {
            Ok(())
        } else {
            Err(self)
        }
    }

    /// The pool: its counters, and who has its pages.
    #[must_use]
    pub fn pool(&self) -> &PagePool<'p, M, H> {
        &self.pool
    }

    /// Returns the holders of the pool's pages.
    #[must_use]
    pub fn report(&self) -> InFlightReport {
        self.pool().in_flight_report()
    }
}

impl<M: Machine, H: Mapper> fmt::Display for Pending<'_, M, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.pool().name();
        let report = self.report();
        if report.pages == 0 {
            return write!(
                f,
                "page pool {name} was destroyed while in use: finish it again"
            );
        }
        write!(f, "page pool {name} was destroyed with {report}")
    }
}

impl<M: Machine, H: Mapper> fmt::Debug for Pending<'_, M, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<M: Machine, H: Mapper> core::error::Error for Pending<'_, M, H> {}
