//! will-it-scale: processes that map, touch and unmap memory, or open files.
//!
//! Allocations and frees of an operation are counted on a real kernel (`data/will_it_scale.csv`), and a test compares them. Work
//! outside of the allocators (trees, reverse maps, lists for reclaim, accounting, paths) has a number of cycles, from a profile of
//! that kernel. Processes share no lock outside of the allocators.

use quarry_sim::Rng;
use schemars::JsonSchema;
use serde::Serialize;

use super::workload::Workload;
use crate::world::{Kind, Over, Request, Scenario, Task};

/// Pages that a page of page tables maps, with pages of 4 KiB. Larger ones have as many tables here.
const MAPPED_PER_TABLE: u32 = 512;
/// Pages that are listed before one is freed: in a page each, of 510 pages, and at most 20 of these.
const LISTED: u32 = 510;
const LISTS_MAX: u32 = 20;

/// Test of will-it-scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Test {
    /// Maps memory, touches each page, unmaps it. An operation is a page.
    PageFault1,
    /// The same of a private mapping of a file, whose pages are copied.
    PageFault2,
    /// Maps memory and unmaps it.
    Mmap1,
    /// Moves the end of the heap up by a page, and down.
    Brk1,
    /// Opens a file and closes it.
    Open1,
}

quarry_ask::choice!(Test, Test::ALL);

impl Test {
    /// All of them with their names.
    pub const ALL: [(Self, &'static str); 5] = [
        (Self::PageFault1, "page_fault1"),
        (Self::PageFault2, "page_fault2"),
        (Self::Mmap1, "mmap1"),
        (Self::Brk1, "brk1"),
        (Self::Open1, "open1"),
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Cycles of an operation outside of the allocators, clearing and copies: CPU time of 6.18 on a virtual machine of an EPYC, at the
    /// 3.694 GHz that `quarry calibrate` measured, less the allocators' share in a profile (`perf record -e cpu-clock`, 2026-11-30).
    ///
    /// | test | ns | slabs | pages | clearing, copies |
    /// |---|---|---|---|---|
    /// | page_fault1 | 2064 | 0.1 % | 5.4 % | 12.9 % |
    /// | page_fault2 | 2641 | 0.0 % | 4.0 % | 24.4 % |
    /// | mmap1 | 3595 | 9.0 % | 0.2 % | |
    /// | brk1 | 2665 | 12.9 % | 0.3 % | |
    /// | open1 | 2264 | 8.4 % | 0.0 % | |
    const fn outside_cycles(self) -> u32 {
        match self {
            Self::PageFault1 => 6221,
            Self::PageFault2 => 6985,
            Self::Mmap1 => 12_058,
            Self::Brk1 => 8545,
            Self::Open1 => 7661,
        }
    }

    /// Kinds that its operations allocate.
    const fn kinds(self) -> &'static [Kind] {
        match self {
            Self::PageFault1 | Self::PageFault2 => &[
                Kind::VmArea,
                Kind::MapleNode,
                Kind::AnonVma,
                Kind::AnonVmaChain,
            ],
            Self::Mmap1 | Self::Brk1 => &[Kind::VmArea, Kind::MapleNode],
            Self::Open1 => &[Kind::File, Kind::FileSecurity, Kind::PathName],
        }
    }
}

/// Options of will-it-scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct WillItScale {
    /// Test.
    #[schemars(with = "String")]
    pub test: Test,
    /// Processes.
    pub tasks: u32,
    /// Pages that a process of page_fault1 and page_fault2 maps.
    pub pages: u32,
}

impl Default for WillItScale {
    fn default() -> Self {
        Self {
            test: Test::PageFault1,
            tasks: 4,
            pages: 32768,
        }
    }
}

impl Workload for WillItScale {
    fn name(&self) -> &'static str {
        "will-it-scale"
    }

    fn size(&self) -> (&'static str, u32) {
        ("tasks", self.tasks)
    }

    fn tasks(&self) -> u64 {
        self.tasks.into()
    }

    fn connections(&self) -> u64 {
        0
    }

    fn messages(&self) -> [u32; 2] {
        [1; 2] // There are none.
    }

    fn virtual_only(&self) -> Option<&'static str> {
        Some("with processes' objects")
    }

    fn contradiction(&self) -> Option<String> {
        (self.pages == 0).then(|| "pages must be at least 1".to_string())
    }

    /// Processes are out of step: the first round of each has a random number of pages.
    fn set_up(&self, scenario: &mut Scenario, seed: u64) {
        let it = *self;
        let mut rng = Rng::new(seed);
        it.test
            .kinds()
            .iter()
            .for_each(|&kind| scenario.needs(kind));
        for _ in 0..it.tasks {
            let first = 1 + rng.below(it.pages.into()) as u32;
            scenario.spawn(Box::new(move |task: &dyn Task| {
                if it.test != Test::Open1 {
                    // The node of its tree of mappings.
                    task.request(Request::Alloc(Kind::MapleNode))?;
                }
                let mut pages = first;
                let work = Request::Work(it.test.outside_cycles());
                while !task.is_over() {
                    match it.test {
                        Test::PageFault1 => fault(task, pages, Kind::ZeroedPage, work)?,
                        Test::PageFault2 => fault(task, pages, Kind::CopiedPage, work)?,
                        Test::Mmap1 | Test::Brk1 => {
                            map(task)?;
                            task.request(work)?;
                            unmap(task)?;
                            task.done(1, 0);
                        }
                        Test::Open1 => open_and_close(task, work)?,
                    }
                    pages = it.pages;
                }
                Ok(())
            }));
        }
    }
}

/// A call changes the tree of mappings: a new node replaces one, which readers may still look at.
fn replace_node(task: &dyn Task) -> Result<(), Over> {
    task.request(Request::Alloc(Kind::MapleNode))?;
    task.request(Request::FreeLater(Kind::MapleNode))
}

fn map(task: &dyn Task) -> Result<(), Over> {
    task.request(Request::Enter)?;
    task.request(Request::Alloc(Kind::VmArea))?;
    replace_node(task)
}

fn unmap(task: &dyn Task) -> Result<(), Over> {
    task.request(Request::Enter)?;
    replace_node(task)?;
    task.request(Request::Free(Kind::VmArea))
}

/// Maps memory, touches each page, and unmaps it. An operation is a page. Once the run is over it touches no more.
fn fault(task: &dyn Task, pages: u32, kind: Kind, work: Request) -> Result<(), Over> {
    map(task)?;
    let mut tables = 0;
    let mut touched = 0;
    while touched < pages && !task.is_over() {
        task.request(Request::Enter)?;
        if touched == 0 {
            task.request(Request::Alloc(Kind::AnonVmaChain))?;
            task.request(Request::Alloc(Kind::AnonVma))?;
        }
        if touched.is_multiple_of(MAPPED_PER_TABLE) {
            task.request(Request::Alloc(Kind::PageTable))?;
            tables += 1;
        }
        task.request(Request::Alloc(kind))?;
        task.request(work)?;
        task.done(1, 0);
        touched += 1;
    }
    task.request(Request::Enter)?;
    replace_node(task)?;
    let lists = touched.div_ceil(LISTED).min(LISTS_MAX);
    let mut left = touched;
    for at in 0..touched.div_ceil(LISTED) {
        if at < lists {
            task.request(Request::Alloc(Kind::FreeList))?;
        }
        let is_last = at + 1 == touched.div_ceil(LISTED);
        if is_last || (at + 1).is_multiple_of(LISTS_MAX) {
            let now = left.min(LISTED * LISTS_MAX);
            for _ in 0..now {
                task.request(Request::Free(kind))?;
            }
            left -= now;
        }
    }
    for _ in 0..tables {
        task.request(Request::FreeLater(Kind::PageTable))?;
    }
    for _ in 0..lists {
        task.request(Request::Free(Kind::FreeList))?;
    }
    task.request(Request::Free(Kind::AnonVma))?;
    task.request(Request::Free(Kind::AnonVmaChain))?;
    task.request(Request::Free(Kind::VmArea))
}

fn open_and_close(task: &dyn Task, work: Request) -> Result<(), Over> {
    task.request(Request::Enter)?;
    task.request(Request::Alloc(Kind::PathName))?;
    task.request(Request::Alloc(Kind::File))?;
    task.request(Request::Alloc(Kind::FileSecurity))?;
    task.request(work)?;
    task.request(Request::Free(Kind::PathName))?;
    task.request(Request::Enter)?;
    task.request(Request::Free(Kind::FileSecurity))?;
    task.request(Request::Free(Kind::File))?;
    task.done(1, 0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;
    use crate::world::{End, Received, Source};
    use quarry_core::page::MigrateType;

    /// Allocations of an operation on a real kernel.
    const COUNTED: &str = include_str!("../../data/will_it_scale.csv");

    /// Counts requests until a number of operations are done.
    struct Counter {
        left: Cell<u64>,
        allocs: RefCell<[u64; Kind::ALL.len()]>,
        frees: RefCell<[u64; Kind::ALL.len()]>,
    }

    impl Task for Counter {
        fn send(&self, _: End, _: u32, _: u64) -> Result<(), Over> {
            Err(Over)
        }

        fn receive(&self, _: End, _: u32) -> Result<Received, Over> {
            Err(Over)
        }

        fn close(&self, _: End) {}

        fn request(&self, request: Request) -> Result<(), Over> {
            let (counts, kind) = match request {
                Request::Enter | Request::Work(_) => return Ok(()),
                Request::Alloc(kind) => (&self.allocs, kind),
                Request::Free(kind) | Request::FreeLater(kind) => (&self.frees, kind),
            };
            counts.borrow_mut()[kind as usize] += 1;
            Ok(())
        }

        fn sleep_ns(&self, _: u64) {}

        fn give_up_cpu(&self) {}

        fn now_ns(&self) -> u64 {
            0
        }

        fn is_over(&self) -> bool {
            self.left.get() == 0
        }

        fn done(&self, operations: u64, _: u64) {
            self.left.set(self.left.get().saturating_sub(operations));
        }
    }

    /// Requests of each kind in a number of operations: allocations and frees.
    fn requests(test: Test, operations: u64) -> [[u64; Kind::ALL.len()]; 2] {
        let load = WillItScale {
            test,
            tasks: 1,
            ..WillItScale::default()
        };
        let mut scenario = Scenario::default();
        load.set_up(&mut scenario, 1);
        let task = Counter {
            left: Cell::new(operations),
            allocs: RefCell::default(),
            frees: RefCell::default(),
        };
        scenario.tasks.pop().unwrap()(&task).unwrap();
        [task.allocs.into_inner(), task.frees.into_inner()]
    }

    /// Name in the file of counts, and bytes.
    fn counted_as(kind: Kind) -> (&'static str, u32) {
        match kind.source() {
            Source::Cache(spec) => (spec.name, spec.object_size),
            Source::Pages(MigrateType::Movable) => ("movable pages", 4096),
            Source::Pages(_) => ("unmovable pages", 4096),
        }
    }

    #[test]
    fn an_operation_allocates_what_was_counted_on_a_real_kernel() {
        let rows = COUNTED.lines().filter(|line| !line.starts_with('#'));
        let rows: Vec<Vec<&str>> = rows.skip(1).map(|line| line.split(',').collect()).collect();
        for (test, name) in Test::ALL {
            // The difference of two runs, as it was counted.
            let pages = match test {
                Test::PageFault1 | Test::PageFault2 => 32768,
                _ => 1,
            };
            let [more, less] = [4, 2].map(|rounds| requests(test, rounds * pages));
            let mut seen = 0;
            for row in rows.iter().filter(|row| row[0] == name) {
                let (bytes, count): (u32, f64) = (row[2].parse().unwrap(), row[3].parse().unwrap());
                let of_row = |kind: &&Kind| counted_as(**kind) == (row[1], bytes);
                let of_row: Vec<&Kind> = Kind::ALL.iter().filter(of_row).collect();
                assert!(!of_row.is_empty(), "{row:?}");
                for more_or_freed in [0, 1] {
                    let sum = |counts: &[[u64; Kind::ALL.len()]; 2]| -> u64 {
                        of_row
                            .iter()
                            .map(|kind| counts[more_or_freed][**kind as usize])
                            .sum()
                    };
                    let own = (sum(&more) - sum(&less)) as f64 / 2.0;
                    assert!((own - count).abs() <= count * 0.01, "{row:?}: {own}");
                }
                seen += of_row
                    .iter()
                    .map(|kind| more[0][**kind as usize])
                    .sum::<u64>();
            }
            assert_eq!(seen, more[0].iter().sum::<u64>(), "{name} requests more");
        }
    }
}
