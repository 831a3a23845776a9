//! Looking at whole slabs: when they are made, when they go, and on demand.

use core::ptr::NonNull;

use super::about::{corrupt_list, report_of, with_slab, with_slot};
use super::report::{Damage, During, EXCERPT_BYTES, Finding, Fix, Report, Track, here};
use super::site::CallSite;
use super::slot::{Slot, State};
use super::state::CacheDebug;
use crate::design::{CheckError, Env, Show, SlabInconsistency, Slots};
use crate::geometry::{CacheFlags, FreelistPlace};
use crate::harden;
use crate::machine::Machine;
use crate::page::Pfn;
use crate::slabs::{ObjectSet, slabs};
use crate::sync::Ordering;

/// Reports that [`Validation`] keeps.
pub const REPORTS_MAX: usize = 8;

/// Findings of [`validate`](crate::heap::CacheView::validate).
#[derive(Clone, Copy, Debug, Default)]
pub struct Validation {
    /// Slabs that were looked at.
    pub slabs: u64,
    /// Objects that were looked at.
    pub objects: u64,
    /// Number of findings.
    pub findings: u64,
    /// The contradiction between lists and counters that was found, without or besides debugging.
    pub inconsistency: Option<SlabInconsistency>,
    /// The cache was busy, and not all of it was looked at.
    pub busy: bool,
    reports: [Option<Report>; REPORTS_MAX],
}

impl Validation {
    /// The first reports.
    pub fn reports(&self) -> impl Iterator<Item = &Report> {
        self.reports.iter().flatten()
    }

    fn add(&mut self, report: Report) {
        if let Some(place) = self.reports.iter_mut().find(|place| place.is_none()) {
            *place = Some(report);
        }
        self.findings += 1;
    }
}

/// The slots of a slab.
fn each_slot<'a, M: Machine>(
    env: Env<'a, M>,
    debug: &'a CacheDebug,
    first: NonNull<u8>,
    objects: u32,
) -> impl Iterator<Item = Slot<'a>> {
    let size = env.cache.geometry.layout.size as usize;
    (0..objects as usize).map(move |number| {
        // SAFETY: a slab holds `objects` slots from the first on.
        let base = unsafe { first.byte_add(number * size) };
        // SAFETY: the slot is inside the slab; the callers hold the debug lock, or no other code knows the slab.
        unsafe { Slot::new(env.cache, debug, base) }
    })
}

/// Prepares a new slab, before the design writes to it: what debugging keeps, then the objects' constructor. `first`
/// is its first slot. Does nothing without either.
#[inline]
pub(crate) fn set_up<M: Machine>(env: Env<'_, M>, slab: Pfn, first: NonNull<u8>, objects: u32) {
    if let Some(debug) = env.cache.debug() {
        set_up_slots(env, debug, slab, first, objects);
    }
    if env.cache.ctor.is_some() {
        construct(env, first, objects);
    }
    if let Some(armour) = env.cache.armour() {
        harden::set_up(env, armour, first, objects);
    }
}

#[cold]
fn construct<M: Machine>(env: Env<'_, M>, first: NonNull<u8>, objects: u32) {
    let size = env.cache.geometry.layout.size as usize;
    for number in 0..objects as usize {
        // SAFETY: the slab has this many slots (geometry).
        let slot = unsafe { first.byte_add(number * size) };
        // SAFETY: a slot of a new slab, which no other code knows.
        unsafe { env.cache.construct(slot) };
    }
}

#[cold]
fn set_up_slots<M: Machine>(
    env: Env<'_, M>,
    debug: &CacheDebug,
    slab: Pfn,
    first: NonNull<u8>,
    objects: u32,
) {
    let map = env.map();
    if env.cache.flags().contains(CacheFlags::POISON) {
        let bytes = env.system.params.slab_bytes(map.page(slab).order()) as usize;
        // SAFETY: the slab has this many bytes and is no other code's yet.
        unsafe {
            map.address(slab)
                .write_bytes(debug.rules.poison_inuse, bytes)
        };
    }
    for slot in each_slot(env, debug, first, objects) {
        slot.set_up();
    }
}

/// Looks at a slab that is about to go; all its objects are free. Does nothing without debugging.
#[inline]
pub(crate) fn discard<M: Machine>(env: Env<'_, M>, slab: Pfn, first: NonNull<u8>) {
    if let Some(debug) = env.cache.debug() {
        check_gone(env, debug, slab, first);
    }
}

#[cold]
fn check_gone<M: Machine>(env: Env<'_, M>, debug: &CacheDebug, slab: Pfn, first: NonNull<u8>) {
    let machine = env.machine();
    let objects = env.map().page(slab).objects.load(Ordering::Relaxed);
    for slot in each_slot(env, debug, first, objects) {
        let Some((what, damage)) = slot.check(State::Free) else {
            continue;
        };
        let here = here(machine, CallSite::UNKNOWN);
        let report = report_of(env, what, During::Discard, Fix::None, here);
        let mut report = with_slab(with_slot(report, &slot), env, slab);
        report.damage = Some(damage);
        debug.push_pending(machine, report);
    }
}

/// Writes a pattern over what the design kept in the first bytes of a free object. `slot` is the
/// object's. Does nothing without debugging.
#[inline]
pub(crate) fn cover<M: Machine>(env: Env<'_, M>, slot: NonNull<u8>, bytes: u32) {
    if let Some(debug) = env.cache.debug() {
        // SAFETY: a free slot of the cache, whose slab is no other code's at this moment.
        let slot = unsafe { Slot::new(env.cache, debug, slot) };
        slot.held(bytes).cover_held();
    }
}

/// Looks at all slabs of a cache (facts 2.9).
pub(crate) fn validate<M: Machine, D: Show + Slots>(
    design: &D,
    env: Env<'_, M>,
    site: CallSite,
) -> Validation {
    let here = here(env.machine(), site);
    let validation = look(design, env, here);
    for report in validation.reports() {
        env.system.debug.report(report);
    }
    validation
}

fn look<M: Machine, D: Show + Slots>(design: &D, env: Env<'_, M>, here: Track) -> Validation {
    let machine = env.machine();
    let mut validation = Validation::default();
    match design.check_consistency(env) {
        Ok(()) => {}
        Err(CheckError::Busy) => validation.busy = true,
        Err(CheckError::Inconsistent(found)) => validation.inconsistency = Some(found),
    }
    if let Some(debug) = env.cache.debug() {
        // Every list is looked at here; the walk above stops at the first that is damaged.
        let looked = design.at_rest(env, || {
            let _ops = debug.ops.lock(machine)?;
            for slab in slabs(env) {
                validate_slab(design, env, debug, slab, here, &mut validation);
            }
            Some(())
        });
        validation.busy |= looked != Ok(Some(()));
    }
    if let Some(error) = validation.inconsistency
        && validation.findings == 0
    {
        let report = report_of(
            env,
            Finding::Inconsistent,
            During::Validate,
            Fix::None,
            here,
        );
        validation.add(match error.slab {
            Some(slab) => with_slab(report, env, slab),
            None => report,
        });
    }
    validation
}

fn validate_slab<M: Machine, D: Show + Slots>(
    design: &D,
    env: Env<'_, M>,
    debug: &CacheDebug,
    slab: Pfn,
    here: Track,
    validation: &mut Validation,
) {
    validation.slabs += 1;
    let first = design.first_slot(env, slab);
    let size = env.cache.geometry.layout.size as usize;
    let mut free = ObjectSet::new();
    let walked = design.free_slots(env, slab, &mut |slot| {
        free.insert((slot.addr().get() - first.addr().get()) / size);
        true
    });
    let held = design.held_by(env, slab);
    if walked.is_err() {
        let holder = held.map(|(slot, _)| slot);
        design.isolate(env, slab);
        // The report is made here.
        debug.take_damaged();
        validation.add(corrupt_list(
            env,
            debug,
            slab,
            holder,
            During::Validate,
            here,
        ));
        return;
    }
    let objects = env.map().page(slab).objects.load(Ordering::Relaxed);
    for (number, slot) in each_slot(env, debug, first, objects).enumerate() {
        let slot = match held {
            Some((base, bytes)) if base == slot.base() => slot.held(bytes),
            _ => slot,
        };
        validate_slot(env, slab, &slot, free.contains(number), here, validation);
    }
    if let Some(damage) = slab_padding(env, debug, slab, first, objects) {
        let report = report_of(
            env,
            Finding::SlabPadding,
            During::Validate,
            Fix::Restored,
            here,
        );
        let mut report = with_slab(report, env, slab);
        report.damage = Some(damage);
        validation.add(report);
    }
}

fn validate_slot<M: Machine>(
    env: Env<'_, M>,
    slab: Pfn,
    slot: &Slot<'_>,
    free: bool,
    here: Track,
    validation: &mut Validation,
) {
    validation.objects += 1;
    // What is out of circulation counts as in use and looks free.
    let state = if free { State::Free } else { State::Used };
    let Some((what, damage)) = slot.check(state) else {
        return;
    };
    if state == State::Used && slot.check(State::Free).is_none() {
        return;
    }
    let report = report_of(env, what, During::Validate, Fix::Restored, here);
    let mut report = with_slab(with_slot(report, slot), env, slab);
    report.damage = Some(damage);
    slot.restore(state);
    validation.add(report);
}

/// Checks and restores the padding behind the last slot of a poisoned slab.
fn slab_padding<M: Machine>(
    env: Env<'_, M>,
    debug: &CacheDebug,
    slab: Pfn,
    first: NonNull<u8>,
    objects: u32,
) -> Option<Damage> {
    let geometry = &env.cache.geometry;
    let page = env.map().page(slab);
    // What a slab of another order has at its end is not in the geometry.
    let poisoned = env.cache.flags().contains(CacheFlags::POISON) && objects > 0;
    if !poisoned || page.order() != geometry.order {
        return None;
    }
    let base = env.map().address(slab);
    let slab_bytes = env.system.params.slab_bytes(geometry.order) as usize;
    let indices = match geometry.slab.freelist {
        FreelistPlace::SlabEnd => geometry.slab.freelist_bytes as usize,
        _ => 0,
    };
    let bytes = slab_bytes.saturating_sub(indices);
    let used =
        first.addr().get() - base.addr().get() + objects as usize * geometry.layout.size as usize;
    let start = used.max(bytes - (geometry.slack_bytes as usize).min(bytes));
    // SAFETY: the slots end inside the slab, and so does what follows them.
    let rest = unsafe { base.byte_add(start) };
    // SAFETY: the rest of the slab was filled when it was set up, and no code uses it.
    let rest = unsafe { core::slice::from_raw_parts_mut(rest.as_ptr(), bytes.checked_sub(start)?) };
    let wrong = |byte: &u8| *byte != debug.rules.poison_inuse;
    let from = rest.iter().position(wrong)?;
    let to = rest.iter().rposition(wrong)?;
    let mut found = [0; EXCERPT_BYTES];
    for (kept, byte) in found.iter_mut().zip(&rest[from..=to]) {
        *kept = *byte;
    }
    rest.fill(debug.rules.poison_inuse);
    Some(Damage {
        offset: (start + from) as i64,
        bytes: (to - from + 1) as u32,
        expected: debug.rules.poison_inuse,
        found,
    })
}
