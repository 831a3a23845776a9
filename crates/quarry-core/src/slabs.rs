//! Shared code of the designs' slabs: their pages, their nodes, their look-up.

use core::ptr::NonNull;

use crate::design::{Env, FreeError};
use crate::geometry::CacheFlags;
use crate::machine::{
    Access, CpuId, Line, LockClass, MAX_NODES, Machine, NodeId, PerCpu, PerCpuState, SpinLock,
    access,
};
use crate::page::{AllocOptions, MAX_ORDER, MigrateType, Page, PageKind, PageList, Pfn};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// One node's part. `L` is what `list_lock` protects.
#[repr(align(64))]
pub(crate) struct Node<L = PageList> {
    /// The partial list, or all lists of a design that has more, behind `list_lock`.
    pub(crate) partial: SpinLock<L>,
    /// Slabs of the cache on this node.
    pub(crate) nr_slabs: AtomicU64,
    /// Objects that those slabs could hold.
    pub(crate) total_objects: AtomicU64,
}

impl<L> Node<L> {
    fn new(lists: L) -> Self {
        Self {
            partial: SpinLock::new(LockClass::NodeList, lists),
            nr_slabs: AtomicU64::new(0),
            total_objects: AtomicU64::new(0),
        }
    }
}

/// The parts of all nodes of a cache.
pub(crate) type Nodes<L = PageList> = [Node<L>; MAX_NODES];

/// Parts of all nodes of a new cache.
pub(crate) fn nodes() -> Nodes {
    nodes_with(|_| PageList::EMPTY)
}

/// The same for a design with lists of its own, given a node's number.
pub(crate) fn nodes_with<L>(lists: impl Fn(NodeId) -> L) -> Nodes<L> {
    core::array::from_fn(|node| Node::new(lists(NodeId(node as u32))))
}

/// Slabs of all nodes, and the objects that these could hold.
pub(crate) fn totals<L>(nodes: &Nodes<L>) -> (u64, u64) {
    let sum = |of: fn(&Node<L>) -> &AtomicU64| -> u64 {
        let counts = nodes.iter().map(|node| of(node).load(Ordering::Relaxed));
        counts.sum()
    };
    (sum(|node| &node.nr_slabs), sum(|node| &node.total_objects))
}

/// Most objects that a slab can hold: 16 bits count them in SLUB's word.
pub(crate) const OBJECTS_MAX: u32 = 65_535;

/// A set of object numbers of one slab. Larger numbers, from memory that users may have overwritten, are ignored.
pub(crate) struct ObjectSet([u64; OBJECTS_MAX.div_ceil(64) as usize]);

impl ObjectSet {
    pub(crate) const fn new() -> Self {
        Self([0; OBJECTS_MAX.div_ceil(64) as usize])
    }

    /// Adds a number. `false` if it was in already, or is too large.
    pub(crate) fn insert(&mut self, number: usize) -> bool {
        let Some(word) = self.0.get_mut(number / 64) else {
            return false;
        };
        let mask = 1 << (number % 64);
        let new = *word & mask == 0;
        *word |= mask;
        new
    }

    pub(crate) fn contains(&self, number: usize) -> bool {
        let word = self.0.get(number / 64);
        word.is_some_and(|word| word >> (number % 64) & 1 != 0)
    }
}

/// A run of pages that has just become a slab.
pub(crate) struct NewSlab {
    /// Its first page.
    pub(crate) slab: Pfn,
    /// Objects that it holds.
    pub(crate) objects: u32,
    /// No block of the normal order was available.
    pub(crate) fallback: bool,
}

/// Makes pages a slab of the cache, of the normal or the fallback order, on no list. It belongs to
/// the caller, who has to set its word.
pub(crate) fn take<M: Machine, L>(
    env: Env<'_, M>,
    nodes: &Nodes<L>,
    node: Option<NodeId>,
) -> Option<NewSlab> {
    take_from(env, nodes, orders(env), |order| block(env, order, node))
}

/// [`take`] of one node's memory only.
pub(crate) fn take_on<M: Machine, L>(
    env: Env<'_, M>,
    nodes: &Nodes<L>,
    node: NodeId,
) -> Option<NewSlab> {
    take_from(env, nodes, orders(env), |order| block_on(env, order, node))
}

/// A block for a slab: pages of the cache's mobility, of the preferred node if it has any.
pub(crate) fn block<M: Machine>(env: Env<'_, M>, order: u32, node: Option<NodeId>) -> Option<Pfn> {
    env.pages().alloc_block_with(&request(env, order, node))
}

/// [`block`] of one node's memory only.
pub(crate) fn block_on<M: Machine>(env: Env<'_, M>, order: u32, node: NodeId) -> Option<Pfn> {
    env.pages()
        .alloc_block_there(&request(env, order, Some(node)))
}

fn request<M: Machine>(env: Env<'_, M>, order: u32, node: Option<NodeId>) -> AllocOptions {
    let reclaimable = env.cache.flags().contains(CacheFlags::RECLAIM);
    AllocOptions {
        order,
        node,
        migratetype: if reclaimable {
            MigrateType::Reclaimable
        } else {
            MigrateType::Unmovable
        },
        ..AllocOptions::default()
    }
}

/// The normal and the fallback order of the geometry, with their objects.
fn orders<M: Machine>(env: Env<'_, M>) -> [(u32, u32); 2] {
    let geometry = &env.cache.geometry;
    let fallback = (geometry.min_order, geometry.min_objects);
    [(geometry.order, geometry.objects), fallback]
}

/// [`take`] with orders and their objects that are not the geometry's, from pages that `block`
/// finds.
pub(crate) fn take_from<M: Machine, L>(
    env: Env<'_, M>,
    nodes: &Nodes<L>,
    [normal, fallback]: [(u32, u32); 2],
    block: impl Fn(u32) -> Option<Pfn>,
) -> Option<NewSlab> {
    let block = |order| {
        let pages = env.pages();
        pages.claimed_as(PageKind::Owned, order, || block(order))
    };
    let (slab, (order, objects)) = match block(normal.0) {
        Some(slab) => (slab, normal),
        None if fallback.0 < normal.0 => (block(fallback.0)?, fallback),
        None => return None,
    };
    let map = env.map();
    let page = map.page(slab);
    page.set_kind(PageKind::Slab, order);
    env.pages().slab_made(order);
    page.objects.store(objects, Ordering::Relaxed);
    page.set_on_list(false);
    for (pfn, page) in pages_to_write(env, slab, order) {
        map.set_owner(pfn, env.cache.id());
        page.set_head(Some(slab));
    }
    let node = counted(env, nodes, slab);
    node.nr_slabs.fetch_add(1, Ordering::Relaxed);
    node.total_objects
        .fetch_add(u64::from(objects), Ordering::Relaxed);
    Some(NewSlab {
        slab,
        objects,
        fallback: order < normal.0,
    })
}

/// Gives the pages of an empty slab back. It is on no list and the caller's; no list lock is held.
pub(crate) fn give_back<M: Machine, L>(env: Env<'_, M>, nodes: &Nodes<L>, slab: Pfn) {
    let map = env.map();
    let page = map.page(slab);
    let order = page.order();
    let node = counted(env, nodes, slab);
    node.nr_slabs.fetch_sub(1, Ordering::Relaxed);
    let objects = page.objects.load(Ordering::Relaxed);
    node.total_objects
        .fetch_sub(u64::from(objects), Ordering::Relaxed);
    for (pfn, page) in pages_to_write(env, slab, order) {
        env.map().set_owner(pfn, core::ptr::null_mut());
        page.set_head(None);
    }
    env.pages().slab_gone(order);
    env.pages().free_block(slab, order, PageKind::Slab);
}

/// The descriptors of a slab's pages, to say whose they are.
fn pages_to_write<M: Machine>(
    env: Env<'_, M>,
    slab: Pfn,
    order: u32,
) -> impl Iterator<Item = (Pfn, &Page)> {
    let map = env.map().on(env.machine());
    (0..1 << order).map(move |at| {
        let pfn = Pfn(slab.0 + at);
        (pfn, map.page_to_write(pfn))
    })
}

/// The part of a slab's node, to count the slab in it, and its objects.
fn counted<'a, M: Machine, L>(env: Env<'_, M>, nodes: &'a Nodes<L>, slab: Pfn) -> &'a Node<L> {
    let node = &nodes[env.pages().node_of_page(slab).0 as usize];
    for counter in [&node.nr_slabs, &node.total_objects] {
        access(env.machine(), Line::Node, Access::Atomic, counter);
    }
    node
}

/// Accounts a look at the descriptor of an object's page that the caller has made.
#[inline(always)]
pub(crate) fn account_look<M: Machine>(env: Env<'_, M>, object: NonNull<u8>) {
    if let Some((_, page)) = env.map().page_of(object) {
        access(env.machine(), Line::Slab, Access::Check, page);
    }
}

/// True if an object is in a slab of this cache.
#[inline(always)]
pub(crate) fn owns<M: Machine>(env: Env<'_, M>, object: NonNull<u8>) -> bool {
    account_look(env, object);
    env.map().owner_of(object) == env.cache.id()
}

/// True if a page is of a CPU's node.
pub(crate) fn is_local<M: Machine>(env: Env<'_, M>, page: Pfn, cpu: CpuId) -> bool {
    env.pages().node_of_page(page) == env.machine().node_of_cpu(cpu)
}

/// The slab of an object of this cache, whose descriptor is read for it.
pub(crate) fn slab_of<M: Machine>(env: Env<'_, M>, object: NonNull<u8>) -> Result<Pfn, FreeError> {
    let slab = lookup(env, object)?;
    let machine = env.machine();
    access(machine, Line::Slab, Access::Check, env.map().page(slab));
    Ok(slab)
}

/// [`slab_of`] for callers that have accounted the read.
pub(crate) fn lookup<M: Machine>(env: Env<'_, M>, object: NonNull<u8>) -> Result<Pfn, FreeError> {
    let map = env.map();
    let pfn = map.pfn_of(object).ok_or(FreeError::Foreign)?;
    let page = map.page(pfn);
    let slab = page.head().ok_or(FreeError::Foreign)?;
    if map.owner(pfn) != env.cache.id() {
        return Err(FreeError::WrongCache);
    }
    Ok(slab)
}

/// Prefetches what frees of these objects to their slabs write: the objects, which get a link, and the descriptors of their
/// slabs. Objects that many slabs hold would each wait for both.
pub(crate) fn prefetch_for_free<M: Machine>(env: Env<'_, M>, objects: &[Option<NonNull<u8>>]) {
    let (machine, map) = (env.machine(), env.map());
    for object in objects.iter().flatten() {
        machine.prefetch_for_write(object.as_ptr());
        if let Some((_, page)) = map.page_of(*object) {
            machine.prefetch_for_write(core::ptr::from_ref(page).cast());
        }
    }
    // The descriptor of the page, which has come by now, names that of the slab.
    for object in objects.iter().flatten() {
        if let Some((_, page)) = map.page_of(*object)
            && let Some(slab) = page.head()
        {
            machine.prefetch_for_write(core::ptr::from_ref(map.page(slab)).cast());
        }
    }
}

/// Fills slots from the first on, one by one, until an allocation fails. Returns how many.
pub(crate) fn fill_each(
    slots: &mut [Option<NonNull<u8>>],
    mut alloc: impl FnMut() -> Option<NonNull<u8>>,
) -> usize {
    let filled = slots.iter_mut().map_while(|slot| {
        *slot = alloc();
        *slot
    });
    filled.count()
}

/// Frees the objects of all filled slots one by one and empties these; the first error, and the
/// slots of objects that could not be freed stay filled.
pub(crate) fn free_each(
    slots: &mut [Option<NonNull<u8>>],
    mut free: impl FnMut(NonNull<u8>) -> Result<(), FreeError>,
) -> Result<(), FreeError> {
    let mut result = Ok(());
    for slot in slots {
        let Some(object) = *slot else { continue };
        match free(object) {
            Ok(()) => *slot = None,
            Err(error) => result = result.and(Err(error)),
        }
    }
    result
}

/// Runs `f` on the state of every CPU. Returns how many CPUs were busy and were passed over.
pub(crate) fn on_each_cpu<M: Machine, T: PerCpuState, R>(
    env: Env<'_, M>,
    states: &PerCpu<T>,
    mut f: impl FnMut(&mut T) -> R,
) -> u32 {
    let busy =
        cpus(env).filter(|&cpu| states.try_with_remote(env.machine(), cpu, &mut f).is_none());
    busy.count() as u32
}

/// The slab of a cache that an object was last seen in: the address alone shows its further objects,
/// without a look at a descriptor.
pub(crate) struct SeenSlab {
    base: usize,
    bytes: usize,
}

impl SeenSlab {
    /// None yet.
    pub(crate) const NONE: Self = Self { base: 0, bytes: 0 };

    /// True if an object is in a slab of this cache.
    #[inline(always)]
    pub(crate) fn holds<M: Machine>(&mut self, env: Env<'_, M>, object: NonNull<u8>) -> bool {
        object.addr().get().wrapping_sub(self.base) < self.bytes || self.look(env, object)
    }

    #[inline(never)]
    fn look<M: Machine>(&mut self, env: Env<'_, M>, object: NonNull<u8>) -> bool {
        let Ok(slab) = slab_of(env, object) else {
            return false;
        };
        let map = env.map();
        self.base = map.address(slab).addr().get();
        self.bytes = 1 << (map.page_shift() + map.page(slab).order());
        true
    }
}

/// Search for partial slabs on other nodes when the wanted one's list is empty (`get_any_partial()`).
pub(crate) struct RemoteSearch {
    /// It goes on in this many of 1024 cases and one more; in none if it is 0
    /// (`remote_node_defrag_ratio`).
    ratio: AtomicU32,
    /// Stands for the cycle counter that the kernel asks.
    clock: AtomicU32,
}

impl RemoteSearch {
    /// Steps of the ratio in one unit of the files `defrag_ratio` and `remote_node_defrag_ratio`.
    const UNIT: u32 = 10;

    pub(crate) fn new(ratio: u32) -> Self {
        Self {
            ratio: AtomicU32::new(ratio),
            clock: AtomicU32::new(0),
        }
    }

    /// The ratio as its file shows it.
    pub(crate) fn shown(&self) -> u32 {
        self.ratio.load(Ordering::Relaxed) / Self::UNIT
    }

    /// Sets the ratio in its file's unit.
    pub(crate) fn set(&self, shown: u32) {
        let ratio = shown.saturating_mul(Self::UNIT);
        self.ratio.store(ratio, Ordering::Relaxed);
    }

    /// The kernel asks the cycle counter modulo 1024; here a counter steps through the same values
    /// in an order of full period, so that results repeat.
    pub(crate) fn looks_at_other_nodes(&self) -> bool {
        let ratio = self.ratio.load(Ordering::Relaxed);
        let clock = self.clock.fetch_add(389, Ordering::Relaxed);
        ratio != 0 && clock % 1024 <= ratio
    }

    /// The nodes to go on to from the wanted one: the running CPU's comes first, whichever was
    /// wanted, then the others in a round from there. None if the search ends.
    pub(crate) fn nodes<M: Machine>(
        &self,
        machine: &M,
        wanted: NodeId,
    ) -> impl Iterator<Item = NodeId> + use<M> {
        let nodes = machine.topology().nodes;
        let looks = nodes > 1 && self.looks_at_other_nodes();
        let own = machine.current_node();
        (0..if looks { nodes } else { 0 })
            .map(move |i| NodeId((own.0 + i) % nodes))
            .filter(move |&node| node != wanted)
    }
}

/// All CPUs of the machine.
pub(crate) fn cpus<M: Machine>(env: Env<'_, M>) -> impl Iterator<Item = CpuId> + use<M> {
    (0..env.machine().topology().cpus).map(CpuId)
}

/// A cache's slabs in address order.
pub(crate) fn slabs<'a, M: Machine>(env: Env<'a, M>) -> impl Iterator<Item = Pfn> + use<'a, M> {
    let cache = env.cache.id();
    slabs_of(env, move |owner| owner == cache)
}

/// The same from the slab of an address on, of a cache at rest. One without slabs costs no walk.
pub(crate) fn slabs_from<'a, M: Machine, L>(
    env: Env<'a, M>,
    nodes: &Nodes<L>,
    address: usize,
) -> impl Iterator<Item = Pfn> + use<'a, M, L> {
    let (map, cache) = (env.map(), env.cache.id());
    let base = map.address(Pfn(0)).addr().get();
    let pfn = (address.saturating_sub(base) >> map.page_shift()) as u32;
    let first = match totals(nodes).0 {
        0 => map.pages(),
        // Every block begins at a multiple of its size, so one begins at a multiple of the largest.
        _ => pfn & !((1 << MAX_ORDER) - 1),
    };
    slabs_at(env, first, move |owner| owner == cache)
        .skip_while(move |&slab| slab.0 + (1 << map.page(slab).order()) <= pfn)
}

/// Slabs of all caches that `wanted` accepts, in address order; a slab with a null cache is no cache's.
pub(crate) fn slabs_of<'a, M: Machine, F: Fn(*mut ()) -> bool>(
    env: Env<'a, M>,
    wanted: F,
) -> impl Iterator<Item = Pfn> + use<'a, M, F> {
    slabs_at(env, 0, wanted)
}

/// [`slabs_of`] from a page on, at which a block begins.
fn slabs_at<'a, M: Machine, F: Fn(*mut ()) -> bool>(
    env: Env<'a, M>,
    first: u32,
    wanted: F,
) -> impl Iterator<Item = Pfn> + use<'a, M, F> {
    let map = env.map();
    let mut at = first;
    core::iter::from_fn(move || {
        while at < map.pages() {
            let pfn = Pfn(at);
            let page = map.page(pfn);
            // Both of one moment, since pages that are not this cache's change during the walk.
            let (kind, order, _) = page.seen();
            at += match kind {
                // A zone is used from its lowest page on, so nothing of this block has been used.
                PageKind::Untouched if at.is_multiple_of(1 << MAX_ORDER) => 1 << MAX_ORDER,
                // The inside of a block that another CPU splits or merges: it may never have been
                // written, and slabs may follow.
                PageKind::Untouched | PageKind::Tail => 1,
                _ => 1 << order,
            };
            if kind == PageKind::Slab && wanted(map.owner(pfn)) {
                return Some(pfn);
            }
        }
        None
    })
}
