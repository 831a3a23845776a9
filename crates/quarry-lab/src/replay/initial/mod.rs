//! What the kernel held before the recording.
//!
//! # What is known
//!
//! `/proc/slabinfo` tells for every cache how many slabs it has (`num_slabs`), how many objects fit
//! (`num_objs`), and how many of these are not known to be free (`active_objs`). It does not tell
//! in which slabs the free ones lie, nor how many of the active ones are really free in some CPU's
//! own stock: a CPU slab or an array.
//!
//! # What is assumed
//!
//! Only the first of these is a fact; the others replace what nobody reported.
//!
//! 1. Each cache has its `num_slabs` slabs, and all are full but for the free objects named here.
//! 2. Its `num_objs - active_objs` free objects lie on the nodes' lists, as far as possible in slabs
//!    that are free as a whole: a node keeps `min_partial` of them, and after a burst it has them.
//!    The rest is spread over slabs that are half free. A SLAB tells how many slabs are free as a
//!    whole: `num_slabs - active_slabs`.
//! 3. Each CPU has a slab that is half free, which counts as active. A cache with fewer such slabs
//!    than CPUs has them on those CPUs that allocate from it first in the recording: those that use
//!    it have used it.
//! 4. If the nodes' lists hold free objects, the CPUs' own lists of partial slabs have overflowed
//!    onto them. A list that overflows is emptied and grows again, so each is taken to have half of
//!    what it may hold, in slabs that are free as a whole; they count as active, too. If the nodes'
//!    lists hold none, nothing tells of the CPUs' lists, and they are taken to be empty.
//! 5. An object from before the recording that is freed in it (an orphan) is one of these objects
//!    of its cache. Which one cannot be known: those of the CPUs' slabs go first, then those of the
//!    half free slabs, then the others, because objects that die soon are young, and the young lie
//!    in the slabs that were allocated from last.
//!
//! If the replayed cache has another number of objects or pages in a slab than the row, which
//! another design, page size or CPU count brings about, then only the `active_objs` objects are
//! allocated, and nothing is assumed about free ones.
//!
//! kmalloc has several caches of a size, for accounted, reclaimable and DMA memory, if the report
//! names them (`kmalloc-cg-64`); a kmalloc goes where its flags say.

mod shape;
#[cfg(test)]
mod tests;
mod users;

use quarry_core::design::{CacheSpec, Design};
use quarry_core::geometry::{
    CacheFlags, KmallocClass, KmallocRules, KmallocTarget, MachineParams, kmalloc_classes,
    kmalloc_index, kmalloc_params,
};
use quarry_core::heap::CreateError;
use quarry_core::machine::CpuId;
use quarry_sim::driver::{CacheIndex, CacheView, Driver, ObjectRef};
use quarry_trace::Flags;

use super::engine::NONE;
use super::input::{Input, RecordedCache};
use crate::error::LabError;
use crate::infer::Inferred;
use crate::kernel::SlabinfoRow;
use crate::plan::RunSpec;
use shape::Shape;
use users::Users;

/// Kinds of kmalloc caches beside the normal one: which flag leads there and what their names begin
/// with. The first flag that an allocation has decides.
const KMALLOC_KINDS: [(Flags, &str); 3] = [
    (Flags::DMA, "dma-kmalloc-"),
    (Flags::RECLAIMABLE, "kmalloc-rcl-"),
    (Flags::ACCOUNTED, "kmalloc-cg-"),
];
/// The kind without a flag.
const NORMAL: usize = KMALLOC_KINDS.len();
/// What names of normal kmalloc caches begin with.
const KMALLOC_NORMAL: &str = "kmalloc-";
/// Above every [`KmallocClass::index`].
const CLASSES: usize = 32;

/// Where the objects of a row come from and go to.
#[derive(Clone, Copy)]
enum Source {
    Cache(CacheIndex),
    /// A normal kmalloc class, by its size.
    Kmalloc(u32),
}

/// A cache's objects from before the recording that are still alive.
struct Pool<'h> {
    /// Bytes of an object.
    object_size: u32,
    /// The one that the next orphan frees is the last.
    objects: Vec<ObjectRef<'h>>,
}

/// What the kernel held, and what of it is left.
pub(super) struct Held<'h> {
    pools: Vec<Pool<'h>>,
    /// Pool by driver's cache.
    pool_of_cache: Vec<u16>,
    /// Pool by kmalloc class.
    pool_of_class: [u16; CLASSES],
    /// Driver's cache by type of kmalloc and class.
    typed: [[u16; CLASSES]; KMALLOC_KINDS.len()],
}

/// What preparing needs to know.
pub(super) struct Preparation<'a> {
    pub(super) spec: &'a RunSpec,
    pub(super) input: &'a Input,
    pub(super) kmalloc: &'static KmallocRules,
    pub(super) params: MachineParams,
}

impl<'h> Held<'h> {
    /// Makes the caches of a report with what they held. `cache_of` learns which of the driver's
    /// caches serves which cache of the trace.
    pub(super) fn prepare<D: Design>(
        preparation: &Preparation<'_>,
        rows: &[SlabinfoRow],
        driver: &mut Driver<'h, D>,
        cache_of: &mut [u16],
    ) -> Result<Self, LabError> {
        let mut held = Self {
            pools: Vec::new(),
            pool_of_cache: Vec::new(),
            pool_of_class: [NONE; CLASSES],
            typed: [[NONE; CLASSES]; KMALLOC_KINDS.len()],
        };
        driver.run_on(CpuId(0));
        let users = Users::scan(preparation)?;
        for row in rows {
            let pool = u16::try_from(held.pools.len()).unwrap_or(NONE);
            let kmalloc = preparation.class_of(row);
            let groups = preparation.groups_of(row);
            let cpus = users.cpus(kmalloc, &groups);
            let (source, view) = if let Some((NORMAL, class)) = kmalloc {
                held.pool_of_class[class.index as usize] = pool;
                let view = driver.kmalloc_cache(class.size);
                (Source::Kmalloc(class.size), view)
            } else {
                let spec = preparation.spec_of(row, kmalloc, &groups);
                let index = preparation.create(&spec, driver)?;
                if let Some((kind, class)) = kmalloc {
                    held.typed[kind][class.index as usize] = index.0;
                }
                for (into, group) in cache_of.iter_mut().zip(&preparation.input.cache_of) {
                    if groups.contains(&usize::from(*group)) {
                        *into = index.0;
                    }
                }
                held.pool_of_cache.resize(usize::from(index.0) + 1, NONE);
                held.pool_of_cache[usize::from(index.0)] = pool;
                (Source::Cache(index), driver.cache(index))
            };
            let Some(view) = view else { continue };
            let objects = preparation.fill(row, source, &view, &cpus, driver)?;
            held.pools.push(Pool {
                object_size: view.head().geometry().layout.object_size,
                objects,
            });
        }
        Ok(held)
    }

    /// The driver's cache that serves a kmalloc with these flags; `None` if a normal one does.
    #[inline(always)]
    pub(super) fn typed(&self, class: KmallocClass, flags: Flags) -> Option<u16> {
        let kind = KMALLOC_KINDS
            .iter()
            .position(|(flag, _)| flags.has(*flag))?;
        Some(self.typed[kind][class.index as usize]).filter(|cache| *cache != NONE)
    }

    /// Bytes of all objects.
    pub(super) fn object_bytes(&self) -> u64 {
        let bytes = |pool: &Pool<'_>| pool.objects.len() as u64 * u64::from(pool.object_size);
        self.pools.iter().map(bytes).sum()
    }

    /// Takes an object of one of the driver's caches and its bytes.
    pub(super) fn take_of_cache(&mut self, cache: u16) -> Option<(ObjectRef<'h>, u32)> {
        let pool = *self.pool_of_cache.get(usize::from(cache))?;
        self.take(pool)
    }

    /// Takes an object of a normal kmalloc class and its bytes.
    pub(super) fn take_of_class(&mut self, class: KmallocClass) -> Option<(ObjectRef<'h>, u32)> {
        self.take(self.pool_of_class[class.index as usize])
    }

    fn take(&mut self, pool: u16) -> Option<(ObjectRef<'h>, u32)> {
        let pool = self.pools.get_mut(usize::from(pool))?;
        Some((pool.objects.pop()?, pool.object_size))
    }
}

impl Preparation<'_> {
    /// Kind and class of a row that is a kmalloc cache.
    fn class_of(&self, row: &SlabinfoRow) -> Option<(usize, KmallocClass)> {
        let prefixes = KMALLOC_KINDS.iter().map(|(_, prefix)| *prefix);
        let (kind, size) = prefixes
            .chain([KMALLOC_NORMAL])
            .enumerate()
            .find_map(|(kind, prefix)| Some((kind, row.name.strip_prefix(prefix)?)))?;
        kmalloc_classes(self.kmalloc, &self.params)
            .find(|class| class.to_string().strip_prefix(KMALLOC_NORMAL) == Some(size))
            .map(|class| (kind, class))
    }

    /// What the cache of a row is created with.
    fn spec_of<'r>(
        &self,
        row: &'r SlabinfoRow,
        kmalloc: Option<(usize, KmallocClass)>,
        groups: &[usize],
    ) -> CacheSpec<'r> {
        if let Some((_, class)) = kmalloc {
            let params = kmalloc_params(self.kmalloc, class);
            return CacheSpec {
                name: &row.name,
                object_size: params.object_size,
                align: params.align,
                flags: params.flags,
            };
        }
        let inferred = groups
            .iter()
            .find_map(|group| self.input.caches[*group].inferred);
        // Without a recorded size: objects of this many bytes lie as far apart as the kernel's.
        let inferred = inferred.unwrap_or(Inferred {
            object_size: u32::try_from(row.objsize).unwrap_or(u32::MAX),
            align: 8,
            flags: CacheFlags::NONE,
        });
        CacheSpec {
            name: &row.name,
            object_size: inferred.object_size,
            align: inferred.align,
            flags: inferred.flags,
        }
    }

    fn create<D: Design>(
        &self,
        spec: &CacheSpec<'_>,
        driver: &mut Driver<'_, D>,
    ) -> Result<CacheIndex, LabError> {
        match driver.create_cache(spec) {
            Ok(index) if index.0 < NONE - 3 => Ok(index),
            other => Err(LabError::InitialCache {
                run: self.spec.label(),
                cache: spec.name.to_string(),
                object_size: spec.object_size,
                source: other.err().unwrap_or(CreateError::NoRoom),
            }),
        }
    }

    /// The recording's caches that are this row's: those of its name, or, for a cache whose name no
    /// event told, the only row of its size.
    fn groups_of(&self, row: &SlabinfoRow) -> Vec<usize> {
        let size_fits = |cache: &RecordedCache| u64::from(cache.slab_size) == row.objsize;
        let rows = self.input.initial.as_ref().map(|report| &report.rows);
        let alone = || {
            let same = |other: &&SlabinfoRow| {
                other.objsize == row.objsize && !other.name.contains(KMALLOC_NORMAL)
            };
            rows.is_some_and(|rows| rows.iter().filter(same).count() == 1)
        };
        let caches = self.input.caches.iter().enumerate().skip(1);
        caches
            .filter(|(_, cache)| match cache.synthetic {
                true => size_fits(cache) && alone() && !row.name.contains(KMALLOC_NORMAL),
                false => cache.name == row.name && (cache.slab_size == 0 || size_fits(cache)),
            })
            .map(|(group, _)| group)
            .collect()
    }

    /// Allocates a row's objects and frees those that it says are free.
    fn fill<'h, D: Design>(
        &self,
        row: &SlabinfoRow,
        source: Source,
        view: &CacheView<'h, D>,
        cpus: &[u16],
        driver: &Driver<'h, D>,
    ) -> Result<Vec<ObjectRef<'h>>, LabError> {
        let geometry = view.head().geometry();
        let per_slab = geometry.objects as usize;
        let same = row.objperslab == u64::from(geometry.objects)
            && row.pagesperslab == 1 << geometry.order;
        let wanted = if same {
            row.num_slabs.saturating_mul(row.objperslab)
        } else {
            row.active_objs
        };
        let mut objects = Vec::new();
        for _ in 0..wanted {
            let object = match source {
                Source::Cache(index) => driver.alloc(index),
                Source::Kmalloc(bytes) => driver.kmalloc(bytes),
            };
            objects.push(object.ok_or_else(|| LabError::InitialMemory {
                run: self.spec.label(),
                cache: row.name.clone(),
                objects: wanted,
                memory_bytes: self.spec.config.memory_bytes,
            })?);
        }
        if !same || objects.is_empty() {
            return Ok(objects);
        }
        // All slabs are full, so that in the order of addresses each slab is a run of `per_slab`.
        objects.sort_by(ObjectRef::by_address);
        let shape = Shape::of(row, geometry, self.spec.config.cpus);
        let release = |object, cpu| self.release(row, source, object, cpu, driver);
        let mut live = Vec::new();
        // Takes a slab and frees some of its objects.
        let mut open = |count: u64, cpu: u32| {
            let at = objects.len().saturating_sub(per_slab);
            let mut slab = objects.split_off(at);
            live.push(slab.split_off((count as usize).min(slab.len())));
            slab.into_iter().try_for_each(|object| release(object, cpu))
        };
        // Meanwhile the nodes keep every slab that becomes free: there are as many as the row says.
        let min_partial = view.attribute("min_partial");
        view.set_attribute("min_partial", u32::MAX.into());
        for _ in 0..shape.free_slabs {
            open(row.objperslab, 0)?;
        }
        for n in 0..shape.partial_slabs {
            open((shape.partial_objects + n) / shape.partial_slabs, 0)?;
        }
        view.flush();
        let owners = || cpus.iter().take(shape.cpu_slabs as usize);
        for cpu in owners() {
            for _ in 0..shape.listed_slabs {
                open(row.objperslab, (*cpu).into())?;
            }
        }
        for cpu in owners() {
            open(row.objperslab / 2, (*cpu).into())?;
        }
        if let Some(value) = min_partial {
            view.set_attribute("min_partial", value);
        }
        objects.extend(live.into_iter().flatten());
        Ok(objects)
    }

    fn release<'h, D: Design>(
        &self,
        row: &SlabinfoRow,
        source: Source,
        object: ObjectRef<'h>,
        cpu: u32,
        driver: &Driver<'h, D>,
    ) -> Result<(), LabError> {
        let cpu = CpuId(cpu);
        driver.run_on(cpu);
        match source {
            Source::Cache(index) => driver.free(index, object, cpu),
            Source::Kmalloc(_) => driver.kfree(object, cpu),
        }
        .map_err(|source| LabError::InitialFree {
            run: self.spec.label(),
            cache: row.name.clone(),
            source,
        })
    }
}

/// The kind of kmalloc caches that serves an allocation with these flags, if there is such a cache.
#[inline(always)]
fn kmalloc_kind(flags: Flags) -> usize {
    let kind = KMALLOC_KINDS.iter().position(|(flag, _)| flags.has(*flag));
    kind.unwrap_or(NORMAL)
}

/// The class that serves a kmalloc.
pub(super) fn kmalloc_class(
    kmalloc: &KmallocRules,
    params: &MachineParams,
    bytes: u32,
) -> Option<KmallocClass> {
    match kmalloc_index(kmalloc, params, bytes.into()) {
        KmallocTarget::Class(class) => Some(class),
        _ => None,
    }
}
