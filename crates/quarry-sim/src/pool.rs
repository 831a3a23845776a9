//! Page pools of a virtual machine: their puts are safe, as one thread makes them all.

use quarry_core::page::Pfn;
use quarry_core::pool::{PagePool, PoolError, PoolOwner, Put};

use crate::machine::VirtualMachine;

/// Puts into a pool whose pages are not mapped. A mapper is foreign code that runs in the middle of
/// a put and could make another one.
///
/// A page that a virtual machine's pool hands out by its number stands for what a driver would have. Safe
/// code may put it at any time. So unsafe code uses the memory of such a page only where it knows of every
/// put. A [`PageBatch`](quarry_core::pool::PageBatch) is its holder's alone.
///
/// # Panics
///
/// All calls, in [`VirtualMachine::run_cpus`]: another CPU could put the same page in the middle of a put.
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
        !machine.is_clocked(),
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
        // SAFETY: as in `lone_put`.
        unsafe { self.put_bulk(slots) }
    }

    fn lone_put_piece(self, pfn: Pfn, offset: u32) -> Result<Put, PoolError> {
        assert_lone(self.pages().machine());
        // SAFETY: as in `lone_put`.
        unsafe { self.put_piece(pfn, offset) }
    }
}

impl LonePut for &mut PoolOwner<'_, VirtualMachine> {
    fn lone_put(self, pfn: Pfn) -> Result<Put, PoolError> {
        assert_lone(self.pool().pages().machine());
        // SAFETY: as for a handle.
        unsafe { self.put(pfn) }
    }

    fn lone_put_bulk(self, slots: &mut [Option<Pfn>]) -> Result<(), PoolError> {
        assert_lone(self.pool().pages().machine());
        // SAFETY: as for a handle.
        unsafe { self.put_bulk(slots) }
    }

    fn lone_put_piece(self, pfn: Pfn, offset: u32) -> Result<Put, PoolError> {
        assert_lone(self.pool().pages().machine());
        // SAFETY: as for a handle.
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
