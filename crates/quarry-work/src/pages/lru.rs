//! The lock of the lists of pages for reclaim: one list a node, behind one lock.
//!
//! * A CPU keeps pages that are new in a batch, with a reference to each. A full batch goes on the list under one hold of the lock.
//! * An unmapping puts its CPU's batch on the list, then takes its own pages off in batches, and frees them. A page that is in
//!   another CPU's batch is freed when that batch goes on the list, by that CPU.
//! * The list is one of descriptors: a page that joins it, or leaves, changes those of its neighbours. Before that the unmapping
//!   changes them all without the lock, so they are near then.
//!
//! A memory group has lists of its own from 5.11 on. All processes here are of one.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use quarry_core::design::Design;
use quarry_core::era::Era;
use quarry_core::machine::{Access, CpuId, Cpus as _, LockClass, NodeId};
use quarry_core::page::MigrateType;
use quarry_machines::Key;
use quarry_sim::driver::{Driver, PageRef};

use crate::error::WorkError;
use crate::setup::Setup;

/// Pages that an unmapping counts as mapped no more before it takes the first of them off its list: 19 pages of 510
/// addresses (from memory).
pub(super) const UNMAPPED: usize = 19 * 510;

/// A page that a process or a batch has a reference to.
pub(super) struct Held<'h> {
    block: PageRef<'h>,
    /// Its place on the list of its node.
    place: Cell<Option<usize>>,
}

impl<'h> Held<'h> {
    pub(super) fn new(block: PageRef<'h>) -> Rc<Self> {
        Rc::new(Self {
            block,
            place: Cell::new(None),
        })
    }

    /// The page, whose last reference this was.
    pub(super) fn into_block(self) -> PageRef<'h> {
        self.block
    }
}

/// A node's list.
struct List<'h> {
    /// A page of the kernel's own: its descriptor has the lock, its memory the list's head and counters.
    head: PageRef<'h>,
    /// Descriptors on the list, and the places next to each: the head's is 0.
    links: RefCell<Vec<Link>>,
    unused: RefCell<Vec<usize>>,
}

#[derive(Clone, Copy)]
struct Link {
    descriptor: *const u8,
    prev: usize,
    next: usize,
}

/// The lists of all nodes, and the batches of all CPUs.
pub(super) struct Lru<'a, 'h, D: Design> {
    driver: &'a Driver<'h, D>,
    lists: Vec<List<'h>>,
    batches: Vec<RefCell<Vec<Rc<Held<'h>>>>>,
    /// Pages of a batch of new ones, and of one that is freed.
    pub(super) batch: [usize; 2],
    /// Work of a page under the lock.
    page_ps: u64,
}

/// Pages that go on the list together, and that come off it together.
///
/// A batch has 14 pages, 15 from 4.15 on, and 31 from 6.9 on. Unmapping took 32 off from 4.0 on, until it took batches of the same
/// size again in 6.9 (from memory; 31 are counted on 6.18).
const fn batches(era: Era) -> [usize; 2] {
    match era {
        _ if era.since(Era::V6_9) => [31, 31],
        _ if era.since(Era::V4_15) => [15, 32],
        _ if era.since(Era::V4_0) => [14, 32],
        _ => [14, 14],
    }
}

impl<'a, 'h, D: Design> Lru<'a, 'h, D> {
    /// Empty lists.
    pub(super) fn new(driver: &'a Driver<'h, D>, setup: &Setup) -> Result<Self, WorkError> {
        let machine = driver.machine();
        let topology = *machine.topology();
        let list = |node| {
            let mut cpus = (0..topology.cpus).map(CpuId);
            let of_node = cpus.find(|cpu| machine.node_of_cpu(*cpu) == NodeId(node));
            driver.run_on(of_node.unwrap_or(CpuId(0)));
            let head = driver.alloc_old_pages(0, MigrateType::Unmovable);
            let head = head.ok_or(WorkError::Exhausted("the lists of pages"))?;
            let descriptor = driver.address_of(&head).unwrap_or_default();
            let first = Link {
                descriptor,
                prev: 0,
                next: 0,
            };
            Ok(List {
                head,
                links: RefCell::new(vec![first]),
                unused: RefCell::default(),
            })
        };
        let lists: Result<Vec<_>, WorkError> = (0..topology.nodes).map(list).collect();
        driver.run_on(CpuId(0));
        Ok(Self {
            driver,
            lists: lists?,
            batches: (0..topology.cpus).map(|_| RefCell::default()).collect(),
            batch: batches(setup.era),
            page_ps: setup.machine.drawn_ps(Key::LruPage, &setup.draw),
        })
    }

    /// A page is new on a CPU.
    pub(super) fn add(&self, CpuId(cpu): CpuId, page: &Rc<Held<'h>>) {
        let mut batch = self.batches[cpu as usize].borrow_mut();
        batch.push(Rc::clone(page));
        let is_full = batch.len() == self.batch[0];
        drop(batch);
        if is_full {
            self.drain(CpuId(cpu));
        }
    }

    /// A CPU's batch goes on the lists. Pages that nothing but the batch had are freed.
    pub(super) fn drain(&self, CpuId(cpu): CpuId) {
        let pages = self.batches[cpu as usize].take();
        let all: Vec<&Held<'h>> = pages.iter().map(Rc::as_ref).collect();
        self.by_node(&all, |list, page, at| self.link(list, page, at));
        for page in pages {
            if let Ok(page) = Rc::try_unwrap(page) {
                self.remove(&[&page]);
                let freed = self.driver.free_pages(page.into_block());
                debug_assert!(freed.is_ok(), "the page was the batch's: {freed:?}");
            }
        }
    }

    /// A page is mapped no more: a counter in its descriptor, which other processes of the page would share, goes down.
    pub(super) fn unmap(&self, page: &Held<'h>) {
        if let Some((descriptor, _)) = self.driver.descriptor(&page.block) {
            self.driver
                .machine()
                .use_memory(descriptor, 16, Access::Atomic);
        }
    }

    /// Pages come off their lists.
    pub(super) fn remove(&self, pages: &[&Held<'h>]) {
        let on_list = pages.iter().filter(|page| page.place.get().is_some());
        let on_list: Vec<&Held<'h>> = on_list.copied().collect();
        self.by_node(&on_list, |list, page, at| self.unlink(list, page, at));
    }

    /// Does something for each page under its node's lock, held over pages of a node that follow each other.
    fn by_node(&self, pages: &[&Held<'h>], f: impl Fn(&List<'h>, &Held<'h>, *const u8)) {
        let placed = pages.iter().filter_map(|page| {
            let (descriptor, node) = self.driver.descriptor(&page.block)?;
            Some((*page, descriptor, node))
        });
        let placed: Vec<(&Held<'h>, *const u8, NodeId)> = placed.collect();
        for of_node in placed.chunk_by(|a, b| a.2 == b.2) {
            let list = &self.lists[of_node[0].2.0 as usize];
            let held = self.driver.under_lock(&list.head, LockClass::Lru, || {
                for (page, descriptor, _) in of_node {
                    self.driver.machine().spend(self.page_ps);
                    f(list, page, *descriptor);
                }
            });
            debug_assert!(held.is_some(), "no CPU takes the lock twice");
        }
    }

    fn link(&self, list: &List<'h>, page: &Held<'h>, descriptor: *const u8) {
        let mut links = list.links.borrow_mut();
        let next = links[0].next;
        let link = Link {
            descriptor,
            prev: 0,
            next,
        };
        let place = match list.unused.borrow_mut().pop() {
            Some(place) => {
                links[place] = link;
                place
            }
            None => {
                links.push(link);
                links.len() - 1
            }
        };
        links[0].next = place;
        links[next].prev = place;
        page.place.set(Some(place));
        self.write([links[0].descriptor, links[next].descriptor, descriptor]);
    }

    fn unlink(&self, list: &List<'h>, page: &Held<'h>, descriptor: *const u8) {
        let Some(place) = page.place.take() else {
            return;
        };
        let mut links = list.links.borrow_mut();
        let Link { prev, next, .. } = links[place];
        links[prev].next = next;
        links[next].prev = prev;
        list.unused.borrow_mut().push(place);
        self.write([descriptor, links[prev].descriptor, links[next].descriptor]);
    }

    /// Links in descriptors change.
    fn write(&self, descriptors: [*const u8; 3]) {
        for descriptor in descriptors {
            self.driver
                .machine()
                .use_memory(descriptor, 16, Access::Write);
        }
    }
}
