//! Replay of a guest's requests on the page allocator, with what both did up to each stage.

use std::collections::{BTreeMap, HashSet};

use quarry_core::era::Era;
use quarry_core::inspect::PageFile;
use quarry_core::machine::CpuId;
use quarry_core::page::{AllocOptions, BlockType, MigrateType, PageAllocator, Pfn, ZoneType};
use quarry_sim::VirtualMachine;

use crate::guest::{Block, Event, Guest, Moment, Reserve};
use crate::start::machine;

/// Counts since the first event, and blocks at this moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Requests that took a block of another type.
    pub(crate) fallbacks: u64,
    /// Blocks that CPUs' lists gave back since the first stage: before, the sizes of the lists were others.
    pub(crate) drained: u64,
    /// Blocks of 2 MiB with a page that was requested as unmovable or reclaimable.
    pub(crate) tainted: u64,
}

pub(crate) struct Stage {
    pub(crate) name: String,
    pub(crate) kernel: Counts,
    pub(crate) model: Counts,
    /// The model's.
    pub(crate) reserve: Reserve,
    /// Requests that the model could not serve, and frees of blocks that it does not know.
    pub(crate) lost: u64,
}

/// A block of the guest that is in use.
struct Live {
    block: Block,
    of: MigrateType,
    /// The model's block.
    model: Option<Pfn>,
    /// Pages that are still in use.
    left: u32,
}

struct Replay {
    pages: PageAllocator<VirtualMachine>,
    /// By the first page; blocks do not overlap.
    live: BTreeMap<u32, Live>,
    counts: Counts,
    lost: u64,
    /// CPUs' lists are those of an early boot, which hold nothing: until they are refilled by several pages, or hardly any
    /// memory is there.
    early: bool,
    /// Blocks that are still to come late.
    late_blocks: usize,
    /// Blocks that the model drained before the first stage.
    drained_early: Option<u64>,
    refills_in_row: u32,
    next_interval: f64,
    /// The zone below which requests for DMA stay.
    dma: ZoneType,
    block_order: u32,
}

/// The stages of a guest under the rules of a release. The statistics intervals of a second begin at `phase`.
pub(crate) fn stages(guest: &Guest, era: Era, phase: f64) -> Vec<Stage> {
    let mut replay = Replay {
        pages: machine(guest, era),
        live: BTreeMap::new(),
        counts: Counts::default(),
        lost: 0,
        early: true,
        late_blocks: guest.late_blocks(),
        drained_early: None,
        refills_in_row: 0,
        next_interval: 1.0 + phase,
        dma: match guest.managed.len() {
            1 => ZoneType::Normal,
            _ => ZoneType::Dma,
        },
        block_order: guest.block_order(),
    };
    let stages = guest.events.iter().filter_map(|event| replay.step(event));
    stages.collect()
}

impl Replay {
    fn step(&mut self, event: &Event) -> Option<Stage> {
        match event {
            Event::Alloc {
                on,
                block,
                of,
                atomic,
                dma,
            } => {
                self.run_on(*on);
                self.refills_in_row = 0;
                let options = AllocOptions {
                    order: block.order,
                    migratetype: *of,
                    atomic: *atomic,
                    // Kernels set them when all memory has come.
                    no_watermarks: self.drained_early.is_none(),
                    highest_zone: if *dma { self.dma } else { ZoneType::Normal },
                    ..AllocOptions::default()
                };
                self.alloc(*block, &options);
            }
            Event::Free {
                on,
                block,
                deferred,
            } => {
                self.run_on(*on);
                let is_late = *deferred && block.order >= self.block_order;
                self.late_blocks = self.late_blocks.saturating_sub(usize::from(is_late));
                self.free(*block, *deferred);
            }
            Event::Fallback { .. } => self.counts.fallbacks += 1,
            Event::Drain(_) => self.counts.drained += 1,
            Event::Refill { .. } => {
                self.refills_in_row += 1;
                // The lists of an early boot are refilled by one.
                self.early &= self.refills_in_row < 2 || self.late_blocks > 0;
            }
            Event::Stage(name) => return Some(self.stage(name)),
        }
        None
    }

    fn run_on(&mut self, moment: Moment) {
        while moment.seconds >= self.next_interval {
            self.pages.vmstat_update();
            self.next_interval += 1.0;
        }
        self.pages.machine().run_on(CpuId(moment.cpu));
    }

    fn alloc(&mut self, block: Block, options: &AllocOptions) {
        let model = match self.early && options.highest_zone == ZoneType::Normal {
            true => self
                .pages
                .alloc_past_lists(block.order, options.migratetype),
            false => self.pages.alloc_with(options),
        };
        self.lost += u64::from(model.is_none());
        let live = Live {
            block,
            of: options.migratetype,
            model,
            left: 1 << block.order,
        };
        self.live.insert(block.pfn, live);
    }

    /// Frees a block, or a part of one; that goes back with its last part.
    fn free(&mut self, part: Block, deferred: bool) {
        let around = self.live.range_mut(..=part.pfn).next_back();
        let around = around.filter(|(_, live)| live.block.pages().contains(&part.pfn));
        let Some((&pfn, live)) = around else {
            return self.free_older(part, deferred);
        };
        live.left -= 1 << part.order;
        if live.left > 0 {
            return;
        }
        let live = self.live.remove(&pfn).unwrap();
        if let Some(model) = live.model {
            self.give_back(model, live.block.order);
        }
    }

    /// Frees memory that was in use before the first event.
    fn free_older(&mut self, Block { pfn, order }: Block, deferred: bool) {
        let pfn = Pfn(pfn);
        // Memory that boots late passes CPUs' lists by, and comes behind the blocks that are there.
        if deferred {
            self.lost += u64::from(!self.pages.lay_free(pfn, order, BlockType::MOVABLE));
            return;
        }
        match self.pages.lay_allocated(pfn, order, MigrateType::Unmovable) {
            true => self.give_back(pfn, order),
            false => self.lost += 1,
        }
    }

    fn give_back(&self, pfn: Pfn, order: u32) {
        // SAFETY: the block is one of `live` that has just left it, or was laid for this call.
        unsafe { self.pages.free(pfn, order).unwrap() };
        if self.early {
            self.pages.drain_all();
        }
    }

    fn stage(&mut self, name: &str) -> Stage {
        let stats = self.pages.stats();
        if self.drained_early.is_none() {
            self.counts.drained = 0;
        }
        let drained_early = *self.drained_early.get_or_insert(stats.pcp.drained);
        let pinned = || {
            self.live
                .values()
                .filter(|live| live.of != MigrateType::Movable)
        };
        let tainted = |blocks: &mut dyn Iterator<Item = Block>| {
            let blocks = blocks.flat_map(|it| it.pages().map(|page| page >> self.block_order));
            blocks.collect::<HashSet<_>>().len() as u64
        };
        let of_model = |live: &Live| {
            Some(Block {
                pfn: live.model?.0,
                ..live.block
            })
        };
        Stage {
            name: name.to_string(),
            kernel: Counts {
                tainted: tainted(&mut pinned().map(|it| it.block)),
                ..self.counts
            },
            model: Counts {
                fallbacks: stats.extfrag,
                drained: stats.pcp.drained - drained_early,
                tainted: tainted(&mut pinned().filter_map(of_model)),
            },
            reserve: self.reserve(),
            lost: self.lost,
        }
    }

    fn reserve(&self) -> Reserve {
        let mut text = String::new();
        let file = PageFile::Pagetypeinfo;
        self.pages.write_page_file(file, &mut text).unwrap();
        Reserve::of(&text)
    }
}
