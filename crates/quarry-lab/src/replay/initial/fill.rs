//! Allocating what a row of the report says, and freeing what it says is free.

use std::collections::BTreeMap;

use quarry_core::design::Design;
use quarry_core::geometry::{Geometry, KmallocClass};
use quarry_core::machine::{CpuId, Cpus as _, NodeId};
use quarry_sim::VirtualMachine;
use quarry_sim::driver::{CacheIndex, CacheView, Driver, ObjectRef};

use super::chance::Chance;
use super::seen::RowSeen;
use super::shape::{SeenSlab, Shape, known_free, listed_free};
use super::sheaves::{Home, InSheaves, SheafObjects};
use crate::error::LabError;
use crate::run::RunSpec;
use crate::sheaves::Sheaves;
use crate::whatif::CachePrediction;
use quarry_snapshot::{HiddenCache, SlabinfoRow};

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
    /// Slabs on the CPUs' own lists, if sysfs reported them.
    pub(super) lists: Option<&'a BTreeMap<u32, u64>>,
    /// Slabs on the nodes' lists, if sysfs counted them at the moment of the report.
    pub(super) partial: Option<u64>,
    /// State that a debugger read at the moment of the report.
    pub(super) hidden: Option<&'a HiddenCache>,
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
struct Slabs<'h> {
    full: Vec<Vec<ObjectRef<'h>>>,
    /// Those alive in the slabs that are seen.
    seen: Vec<Vec<ObjectRef<'h>>>,
    open: Vec<ObjectRef<'h>>,
}

impl<'h, D: Design> Filling<'_, 'h, D> {
    /// Makes the row's slabs. Caches have no sheaves meanwhile; `stock` says what these can hold.
    pub(super) fn fill(
        &self,
        driver: &Driver<'h, D>,
        chance: &mut Chance,
    ) -> Result<Filled<'h>, LabError> {
        let (row, view) = (self.row, &self.view);
        let geometry = view.head().geometry();
        if !is_told(self.told, geometry) || D::FEATURES.shared_slabs {
            // What the recording shows to have been free was not in use.
            let hidden = self.seen.free().saturating_sub(known_free(row));
            let used = self.told.holding.objects.saturating_sub(hidden);
            let objects = self.allocate(used.max(self.seen.orphans.len() as u64), driver)?;
            return Ok(Slabs::plain(objects).hand_out(self.seen));
        }
        if !self.told.holding.is_observed {
            return self.fill_predicted(driver, chance);
        }
        // What the allocator itself took of a kmalloc cache is part of what the row counts.
        view.flush();
        let own = view.usage().active_objs;
        let wanted = row.num_slabs.saturating_mul(row.objperslab);
        let objects = self.allocate(wanted.saturating_sub(own), driver)?;
        let mut slabs = Slabs::new(objects, geometry.order, driver);
        // Objects of arrays and sheaves come from any slab: of these pages tell little.
        let shape = match &self.stock {
            Some(stock) => return self.fill_sheaves(slabs, stock, driver, chance),
            None if self.tells_pages && row.limit == 0 => {
                slabs.reserve(self.seen.slabs.len());
                let lists = self.told_lists();
                Shape::seen(row, geometry, self.seen, &lists, self.partial, chance)
            }
            _ if let Some(hidden) = self.hidden => {
                Shape::known(hidden, row.objperslab, self.run.config.cpus)
            }
            _ => Shape::of(row, geometry, self.run.config.cpus, self.partial, chance),
        };

        // Meanwhile the nodes keep every slab that becomes free: there are as many as the row says.
        let min_partial = view.attribute("min_partial");
        view.set_attribute("min_partial", u32::MAX.into());
        self.fill_nodes(&shape, &mut slabs, driver)?;
        view.flush();
        self.fill_cpus(&shape, &mut slabs, driver)?;
        self.fill_seen_cpus(&shape, &mut slabs, driver)?;
        self.fill_known_cpus(&shape, &mut slabs, driver)?;
        if let Some(value) = min_partial {
            view.set_attribute("min_partial", value);
        }
        Ok(slabs.hand_out(self.seen))
    }

    /// Slabs that no kernel reported: as many as predicted, and as full.
    fn fill_predicted(
        &self,
        driver: &Driver<'h, D>,
        chance: &mut Chance,
    ) -> Result<Filled<'h>, LabError> {
        let (view, holding) = (&self.view, &self.told.holding);
        let min_partial = view.attribute("min_partial");
        let mut slabs = self.allocate_slabs(driver)?;
        // Meanwhile the nodes keep every slab.
        view.set_attribute("min_partial", u32::MAX.into());
        let objects: usize = slabs.full.iter().map(Vec::len).sum();
        let kept = holding.objects.saturating_add(holding.kept);
        let free = (objects as u64).saturating_sub(kept);
        // An object stays in each slab that no CPU holds.
        let most = u64::from(view.head().geometry().objects).saturating_sub(1);
        let others = (slabs.full.len() as u64).saturating_sub(holding.held);
        let least = free.saturating_sub(others.saturating_mul(most));
        let held_free = match holding.held_used {
            None => chance.sum(holding.held, holding.held_free, most),
            Some(_) => holding.held_free,
        };
        let held_free = held_free.clamp(least, free);
        let mut open_free = free - held_free;
        let fewest = open_free.div_ceil(most.max(1));
        let open = chance.pick(fewest, holding.open, open_free.min(slabs.full.len() as u64));
        for left in (0..open.max(1)).rev() {
            let part = match chance.is_assumed() {
                true => open_free.div_ceil(left + 1),
                false => chance.next_part(open_free, left, most),
            };
            let freed = slabs.take_pinned(part);
            open_free -= freed.len() as u64;
            self.free(freed, 0, driver)?;
        }
        view.flush();
        let cpus = self.seen.cpus_first(self.run.config.cpus);
        for cpu in cpus.iter().take(holding.held as usize) {
            let freed = slabs.take_pinned(held_free.div_ceil(holding.held));
            self.free(freed, *cpu, driver)?;
        }
        if let Some(value) = min_partial {
            view.set_attribute("min_partial", value);
        }
        let plan = self
            .stock
            .map(|stock| InSheaves::predicted(holding.kept, &stock));
        let kept = plan.iter().flat_map(InSheaves::homes);
        let kept = kept.map(|_| slabs.take_young()).collect();
        let mut filled = slabs.hand_out(self.seen);
        if let (Some(plan), Some(stock)) = (plan, &self.stock) {
            filled.in_sheaves = SheafObjects::of(&plan, stock, kept);
        }
        Ok(filled)
    }

    /// The row of a cache with sheaves: what its sheaves hold is taken out of its slabs first, then what lies free on the
    /// nodes' lists, then what lies on the lists of CPUs where there are such beside sheaves.
    fn fill_sheaves(
        &self,
        mut slabs: Slabs<'h>,
        stock: &Sheaves,
        driver: &Driver<'h, D>,
        chance: &mut Chance,
    ) -> Result<Filled<'h>, LabError> {
        let (row, geometry) = (self.row, self.view.head().geometry());
        let min_partial = self.view.attribute("min_partial");
        self.view.set_attribute("min_partial", u32::MAX.into());
        slabs.reserve(self.seen.slabs.len());
        let plan = InSheaves::of(row, self.seen, stock);
        let mut seen: Vec<_> = plan.homes().map(|home| slabs.take_one(home)).collect();
        for at in &plan.on_nodes {
            let free = slabs.take_seen(SeenSlab { at: *at, free: 1 });
            self.free(free, 0, driver)?;
        }
        let left = known_free(row).saturating_sub(plan.on_nodes.len() as u64);
        let mut shape = Shape::default();
        let unseen = slabs.full.len() as u64;
        let in_unseen = left.min(unseen.saturating_mul(row.objperslab));
        shape.spread(
            in_unseen,
            unseen,
            row.objperslab,
            geometry.min_partial.into(),
            self.partial,
            chance,
        );
        self.fill_nodes(&shape, &mut slabs, driver)?;
        self.view.flush();
        if geometry.cpu_partial > 0 {
            let listed_free = listed_free(row, self.partial, chance);
            for (cpu, count) in (0_u16..).zip(self.told_lists()) {
                for _ in 0..count.min(geometry.cpu_partial_slabs.into()) {
                    self.free(slabs.take(listed_free), cpu, driver)?;
                }
            }
        }
        self.free(slabs.take_of_seen(left - in_unseen, self.seen), 0, driver)?;
        // What no event tells the place of.
        for object in seen.iter_mut().filter(|object| object.is_none()) {
            *object = slabs.take_young();
        }
        if let Some(value) = min_partial {
            self.view.set_attribute("min_partial", value);
        }
        let mut filled = slabs.hand_out(self.seen);
        filled.in_sheaves = SheafObjects::of(&plan, stock, seen);
        Ok(filled)
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

    /// Frees objects until they lie in sheaves as they are to.
    pub(super) fn stock(
        &self,
        objects: SheafObjects<'h>,
        driver: &Driver<'h, D>,
    ) -> Result<(), LabError> {
        for (cpu, part) in objects.frees {
            self.free(part, cpu, driver)?;
        }
        Ok(())
    }

    /// Slabs on the own list of each of the machine's CPUs, none if that is not told; those of CPUs that
    /// the machine has not are some other's.
    fn told_lists(&self) -> Vec<u64> {
        let cpus = self.run.config.cpus;
        let mut lists = vec![
            0;
            if self.lists.is_some() {
                cpus as usize
            } else {
                0
            }
        ];
        for (cpu, slabs) in self.lists.into_iter().flatten() {
            let list = &mut lists[(cpu % cpus) as usize];
            *list = slabs.saturating_add(*list);
        }
        lists
    }

    fn fill_nodes(
        &self,
        shape: &Shape,
        slabs: &mut Slabs<'h>,
        driver: &Driver<'h, D>,
    ) -> Result<(), LabError> {
        for seen in &shape.seen_on_nodes {
            self.free(slabs.take_seen(*seen), 0, driver)?;
            // From the CPU's list to the end of the node's, one by one.
            self.view.flush();
        }
        for _ in 0..shape.free_slabs {
            self.free(slabs.take(self.row.objperslab), 0, driver)?;
        }
        for free in &shape.partial {
            self.free(slabs.take(*free), 0, driver)?;
        }
        Ok(())
    }

    /// Fills what CPUs are assumed to have.
    fn fill_cpus(
        &self,
        shape: &Shape,
        slabs: &mut Slabs<'h>,
        driver: &Driver<'h, D>,
    ) -> Result<(), LabError> {
        let cpus = self.seen.cpus_first(self.run.config.cpus);
        let owners = || cpus.iter().take(shape.owners as usize);
        for cpu in owners() {
            for _ in 0..shape.listed_slabs {
                self.free(slabs.take(shape.listed_free), *cpu, driver)?;
            }
        }
        for (n, cpu) in owners().enumerate() {
            let shared = if n == 0 { shape.shared_objects } else { 0 };
            let mut stock = shape.stock.saturating_add(shared);
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

    /// Fills what CPUs are seen to have.
    fn fill_seen_cpus(
        &self,
        shape: &Shape,
        slabs: &mut Slabs<'h>,
        driver: &Driver<'h, D>,
    ) -> Result<(), LabError> {
        for seen in &shape.seen_on_cpus {
            if let Some(slab) = seen.slab.filter(|slab| slab.free > 0) {
                self.free(slabs.take_seen(slab), seen.cpu, driver)?;
                self.make_cpu_slab(seen.cpu, driver)?;
            }
            for _ in 0..seen.listed_free {
                self.free(slabs.take(shape.listed_free), seen.cpu, driver)?;
            }
            // The slab that comes last onto the list is the first to be taken.
            for slab in seen.listed.iter().rev() {
                self.free(slabs.take_seen(*slab), seen.cpu, driver)?;
            }
        }
        Ok(())
    }

    /// Fills what a debugger read of CPUs.
    fn fill_known_cpus(
        &self,
        shape: &Shape,
        slabs: &mut Slabs<'h>,
        driver: &Driver<'h, D>,
    ) -> Result<(), LabError> {
        for known in &shape.known_on_cpus {
            if known.free > 0 {
                self.free(slabs.take(known.free), known.cpu, driver)?;
                self.make_cpu_slab(known.cpu, driver)?;
            }
            for free in &known.listed {
                self.free(slabs.take(*free), known.cpu, driver)?;
            }
        }
        Ok(())
    }

    /// Makes the slab on top of a CPU's list the one that it allocates from: an allocation does.
    fn make_cpu_slab(&self, cpu: u16, driver: &Driver<'h, D>) -> Result<(), LabError> {
        let object = self.allocate_one(driver);
        self.free(object.into_iter().collect(), cpu, driver)
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
                let asked = self
                    .told
                    .params
                    .map_or(class.size, |asked| asked.object_size);
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
            seen: Vec::new(),
            open: Vec::new(),
        }
    }

    /// Objects whose places are unknown.
    fn plain(objects: Vec<ObjectRef<'h>>) -> Self {
        Self {
            full: Vec::new(),
            seen: Vec::new(),
            open: objects,
        }
    }

    /// Sets slabs apart for those that are seen.
    fn reserve(&mut self, count: usize) {
        let seen = (0..count).map(|_| self.full.pop().unwrap_or_default());
        self.seen = seen.collect();
    }

    /// Takes objects of a slab that is seen, to free them.
    fn take_seen(&mut self, seen: SeenSlab) -> Vec<ObjectRef<'h>> {
        let slab = &mut self.seen[seen.at];
        slab.split_off(slab.len().saturating_sub(seen.free as usize))
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
        let room = self
            .full
            .last()
            .map_or(0, |slab| slab.len().saturating_sub(1));
        self.take(count.min(room as u64))
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
        orphans.extend(
            homeless
                .into_iter()
                .map_while(|row| Some((row, others.pop()?))),
        );
        Filled {
            orphans,
            others,
            in_sheaves: SheafObjects::default(),
        }
    }
}
