//! Events with the tasks that they happened in.

use std::sync::Arc;

use super::Shared;
use super::events::EventReader;
use super::load::{LoadFilter, PidColumn, retain};
use crate::error::{Result, TraceError};
use crate::event::ReplayEvent;

/// Reads a trace's events in order, with the ids of their tasks: 0 is the idle task, which each CPU has.
pub struct TaskReader {
    shared: Arc<Shared>,
    events: EventReader,
    pids: PidColumn,
    load: Option<LoadFilter>,
}

impl TaskReader {
    pub(super) fn new(shared: Arc<Shared>) -> TaskReader {
        TaskReader {
            events: EventReader::new(shared.clone(), false),
            load: LoadFilter::of(&shared.meta),
            pids: PidColumn::default(),
            shared,
        }
    }

    /// Replaces `events` by the next ones, and `tasks` by the task of each. Returns false at the end of the trace.
    ///
    /// # Errors
    /// As [`EventReader::next_chunk`].
    pub fn next_chunk(
        &mut self,
        events: &mut Vec<ReplayEvent>,
        tasks: &mut Vec<i32>,
    ) -> Result<bool> {
        tasks.clear();
        let row = self.events.position() + 1;
        if !self.events.next_rows(events)? {
            return Ok(false);
        }
        let Some(group) = self.events.group() else {
            return Ok(true);
        };
        let read = self.pids.read(&self.shared, group, events.len(), tasks);
        read.map_err(|source| TraceError::Decode {
            path: self.shared.path.clone(),
            row,
            source,
        })?;
        if let Some(load) = &mut self.load {
            let keep = load.keep(&self.shared.meta, events, tasks);
            retain(events, keep);
            retain(tasks, keep);
        }
        Ok(true)
    }
}
