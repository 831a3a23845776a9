//! Page events: the blocks of the trace that are no slabs, on the CPUs' clocks.
//!
//! What becomes of a block is as in a replay that counts ([`super::super::pages`]). A block without memory ends the
//! replay.

use quarry_core::design::Design;
use quarry_core::machine::CpuId;
use quarry_core::page::{MAX_ORDER, MigrateType};
use quarry_sim::driver::{Driver, PageRef};
use quarry_trace::{NO_OBJECT, ReplayEvent};

use super::super::input::Input;
use super::super::pages::parts::{Fit, Parts};
use super::super::pages::{Held, Initial, Pages, named_type};
use super::feed::Step;
use super::report::Kind;
use super::world::{Cpu, Stopped, World};
use crate::error::LabError;

/// A block by its number.
enum Slot<'h> {
    /// Not allocated.
    Empty,
    /// Not allocated, and this CPU's free waits.
    Awaited(u16),
    /// Allocated, with this order by the recording.
    Held { memory: Held<'h>, order: u8 },
    /// Left out: too large.
    Unserved,
}

/// The blocks of a replay.
pub(super) struct Blocks<'h> {
    /// By number, those of all copies beside each other.
    table: Vec<Slot<'h>>,
    /// Those from before the part, in the order of their frees.
    initial: std::vec::IntoIter<Initial<'h>>,
    parts: Parts<'h>,
    recorded_page_shift: u32,
    page_shift: u32,
    /// Pages of blocks now.
    pages: u64,
}

impl<'h> Blocks<'h> {
    /// Allocates the blocks from before, if page events are driven.
    pub(super) fn new<D: Design>(
        driver: &Driver<'h, D>,
        input: &Input,
        page_bytes: u64,
        cpus: u32,
    ) -> Result<Self, LabError> {
        let initial = match Pages::new(input, page_bytes, cpus)? {
            Some(mut pages) => {
                pages.prepare(driver, input, None)?;
                pages.into_initial()
            }
            None => Vec::new().into_iter(),
        };
        let meta = input.file.meta();
        Ok(Self {
            table: Vec::new(),
            initial,
            parts: Parts::new(meta.page_size, page_bytes, cpus),
            recorded_page_shift: meta.page_size.max(1).ilog2(),
            page_shift: page_bytes.ilog2(),
            pages: 0,
        })
    }

    /// Makes the table as long as there are numbers.
    pub(super) fn make_room(&mut self, numbers: usize) {
        let more = numbers.saturating_sub(self.table.len());
        self.table
            .extend(std::iter::repeat_with(|| Slot::Empty).take(more));
    }

    /// Pages of blocks now.
    pub(super) fn pages(&self) -> u64 {
        self.pages
    }
}

impl<'h, D: Design> World<'_, 'h, D> {
    pub(super) fn alloc_block(&self, cpu: &Cpu, step: &Step, at: usize) -> Result<(), Stopped> {
        let event: ReplayEvent = step.event();
        let migratetype = named_type(&event).unwrap_or(MigrateType::Unmovable);
        let fit = {
            let blocks = self.blocks.borrow();
            let movable = migratetype == MigrateType::Movable;
            Fit::new(
                blocks.recorded_page_shift,
                blocks.page_shift,
                step.order,
                movable,
            )
        };
        let slot = if fit.order() > MAX_ORDER {
            self.outcome.borrow_mut().tally.page_events += 1;
            Slot::Unserved
        } else {
            let memory = self.place(cpu, step, fit, migratetype)?;
            let order = step.order;
            Slot::Held { memory, order }
        };
        // From here on other CPUs see it.
        self.machine().take_turn();
        let before = std::mem::replace(&mut self.blocks.borrow_mut().table[at], slot);
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
            self.blocks.borrow_mut().pages += 1 << order;
            Ok(page)
        };
        let id = cpu.id as u16;
        Ok(match fit {
            Fit::Block(order) => Held::Block(take(order)?),
            Fit::Parts(parts) => {
                let taken = self.blocks.borrow_mut().parts.take(id, parts);
                match taken {
                    Some(of) => Held::Part(of),
                    None => {
                        let page = take(0)?;
                        Held::Part(self.blocks.borrow_mut().parts.open(id, page, parts))
                    }
                }
            }
            Fit::Pages(count) => {
                let pages: Result<Vec<_>, _> = (0..count).map(|_| take(0)).collect();
                Held::Split(self.blocks.borrow_mut().parts.keep(pages?))
            }
        })
    }

    pub(super) fn free_block(&self, cpu: &Cpu, step: &Step, at: usize) -> Result<(), Stopped> {
        if step.object == NO_OBJECT {
            let initial = self.blocks.borrow_mut().initial.next();
            return match initial {
                Some(Initial::Pages(pages)) => self.give_back(step, pages),
                Some(Initial::Part) => Ok(()),
                None | Some(Initial::None) => {
                    self.outcome.borrow_mut().tally.page_events += 1;
                    Ok(())
                }
            };
        }
        let slot = loop {
            let mut blocks = self.blocks.borrow_mut();
            let slot = &mut blocks.table[at];
            if !matches!(slot, Slot::Empty) {
                break std::mem::replace(slot, Slot::Empty);
            }
            *slot = Slot::Awaited(cpu.id as u16);
            drop(blocks);
            self.sleep("the CPU that is to allocate what it frees")?;
        };
        let Slot::Held { memory, order } = slot else {
            self.outcome.borrow_mut().tally.page_events += 1;
            return Ok(());
        };
        let pages = {
            let mut blocks = self.blocks.borrow_mut();
            let pages = match memory {
                Held::Block(block) => vec![block],
                Held::Part(of) => blocks.parts.give_back(of, 1 << order).into_iter().collect(),
                Held::Split(at) => blocks.parts.take_split(at),
            };
            blocks.pages -= pages.iter().map(|page| 1 << page.order()).sum::<u64>();
            pages
        };
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
