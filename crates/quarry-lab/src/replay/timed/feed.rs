//! The trace as steps of virtual CPUs, read a little ahead.

use std::collections::{HashMap, VecDeque};

use quarry_trace::{CHUNK_EVENTS, Flags, Kind, NO_OBJECT, ReplayEvent, TaskReader};

use super::super::input::Input;
use super::super::pages::PageEvents;
use super::super::part::{Phase, Window};
use super::super::report::Tally;
use crate::error::LabError;

/// Rows of the trace that the first CPU may be ahead of the last one. All CPUs are past a row that lies further back.
pub(super) const AHEAD_ROWS: u64 = 4 * CHUNK_EVENTS as u64;

/// An event as a CPU performs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// Its row, counted from 1.
    pub(super) row: u64,
    /// By the recording's clock.
    pub(super) time_ns: u64,
    /// Number of the object or block ([`Names`]), or [`NO_OBJECT`].
    pub(super) object: u32,
    pub(super) bytes: u32,
    /// Rows back to the last event of its task, if that was on another CPU and not long ago; else 0.
    pub(super) after: u32,
    /// That CPU.
    pub(super) after_lane: u16,
    pub(super) cache: u16,
    pub(super) kind: Kind,
    pub(super) flags: Flags,
    pub(super) order: u8,
    pub(super) place: i8,
}

const _: () = assert!(size_of::<Step>() <= 40);

impl Step {
    /// The event, without its CPU.
    pub(super) fn event(&self) -> ReplayEvent {
        ReplayEvent {
            time_ns: self.time_ns,
            object: self.object,
            bytes_req: self.bytes,
            cache: self.cache,
            cpu: 0,
            kind: self.kind,
            flags: self.flags,
            order: self.order,
            place: self.place,
        }
    }
}

/// Value of [`Names::current`] for a slot without an object.
const NONE: u32 = u32::MAX;
/// The same for an object that was allocated before the part.
const BEFORE: u32 = u32::MAX - 1;
/// The same for a block of pages that is left out.
const LEFT_OUT: u32 = u32::MAX - 2;

/// Numbers of objects. A slot of the trace is given again when its object was freed. CPUs that are ahead would meet
/// the next object there before the last one is freed: a number is given again only when all CPUs are past its free.
#[derive(Debug)]
struct Names {
    /// By slot.
    current: Vec<u32>,
    /// Numbers of objects that were freed, with the rows of the frees.
    spare: VecDeque<(u64, u32)>,
    /// Numbers so far.
    count: u32,
}

impl Names {
    fn new(slots: u32) -> Self {
        Self {
            current: vec![NONE; slots as usize],
            spare: VecDeque::new(),
            count: 0,
        }
    }

    /// The slot gets an object; `None` if it has one.
    fn give(&mut self, slot: u32, row: u64) -> Option<u32> {
        let current = &mut self.current[slot as usize];
        if *current != NONE {
            return None;
        }
        // Numbers are freed in the order of rows, so the first is the oldest; if that is too young, all are.
        let first = self.spare.front();
        let number = match first.filter(|(freed, _)| freed + AHEAD_ROWS < row) {
            Some(&(_, number)) => {
                self.spare.pop_front();
                number
            }
            None => {
                self.count += 1;
                self.count - 1
            }
        };
        *current = number;
        Some(number)
    }

    /// The slot's object is freed: its number, or one of the constants.
    fn take(&mut self, slot: u32, row: u64) -> u32 {
        let number = std::mem::replace(&mut self.current[slot as usize], NONE);
        if number < LEFT_OUT {
            self.spare.push_back((row, number));
        }
        number
    }
}

/// The steps of a CPU of each copy that some copy has yet to perform.
#[derive(Debug, Default)]
struct Lane {
    steps: VecDeque<Step>,
    /// Steps before the first of them.
    gone: u64,
}

/// Reads the trace and deals its events.
pub(super) struct Feed<'a> {
    input: &'a Input,
    reader: TaskReader,
    events: Vec<ReplayEvent>,
    tasks: Vec<i32>,
    lanes: Vec<Lane>,
    window: Window,
    objects: Names,
    /// Blocks of pages, if page events are driven.
    blocks: Option<Names>,
    skip_slabs: bool,
    /// The last event of each task: its row and lane.
    last: HashMap<i32, (u64, u16)>,
    /// Rows read so far.
    row: u64,
    /// Events of the part so far.
    in_part: u64,
    ended: bool,
    tally: Tally,
}

impl<'a> Feed<'a> {
    /// The events of a trace on this number of CPUs: those of a CPU c of the trace go to lane c mod `lanes`.
    pub(super) fn new(input: &'a Input, lanes: u32) -> Self {
        let meta = input.file.meta();
        let events = PageEvents::of(input);
        Self {
            input,
            reader: input.file.events_with_tasks(),
            events: Vec::new(),
            tasks: Vec::new(),
            lanes: (0..lanes).map(|_| Lane::default()).collect(),
            window: Window::new(input.part),
            objects: Names::new(meta.object_slots),
            blocks: events.driven().then(|| Names::new(meta.page_slots)),
            skip_slabs: events == PageEvents::OutsideSlabs,
            last: HashMap::new(),
            row: 0,
            in_part: 0,
            ended: false,
            tally: Tally::default(),
        }
    }

    /// A step of a lane by its number, from 0; `None` if it is not read yet.
    pub(super) fn step(&self, lane: usize, number: u64) -> Option<&Step> {
        let lane = &self.lanes[lane];
        lane.steps.get((number - lane.gone) as usize)
    }

    /// All copies are past these steps of a lane.
    pub(super) fn forget(&mut self, lane: usize, number: u64) {
        let lane = &mut self.lanes[lane];
        while lane.gone < number && lane.steps.pop_front().is_some() {
            lane.gone += 1;
        }
    }

    /// Rows read so far.
    pub(super) fn row(&self) -> u64 {
        self.row
    }

    /// True if there are no more.
    pub(super) fn ended(&self) -> bool {
        self.ended
    }

    /// True if the part has any events.
    pub(super) fn has_begun(&self) -> bool {
        self.in_part > 0
    }

    /// Numbers of objects and of blocks so far.
    pub(super) fn numbers(&self) -> (u32, u32) {
        let blocks = self.blocks.as_ref().map_or(0, |names| names.count);
        (self.objects.count, blocks)
    }

    /// Events left out so far.
    pub(super) fn tally(&self) -> Tally {
        self.tally
    }

    /// True if the next rows may be read when the last CPU has yet to perform this row.
    pub(super) fn may_read(&self, oldest_row: u64) -> bool {
        !self.ended && oldest_row >= self.readable_at()
    }

    /// The row that all CPUs must have come to before the next rows are read.
    pub(super) fn readable_at(&self) -> u64 {
        (self.row + CHUNK_EVENTS as u64).saturating_sub(AHEAD_ROWS)
    }

    /// Reads the next rows; returns how many.
    pub(super) fn read(&mut self) -> Result<u64, LabError> {
        let mut events = std::mem::take(&mut self.events);
        let mut tasks = std::mem::take(&mut self.tasks);
        self.ended = !self.reader.next_chunk(&mut events, &mut tasks)?;
        for (event, task) in events.iter().zip(&tasks) {
            self.row += 1;
            match self.window.phase(event.time_ns) {
                Phase::Before => self.note(event),
                Phase::In => self.deal(event, *task)?,
                Phase::After => {
                    self.ended = true;
                    break;
                }
            }
        }
        // Tasks come and go. An event further back than `AHEAD_ROWS` is done on every CPU and need not be waited for.
        if self.last.len() as u64 > 2 * AHEAD_ROWS {
            let row = self.row;
            self.last.retain(|_, (last, _)| *last + AHEAD_ROWS >= row);
        }
        let rows = events.len() as u64;
        (self.events, self.tasks) = (events, tasks);
        Ok(rows)
    }

    /// Remembers what is alive when the part begins.
    fn note(&mut self, event: &ReplayEvent) {
        let names = match event.kind.is_page() {
            true => self.blocks.as_mut(),
            false => Some(&mut self.objects),
        };
        if let Some(names) = names.filter(|_| !event.flags.has(Flags::UNKNOWN)) {
            let is_slab = self.skip_slabs && event.flags.has(Flags::SLAB);
            names.current[event.object as usize] = match event.kind.is_free() {
                true => NONE,
                false if event.kind.is_page() && is_slab => LEFT_OUT,
                false => BEFORE,
            };
        }
    }

    /// Gives an event to its CPU, unless it is left out.
    fn deal(&mut self, event: &ReplayEvent, task: i32) -> Result<(), LabError> {
        self.in_part += 1;
        let object = match event.kind.is_page() {
            true => self.block(event)?,
            false => self.object(event)?,
        };
        let Some(object) = object else {
            return Ok(());
        };
        let lane = (usize::from(event.cpu) % self.lanes.len()) as u16;
        let mut step = Step {
            row: self.row,
            time_ns: event.time_ns,
            object,
            bytes: event.bytes_req,
            after: 0,
            after_lane: lane,
            cache: event.cache,
            kind: event.kind,
            flags: event.flags,
            order: event.order,
            place: event.place,
        };
        // Most tasks stay on their CPU, whose lane keeps the order anyway. Each CPU has an idle task of its own, with id 0.
        if task > 0
            && let Some((row, last)) = self.last.insert(task, (self.row, lane))
            && last != lane
            && self.row - row <= AHEAD_ROWS
        {
            (step.after, step.after_lane) = ((self.row - row) as u32, last);
        }
        self.lanes[usize::from(lane)].steps.push_back(step);
        Ok(())
    }

    /// The number of an event's object; `None` if the event is left out.
    fn object(&mut self, event: &ReplayEvent) -> Result<Option<u32>, LabError> {
        if event.flags.has(Flags::UNKNOWN) {
            self.tally.orphans += 1;
            return Ok(None);
        }
        let slot = event.object;
        if !event.kind.is_free() {
            let number = self.objects.give(slot, self.row);
            return match number {
                Some(number) => Ok(Some(number)),
                None => self.bad_row(format!("object {slot} is allocated twice")),
            };
        }
        match self.objects.take(slot, self.row) {
            NONE => self.bad_row(format!("object {slot} is freed, but it is not allocated")),
            BEFORE => {
                self.tally.orphans += 1;
                Ok(None)
            }
            number => Ok(Some(number)),
        }
    }

    /// The same for a block of pages: [`NO_OBJECT`] of one from before the part.
    fn block(&mut self, event: &ReplayEvent) -> Result<Option<u32>, LabError> {
        let Some(names) = &mut self.blocks else {
            self.tally.page_events += 1;
            return Ok(None);
        };
        let (slot, row) = (event.object, self.row);
        let is_slab = self.skip_slabs && event.flags.has(Flags::SLAB);
        let number = match (event.flags.has(Flags::UNKNOWN), event.kind.is_free()) {
            (true, _) if is_slab => LEFT_OUT,
            (true, _) => BEFORE,
            (false, true) => names.take(slot, row),
            (false, false) if is_slab => {
                let current = &mut names.current[slot as usize];
                match std::mem::replace(current, LEFT_OUT) {
                    NONE => LEFT_OUT,
                    _ => return self.bad_row(format!("page block {slot} is allocated twice")),
                }
            }
            (false, false) => match names.give(slot, row) {
                Some(number) => number,
                None => return self.bad_row(format!("page block {slot} is allocated twice")),
            },
        };
        match number {
            NONE => self.bad_row(format!(
                "page block {slot} is freed, but it is not allocated"
            )),
            LEFT_OUT => {
                self.tally.page_events += 1;
                Ok(None)
            }
            BEFORE => Ok(Some(NO_OBJECT)),
            number => Ok(Some(number)),
        }
    }

    fn bad_row<T>(&self, what: String) -> Result<T, LabError> {
        Err(self.input.bad_row(self.row, what))
    }
}
