//! Allocating what a row of the report says, and freeing what it says is free.

use quarry_core::design::Design;
use quarry_core::geometry::{Geometry, KmallocClass};
use quarry_core::machine::{CpuId, Cpus as _, NodeId};
use quarry_sim::VirtualMachine;
use quarry_sim::driver::{CacheIndex, CacheView, Driver, ObjectRef};

use super::Orphan;
use super::seen::RowSeen;
use super::shape::{Shape, Slab};
use super::sheaves::{Home, InSheaves, SheafObjects};
use crate::error::LabError;
use crate::run::RunSpec;
use quarry_snapshot::SlabinfoRow;
use quarry_state::{CachePrediction, Draw, Places, Sheaves, known_free, spread};

/// Source of a row's objects.
#[derive(Clone, Copy)]
pub(super) enum Source {
    /// A cache that was made for the row.
    Cache(CacheIndex),
    /// A normal kmalloc class.
    Kmalloc(KmallocClass),
}

/// True if slabs of this geometry are the predicted ones.
pub(super) fn is_told(told: &CachePrediction, geometry: &Geometry) -> bool {
    told.objs_per_slab == u64::from(geometry.objects) && told.pages_per_slab == 1 << geometry.order
}

/// The first CPU of a node.
fn first_cpu(machine: &VirtualMachine, node: NodeId) -> CpuId {
    let mut cpus = (0..machine.topology().cpus).map(CpuId);
    let of_node = cpus.find(|cpu| machine.node_of_cpu(*cpu) == node);
    of_node.unwrap_or(CpuId(0))
}

/// A row that is to be filled.
pub(super) struct Filling<'a, 'h, D: Design> {
    pub(super) run: &'a RunSpec,
    pub(super) row: &'a SlabinfoRow,
    /// The row's index.
    pub(super) at: u16,
    /// The row's cache in the run's kernel.
    pub(super) told: &'a CachePrediction,
    pub(super) source: Source,
    pub(super) view: CacheView<'h, D>,
    pub(super) seen: &'a RowSeen,
    /// True if the trace records pages.
    pub(super) tells_pages: bool,
    /// Capacity of its sheaves; `None` if it has none.
    pub(super) stock: Option<Sheaves>,
}

/// A row's objects.
pub(super) struct Filled<'h> {
    /// Those that the recording frees, by the row of the trace.
    pub(super) orphans: Vec<(u64, ObjectRef<'h>)>,
    /// The others that stay alive.
    pub(super) others: Vec<ObjectRef<'h>>,
    /// Objects in its sheaves.
    pub(super) in_sheaves: SheafObjects<'h>,
}

/// The objects of a row by slab, and those that stay alive.
#[derive(Default)]
struct Slabs<'h> {
    full: Vec<Vec<ObjectRef<'h>>>,
    /// Those alive in the slabs that are seen.
    seen: Vec<Vec<ObjectRef<'h>>>,
    open: Vec<ObjectRef<'h>>,
}

impl<'h, D: Design> Filling<'_, 'h, D> {
    /// The driver's cache that serves it, `None` for a normal kmalloc class, and the bytes of an object.
    pub(super) fn served(&self) -> (Option<CacheIndex>, u32) {
        let cache = match self.source {
            Source::Kmalloc(_) => None,
            Source::Cache(index) => Some(index),
        };
        (cache, self.view.head().geometry().layout.object_size)
    }

    /// One of its objects, to be freed.
    pub(super) fn orphan(&self, object: ObjectRef<'h>) -> Orphan<'h> {
        let (cache, bytes) = self.served();
        Orphan {
            object,
            bytes,
            cache,
        }
    }

    /// Makes the row's slabs. Caches have no sheaves meanwhile; `stock` says what these can hold.
    pub(super) fn fill(
        &self,
        driver: &Driver<'h, D>,
        draw: &mut Draw,
    ) -> Result<Filled<'h>, LabError> {
        let (row, view) = (self.row, &self.view);
        let geometry = view.head().geometry();
        if !is_told(self.told, geometry) || D::FEATURES.shared_slabs {
            // What the recording shows to have been free was not in use.
            let free = self.seen.slabs.iter().map(|slab| u64::from(slab.free));
            let hidden = free.sum::<u64>().saturating_sub(known_free(row));
            let used = self.told.holding.objects.saturating_sub(hidden);
            // Their places are unknown.
            let open = self.allocate(used.max(self.seen.orphans.len() as u64), driver)?;
            let slabs = Slabs {
                open,
                ..Slabs::default()
            };
            return Ok(slabs.hand_out(self.seen));
        }
        let holding = &self.told.holding;
        let mut slabs = match holding.is_observed {
            true => {
                // What the allocator itself took of a kmalloc cache is part of what the row counts.
                view.flush();
                let own = view.usage().active_objs;
                let wanted = row.num_slabs.saturating_mul(row.objperslab);
                let objects = self.allocate(wanted.saturating_sub(own), driver)?;
                Slabs::new(objects, geometry.order, driver)
            }
            false => self.allocate_slabs(driver)?,
        };
        // Meanwhile the nodes keep every slab that becomes free: there are as many as the row says.
        let min_partial = view.attribute("min_partial");
        view.set_attribute("min_partial", u32::MAX.into());
        let cpus = self.seen.cpus_first(self.run.config.cpus);
        let is_seen = holding.is_observed && self.tells_pages && row.limit == 0;
        if is_seen || self.stock.is_some() && holding.is_observed {
            slabs.reserve(self.seen.slabs.len());
        }
        let plan = |stock| (InSheaves::of(row, self.seen, stock, holding.kept), stock);
        let kept = self.stock.as_ref().map(plan);
        let mut in_sheaves = Vec::new();
        let (shape, left) = if let Some((plan, _)) = kept.as_ref().filter(|_| holding.is_observed) {
            // Objects of sheaves come from any slab: of these pages tell little.
            in_sheaves = plan.homes().map(|home| slabs.take_one(home)).collect();
            self.shape_beside(plan, slabs.full.len() as u64, draw)
        } else if is_seen {
            let lists = self.told_lists();
            let shape = Shape::seen(row, geometry, self.seen, holding, &lists, draw);
            (shape, 0)
        } else {
            (Shape::of(holding.places(draw), &cpus), 0)
        };
        self.place(&shape, &cpus, &mut slabs, driver)?;
        self.free(slabs.take_of_seen(left, self.seen), 0, driver)?;
        if let Some(value) = min_partial {
            view.set_attribute("min_partial", value);
        }
        let Some((plan, stock)) = kept else {
            return Ok(slabs.hand_out(self.seen));
        };
        // What no event tells the place of.
        in_sheaves.resize_with(plan.homes().count(), || None);
        for object in in_sheaves.iter_mut().filter(|object| object.is_none()) {
            *object = slabs.take_young();
        }
        let mut filled = slabs.hand_out(self.seen);
        filled.in_sheaves = SheafObjects::of(&plan, stock, in_sheaves);
        Ok(filled)
    }

    /// Free places of a reported cache with sheaves, beside what these hold: what lies free on the nodes' lists, and on the
    /// lists of CPUs where there are such beside sheaves. `unseen` slabs are not seen; returned is how many free places are
    /// in others, beyond those that are seen there.
    fn shape_beside(&self, plan: &InSheaves, unseen: u64, draw: &mut Draw) -> (Shape, u64) {
        let (row, geometry) = (self.row, self.view.head().geometry());
        let left = known_free(row).saturating_sub(plan.on_nodes.len() as u64);
        let in_unseen = left.min(unseen.saturating_mul(row.objperslab));
        let (slots, empty_most) = (row.objperslab, geometry.min_partial.into());
        let holding = &self.told.holding;
        let places = Places {
            on_nodes: spread(in_unseen, unseen, slots, empty_most, holding.open, draw),
            ..Places::default()
        };
        let mut shape = Shape::of(places, &[0]);
        let seen = plan.on_nodes.iter().map(|at| Slab::seen(*at, 1));
        shape.on_nodes.splice(0..0, seen);
        let (lists, listed_max) = (self.told_lists(), geometry.cpu_partial_slabs.into());
        shape.list_unseen(&lists, holding.listed_free(draw), listed_max, u64::MAX);
        (shape, left - in_unseen)
    }

    /// Allocates the objects of the predicted slabs. Batches may come from a slab more while others have places: what
    /// is in the least used ones is given back.
    fn allocate_slabs(&self, driver: &Driver<'h, D>) -> Result<Slabs<'h>, LabError> {
        let (view, geometry) = (&self.view, self.view.head().geometry());
        let count = self.told.holding.slabs;
        view.flush();
        let wanted = count.saturating_mul(geometry.objects.into());
        let objects = self.allocate(wanted.saturating_sub(view.usage().active_objs), driver)?;
        view.set_attribute("min_partial", 0);
        view.flush();
        view.shrink();
        let mut slabs = Slabs::new(objects, geometry.order, driver);
        let others = view.usage().slabs.saturating_sub(slabs.full.len() as u64);
        let kept = usize::try_from(count.saturating_sub(others)).unwrap_or(usize::MAX);
        slabs.full.sort_by_key(|slab| std::cmp::Reverse(slab.len()));
        let given_back = slabs.full.split_off(kept.min(slabs.full.len()));
        self.free(given_back.into_iter().flatten().collect(), 0, driver)?;
        view.flush();
        view.shrink();
        Ok(slabs)
    }

    /// Allocates what a predicted kmalloc cache lacks when all sheaves are made: kernels make a main sheaf for each CPU
    /// with its cache, and here a CPU's first slow operation does.
    pub(super) fn complete(&self, driver: &Driver<'h, D>) -> Result<(), LabError> {
        let is_kmalloc = matches!(self.source, Source::Kmalloc(_));
        if !is_kmalloc || !D::FEATURES.sheaves || self.told.holding.is_observed {
            return Ok(());
        }
        let usage = self.view.usage();
        let missing = self.told.holding.slabs.saturating_sub(usage.slabs);
        if missing > 0 {
            let slots = u64::from(self.view.head().geometry().objects);
            let free = usage.num_objs.saturating_sub(usage.active_objs);
            self.allocate(missing * slots + free, driver)?;
        }
        Ok(())
    }

    /// Slabs on the list of each CPU, by sysfs; empty if it does not tell. Those of CPUs that the machine has not are some
    /// other's.
    fn told_lists(&self) -> Vec<u64> {
        let Some(told) = &self.told.holding.lists else {
            return Vec::new();
        };
        let cpus = self.run.config.cpus;
        let mut lists = vec![0_u64; cpus as usize];
        for (cpu, slabs) in told {
            let list = &mut lists[(cpu % cpus) as usize];
            *list = list.saturating_add(*slabs);
        }
        lists
    }

    /// Frees objects until free places lie as they are to.
    fn place(
        &self,
        shape: &Shape,
        cpus: &[u16],
        slabs: &mut Slabs<'h>,
        driver: &Driver<'h, D>,
    ) -> Result<(), LabError> {
        let is_pinned = !self.told.holding.is_observed;
        let mut take = |slab: Slab| match is_pinned {
            true => slabs.take_pinned(slab.free),
            false => slabs.take_slab(slab),
        };
        for slab in &shape.on_nodes {
            self.free(take(*slab), 0, driver)?;
            if slab.seen.is_some() {
                // From the CPU's list to the end of the node's, one by one.
                self.view.flush();
            }
        }
        self.view.flush();
        for on_cpu in &shape.on_cpus {
            if on_cpu.slab.free > 0 {
                self.free(take(on_cpu.slab), on_cpu.cpu, driver)?;
                // An allocation makes the slab on top of the CPU's list the one that it allocates from.
                let object = self.allocate_one(driver);
                self.free(object.into_iter().collect(), on_cpu.cpu, driver)?;
            }
            // The slab that comes last onto the list is the first to be taken.
            for slab in on_cpu.listed.iter().rev() {
                self.free(take(*slab), on_cpu.cpu, driver)?;
            }
        }
        let [of_each, mut shared] = shape.in_arrays;
        for cpu in cpus {
            let mut stock = of_each.saturating_add(std::mem::take(&mut shared));
            while stock > 0 {
                let freed = slabs.take_any(stock);
                if freed.is_empty() {
                    break;
                }
                stock -= freed.len() as u64;
                self.free(freed, *cpu, driver)?;
            }
        }
        Ok(())
    }

    fn allocate(&self, count: u64, driver: &Driver<'h, D>) -> Result<Vec<ObjectRef<'h>>, LabError> {
        let no_memory = || LabError::InitialMemory {
            run: self.run.label(),
            cache: self.row.name.clone(),
            objects: count,
            memory_bytes: self.run.config.memory_bytes,
        };
        let mut objects = Vec::new();
        // A report may say anything: what cannot fit is refused before it is tried.
        let size = u64::from(self.view.head().geometry().layout.size);
        let fits = count.saturating_mul(size) <= self.run.config.memory_bytes;
        let room = usize::try_from(count).map(|count| objects.try_reserve_exact(count));
        if !fits || !matches!(room, Ok(Ok(()))) {
            return Err(no_memory());
        }
        let machine = driver.machine();
        let nodes = u64::from(machine.topology().nodes);
        for node in 0..nodes {
            driver.run_on(first_cpu(machine, NodeId(node as u32)));
            for _ in count * node / nodes..count * (node + 1) / nodes {
                objects.push(self.allocate_one(driver).ok_or_else(no_memory)?);
            }
        }
        driver.run_on(CpuId(0));
        Ok(objects)
    }

    fn allocate_one(&self, driver: &Driver<'h, D>) -> Option<ObjectRef<'h>> {
        match self.source {
            Source::Cache(index) => driver.alloc(index),
            Source::Kmalloc(class) => {
                // Where a request takes no more than it is, a class says only about how large it was.
                let params = self.told.params;
                let asked = params.map_or(class.size, |params| params.object_size);
                driver.kmalloc(asked.min(class.size))
            }
        }
    }

    pub(super) fn free(
        &self,
        objects: Vec<ObjectRef<'h>>,
        cpu: u16,
        driver: &Driver<'h, D>,
    ) -> Result<(), LabError> {
        let cpu = CpuId(cpu.into());
        driver.run_on(cpu);
        for object in objects {
            let freed = match self.source {
                Source::Cache(index) => driver.free(index, object, cpu),
                Source::Kmalloc(_) => driver.kfree(object, cpu),
            };
            freed.map_err(|source| LabError::InitialFree {
                run: self.run.label(),
                cache: self.row.name.clone(),
                source,
            })?;
        }
        Ok(())
    }
}

impl<'h> Slabs<'h> {
    /// Sorts objects into their slabs.
    fn new<D: Design>(mut objects: Vec<ObjectRef<'h>>, order: u32, driver: &Driver<'h, D>) -> Self {
        objects.sort_by(ObjectRef::by_address);
        let mut full: Vec<Vec<ObjectRef<'h>>> = Vec::new();
        let mut last = None;
        for object in objects {
            let slab = driver.page_of(&object).map(|page| page >> order);
            match full.last_mut().filter(|_| last == slab) {
                Some(objects) => objects.push(object),
                None => full.push(vec![object]),
            }
            last = slab;
        }
        Self {
            full,
            ..Self::default()
        }
    }

    /// Sets slabs apart for those that are seen.
    fn reserve(&mut self, count: usize) {
        let seen = (0..count).map(|_| self.full.pop().unwrap_or_default());
        self.seen = seen.collect();
    }

    /// Takes as many objects of a slab as are free there.
    fn take_slab(&mut self, slab: Slab) -> Vec<ObjectRef<'h>> {
        match slab.seen.and_then(|at| self.seen.get_mut(at)) {
            Some(objects) => objects.split_off(objects.len().saturating_sub(slab.free as usize)),
            None => self.take(slab.free),
        }
    }

    /// Takes an object of a slab that is seen.
    fn take_one(&mut self, home: Home) -> Option<ObjectRef<'h>> {
        self.seen.get_mut(home?)?.pop()
    }

    /// Takes an object that was used a short time ago; nothing else is known of it.
    fn take_young(&mut self) -> Option<ObjectRef<'h>> {
        let seen = || self.seen.iter_mut().find_map(Vec::pop);
        self.open
            .pop()
            .or_else(seen)
            .or_else(|| self.full.last_mut()?.pop())
    }

    /// Takes objects evenly from the slabs that are seen, but for those that the part frees.
    fn take_of_seen(&mut self, count: u64, row: &RowSeen) -> Vec<ObjectRef<'h>> {
        let mut taken = Vec::new();
        let mut found = true;
        while found {
            found = false;
            for (slab, seen) in self.seen.iter_mut().zip(&row.slabs) {
                if (taken.len() as u64) < count && slab.len() > seen.died as usize {
                    taken.extend(slab.pop());
                    found = true;
                }
            }
        }
        taken
    }

    /// Takes objects of one slab to free them, all but one at most: it pins the slab.
    fn take_pinned(&mut self, count: u64) -> Vec<ObjectRef<'h>> {
        let objects = self.full.last().map_or(0, Vec::len);
        self.take(count.min(objects.saturating_sub(1) as u64))
    }

    /// Takes objects of one slab to free them; the others of that slab stay alive.
    fn take(&mut self, count: u64) -> Vec<ObjectRef<'h>> {
        let mut slab = self.full.pop().unwrap_or_default();
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(slab.len());
        self.open.extend(slab.drain(count..));
        slab
    }

    /// Takes objects of a full slab, or, if there is none, of those that are open.
    fn take_any(&mut self, count: u64) -> Vec<ObjectRef<'h>> {
        if !self.full.is_empty() {
            return self.take(count);
        }
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let kept = self.open.len().saturating_sub(count);
        self.open.split_off(kept)
    }

    /// Each orphan is an object of its slab, or, if that is not known or has no more, the youngest.
    fn hand_out(mut self, seen: &RowSeen) -> Filled<'h> {
        let mut orphans = Vec::with_capacity(seen.orphans.len());
        let mut homeless = Vec::new();
        for orphan in &seen.orphans {
            let slab = orphan.slab.and_then(|at| self.seen.get_mut(at));
            match slab.and_then(Vec::pop) {
                Some(object) => orphans.push((orphan.row, object)),
                None => homeless.push(orphan.row),
            }
        }
        let slabs = self.full.into_iter().chain(self.seen);
        let mut others: Vec<_> = slabs.flatten().chain(self.open).collect();
        let homeless = homeless.into_iter();
        orphans.extend(homeless.map_while(|row| Some((row, others.pop()?))));
        Filled {
            orphans,
            others,
            in_sheaves: SheafObjects::default(),
        }
    }
}
