//! Events of the load: all but those of the recorder's own work.
//!
//! The recorder's are the allocations that its threads make, and the frees of what they allocated, by any thread:
//! a kernel thread frees much of it later. What the threads free of others they free in interrupts that they happened
//! to be interrupted by; it is the load's. The pages of slabs stay: which slabs were made in a recording is read from
//! them, and a replay makes slabs of its own.

use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::Int32Type;
use parquet::errors::Result as ParquetResult;

use super::Shared;
use super::events::read_exactly;
use super::group::Group;
use crate::event::{Flags, NO_OBJECT, ReplayEvent};
use crate::meta::TraceMeta;

/// The recorder's live objects and blocks, by number.
pub(crate) struct Owned {
    objects: Vec<bool>,
    blocks: Vec<bool>,
}

impl Owned {
    pub(crate) fn new(meta: &TraceMeta) -> Self {
        Self {
            objects: vec![false; meta.object_slots as usize],
            blocks: vec![false; meta.page_slots as usize],
        }
    }

    /// True if the next event, of this thread, is the recorder's own.
    pub(crate) fn has(&mut self, meta: &TraceMeta, event: &ReplayEvent, pid: i32) -> bool {
        let owned = match event.kind.is_page() {
            true => &mut self.blocks,
            false => &mut self.objects,
        };
        let owned = match event.object {
            NO_OBJECT => None,
            object => owned.get_mut(object as usize),
        };
        let is_own = owned.is_some_and(|owned| match event.kind.is_free() {
            true => std::mem::take(owned),
            false => {
                *owned = meta.is_recorder(pid);
                *owned
            }
        });
        is_own && !(event.kind.is_page() && event.flags.has(Flags::SLAB))
    }
}

/// Tells the events of the load from the recorder's.
pub(super) struct LoadFilter {
    owned: Owned,
    keep: Vec<bool>,
}

impl LoadFilter {
    /// The filter of a trace that says which threads were the recorder's.
    pub(super) fn of(meta: &TraceMeta) -> Option<Self> {
        (!meta.recorder_pids.is_empty()).then(|| Self {
            owned: Owned::new(meta),
            keep: Vec::new(),
        })
    }

    /// For each of the next events, of these threads, true if it is the load's.
    pub(super) fn keep(
        &mut self,
        meta: &TraceMeta,
        events: &[ReplayEvent],
        pids: &[i32],
    ) -> &[bool] {
        self.keep.clear();
        for (event, pid) in events.iter().zip(pids) {
            let is_own = self.owned.has(meta, event, *pid);
            self.keep.push(!is_own);
        }
        &self.keep
    }
}

/// Decoder of the rows' threads.
#[derive(Default)]
pub(super) struct PidColumn {
    /// Decoder of the row group with the index beside it.
    open: Option<(usize, ColumnReaderImpl<Int32Type>)>,
}

impl PidColumn {
    /// Replaces `pids` by the threads of the next `count` rows of a row group.
    pub(super) fn read(
        &mut self,
        shared: &Shared,
        group: &Group,
        count: usize,
        pids: &mut Vec<i32>,
    ) -> ParquetResult<()> {
        let reader = match &mut self.open {
            Some((index, reader)) if *index == group.index => reader,
            open => {
                let reader = group.column(shared, "pid")?;
                &mut open.insert((group.index, reader)).1
            }
        };
        read_exactly(reader, count, pids)
    }
}

/// Drops the values that are not kept.
pub(super) fn retain<T>(values: &mut Vec<T>, keep: &[bool]) {
    let mut keep = keep.iter();
    values.retain(|_| keep.next().copied().unwrap_or(true));
}
