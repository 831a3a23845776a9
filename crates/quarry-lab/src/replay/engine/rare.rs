//! Rare events: objects from before the part, large kmallocs, contradictory rows.

use quarry_core::design::Design;
use quarry_core::machine::CpuId;
use quarry_sim::driver::{CacheIndex, CacheView};
use quarry_trace::{NO_OBJECT, ReplayEvent};

use super::super::initial::{Change, Orphan};
use super::super::objects::{self, BEFORE, Entry, KMALLOC, NONE, UNSERVED};
use super::super::pages::Pages;
use super::Engine;
use crate::error::LabError;

impl<'h, D: Design> Engine<'_, 'h, D> {
    /// A free of an object from before the part.
    #[cold]
    pub(super) fn orphan(&mut self, event: &ReplayEvent) -> Result<(), LabError> {
        let cpu = CpuId(self.cpu_of[usize::from(event.cpu)].into());
        self.driver.run_on(cpu);
        let row = self.row;
        let Some(orphan) = self
            .held
            .as_mut()
            .and_then(|held| held.orphans.remove(&row))
        else {
            self.outcome.tally.orphans += 1;
            return Ok(());
        };
        self.free_held(orphan, cpu, event.object)?;
        self.outcome.tally.initial_frees += 1;
        Ok(())
    }

    /// Frees an object from before the part; `told` is its number in the trace.
    fn free_held(&mut self, orphan: Orphan<'h>, cpu: CpuId, told: u32) -> Result<(), LabError> {
        let freed = match orphan.cache {
            Some(cache) => self.driver.free(cache, orphan.object, cpu),
            None => self.driver.kfree(orphan.object, cpu),
        };
        freed.map_err(|source| self.input.bad_free(self.row, told, source))?;
        self.outcome.object_bytes -= u64::from(orphan.bytes);
        Ok(())
    }

    /// Frees and allocates what no event says and is due by now.
    #[cold]
    pub(in super::super) fn silent_changes(&mut self, now_ns: u64) -> Result<(), LabError> {
        while let Some(change) = self.held.as_mut().and_then(|held| held.change(now_ns)) {
            match change {
                Change::Free(object, is_told) => self.free_silently(object, is_told)?,
                Change::FreeHeld(orphan) => {
                    let cpu = CpuId(0);
                    self.driver.run_on(cpu);
                    self.free_held(orphan, cpu, NO_OBJECT)?;
                }
                Change::Alloc(cache, bytes) => {
                    self.driver.run_on(CpuId(0));
                    let object = match cache {
                        Some(cache) => self.driver.alloc(cache),
                        None => self.driver.kmalloc(bytes),
                    };
                    if object.is_some() {
                        self.outcome.object_bytes += u64::from(bytes);
                    }
                }
            }
        }
        Ok(())
    }

    /// Frees an object of the part at a moment without an event; a row of the trace that tells of it does nothing then.
    fn free_silently(&mut self, object: u32, is_told: bool) -> Result<(), LabError> {
        let entry = &mut self.table[object as usize];
        let Some(of_heap) = entry.object.take() else {
            return Ok(());
        };
        let (cache, bytes, cpu) = (entry.cache, entry.bytes, entry.cpu);
        entry.cache = UNSERVED;
        self.driver.run_on(CpuId(cpu.into()));
        let freed = objects::free(self.driver, cache, of_heap, cpu);
        freed.map_err(|source| self.input.bad_free(self.row, object, source))?;
        self.outcome.tally.frees += 1;
        if is_told {
            self.outcome.tally.implied_frees += 1;
            self.count_implied(cache, bytes);
        }
        self.outcome.object_bytes -= u64::from(bytes);
        Ok(())
    }

    /// Counts a free that only the later use of its memory tells.
    #[cold]
    pub(super) fn count_implied(&mut self, cache: u16, bytes: u32) {
        if let Some(view) = self.view(cache, bytes) {
            let name = view.head().name().to_string();
            *self.outcome.implied.entry(name).or_default() += 1;
        }
    }

    /// The cache that an entry's object is of, if it has one.
    pub(super) fn view(&self, cache: u16, bytes: u32) -> Option<CacheView<'h, D>> {
        match cache {
            KMALLOC => self.driver.kmalloc_cache(bytes),
            index => self.driver.cache(CacheIndex(index)),
        }
    }

    /// A kmalloc that no slab serves.
    #[cold]
    pub(super) fn kmalloc_large(&mut self, event: &ReplayEvent, cpu: u16) -> Result<(), LabError> {
        let mut entry = Entry {
            object: None,
            bytes: event.bytes_req,
            cache: UNSERVED,
            cpu,
        };
        if let Some(bytes) = self.kmalloc.large_bytes(event.bytes_req.into()) {
            let object = self.driver.kmalloc(event.bytes_req);
            if object.is_none() {
                return Err(self.out_of_memory(event));
            }
            (entry.object, entry.cache) = (object, KMALLOC);
            let outcome = &mut self.outcome;
            outcome.tally.allocs += 1;
            outcome.tally.large += 1;
            outcome.large_bytes += bytes;
            outcome.large_bytes_peak = outcome.large_bytes_peak.max(outcome.large_bytes);
        } else {
            self.outcome.tally.unserved += 1;
        }
        self.table[event.object as usize] = entry;
        Ok(())
    }

    #[cold]
    pub(super) fn free_without_object(&mut self, event: &ReplayEvent) -> Result<(), LabError> {
        let entry = &mut self.table[event.object as usize];
        if entry.cache == UNSERVED {
            entry.cache = NONE;
            return Ok(());
        }
        if entry.cache == BEFORE {
            entry.cache = NONE;
            return self.orphan(event);
        }
        Err(self.bad_row(&format!(
            "object {} is freed, but it is not allocated",
            event.object
        )))
    }

    #[cold]
    pub(super) fn bad_row(&self, what: &str) -> LabError {
        self.input.bad_row(self.row, what)
    }

    #[cold]
    pub(super) fn out_of_memory(&self, event: &ReplayEvent) -> LabError {
        let held = |pages: &Pages<'_>| pages.pages() + pages.initial_pages();
        let used_pages = self.driver.slab_pages() + self.pages.as_ref().map_or(0, held);
        let cache = self.input.cache_name(event.cache);
        self.input
            .out_of_memory(self.spec, self.row, used_pages, event.bytes_req, cache)
    }
}
