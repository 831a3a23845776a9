//! Allocations and frees of objects, on the CPUs' clocks.

use quarry_core::design::Design;
use quarry_core::machine::CpuId;
use quarry_sim::driver::{CacheIndex, Driver, ObjectRef};
use quarry_trace::Flags;

use super::super::engine::caches::{create_recorded, tune};
use super::super::input::Input;
use super::feed::Step;
use super::report::Kind;
use super::world::{Cpu, Stopped, World};
use crate::error::LabError;
use crate::run::RunSpec;

/// [`Entry::cache`] of a number without an object.
const NONE: u16 = u16::MAX;
/// The same of an object of kmalloc.
const KMALLOC: u16 = u16::MAX - 1;
/// The same of an object that the era's kmalloc does not serve.
const UNSERVED: u16 = u16::MAX - 2;
/// The same of a number without an object, whose free waits on CPU [`Entry::cpu`].
const AWAITED: u16 = u16::MAX - 3;

/// An object while it is alive.
pub(super) struct Entry<'h> {
    object: Option<ObjectRef<'h>>,
    /// The driver's cache, or one of the constants.
    cache: u16,
    /// The CPU that allocated it.
    cpu: u16,
}

const _: () = assert!(size_of::<Entry<'_>>() == 16);

impl Entry<'_> {
    pub(super) const EMPTY: Self = Self {
        object: None,
        cache: NONE,
        cpu: 0,
    };
}

/// Makes all caches of the trace whose sizes are known; returns the driver's by cache index of the trace.
pub(super) fn make_caches<D: Design>(
    driver: &mut Driver<'_, D>,
    spec: &RunSpec,
    input: &Input,
) -> Result<Vec<u16>, LabError> {
    let mut tuned = Ok(());
    driver.for_each_cache(|cache| {
        if tuned.is_ok() {
            tuned = tune(spec, &cache);
        }
    });
    tuned?;
    let mut made = Vec::with_capacity(input.caches.len());
    for cache in &input.caches {
        let Some(inferred) = &cache.inferred else {
            made.push(NONE);
            continue;
        };
        made.push(create_recorded(driver, spec, 0, cache, inferred)?.0);
    }
    let of_group = |group: &u16| made[usize::from(*group)];
    Ok(input.cache_of.iter().map(of_group).collect())
}

impl<D: Design> World<'_, '_, D> {
    /// The cache of an allocation: the driver's, or a constant.
    fn cache(&self, step: &Step) -> Result<u16, Stopped> {
        if !step.kind.is_kmalloc() {
            let cache = self.caches[usize::from(step.cache)];
            return match cache {
                NONE => Err(self.bad_row(
                    step,
                    "an object of a cache is allocated that has no size".to_string(),
                )),
                cache => Ok(cache),
            };
        }
        let bytes = u64::from(step.bytes);
        if bytes <= self.kmalloc.slab_bytes_max {
            return Ok(KMALLOC);
        }
        Ok(match self.kmalloc.large_bytes(bytes) {
            Some(_) => KMALLOC,
            None => UNSERVED,
        })
    }

    pub(super) fn alloc(&self, cpu: &Cpu, step: &Step, at: usize) -> Result<(), Stopped> {
        let cache = self.cache(step)?;
        let object = match cache {
            UNSERVED => None,
            KMALLOC => self.timed(Kind::Alloc, || self.driver.kmalloc(step.bytes)),
            index => self.timed(Kind::Alloc, || self.driver.alloc(CacheIndex(index))),
        };
        if object.is_none() && cache != UNSERVED {
            let name = self.input.cache_of.get(usize::from(step.cache));
            let name = name.map(|group| self.input.caches[usize::from(*group)].name.as_str());
            return Err(self.out_of_memory(step, step.bytes, name.unwrap_or("kmalloc")));
        }
        let slab_pages = self.driver.slab_pages();
        let large = u64::from(step.bytes) > self.kmalloc.slab_bytes_max && cache == KMALLOC;
        let mut outcome = self.outcome.borrow_mut();
        outcome.peak_slab_pages = outcome.peak_slab_pages.max(slab_pages);
        let tally = &mut outcome.tally;
        tally.allocs += u64::from(cache != UNSERVED);
        tally.unserved += u64::from(cache == UNSERVED);
        tally.large += u64::from(large);
        drop(outcome);
        // From here on other CPUs see it.
        self.machine().take_turn();
        let entry = Entry {
            object,
            cache,
            cpu: cpu.id as u16,
        };
        let before = std::mem::replace(&mut self.objects.borrow_mut()[at], entry);
        debug_assert!(before.object.is_none());
        if before.cache == AWAITED {
            self.machine().wake(CpuId(before.cpu.into()));
        }
        Ok(())
    }

    pub(super) fn free(&self, cpu: &Cpu, step: &Step, at: usize) -> Result<(), Stopped> {
        let entry = loop {
            let mut entries = self.objects.borrow_mut();
            let entry = &mut entries[at];
            if entry.cache != NONE {
                break std::mem::replace(entry, Entry::EMPTY);
            }
            (entry.cache, entry.cpu) = (AWAITED, cpu.id as u16);
            drop(entries);
            // R1. What wakes it has written the entry.
            self.sleep("the CPU that is to allocate what it frees")?;
        };
        let Some(object) = entry.object else {
            return Ok(());
        };
        let allocated_on = CpuId(entry.cpu.into());
        let freed = self.timed(Kind::Free, || match entry.cache {
            KMALLOC => self.driver.kfree(object, allocated_on),
            index => self.driver.free(CacheIndex(index), object, allocated_on),
        });
        if let Err(source) = freed {
            return Err(self.fail(LabError::Free {
                trace: self.input.name.clone(),
                row: step.row,
                object: step.object,
                source,
            }));
        }
        let tally = &mut self.outcome.borrow_mut().tally;
        tally.frees += 1;
        tally.implied_frees += u64::from(step.flags.has(Flags::IMPLIED));
        Ok(())
    }
}
