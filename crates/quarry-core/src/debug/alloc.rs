//! Allocation from caches with debugging: around the design's direct path.

use core::ptr::NonNull;

use super::CacheDebug;
use super::about::{deliver, note_damaged_lists, report_of, slab_of, with_slab, with_slot};
use super::report::{During, Fix, Report, TraceEvent, Track, here};
use super::site::CallSite;
use super::slot::{Slot, State, Which};
use crate::design::{Allocate, Env, Slots};
use crate::geometry::CacheFlags;
use crate::machine::{Machine, NodeId};

/// Objects that one allocation finds damaged before it gives up.
const DAMAGED_MAX: usize = 64;

/// Bytes that were asked for when an object was allocated, or the object's size where the cache keeps none. `None` if the
/// address is no object's, or if the calling thread is inside the cache's debugging already.
pub(crate) fn request<M: Machine, D: Slots>(
    design: &D,
    env: Env<'_, M>,
    object: NonNull<u8>,
) -> Option<u32> {
    let debug = env.cache.debug()?;
    let place = design
        .find_slot(env, object)
        .ok()
        .filter(|place| place.exact)?;
    let _pass = env.enter();
    let _ops = debug.ops.lock(env.machine())?;
    // SAFETY: a slot of the cache (`find_slot`), whose debug lock is held.
    let slot = unsafe { Slot::new(env.cache, debug, place.base) };
    Some(slot.request())
}

/// Allocates an object of a cache with debugging. `bytes` are what was asked for.
pub(crate) fn alloc<M: Machine, D: Allocate>(
    design: &D,
    env: Env<'_, M>,
    node: Option<NodeId>,
    bytes: u32,
    site: CallSite,
) -> Option<NonNull<u8>> {
    let debug = env.cache.debug()?;
    let machine = env.machine();
    let _pass = env.enter();
    let here = here(machine, site);
    let mut object = None;
    for _ in 0..DAMAGED_MAX {
        let mut damaged = None;
        object = attempt(design, env, debug, node, bytes, here, &mut damaged);
        deliver(env);
        match damaged {
            Some(report) => env.system.debug.report(&report),
            None => break,
        }
    }
    if env.cache.flags().contains(CacheFlags::TRACE) {
        let event = TraceEvent {
            alloc: true,
            cache: env.cache.name(),
            object: object.map_or(0, |object| object.addr().get()),
            bytes_req: bytes,
            here,
        };
        env.system.debug.trace(&event);
    }
    object
}

/// One object of the design's. If it was damaged while it was free, it is out of circulation now,
/// and `damaged` has the report.
fn attempt<M: Machine, D: Allocate>(
    design: &D,
    env: Env<'_, M>,
    debug: &CacheDebug,
    node: Option<NodeId>,
    bytes: u32,
    here: Track,
    damaged: &mut Option<Report>,
) -> Option<NonNull<u8>> {
    let machine = env.machine();
    let _pass = env.enter();
    let mut quarantine = debug.ops.lock(machine)?;
    let allocated = design.alloc_direct(env, node);
    note_damaged_lists(env, debug, During::Alloc, here);
    let base = allocated?;
    // SAFETY: a slot that the design has just handed out, and the debug lock is held.
    let slot = unsafe { Slot::new(env.cache, debug, base) };
    if let Some((what, damage)) = slot.check(State::Free) {
        let report = report_of(env, what, During::Alloc, Fix::Quarantined, here);
        let mut report = with_slot(report, &slot);
        report.damage = Some(damage);
        if let Some(slab) = slab_of(env, base) {
            report = with_slab(report, env, slab);
        }
        slot.restore(State::Free);
        quarantine.add(base);
        *damaged = Some(report);
        return None;
    }
    slot.set_request(bytes);
    slot.set_track(Which::Alloc, &here);
    slot.paint(State::Used);
    Some(slot.object())
}
