//! Calls of a mapper for a pool's pages.

use super::*;

/// Mappings that exist, and the bytes that were made ready again.
#[derive(Default)]
struct Iommu {
    mapped: BTreeMap<u64, usize>,
    maps: usize,
    synced: Vec<usize>,
    refuse: bool,
}

#[derive(Clone, Default)]
struct Shared(Rc<RefCell<Iommu>>);

impl Mapper for Shared {
    fn map(&self, block: NonNull<u8>, bytes: usize) -> Option<u64> {
        let mut iommu = self.0.borrow_mut();
        if iommu.refuse {
            return None;
        }
        iommu.maps += 1;
        let mapping = block.addr().get() as u64 ^ 0xffff_0000_0000_0000;
        assert_eq!(iommu.mapped.insert(mapping, bytes), None, "mapped twice");
        Some(mapping)
    }

    fn unmap(&self, mapping: u64, bytes: usize) {
        let removed = self.0.borrow_mut().mapped.remove(&mapping);
        assert_eq!(removed, Some(bytes));
    }

    fn sync_for_device(&self, mapping: u64, bytes: usize) {
        let mut iommu = self.0.borrow_mut();
        assert!(iommu.mapped.contains_key(&mapping));
        iommu.synced.push(bytes);
    }
}

#[test]
fn pages_stay_mapped_while_they_are_the_pools() {
    let pages = boot(1, 1, Era::V6_18);
    let iommu = Shared::default();
    let mapper = iommu.clone();
    let params = small("mapped", 4);
    let mut owner = PoolOwner::create_mapped(&pages, Era::V6_18, &params, mapper).unwrap();
    let pool = owner.handle();
    for _ in 0..1000 {
        let pfn = owner.alloc().unwrap();
        let mapping = pool.mapping_of(pfn).unwrap();
        assert!(iommu.0.borrow().mapped.contains_key(&mapping));
        // SAFETY: one thread puts, and the mapper does not.
        unsafe { owner.put_used(pfn, 1514) }.unwrap();
    }
    assert_eq!(iommu.0.borrow().maps, REFILL_PAGES);
    assert_eq!(iommu.0.borrow().synced, [1514; 1000]);
    let got: Vec<Pfn> = (0..6).map(|_| owner.alloc().unwrap()).collect();
    iommu.0.borrow_mut().synced.clear();
    for pfn in got {
        // SAFETY: as above.
        unsafe { pool.put(pfn) }.unwrap();
    }
    assert_eq!(iommu.0.borrow().synced, [4096; 6]);
    assert_eq!(pool.stats().ring_full, 2);
    assert_eq!(iommu.0.borrow().mapped.len(), REFILL_PAGES - 2);
    let shared = owner.alloc().unwrap();
    pages.get_number(shared).unwrap();
    // SAFETY: as above.
    let put = unsafe { owner.put(shared) };
    assert_eq!(put, Ok(Put::Released));
    assert_eq!(iommu.0.borrow().mapped.len(), REFILL_PAGES - 3);
    assert_eq!(pages.put_number(shared), Ok(true));
    drop(pool);
    owner.destroy().unwrap();
    assert_eq!(iommu.0.borrow().mapped.len(), 0);
    assert_eq!(
        Rc::strong_count(&iommu.0),
        1,
        "the mapper went with the pool"
    );
    // A device that maps nothing more.
    iommu.0.borrow_mut().refuse = true;
    let mapper = iommu.clone();
    let mut owner = PoolOwner::create_mapped(&pages, Era::V6_18, &params, mapper).unwrap();
    assert_eq!(owner.alloc(), None);
    owner.destroy().unwrap();
    check_empty(&pages);
}

/// A mapper that tries to free what it is to map and what is no more mapped, by its number.
struct Thief(&'static Pages, Cell<u32>);

impl Mapper for Thief {
    fn map(&self, block: NonNull<u8>, _bytes: usize) -> Option<u64> {
        let pfn = self.0.pfn_of(block).expect("a page of the machine");
        let refused = PageError::NotAllocated(pfn, PageKind::Owned);
        assert_eq!(self.0.free_number(pfn, 0), Err(refused));
        assert_eq!(self.0.get_number(pfn), Err(refused));
        self.1.set(self.1.get() + 1);
        (!self.1.get().is_multiple_of(3)).then_some(pfn.0.into())
    }

    fn unmap(&self, mapping: u64, _bytes: usize) {
        let pfn = Pfn(mapping as u32);
        let refused = PageError::NotAllocated(pfn, PageKind::Pool);
        assert_eq!(self.0.free_number(pfn, 0), Err(refused));
        self.1.set(self.1.get() + 1);
    }
}

#[test]
fn a_page_on_its_way_into_a_pool_or_out_of_it_is_nobody_elses() {
    let pages: &Pages = Box::leak(Box::new(boot(1, 1, Era::V6_18)));
    let params = small("thief", 4);
    let thief = Thief(pages, Cell::new(0));
    let mut owner = PoolOwner::create_mapped(pages, Era::V6_18, &params, thief).unwrap();
    let got: Vec<Pfn> = (0..200).map(|_| owner.alloc().unwrap()).collect();
    let census = pages.check_consistency().unwrap();
    // What could not be mapped went back.
    assert_eq!(census.allocated, 0);
    assert!(census.pool >= 200);
    for pfn in got {
        // SAFETY: no other code puts the page.
        unsafe { owner.put(pfn) }.unwrap();
    }
    owner.destroy().map_err(|_| "pages in flight").unwrap();
    let census = pages.check_consistency().unwrap();
    assert_eq!((census.pool, census.allocated), (0, 0));
}
