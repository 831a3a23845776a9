//! Events with the places of their objects.

use std::sync::Arc;

use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::Int32Type;
use parquet::errors::{ParquetError, Result as ParquetResult};

use super::Shared;
use super::events::EventReader;
use super::group::Group;
use super::load::retain;
use crate::error::{Result, TraceError};
use crate::event::{Place, ReplayEvent};
use crate::schema::PAGE;

/// Reads a trace's events in order, with the places of their objects: see the crate's documentation.
pub struct PageReader {
    shared: Arc<Shared>,
    events: EventReader,
    /// Decoder of the row group with the index beside it.
    open: Option<(usize, ColumnReaderImpl<Int32Type>)>,
    levels: Vec<i16>,
    values: Vec<i32>,
}

impl PageReader {
    pub(super) fn new(shared: Arc<Shared>) -> PageReader {
        PageReader {
            events: EventReader::new(shared.clone(), false),
            shared,
            open: None,
            levels: Vec::new(),
            values: Vec::new(),
        }
    }

    /// Rows given so far.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.events.position()
    }

    pub(super) fn group(&self) -> Option<&Group> {
        self.events.group()
    }

    /// Replaces `events` by the next ones of the load, and `places` by the place of each, where the trace has it.
    /// Returns false at the end of the trace.
    ///
    /// # Errors
    /// As [`EventReader::next_chunk`].
    pub fn next_chunk(
        &mut self,
        events: &mut Vec<ReplayEvent>,
        places: &mut Vec<Option<Place>>,
    ) -> Result<bool> {
        let more = self.next_rows(events, places)?;
        if let Some(keep) = self.events.of_load(events)? {
            retain(events, keep);
            retain(places, keep);
        }
        Ok(more)
    }

    /// The same of all rows, whosever they are.
    pub(super) fn next_rows(
        &mut self,
        events: &mut Vec<ReplayEvent>,
        places: &mut Vec<Option<Place>>,
    ) -> Result<bool> {
        places.clear();
        let first = self.events.position() + 1;
        if !self.events.next_rows(events)? {
            return Ok(false);
        }
        places.resize(events.len(), None);
        if self.shared.column(PAGE).is_some() {
            self.read_places(first, events.len(), places)?;
        }
        Ok(true)
    }

    /// Reads the places of `count` rows from `first` on.
    fn read_places(
        &mut self,
        first: u64,
        count: usize,
        places: &mut [Option<Place>],
    ) -> Result<()> {
        let path = self.shared.path.clone();
        let ids = self.shared.meta.slab_memory.map_or(0, |found| found.pages);
        self.decode(count).map_err(|source| TraceError::Decode {
            path: path.clone(),
            row: first,
            source,
        })?;
        let mut values = self.values.iter();
        for (at, place) in places.iter_mut().enumerate() {
            if self.levels[at] == 0 {
                continue;
            }
            let value = *values.next().unwrap_or(&-1);
            let found = u32::try_from(value).ok().map(Place::decode);
            *place = found.filter(|place| place.page < ids);
            if place.is_none() {
                return Err(TraceError::BadRow {
                    path,
                    row: first + at as u64,
                    column: PAGE,
                    value: value.into(),
                    expected: format!("below {}", 2 * u64::from(ids)),
                });
            }
        }
        Ok(())
    }

    fn decode(&mut self, count: usize) -> ParquetResult<()> {
        let Some(group) = self.events.group() else {
            return Ok(());
        };
        let reader = match &mut self.open {
            Some((index, reader)) if *index == group.index => reader,
            open => {
                let reader = group.column(&self.shared, PAGE)?;
                &mut open.insert((group.index, reader)).1
            }
        };
        self.levels.clear();
        self.values.clear();
        let (records, _, _) =
            reader.read_records(count, Some(&mut self.levels), None, &mut self.values)?;
        if records != count || self.levels.len() != count {
            return Err(ParquetError::General(format!(
                "a column ends {} rows early",
                count - records.min(count)
            )));
        }
        Ok(())
    }
}
