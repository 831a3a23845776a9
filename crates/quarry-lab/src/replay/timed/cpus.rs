//! The virtual CPUs, what they perform, and how they wait for each other.

use std::cell::{Cell, RefCell};

use quarry_core::design::{Design, REAP_INTERVAL_NS};
use quarry_core::machine::CpuId;
use quarry_sim::driver::Driver;
use quarry_sim::{Passage, Rng, VirtualMachine};

use super::super::engine::VMSTAT_INTERVAL_NS;
use super::super::engine::periodic::Periodic;
use super::super::frames::Frames;
use super::super::input::Input;
use super::super::lists::Start;
use super::super::objects::Entry;
use super::super::pages::{Pages, Slot};
use super::super::part::Window;
use super::super::placement::Placement;
use super::caches::Caches;
use super::feed::{AHEAD_ROWS, Feed, Step};
use super::report::{Kind, Outcome};
use super::{Pace, Timing};
use crate::error::LabError;
use crate::run::{Kmalloc, Progress, RunSpec};

/// Copies of the load begin up to this much after the first.
const SHIFT_NS: u64 = 100_000;

/// Steps after which a replay asks whether it is stopped.
const STOP_STEPS: u64 = 1024;

/// A virtual CPU.
pub(super) struct Cpu {
    /// Its number.
    pub(super) id: u32,
    copy: u32,
    lane: usize,
    /// Its next step, by its number in the lane.
    next: Cell<u64>,
    /// Row of the last step that it has performed.
    done_row: Cell<u64>,
    /// True while it sleeps until more of the trace is read.
    starves: Cell<bool>,
    /// CPUs that sleep until it has performed a row.
    waiting: RefCell<Vec<(u64, u32)>>,
    reap: RefCell<Periodic>,
}

/// The run failed; why is in [`TimedReplay::failure`].
pub(super) struct Stopped;

/// A replay under way.
pub(super) struct TimedReplay<'a, 'h, D: Design> {
    pub(super) driver: &'a Driver<'h, D>,
    pub(super) spec: &'a RunSpec,
    pub(super) input: &'a Input,
    progress: Progress<'a>,
    /// Steps that all CPUs have performed.
    steps: Cell<u64>,
    pace: Pace,
    copies: u32,
    /// Those with events: first all of the first copy, then all of the second.
    cpus: Vec<Cpu>,
    lanes: u32,
    /// When each copy begins.
    shifts_ns: Vec<u64>,
    /// When the part begins, by the recording's clock.
    from_ns: u64,
    pub(super) kmalloc: Kmalloc,
    /// The driver's cache by cache index of the trace.
    pub(super) caches: Vec<u16>,
    feed: RefCell<Feed<'a>>,
    /// By number, those of all copies beside each other.
    pub(super) objects: RefCell<Vec<Entry<'h>>>,
    /// Blocks of pages in the same way, if page events are driven.
    pub(super) blocks: RefCell<Option<Pages<'h>>>,
    vmstat: RefCell<Periodic>,
    failure: RefCell<Option<LabError>>,
    pub(super) outcome: RefCell<Outcome>,
    pub(super) numbers: Caches,
}

impl<'a, 'h, D: Design> TimedReplay<'a, 'h, D> {
    pub(super) fn new(
        driver: &'a Driver<'h, D>,
        spec: &'a RunSpec,
        timing: &Timing,
        input: &'a Input,
        caches: Vec<u16>,
        (reported, mut frames): (Option<&Start<'_>>, Option<Frames>),
        progress: Progress<'a>,
    ) -> Result<Self, LabError> {
        let meta = input.file.meta();
        let lanes = meta.cpus.min(spec.config.cpus);
        let cpu = |id: u32| Cpu {
            id,
            copy: id / lanes,
            lane: (id % lanes) as usize,
            next: Cell::new(0),
            done_row: Cell::new(0),
            starves: Cell::new(false),
            waiting: RefCell::default(),
            reap: RefCell::new(Periodic::every(REAP_INTERVAL_NS)),
        };
        let mut rng = Rng::new(timing.seed);
        let shift = |copy: u32| if copy == 0 { 0 } else { rng.below(SHIFT_NS) };
        let window = Window::new(input.part);
        let mut blocks = Pages::new(input, spec.config.page_bytes, spec.config.cpus)?;
        if let Some(pages) = &mut blocks {
            pages.prepare(driver, input, reported, frames.as_mut())?;
        }
        let kmalloc = spec.kmalloc()?;
        let numbers = Caches::of(driver, &kmalloc);
        let mut outcome = Outcome::of_caches(numbers.len());
        if spec.settings.policy.is_some() && blocks.is_some() {
            let mut placement = Placement::of(frames);
            placement.take(driver, (0, 0));
            outcome.placement = Some(placement);
        }
        Ok(Self {
            driver,
            spec,
            input,
            progress,
            steps: Cell::new(0),
            pace: timing.pace,
            copies: input.copies,
            cpus: (0..lanes * input.copies).map(cpu).collect(),
            lanes,
            shifts_ns: (0..input.copies).map(shift).collect(),
            from_ns: window.bounds(meta.first_time_ns, meta.last_time_ns).0,
            kmalloc,
            caches,
            feed: RefCell::new(Feed::new(input, lanes)),
            objects: RefCell::new(reserved(input, meta.object_slots)?),
            blocks: RefCell::new(blocks),
            vmstat: RefCell::new(Periodic::every(VMSTAT_INTERVAL_NS)),
            failure: RefCell::default(),
            outcome: RefCell::new(outcome),
            numbers,
        })
    }

    pub(super) fn machine(&self) -> &VirtualMachine {
        self.driver.machine()
    }

    /// Performs all events of a CPU, on its clock.
    ///
    /// The machine runs this once for each virtual CPU and always lets the CPU with the earliest clock go on. Whatever
    /// advances the clock or sleeps may let other CPUs run in between, so no borrow of a cell is held across such a call.
    /// Most steps find all that they need, and the CPU goes from one to the next without waiting. It waits if its task's
    /// last event is not done (R2), if the object that it frees is not allocated (R1), or if it is so far ahead that its
    /// next step is not read (R3). CPUs without events of the load, those beyond the copies' lanes, return at once.
    ///
    /// An error of one CPU ends all: it is kept in [`Self::failure`], and every CPU that sleeps is woken to see it.
    pub(super) fn run_cpu(&self, CpuId(id): CpuId) {
        let Some(cpu) = self.cpus.get(id as usize) else {
            return;
        };
        let shift_ns = self.shifts_ns[cpu.copy as usize];
        self.machine().advance_to(shift_ns);
        while let Ok(Some(step)) = self.next(cpu) {
            if self.perform(cpu, &step, shift_ns).is_err() {
                return;
            }
        }
    }

    fn perform(&self, cpu: &Cpu, step: &Step, shift_ns: u64) -> Result<(), Stopped> {
        if self.pace == Pace::Recorded {
            let due_ns = step.time_ns.saturating_sub(self.from_ns) + shift_ns;
            let late_ps = self.machine().clock_ps().saturating_sub(due_ns * 1000);
            self.outcome.borrow_mut().began(late_ps);
            self.machine().advance_to(due_ns);
        }
        // Due by the time at which the CPU comes to the step: a wait for its task may last beyond the next round.
        self.do_periodic(cpu);
        self.wait_for_task(cpu, step)?;
        let at = (step.object as usize).wrapping_mul(self.copies as usize) + cpu.copy as usize;
        match (step.kind.is_page(), step.kind.is_free()) {
            (false, false) => self.alloc(cpu, step, at)?,
            (false, true) => self.free(cpu, step, at)?,
            (true, false) => self.alloc_block(cpu, step, at)?,
            (true, true) => self.free_block(cpu, step, at)?,
        }
        // All CPUs with an earlier clock go first, so that none sees the step done at a time at which it was not.
        self.machine().take_turn();
        cpu.done_row.set(step.row);
        cpu.next.set(cpu.next.get() + 1);
        self.wake_waiting(cpu, step.row);
        self.steps.set(self.steps.get() + 1);
        if self.steps.get().is_multiple_of(STOP_STEPS) && self.progress.is_stopped() {
            return Err(self.fail(LabError::Stopped));
        }
        self.read_ahead(cpu, step.row)
    }

    /// Wakes the CPUs that wait until a CPU has performed this row.
    fn wake_waiting(&self, cpu: &Cpu, done_row: u64) {
        if cpu.waiting.borrow().is_empty() {
            return;
        }
        let (due, rest): (Vec<_>, Vec<_>) = cpu
            .waiting
            .take()
            .into_iter()
            .partition(|(row, _)| *row <= done_row);
        cpu.waiting.replace(rest);
        for (_, waiting) in due {
            self.machine().wake(CpuId(waiting));
        }
    }

    /// The work of the kernel that is due from time to time.
    fn do_periodic(&self, cpu: &Cpu) {
        let now_ns = self.machine().clock_ps() / 1000;
        if cpu.reap.borrow().due_ns() <= now_ns {
            let rounds = cpu.reap.borrow_mut().take(now_ns);
            rounds.for_each(|_| self.driver.reap_here());
        }
        if cpu.id == 0 && self.vmstat.borrow().due_ns() <= now_ns {
            let rounds = self.vmstat.borrow_mut().take(now_ns);
            rounds.for_each(|_| {
                self.driver.pages().vmstat_update();
            });
        }
    }

    /// Waits until the task's last event is done, if that is another CPU's (R2).
    fn wait_for_task(&self, cpu: &Cpu, step: &Step) -> Result<(), Stopped> {
        if step.after == 0 {
            return Ok(());
        }
        let row = step.row - u64::from(step.after);
        let other = cpu.copy * self.lanes + u32::from(step.after_lane);
        let other = &self.cpus[other as usize];
        // The other CPU mostly is past the row. If not it wakes this one, maybe for an earlier row: look again.
        while other.done_row.get() < row {
            other.waiting.borrow_mut().push((row, cpu.id));
            self.sleep("the CPU that its task ran on before")?;
        }
        Ok(())
    }

    /// Sleeps until another CPU calls [`VirtualMachine::wake`].
    pub(super) fn sleep(&self, what: &'static str) -> Result<(), Stopped> {
        self.machine().sleep(what);
        match self.failure.borrow().is_some() {
            true => Err(Stopped),
            false => Ok(()),
        }
    }

    /// Ends the run. All CPUs that sleep wake up to learn it.
    pub(super) fn fail(&self, error: LabError) -> Stopped {
        self.failure.borrow_mut().get_or_insert(error);
        for cpu in &self.cpus {
            self.machine().wake(CpuId(cpu.id));
        }
        Stopped
    }

    /// The next step of a CPU; `None` behind its last.
    fn next(&self, cpu: &Cpu) -> Result<Option<Step>, Stopped> {
        loop {
            if self.failure.borrow().is_some() {
                return Err(Stopped);
            }
            let step = self.feed.borrow().step(cpu.lane, cpu.next.get()).copied();
            if step.is_some() || self.feed.borrow().ended() {
                return Ok(step);
            }
            // Reading may go on at once, unless the last CPU is too far behind. Then that one reads when it has caught up
            // (`read_ahead`) and wakes this CPU.
            cpu.starves.set(true);
            self.read()?;
            if cpu.starves.get() {
                self.sleep("the last CPU, which is far behind")?;
            }
        }
    }

    /// Reads on if a CPU starves and this one, which has performed this row, held the others back.
    fn read_ahead(&self, cpu: &Cpu, row: u64) -> Result<(), Stopped> {
        let feed = self.feed.borrow();
        let readable_at = feed.readable_at();
        let held_back = row < readable_at && self.next_row(&feed, cpu) >= readable_at;
        drop(feed);
        match held_back && self.cpus.iter().any(|cpu| cpu.starves.get()) {
            true => self.read(),
            false => Ok(()),
        }
    }

    /// The row that a CPU performs next, or the last that is read.
    fn next_row(&self, feed: &Feed<'_>, cpu: &Cpu) -> u64 {
        let step = feed.step(cpu.lane, cpu.next.get());
        step.map_or(feed.row(), |step| step.row)
    }

    /// The earliest row that a CPU has yet to perform, of those that are read.
    fn oldest_row(&self, feed: &Feed<'_>) -> u64 {
        let rows = self.cpus.iter().map(|cpu| self.next_row(feed, cpu));
        rows.min().unwrap_or(0)
    }

    /// Reads on until no CPU starves, as far as the last one allows, and wakes those that have steps.
    fn read(&self) -> Result<(), Stopped> {
        let mut woken = Vec::new();
        let mut feed = self.feed.borrow_mut();
        while self.cpus.iter().any(|cpu| cpu.starves.get()) && feed.may_read(self.oldest_row(&feed))
        {
            for lane in 0..self.lanes as usize {
                let on_lane = self.cpus.iter().filter(|cpu| cpu.lane == lane);
                let next = on_lane.map(|cpu| cpu.next.get()).min();
                feed.forget(lane, next.unwrap_or(0));
            }
            match feed.read() {
                Ok(rows) => self.progress.advance(rows),
                Err(error) => {
                    drop(feed);
                    return Err(self.fail(error));
                }
            }
            for cpu in &self.cpus {
                let fed = feed.ended() || feed.step(cpu.lane, cpu.next.get()).is_some();
                if fed && cpu.starves.replace(false) {
                    woken.push(cpu.id);
                }
            }
        }
        self.make_room(&feed);
        drop(feed);
        for id in woken {
            self.machine().wake(CpuId(id));
        }
        Ok(())
    }

    /// Makes the tables as long as there are numbers.
    fn make_room(&self, feed: &Feed<'_>) {
        let (objects, blocks) = feed.numbers();
        let all = |numbers: u32| numbers as usize * self.copies as usize;
        lengthen(&mut self.objects.borrow_mut(), all(objects), || {
            Entry::EMPTY
        });
        if let Some(pages) = &mut *self.blocks.borrow_mut() {
            lengthen(&mut pages.table, all(blocks), || Slot::Empty);
        }
    }

    /// Does an operation and notes its time and its path.
    #[inline(always)]
    pub(super) fn timed<R>(&self, kind: Kind, operation: impl FnOnce() -> R) -> R {
        let (result, ps, passage) = self.measured(operation);
        self.outcome.borrow_mut().took(kind, ps, passage);
        result
    }

    /// The same for an object, of a cache as the table of objects names it.
    #[inline(always)]
    pub(super) fn timed_in<R>(
        &self,
        (cache, bytes): (u16, u32),
        kind: Kind,
        operation: impl FnOnce() -> R,
    ) -> R {
        let (result, ps, passage) = self.measured(operation);
        let cache = self.numbers.of_object(cache, bytes);
        let mut outcome = self.outcome.borrow_mut();
        outcome.took_in(cache, kind, ps, passage);
        result
    }

    #[inline(always)]
    fn measured<R>(&self, operation: impl FnOnce() -> R) -> (R, u64, Passage) {
        let machine = self.machine();
        let (began_ps, began) = (machine.clock_ps(), machine.passage());
        let result = operation();
        machine.leave_call();
        let (ps, passage) = (machine.clock_ps() - began_ps, machine.passage());
        (result, ps, passage.since(began))
    }

    pub(super) fn bad_row(&self, step: &Step, what: String) -> Stopped {
        self.fail(self.input.bad_row(step.row, what))
    }

    pub(super) fn out_of_memory(&self, step: &Step, wanted: u32, cache: &str) -> Stopped {
        let blocks = self.blocks.borrow().as_ref().map_or(0, Pages::pages);
        let used_pages = self.driver.slab_pages() + blocks;
        let (spec, row) = (self.spec, step.row);
        self.fail(
            self.input
                .out_of_memory(spec, row, used_pages, wanted, cache),
        )
    }

    /// The run's outcome, or the reason why it failed.
    pub(super) fn finish(self) -> Result<(Outcome, Caches), LabError> {
        if let Some(error) = self.failure.into_inner() {
            return Err(error);
        }
        let feed = self.feed.into_inner();
        let mut outcome = self.outcome.into_inner();
        let copies = u64::from(self.copies);
        outcome.tally.orphans += feed.tally().orphans * copies;
        outcome.tally.page_events += feed.tally().page_events * copies;
        outcome.has_begun = feed.has_begun();
        outcome.cpus_with_events = self.cpus.iter().filter(|cpu| cpu.next.get() > 0).count() as u32;
        Ok((outcome, self.numbers))
    }
}

/// Makes a table as long as there are numbers.
fn lengthen<T>(table: &mut Vec<T>, numbers: usize, empty: impl FnMut() -> T) {
    let more = numbers.saturating_sub(table.len());
    table.extend(std::iter::repeat_with(empty).take(more));
}

/// A table for as many numbers as there can be. Only what is used becomes resident.
fn reserved<T>(input: &Input, slots: u32) -> Result<Vec<T>, LabError> {
    let objects = (u64::from(slots) + AHEAD_ROWS) * u64::from(input.copies);
    let mut table = Vec::new();
    let room = usize::try_from(objects).map(|objects| table.try_reserve_exact(objects));
    match room {
        Ok(Ok(())) => Ok(table),
        _ => Err(LabError::Table {
            trace: input.name.clone(),
            objects: u32::try_from(objects).unwrap_or(u32::MAX),
        }),
    }
}
