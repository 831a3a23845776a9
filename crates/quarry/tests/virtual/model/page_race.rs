//! The same for the page allocator alone: tasks that allocate and free blocks of pages race.

use quarry_core::machine::Machine;
use quarry_core::page::{PageAllocator, PageConfig};
use quarry_sim::{Explore, Explored};

use super::Check;
use super::page_script::PageOp;
use super::pages::PageDriver;
use super::place::Placement;
use super::race::Turns;
use super::setup::{Limits, Setup};

/// Blocks that one operation allocates or frees at most.
const COUNT_MAX: u16 = 24;

/// Does one operation while other tasks do theirs.
fn apply<M: Machine, P: Placement<M>>(driver: &PageDriver<'_, M, P>, op: &PageOp) -> Check {
    match *op {
        PageOp::Exhaust { cpu, .. } => {
            driver.go(cpu);
            let options = op.options(driver.pages.machine());
            (0..COUNT_MAX).try_for_each(|_| driver.alloc(&options).map(|_| ()))
        }
        PageOp::Free { cpu, pick, count } => {
            let count = count.min(COUNT_MAX);
            driver.apply(&PageOp::Free { cpu, pick, count })
        }
        // A page that is free is another task's next, so that no free is wrong whatever others do. What follows
        // is looked at instead.
        PageOp::Double { .. } => {
            let checked = driver.pages.check_consistency();
            checked.map(|_| ()).map_err(|error| error.to_string())
        }
        PageOp::WrongOrder { .. } | PageOp::Foreign { .. } | PageOp::Inside { .. } => Ok(()),
        _ => driver.apply(op),
    }
}

/// Runs a script's operations as tasks that race, and checks what they got and what is left.
pub(crate) fn check_page_race<M: Machine, P: Placement<M>>(
    (machine, place): (M, P),
    setup: &Setup,
    how: &Explore,
    config: &PageConfig,
    ops: &[PageOp],
) -> Check<Explored> {
    let pages = PageAllocator::with_config(machine, config).map_err(|error| error.to_string())?;
    let limits = Limits {
        raced: true,
        ..setup.limits()
    };
    let driver = PageDriver::new(&pages, place, limits);
    let turns = Turns::new(ops, how);
    let explored = place
        .on(pages.machine())
        .explore(how, |task| turns.run(task, |op| apply(&driver, op)));
    turns.end()?;
    let explored = explored.map_err(|error| error.to_string())?;
    driver
        .audit()
        .and_then(|()| driver.finish())
        .map_err(|error| format!("at the end: {error}"))?;
    Ok(explored)
}
