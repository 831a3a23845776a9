//! Frees to caches with debugging, and the reports of frees that are refused.

use core::ptr::NonNull;

use super::CacheDebug;
use super::about::{
    Described, deliver, note_damaged_lists, report_of, slab_of, with_slab, with_slot,
};
use super::report::{During, Fix, Report, TraceEvent, Track, here};
use super::site::CallSite;
use super::slot::{Slot, State, Which};
use crate::design::{Env, Free, FreeError, Place, Slots};
use crate::geometry::CacheFlags;
use crate::machine::Machine;
use crate::name::Name;

/// Finds the owner of an object and its track records.
pub(crate) fn describe<M: Machine, D: Free + Slots>(
    design: &D,
    env: Env<'_, M>,
    object: NonNull<u8>,
) -> Described {
    let tracks = env.cache.debug().and_then(|debug| {
        let place = design.find_slot(env, object).ok()?;
        let _pass = env.enter();
        let _ops = debug.ops.lock(env.machine())?;
        // SAFETY: a slot of the cache (`find_slot`), whose debug lock is held.
        let slot = unsafe { Slot::new(env.cache, debug, place.base) };
        Some((slot.track(Which::Alloc), slot.track(Which::Free)))
    });
    let (alloc, free) = tracks.unwrap_or_default();
    Described {
        owner: Name::new(env.cache.name()),
        alloc,
        free,
    }
}

/// Error of a refused free, if the address shows it; else the object is free already.
pub(crate) fn reason<M: Machine, D: Free + Slots>(
    design: &D,
    env: Env<'_, M>,
    object: NonNull<u8>,
) -> FreeError {
    match design.find_slot(env, object) {
        Err((error, _)) => error,
        Ok(place) if place.exact => FreeError::DoubleFree,
        Ok(_) => FreeError::NotAnObject,
    }
}

/// Reports a free that was refused without looking into the slot.
pub(crate) fn refused<M: Machine>(
    env: Env<'_, M>,
    object: NonNull<u8>,
    error: FreeError,
    site: CallSite,
    owner: Option<Described>,
) {
    let here = here(env.machine(), site);
    let owner = owner.filter(|_| error == FreeError::WrongCache);
    let report = refusal(env, object, error, here, owner);
    env.system.debug.report(&report);
}

/// Reports a free that was a mistake and is found afterwards.
pub(crate) fn found_late<M: Machine>(
    env: Env<'_, M>,
    object: NonNull<u8>,
    error: FreeError,
    site: CallSite,
) {
    let report = refusal(env, object, error, here(env.machine(), site), None);
    let report = Report {
        during: During::Validate,
        fix: Fix::None,
        ..report
    };
    env.system.debug.report(&report);
}

fn refusal<M: Machine>(
    env: Env<'_, M>,
    object: NonNull<u8>,
    error: FreeError,
    here: Track,
    owner: Option<Described>,
) -> Report {
    let report = report_of(env, error.into(), During::Free, Fix::Refused, here);
    let report = Report {
        object: object.addr().get(),
        owner: owner.map(|owner| owner.owner),
        alloc: owner.and_then(|owner| owner.alloc),
        free: owner.and_then(|owner| owner.free),
        ..report
    };
    match slab_of(env, object) {
        Some(slab) => with_slab(report, env, slab),
        None => report,
    }
}

/// Frees an object of a cache with debugging. `owner` finds the owner of another's object.
///
/// # Errors
///
/// [`FreeError`]; a report has been made.
///
/// # Safety
///
/// The object has no user left.
pub(crate) unsafe fn free<M: Machine, D: Free + Slots>(
    design: &D,
    env: Env<'_, M>,
    object: NonNull<u8>,
    site: CallSite,
    owner: impl FnOnce() -> Option<Described>,
) -> Result<(), FreeError> {
    let Some(debug) = env.cache.debug() else {
        return Err(FreeError::Unchecked);
    };
    let here = here(env.machine(), site);
    let mut wrong = None;
    let freed = match design.find_slot(env, object) {
        // SAFETY: the caller vouches that the object has no user left.
        Ok(place) => unsafe { free_at(design, env, debug, object, &place, here, &mut wrong) },
        Err((error, _)) => {
            let owner = owner().filter(|_| error == FreeError::WrongCache);
            wrong = Some(refusal(env, object, error, here, owner));
            Err(error)
        }
    };
    deliver(env);
    if let Some(report) = wrong {
        env.system.debug.report(&report);
    }
    freed?;
    if env.cache.flags().contains(CacheFlags::TRACE) {
        let event = TraceEvent {
            alloc: false,
            cache: env.cache.name(),
            object: object.addr().get(),
            bytes_req: 0,
            here,
        };
        env.system.debug.trace(&event);
    }
    Ok(())
}

/// Frees the object of a slot of the cache; `wrong` is the reason if it is refused.
///
/// # Safety
///
/// The object has no user left.
unsafe fn free_at<M: Machine, D: Free + Slots>(
    design: &D,
    env: Env<'_, M>,
    debug: &CacheDebug,
    object: NonNull<u8>,
    place: &Place,
    here: Track,
    wrong: &mut Option<Report>,
) -> Result<(), FreeError> {
    let _pass = env.enter();
    let Some(mut quarantine) = debug.ops.lock(env.machine()) else {
        if place.exact {
            // A signal handler interrupted an operation on this cache: no checks are possible.
            // SAFETY: a slot of the cache, which its user has given up.
            unsafe { env.cache.defer(place.base) };
        }
        return Ok(());
    };
    // SAFETY: a slot of the cache (`find_slot`), whose debug lock is held.
    let slot = unsafe { Slot::new(env.cache, debug, place.base) };
    let about = |what, fix| {
        let report = report_of(env, what, During::Free, fix, here);
        with_slab(with_slot(report, &slot), env, place.slab)
    };
    let mut refuse = |error: FreeError| {
        *wrong = Some(Report {
            object: object.addr().get(),
            ..about(error.into(), Fix::Refused)
        });
        Err(error)
    };
    if !place.exact {
        return refuse(FreeError::NotAnObject);
    }
    if quarantine.contains(place.base) || is_free(design, env, debug, place, here) {
        return refuse(FreeError::DoubleFree);
    }
    if let Some((what, damage)) = slot.check(State::Used) {
        *wrong = Some(Report {
            damage: Some(damage),
            ..about(what, Fix::Quarantined)
        });
        slot.set_track(Which::Free, &here);
        slot.restore(State::Free);
        quarantine.add(place.base);
        return Err(FreeError::Corrupt);
    }
    slot.set_track(Which::Free, &here);
    slot.paint(State::Free);
    // SAFETY: a live object of the cache, which its user has given up.
    unsafe { design.free_direct(env, place.base) }.or_else(refuse)?;
    note_damaged_lists(env, debug, During::Free, here);
    Ok(())
}

/// True if a slot is on its slab's list of free objects. Cuts a list that leads out of the slab or in a circle.
fn is_free<M: Machine, D: Free + Slots>(
    design: &D,
    env: Env<'_, M>,
    debug: &CacheDebug,
    place: &Place,
    here: Track,
) -> bool {
    let mut free = false;
    let walked = design.free_slots(env, place.slab, &mut |slot| {
        free = slot == place.base;
        !free
    });
    if walked.is_err() {
        let holder = design.held_by(env, place.slab).map(|(slot, _)| slot);
        design.isolate(env, place.slab);
        debug.note_damaged(place.slab, holder);
        note_damaged_lists(env, debug, During::Free, here);
    }
    walked.is_ok() && free
}
