//! The state of the screen: readings of the kernel, the prediction for another one, and what keys chose.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use quarry_core::era::Era;
use quarry_designs::DesignSpec;
use quarry_lab::LabError;
use quarry_lab::look::{Look, later_releases};
use quarry_snapshot::Snapshot;
use quarry_snapshot::blocks::Spread;
use quarry_state::{Fit, Question, State as KernelState};
use quarry_view::value::also;

use super::row::{Row, Sort};

/// Readings whose slab memory the head can show.
const HISTORY: usize = 512;

/// Another kernel, for which the caches are predicted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Other {
    Release(Era),
    Design(DesignSpec),
}

impl Other {
    fn question(&self) -> Question {
        match *self {
            Self::Release(release) => Question {
                release: Some(release),
                ..Question::default()
            },
            Self::Design(design) => Question {
                design: Some(design),
                ..Question::default()
            },
        }
    }

    /// The name for a column.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Release(release) => release.to_string(),
            Self::Design(design) => design.to_string(),
        }
    }
}

/// Prediction of the other kernel.
#[derive(Clone, Debug)]
pub(super) struct Predicted {
    pub(super) bytes: u64,
    pub(super) low_bytes: u64,
    pub(super) high_bytes: u64,
    /// Bytes by cache.
    caches: BTreeMap<String, u64>,
}

pub(crate) struct State {
    pub(super) snapshot: Snapshot,
    pub(super) look: Look,
    /// Time between readings; `None` if there is one alone.
    pub(crate) delay: Option<Duration>,
    /// Error of the last reading, if it failed.
    pub(super) error: Option<String>,
    /// Prediction for the other kernel that is shown; or why there is none.
    pub(super) predicted: Result<Predicted, String>,
    /// Readings that succeeded.
    pub(super) readings: u64,
    /// Slab memory of the readings, oldest first.
    pub(super) history: VecDeque<u64>,
    /// Blocks of memory by what lies in them, and the number of the reading that they are of.
    pub(super) blocks: Option<(u64, Vec<Spread>)>,
    pub(super) is_help: bool,
    /// True while the user types the filter.
    pub(super) is_typing: bool,
    others: Vec<Other>,
    shown: usize,
    /// Bytes of the caches at the first reading, and its moment.
    first: BTreeMap<String, u64>,
    first_ns: Option<u64>,
    sort: Sort,
    filter: String,
    /// Caches that pass the filter, in order.
    rows: Vec<Row>,
    offset: usize,
    /// Rows that the screen has room for.
    room: usize,
}

impl State {
    /// Begins with a reading. Without other kernels these are the later long-term releases.
    pub(super) fn new(
        snapshot: Snapshot,
        mut others: Vec<Other>,
        sort: Sort,
    ) -> Result<Self, LabError> {
        let state = KernelState::of(&snapshot)?;
        if others.is_empty() {
            let later = later_releases(state.design().era).into_iter();
            others.extend(later.map(Other::Release));
        }
        let look = Look::now(&snapshot, &state)?;
        let predicted = predicted(&snapshot, &state, others.first());
        let caches = look.caches.iter();
        let mut state = Self {
            first: caches
                .map(|cache| (cache.name.clone(), cache.slab_bytes))
                .collect(),
            first_ns: snapshot.monotonic_ns,
            history: VecDeque::from([look.slab_bytes]),
            snapshot,
            look,
            delay: None,
            error: None,
            predicted,
            readings: 1,
            blocks: None,
            is_help: false,
            is_typing: false,
            others,
            shown: 0,
            sort,
            filter: String::new(),
            rows: Vec::new(),
            offset: 0,
            room: 0,
        };
        state.arrange();
        Ok(state)
    }

    /// Takes another reading, or remembers why it failed.
    pub(super) fn update(&mut self, reading: anyhow::Result<Snapshot>) {
        let taken = reading.and_then(|snapshot| Ok(self.take(snapshot)?));
        self.error = taken.err().map(|error| format!("{error:#}"));
    }

    fn take(&mut self, snapshot: Snapshot) -> Result<(), LabError> {
        let state = KernelState::of(&snapshot)?;
        self.look = Look::now(&snapshot, &state)?;
        self.predicted = predicted(&snapshot, &state, self.others.get(self.shown));
        self.snapshot = snapshot;
        self.readings += 1;
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(self.look.slab_bytes);
        self.arrange();
        Ok(())
    }

    /// Makes the rows anew, and keeps the blocks if they were read.
    fn arrange(&mut self) {
        let blocks = &self.look.places.blocks;
        if !blocks.is_empty() {
            self.blocks = Some((self.readings, blocks.clone()));
        }
        let known = self.snapshot.slabinfo.rows.iter();
        let known: BTreeMap<&str, _> = known.map(|row| (row.name.as_str(), row)).collect();
        let caches = self.look.caches.iter();
        let is_shown = |name: &String| name.contains(&self.filter);
        let caches =
            caches.filter(|cache| is_shown(&cache.name) || cache.aliases.iter().any(is_shown));
        let rows = caches.filter_map(|cache| {
            let row = known.get(cache.name.as_str())?;
            let first = self.first.get(&cache.name).copied().unwrap_or(0);
            let predicted = self.predicted.as_ref().ok();
            Some(Row {
                name: cache.name.clone(),
                label: {
                    let aliases = cache.aliases.iter().map(String::as_str);
                    also(&cache.name, &aliases.collect::<Vec<_>>())
                },
                active_objs: row.active_objs,
                num_objs: row.num_objs,
                slab_size: row.objsize,
                objs_per_slab: row.objperslab,
                pages_per_slab: row.pagesperslab,
                slabs: row.num_slabs,
                active_slabs: row.active_slabs,
                slab_bytes: cache.slab_bytes,
                held_bytes: cache.parts.held_bytes,
                pinned_bytes: cache.parts.partly_filled_bytes,
                other_bytes: predicted.and_then(|told| told.caches.get(&cache.name).copied()),
                change: i128::from(cache.slab_bytes) - i128::from(first),
            })
        });
        self.rows = rows.collect();
        self.rows.sort_by(|a, b| self.sort.compare(a, b));
        self.scroll(0);
    }

    /// The rows that pass the filter, in order.
    pub(super) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The rows that the screen shows.
    pub(super) fn visible(&self) -> &[Row] {
        let rest = &self.rows[self.offset.min(self.rows.len())..];
        &rest[..rest.len().min(self.room)]
    }

    /// Change of all slabs since the first reading.
    pub(super) fn change(&self) -> i128 {
        let first = self.first.values().map(|bytes| i128::from(*bytes));
        i128::from(self.look.slab_bytes) - first.sum::<i128>()
    }

    /// Seconds since the first reading.
    pub(super) fn seconds(&self) -> Option<f64> {
        let since = self.snapshot.monotonic_ns?.checked_sub(self.first_ns?)?;
        Some(since as f64 / 1e9)
    }

    /// Name of the other kernel.
    pub(super) fn other(&self) -> Option<String> {
        self.others.get(self.shown).map(Other::name)
    }

    /// Shows the next of the other kernels.
    pub(super) fn next_other(&mut self) {
        if self.others.len() > 1 {
            self.shown = (self.shown + 1) % self.others.len();
            self.predicted = KernelState::of(&self.snapshot)
                .map_err(|error| error.to_string())
                .and_then(|state| predicted(&self.snapshot, &state, self.others.get(self.shown)));
            self.arrange();
        }
    }

    pub(super) fn sort(&self) -> Sort {
        self.sort
    }

    /// Sorts by something else, and shows the first caches.
    pub(super) fn set_sort(&mut self, sort: Sort) {
        self.sort = sort;
        self.offset = 0;
        self.arrange();
    }

    pub(super) fn filter(&self) -> &str {
        &self.filter
    }

    /// Shows the caches whose names have these letters.
    pub(super) fn set_filter(&mut self, filter: String) {
        self.filter = filter;
        self.arrange();
    }

    /// Fits the rows to a screen with room for this number.
    pub(super) fn resize(&mut self, room: usize) {
        self.room = room;
        self.scroll(0);
    }

    /// Scrolls by rows, at most to the first and the last.
    pub(super) fn scroll(&mut self, rows: isize) {
        let last = self.rows.len().saturating_sub(self.room);
        self.offset = self.offset.saturating_add_signed(rows).min(last);
    }

    /// Scrolls by screens.
    pub(super) fn scroll_pages(&mut self, pages: isize) {
        let room = isize::try_from(self.room).unwrap_or(1);
        self.scroll(pages * room);
    }
}

/// Predicts all caches of a snapshot in another kernel; an error says why not.
fn predicted(
    snapshot: &Snapshot,
    state: &KernelState<'_>,
    other: Option<&Other>,
) -> Result<Predicted, String> {
    let other = other.ok_or("no later release is known")?;
    let told = state.on(&other.question());
    let told = told.map_err(|error| error.to_string())?;
    if let Fit::Bad(cause) = told.fit(snapshot) {
        return Err(format!("the formulas do not explain this kernel: {cause}"));
    }
    Ok(Predicted {
        bytes: told.bytes.predicted_bytes,
        low_bytes: told.bytes.likely_low_bytes,
        high_bytes: told.bytes.likely_high_bytes,
        caches: told
            .caches
            .into_iter()
            .map(|cache| (cache.name, cache.bytes.predicted_bytes))
            .collect(),
    })
}
