//! State of debugging: per heap the user's settings, per cache the findings.

use core::ptr::NonNull;

use super::report::{Report, TraceEvent};
use super::setting::SlubDebug;
use super::site::SiteTable;
use crate::geometry::DebugRules;
use crate::machine::{LockClass, Machine, SpinLock};
use crate::page::Pfn;
use crate::sync::{AtomicPtr, AtomicU32, Ordering};

/// Called with each report, on the thread that found it, outside all locks and the gate.
pub type Reporter = fn(&Report);
/// Called with each allocation and free of a cache with the letter T, in the same way.
pub type Tracer = fn(&TraceEvent<'_>);

/// A user's settings for a heap.
pub(crate) struct HeapDebug {
    /// A [`Reporter`], or null. An atomic, so that reports need neither lock nor gate.
    reporter: AtomicPtr<()>,
    /// A [`Tracer`], or null.
    tracer: AtomicPtr<()>,
    setting: SpinLock<Option<SlubDebug>>,
}

impl HeapDebug {
    pub(crate) fn new() -> Self {
        Self {
            reporter: AtomicPtr::new(core::ptr::null_mut()),
            tracer: AtomicPtr::new(core::ptr::null_mut()),
            setting: SpinLock::new(LockClass::DebugState, None),
        }
    }

    pub(crate) fn set_reporter(&self, reporter: Option<Reporter>) {
        let pointer = reporter.map_or(core::ptr::null_mut(), |reporter| reporter as *mut ());
        self.reporter.store(pointer, Ordering::Relaxed);
    }

    pub(crate) fn set_tracer(&self, tracer: Option<Tracer>) {
        let pointer = tracer.map_or(core::ptr::null_mut(), |tracer| tracer as *mut ());
        self.tracer.store(pointer, Ordering::Relaxed);
    }

    pub(crate) fn report(&self, report: &Report) {
        let reporter = self.reporter.load(Ordering::Relaxed);
        if !reporter.is_null() {
            // SAFETY: `set_reporter` made the pointer from a function of this type.
            let reporter = unsafe { core::mem::transmute::<*mut (), Reporter>(reporter) };
            reporter(report);
        }
    }

    pub(crate) fn trace(&self, event: &TraceEvent<'_>) {
        let tracer = self.tracer.load(Ordering::Relaxed);
        if !tracer.is_null() {
            // SAFETY: `set_tracer` made the pointer from a function of this type.
            let tracer = unsafe { core::mem::transmute::<*mut (), Tracer>(tracer) };
            tracer(event);
        }
    }

    pub(crate) fn set_setting<M: Machine>(&self, machine: &M, setting: Option<SlubDebug>) {
        if let Some(mut kept) = self.setting.lock(machine) {
            *kept = setting;
        }
    }

    pub(crate) fn setting<M: Machine>(&self, machine: &M) -> Option<SlubDebug> {
        self.setting.lock(machine).and_then(|setting| *setting)
    }
}

/// Slots that a cache keeps out of circulation at most; further ones are lost for good.
const QUARANTINE_MAX: usize = 32;

/// Slots that are not handed out any more.
pub(crate) struct Quarantine {
    slots: [Option<NonNull<u8>>; QUARANTINE_MAX],
    len: usize,
}

// SAFETY: the addresses are of slots that no other code uses (`Quarantine::add`).
unsafe impl Send for Quarantine {}

impl Quarantine {
    /// Keeps a slot that counts as in use and that no user has.
    pub(super) fn add(&mut self, slot: NonNull<u8>) {
        if let Some(place) = self.slots.get_mut(self.len) {
            *place = Some(slot);
            self.len += 1;
        }
    }

    pub(super) fn contains(&self, slot: NonNull<u8>) -> bool {
        self.slots[..self.len].contains(&Some(slot))
    }

    pub(super) fn take(&mut self) -> Option<NonNull<u8>> {
        self.len = self.len.checked_sub(1)?;
        self.slots[self.len].take()
    }
}

/// Reports that wait for a moment without locks, at most.
const PENDING_MAX: usize = 4;

/// State of a cache with debugging, in addition to its design's.
pub(crate) struct CacheDebug {
    pub(super) rules: DebugRules,
    pub(super) sites: SiteTable,
    /// Held during every allocation and free of the cache, so that slots can be looked at.
    pub(super) ops: SpinLock<Quarantine>,
    pending: SpinLock<[Option<Report>; PENDING_MAX]>,
    /// Link to a slab whose list of free objects was found to lead astray.
    damaged: AtomicU32,
    /// The slot of the free object that held the list, or null.
    damaged_holder: AtomicPtr<u8>,
}

impl CacheDebug {
    pub(crate) fn new(rules: DebugRules) -> Self {
        let quarantine = Quarantine {
            slots: [None; QUARANTINE_MAX],
            len: 0,
        };
        Self {
            rules,
            sites: SiteTable::new(),
            ops: SpinLock::new(LockClass::Debug, quarantine),
            pending: SpinLock::new(LockClass::DebugState, [None; PENDING_MAX]),
            damaged: AtomicU32::new(0),
            damaged_holder: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// Keeps a report until [`CacheDebug::take_pending`]; what does not fit is lost.
    pub(super) fn push_pending<M: Machine>(&self, machine: &M, report: Report) {
        if let Some(mut pending) = self.pending.lock(machine)
            && let Some(place) = pending.iter_mut().find(|place| place.is_none())
        {
            *place = Some(report);
        }
    }

    pub(super) fn take_pending<M: Machine>(&self, machine: &M) -> [Option<Report>; PENDING_MAX] {
        self.pending
            .lock(machine)
            .map_or([None; PENDING_MAX], |mut pending| {
                core::mem::replace(&mut *pending, [None; PENDING_MAX])
            })
    }

    /// Called by a design that has cut a list of free objects because it led astray. `holder` is
    /// the slot of the free object that held it, if one did: it was used after it was freed.
    pub(crate) fn note_damaged(&self, slab: Pfn, holder: Option<NonNull<u8>>) {
        let holder = holder.map_or(core::ptr::null_mut(), NonNull::as_ptr);
        self.damaged_holder.store(holder, Ordering::Relaxed);
        self.damaged.store(Pfn::link(Some(slab)), Ordering::Relaxed);
    }

    /// Takes the last note of [`CacheDebug::note_damaged`]. The cache's debug lock is held.
    pub(super) fn take_damaged(&self) -> Option<(Pfn, Option<NonNull<u8>>)> {
        let slab = Pfn::from_link(self.damaged.swap(0, Ordering::Relaxed))?;
        Some((
            slab,
            NonNull::new(self.damaged_holder.load(Ordering::Relaxed)),
        ))
    }
}
