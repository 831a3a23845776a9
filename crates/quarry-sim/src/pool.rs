//! Page pools of a virtual machine, with puts that are safe.
//!
//! [`PoolDriver`] hands out pages as receipts. A receipt is put once, by CPUs side by side. [`LonePut`] puts
//! pages by their numbers, right or wrong, one at a time.

use quarry_core::era::Era;
use quarry_core::page::{PageAllocator, Pfn};
use quarry_core::pool::{
    PagePool, PoolCreateError, PoolError, PoolOwner, PoolParams, PoolStats, Put,
};

use crate::machine::VirtualMachine;

/// A page pool whose pages are receipts. It has its owner to itself, so no page of it is put by its number.
pub struct PoolDriver<'p>(PoolOwner<'p, VirtualMachine>);

/// A page of a [`PoolDriver`]: it can be put once.
#[derive(Debug)]
pub struct PoolRef<'p> {
    pfn: Pfn,
    /// Not a pool's for longer than its page allocator lives.
    _pages: std::marker::PhantomData<&'p ()>,
}

/// The way home for pages of a [`PoolDriver`], for any CPU.
pub struct PoolHome<'p>(PagePool<'p, VirtualMachine>);

impl PoolRef<'_> {
    /// The page.
    #[must_use]
    pub fn pfn(&self) -> Pfn {
        self.pfn
    }
}

impl<'p> PoolDriver<'p> {
    /// A pool of a virtual machine's pages.
    ///
    /// # Errors
    ///
    /// [`PoolCreateError`].
    pub fn create(
        pages: &'p PageAllocator<VirtualMachine>,
        era: Era,
        params: &PoolParams<'_>,
    ) -> Result<Self, PoolCreateError> {
        PoolOwner::create(pages, era, params).map(Self)
    }

    /// A page for the owner. `None` if memory is exhausted.
    #[must_use]
    pub fn alloc(&mut self) -> Option<PoolRef<'p>> {
        let pfn = self.0.alloc()?;
        Some(PoolRef {
            pfn,
            _pages: std::marker::PhantomData,
        })
    }

    /// The owner puts a page back that it has not passed on.
    ///
    /// # Errors
    ///
    /// [`PoolError`] if it is another pool's: it stays in flight for ever.
    pub fn put(&mut self, page: PoolRef<'p>) -> Result<Put, PoolError> {
        // SAFETY: the receipt ends here, and it is the only one of the page, which the owner handed out (`PoolHome::put` has
        // the argument in full).
        unsafe { self.0.put(page.pfn) }
    }

    /// The way home for pages that are passed on.
    #[must_use]
    pub fn home(&self) -> PoolHome<'p> {
        PoolHome(self.0.handle())
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        self.0.pool().stats()
    }
}

impl<'p> PoolHome<'p> {
    /// Puts a page back, on whichever CPU runs.
    ///
    /// # Errors
    ///
    /// [`PoolError`] if it is another pool's: it stays in flight for ever.
    pub fn put(&self, page: PoolRef<'p>) -> Result<Put, PoolError> {
        // SAFETY: the pool gave the page with its only receipt, which ends here: no other put of it is made, at this
        // time or later, as owner and handle are private to these types and never put by number. No receipt tells where
        // its memory is. A page of another pool is refused.
        unsafe { self.0.put(page.pfn) }
    }
}

/// Puts into a pool whose pages are not mapped. A mapper is foreign code that runs in the middle of
/// a put and could make another one.
///
/// A page that a virtual machine's pool hands out by its number stands for what a driver would have. Safe
/// code may put it at any time. So unsafe code uses the memory of such a page only where it knows of every
/// put. A [`PageBatch`](quarry_core::pool::PageBatch) is its holder's alone.
///
/// # Panics
///
/// All calls, in [`VirtualMachine::run_cpus`] and [`VirtualMachine::explore`]: another CPU could put the same page in the middle of a put.
pub trait LonePut {
    /// [`PagePool::put`], or [`PoolOwner::put`] by the owner.
    ///
    /// # Errors
    ///
    /// [`PoolError`]; nothing has changed then.
    fn lone_put(self, pfn: Pfn) -> Result<Put, PoolError>;

    /// [`PagePool::put_bulk`], or [`PoolOwner::put_bulk`] by the owner.
    ///
    /// # Errors
    ///
    /// The first [`PoolError`]; the slots of pages that could not be put stay filled.
    fn lone_put_bulk(self, slots: &mut [Option<Pfn>]) -> Result<(), PoolError>;

    /// [`PagePool::put_piece`], or [`PoolOwner::put_piece`] by the owner.
    ///
    /// # Errors
    ///
    /// [`PoolError`]; nothing has changed then.
    fn lone_put_piece(self, pfn: Pfn, offset: u32) -> Result<Put, PoolError>;
}

/// Lone puts are one after the other.
fn assert_lone(machine: &VirtualMachine) {
    assert!(
        !machine.is_side_by_side(),
        "a page is put by its number while CPUs run side by side"
    );
}

impl LonePut for &PagePool<'_, VirtualMachine> {
    fn lone_put(self, pfn: Pfn) -> Result<Put, PoolError> {
        assert_lone(self.pages().machine());
        // SAFETY: the machine is not `Sync`, so its pools, owners and handles are all one thread's, and it
        // runs one CPU (`assert_lone`). Neither it nor `NoMapper` calls foreign code in the middle of a put. By the trait's rule no
        // code relies on the memory of a page that may be put here.
        unsafe { self.put(pfn) }
    }

    fn lone_put_bulk(self, slots: &mut [Option<Pfn>]) -> Result<(), PoolError> {
        assert_lone(self.pages().machine());
        // SAFETY: one thread and one CPU run (`assert_lone`), and no code relies on the memory of these pages (`lone_put`).
        unsafe { self.put_bulk(slots) }
    }

    fn lone_put_piece(self, pfn: Pfn, offset: u32) -> Result<Put, PoolError> {
        assert_lone(self.pages().machine());
        // SAFETY: one thread and one CPU run (`assert_lone`), and no code relies on the memory of this page (`lone_put`).
        unsafe { self.put_piece(pfn, offset) }
    }
}

impl LonePut for &mut PoolOwner<'_, VirtualMachine> {
    fn lone_put(self, pfn: Pfn) -> Result<Put, PoolError> {
        assert_lone(self.pool().pages().machine());
        // SAFETY: one thread and one CPU run (`assert_lone`); the trait rules out code that relies on the memory of such pages.
        unsafe { self.put(pfn) }
    }

    fn lone_put_bulk(self, slots: &mut [Option<Pfn>]) -> Result<(), PoolError> {
        assert_lone(self.pool().pages().machine());
        // SAFETY: one thread and one CPU run (`assert_lone`); the trait rules out code that relies on the memory of such pages.
        unsafe { self.put_bulk(slots) }
    }

    fn lone_put_piece(self, pfn: Pfn, offset: u32) -> Result<Put, PoolError> {
        assert_lone(self.pool().pages().machine());
        // SAFETY: one thread and one CPU run (`assert_lone`); the trait rules out code that relies on the memory of such pages.
        unsafe { self.put_piece(pfn, offset) }
    }
}

#[cfg(test)]
mod tests {
    use quarry_core::era::Era;
    use quarry_core::geometry::BootParams;
    use quarry_core::pool::PoolParams;
    use quarry_core::slub::Slub;

    use super::*;
    use crate::{Config, driver, time};

    #[test]
    fn receipts_are_put_by_cpus_side_by_side() {
        let (era, boot) = (Era::V6_18, BootParams::default());
        let config = Config {
            cpus: 4,
            time: Some(time::tests::MODEL),
            ..Config::default()
        };
        let driven = driver::drive::<Slub, _>(config, era, boot, |driver| {
            let params = PoolParams::default();
            let mut pool = PoolDriver::create(driver.pages(), era, &params).unwrap();
            let mut other = PoolDriver::create(driver.pages(), era, &params).unwrap();
            let home = pool.home();
            let pages = std::cell::RefCell::new(Vec::new());
            for _ in 0..200 {
                pages.borrow_mut().push(pool.alloc().unwrap());
            }
            let ran = driver.machine().run_cpus(|_| {
                while let Some(page) = { pages.borrow_mut().pop() } {
                    home.put(page).unwrap();
                }
            });
            assert_eq!(ran, Ok(()));
            let put = pool.stats();
            assert_eq!(put.ring + put.ring_full, 200, "{put:?}");
            assert!(driver.machine().time_counters().unwrap().cpu_ps[3] > 0);
            let page = other.alloc().unwrap();
            let pfn = page.pfn();
            assert_eq!(home.put(page), Err(PoolError::NotOfPool(pfn)));
            let page = pool.alloc().unwrap();
            assert_eq!(pool.put(page), Ok(Put::Cached));
        });
        assert!(driven.is_ok());
    }

    #[test]
    #[should_panic(expected = "a page is put by its number while CPUs run side by side")]
    fn cpus_side_by_side_put_no_pages_by_number() {
        let (era, boot) = (Era::V6_18, BootParams::default());
        let config = Config {
            cpus: 2,
            time: Some(time::tests::MODEL),
            ..Config::default()
        };
        let driven = driver::drive::<Slub, _>(config, era, boot, |driver| {
            let mut owner = PoolOwner::create(driver.pages(), era, &PoolParams::default()).unwrap();
            let page = owner.alloc().unwrap();
            let pool = owner.handle();
            // One CPU puts it and goes on.
            assert_eq!(pool.lone_put(page), Ok(Put::Ring));
            let page = owner.alloc().unwrap();
            let ran = driver.machine().run_cpus(|_| {
                let _ = pool.lone_put(page);
            });
            assert_eq!(ran, Ok(()));
        });
        assert!(driven.is_ok());
    }
}
