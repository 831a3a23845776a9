//! Shared by allocation, free and validation: reports in the making, the quarantine.

use core::ptr::NonNull;

use super::CacheDebug;
use super::report::{During, Finding, Fix, Report, Track};
use super::slot::{Slot, State, Which};
use super::state::Quarantine;
use crate::design::{Env, Free, Slots};
use crate::harden;
use crate::machine::Machine;
use crate::name::Name;
use crate::page::Pfn;

/// An address in a slab: its cache, object and track records.
#[derive(Clone, Copy)]
pub(crate) struct Described {
    pub(crate) owner: Name,
    pub(crate) alloc: Option<Track>,
    pub(crate) free: Option<Track>,
}

/// A report about a cache, without object, slab or damage.
pub(crate) fn report_of<M: Machine>(
    env: Env<'_, M>,
    what: Finding,
    during: During,
    fix: Fix,
    here: Track,
) -> Report {
    Report::new(env.cache.name(), what, during, fix, here)
}

/// Adds what a slot knows of itself.
pub(super) fn with_slot(report: Report, slot: &Slot<'_>) -> Report {
    Report {
        object: slot.object().addr().get(),
        alloc: slot.track(Which::Alloc),
        free: slot.track(Which::Free),
        ..report
    }
}

/// Adds a slab.
pub(super) fn with_slab<M: Machine>(report: Report, env: Env<'_, M>, slab: Pfn) -> Report {
    let address = env.map().address(slab).addr().get();
    Report {
        slab: Some((slab, address)),
        ..report
    }
}

/// Tells the heap's reporter what waited for a moment without locks.
pub(crate) fn deliver<M: Machine>(env: Env<'_, M>) {
    let Some(debug) = env.cache.debug() else {
        return;
    };
    let pending = {
        let _pass = env.enter();
        debug.take_pending(env.machine())
    };
    for report in pending.iter().flatten() {
        env.system.debug.report(report);
    }
}

pub(super) fn note_damaged_lists<M: Machine>(
    env: Env<'_, M>,
    debug: &CacheDebug,
    during: During,
    here: Track,
) {
    if let Some((slab, holder)) = debug.take_damaged() {
        let report = corrupt_list(env, debug, slab, holder, during, here);
        debug.push_pending(env.machine(), report);
    }
}

/// A list of free objects that leads astray: about the object that held it, if one did. The
/// cache's debug lock is held.
pub(super) fn corrupt_list<M: Machine>(
    env: Env<'_, M>,
    debug: &CacheDebug,
    slab: Pfn,
    holder: Option<NonNull<u8>>,
    during: During,
    here: Track,
) -> Report {
    let report = report_of(
        env,
        Finding::FreelistCorrupt,
        during,
        Fix::SlabIsolated,
        here,
    );
    let report = match holder {
        // SAFETY: a slot of the slab (`Slots::held_by`), and the debug lock is held.
        Some(slot) => with_slot(report, &unsafe { Slot::new(env.cache, debug, slot) }),
        None => report,
    };
    with_slab(report, env, slab)
}

pub(super) fn slab_of<M: Machine>(env: Env<'_, M>, address: NonNull<u8>) -> Option<Pfn> {
    let map = env.map();
    map.page(map.pfn_of(address)?).head()
}

/// Gives back what was taken out of circulation, so that the cache can be destroyed.
pub(crate) fn release<M: Machine, D: Free + Slots>(design: &D, env: Env<'_, M>) {
    let Some(debug) = env.cache.debug() else {
        return;
    };
    let machine = env.machine();
    let _pass = env.enter();
    let Some(mut quarantine) = debug.ops.lock(machine) else {
        return;
    };
    while let Some(base) = Quarantine::take(&mut quarantine) {
        // SAFETY: a slot of the cache, whose debug lock is held.
        let slot = unsafe { Slot::new(env.cache, debug, base) };
        slot.restore(State::Free);
        // SAFETY: the slot counts as in use, and no user has it.
        let freed = unsafe { design.free_direct(env, slot.base()) };
        debug_assert!(freed.is_ok(), "{freed:?}");
    }
}

/// The object and the track of its allocation, for a slot that is in use; `None` if no user has
/// it.
pub(crate) fn live<M: Machine>(
    env: Env<'_, M>,
    base: NonNull<u8>,
) -> Option<(NonNull<u8>, Option<Track>)> {
    let Some(debug) = env.cache.debug() else {
        return harden::is_live(env.cache, base).then_some((base, None));
    };
    let quarantine = debug.ops.lock(env.machine())?;
    if quarantine.contains(base) {
        return None;
    }
    // SAFETY: a slot of the cache (the design's walk found it), whose debug lock is held.
    let slot = unsafe { Slot::new(env.cache, debug, base) };
    Some((slot.object(), slot.track(Which::Alloc)))
}
