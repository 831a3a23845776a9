//! Allocations and frees, on the CPUs' clocks.
//!
//! What becomes of a block of pages is as in a replay that counts ([`super::super::pages`]). A block without memory ends
//! the replay.

use quarry_core::design::Design;
use quarry_core::machine::CpuId;
use quarry_core::page::{MAX_ORDER, MigrateType};
use quarry_sim::driver::{Driver, PageRef};
use quarry_trace::{Flags, NO_OBJECT};

use super::super::engine::caches::{recorded, tune_all};
use super::super::input::Input;
use super::super::objects::{self, AWAITED, Entry, KMALLOC, NONE, UNSERVED};
use super::super::pages::parts::Fit;
use super::super::pages::{Held, Initial, Pages, Slot, named_type};
use super::cpus::{Cpu, Stopped, TimedReplay};
use super::feed::Step;
use super::report::Kind;
use crate::error::LabError;
use crate::run::RunSpec;

/// Makes all caches of the trace whose sizes are known; returns the driver's by cache index of the trace.
pub(super) fn make_caches<D: Design>(
    driver: &mut Driver<'_, D>,
    spec: &RunSpec,
    input: &Input,
) -> Result<Vec<u16>, LabError> {
    tune_all(driver, spec)?;
    let mut made = Vec::with_capacity(input.caches.len());
    for cache in &input.caches {
        let Some(inferred) = &cache.inferred else {
            made.push(NONE);
            continue;
        };
        let has_run = input.booted.is_some();
        made.push(recorded(driver, spec, has_run, 0, cache, inferred)?.0);
    }
    let of_group = |group: &u16| made[usize::from(*group)];
    Ok(input.cache_of.iter().map(of_group).collect())
}

impl<D: Design> TimedReplay<'_, '_, D> {
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
            cache => self.timed_in((cache, step.bytes), Kind::Alloc, || {
                objects::alloc(self.driver, cache, step.bytes)
            }),
        };
        if object.is_none() && cache != UNSERVED {
            let name = self.input.cache_name(step.cache);
            return Err(self.out_of_memory(step, step.bytes, name));
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
            bytes: step.bytes,
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
        let freed = self.timed_in((entry.cache, entry.bytes), Kind::Free, || {
            objects::free(self.driver, entry.cache, object, entry.cpu)
        });
        if let Err(source) = freed {
            return Err(self.fail(self.input.bad_free(step.row, step.object, source)));
        }
        let tally = &mut self.outcome.borrow_mut().tally;
        tally.frees += 1;
        tally.implied_frees += u64::from(step.flags.has(Flags::IMPLIED));
        Ok(())
    }
}

impl<'h, D: Design> TimedReplay<'_, 'h, D> {
    /// Looks at the blocks, without a call that lets other CPUs run. The feed deals steps of blocks only if there are blocks.
    fn with_blocks<R>(&self, look: impl FnOnce(&mut Pages<'h>) -> R) -> R {
        let mut blocks = self.blocks.borrow_mut();
        look(blocks.as_mut().expect("page events are driven"))
    }

    pub(super) fn alloc_block(&self, cpu: &Cpu, step: &Step, at: usize) -> Result<(), Stopped> {
        let migratetype = named_type(&step.event()).unwrap_or(MigrateType::Unmovable);
        let movable = migratetype == MigrateType::Movable;
        let fit = self.with_blocks(|blocks| blocks.fit(step.order, movable));
        let slot = if fit.order() > MAX_ORDER {
            self.outcome.borrow_mut().tally.page_events += 1;
            Slot::Unserved
        } else {
            Slot::Driven {
                memory: self.place(cpu, step, fit, migratetype)?,
                cpu: cpu.id as u16,
                recorded_order: step.order,
            }
        };
        // From here on other CPUs see it.
        self.machine().take_turn();
        let before = self.with_blocks(|blocks| std::mem::replace(&mut blocks.table[at], slot));
        if let Slot::Awaited(waiting) = before {
            self.machine().wake(CpuId(waiting.into()));
        }
        Ok(())
    }

    /// Takes memory for a block.
    fn place(
        &self,
        cpu: &Cpu,
        step: &Step,
        fit: Fit,
        migratetype: MigrateType,
    ) -> Result<Held<'h>, Stopped> {
        let take = |order: u32| {
            let page = self.timed(Kind::PageAlloc, || {
                self.driver.alloc_pages(order, migratetype)
            });
            let Some(page) = page else {
                let bytes = self.spec.config.page_bytes << order;
                let wanted = u32::try_from(bytes).unwrap_or(u32::MAX);
                return Err(self.out_of_memory(step, wanted, "page events"));
            };
            self.with_blocks(|blocks| blocks.pages += 1 << order);
            Ok(page)
        };
        let id = cpu.id as u16;
        Ok(match fit {
            Fit::Block(order) => Held::Block(take(order)?),
            Fit::Parts(parts) => {
                let taken = self.with_blocks(|blocks| blocks.parts.take(id, parts));
                match taken {
                    Some(of) => Held::Part(of),
                    None => {
                        let page = take(0)?;
                        Held::Part(self.with_blocks(|blocks| blocks.parts.open(id, page, parts)))
                    }
                }
            }
            Fit::Pages(count) => {
                let pages = (0..count).map(|_| take(0)).collect::<Result<Vec<_>, _>>()?;
                Held::Split(self.with_blocks(|blocks| blocks.parts.keep(pages)))
            }
        })
    }

    pub(super) fn free_block(&self, cpu: &Cpu, step: &Step, at: usize) -> Result<(), Stopped> {
        if step.object == NO_OBJECT {
            return match self.with_blocks(|blocks| blocks.initial.next()) {
                Some(Initial::Pages(pages)) => self.give_back(step, pages),
                Some(Initial::Part) => Ok(()),
                None | Some(Initial::None) => {
                    self.outcome.borrow_mut().tally.page_events += 1;
                    Ok(())
                }
            };
        }
        let take = |blocks: &mut Pages<'h>| {
            let empty = matches!(blocks.table[at], Slot::Empty);
            let left = if empty {
                Slot::Awaited(cpu.id as u16)
            } else {
                Slot::Empty
            };
            std::mem::replace(&mut blocks.table[at], left)
        };
        let mut slot = self.with_blocks(take);
        while matches!(slot, Slot::Empty) {
            // R1. The CPU that wakes this one has written the slot.
            self.sleep("the CPU that is to allocate what it frees")?;
            slot = self.with_blocks(take);
        }
        let Slot::Driven {
            memory,
            recorded_order: order,
            ..
        } = slot
        else {
            self.outcome.borrow_mut().tally.page_events += 1;
            return Ok(());
        };
        let pages = self.with_blocks(|blocks| {
            let pages = match memory {
                Held::Block(block) => vec![block],
                Held::Part(of) => blocks.parts.give_back(of, 1 << order).into_iter().collect(),
                Held::Split(at) => blocks.parts.take_split(at),
            };
            blocks.pages -= pages.iter().map(|page| 1 << page.order()).sum::<u64>();
            pages
        });
        self.give_back(step, pages)
    }

    fn give_back(&self, step: &Step, pages: Vec<PageRef<'h>>) -> Result<(), Stopped> {
        for page in pages {
            let freed = self.timed(Kind::PageFree, || self.driver.free_pages(page));
            if let Err(error) = freed {
                let what = format!("the free of a page block is refused ({error})");
                return Err(self.bad_row(step, what));
            }
        }
        Ok(())
    }
}
