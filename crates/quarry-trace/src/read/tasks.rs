//! Events with the tasks that they happened in.

use std::sync::Arc;

use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::Int32Type;
use parquet::errors::Result as ParquetResult;

use super::Shared;
use super::events::{EventReader, read_exactly};
use super::load::retain;
use crate::error::{Result, TraceError};
use crate::event::ReplayEvent;

/// Reads a trace's events in order, with the ids of their tasks: 0 is the idle task, which each CPU has.
pub struct TaskReader {
    shared: Arc<Shared>,
    events: EventReader,
    /// Decoder of the row group with the index beside it.
    open: Option<(usize, ColumnReaderImpl<Int32Type>)>,
}

impl TaskReader {
    pub(super) fn new(shared: Arc<Shared>) -> TaskReader {
        TaskReader {
            events: EventReader::new(shared.clone(), false),
            shared,
            open: None,
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
        let decoded = self.decode(events.len(), tasks);
        decoded.map_err(|source| TraceError::Decode {
            path: self.shared.path.clone(),
            row,
            source,
        })?;
        if let Some(keep) = self.events.of_load(events)? {
            retain(events, keep);
            retain(tasks, keep);
        }
        Ok(true)
    }

    fn decode(&mut self, count: usize, tasks: &mut Vec<i32>) -> ParquetResult<()> {
        let Some(group) = self.events.group() else {
            return Ok(());
        };
        let reader = match &mut self.open {
            Some((index, reader)) if *index == group.index => reader,
            open => {
                let reader = group.column(&self.shared, "pid")?;
                &mut open.insert((group.index, reader)).1
            }
        };
        read_exactly(reader, count, tasks)
    }
}
