//! Debugging as a heap's users set it up.

use super::{CacheView, Heap};
use crate::debug::{self, CallSite, Reporter, SlubDebug, Tracer, Validation};
use core::ptr::NonNull;

use crate::design::{Design, FreeError};
use crate::geometry::GeometryError;
use crate::machine::Machine;
use crate::sync::Ordering;

impl<M: Machine, D: Design> Heap<M, D> {
    /// Switches debugging on for the caches that the setting names and that are made from now on,
    /// those of kmalloc included. Caches may ask for debugging by themselves with the flags of
    /// their [`CacheSpec`](crate::design::CacheSpec).
    ///
    /// # Errors
    ///
    /// [`GeometryError::NoDebugging`] if the design has none. `None` is always possible.
    pub fn set_slub_debug(&self, setting: Option<SlubDebug>) -> Result<(), GeometryError> {
        if setting.is_some() && D::debug_rules(self.system.era).is_none() {
            return Err(GeometryError::NoDebugging { design: D::NAME });
        }
        let _pass = self.system.pages.gate().enter(self.machine());
        self.system.debug.set_setting(self.machine(), setting);
        Ok(())
    }

    /// Sets the function that receives reports of mistakes: all that caches with debugging find, and
    /// frees that other caches refuse. There is none by default. The function runs on the thread that
    /// found the mistake and may use the heap.
    pub fn set_reporter(&self, reporter: Option<Reporter>) {
        self.system.debug.set_reporter(reporter);
    }

    /// Sets the function that receives the allocations and frees of caches with the letter T.
    pub fn set_tracer(&self, tracer: Option<Tracer>) {
        self.system.debug.set_tracer(tracer);
    }
}

impl<M: Machine, D: Design> CacheView<'_, M, D> {
    /// Looks at every slab of the cache (sysfs `validate`): red zones, poison, padding, lists of
    /// free objects. What is damaged is reported and restored. Without debugging only lists and
    /// counters are looked at. The cache may be in use: others wait meanwhile.
    #[track_caller]
    pub fn validate(&self) -> Validation {
        debug::validate(self.body.behind(), self.env(), CallSite::caller())
    }

    /// Looks through the objects that the running CPU keeps ready, the newest 64 of each run, for addresses that are no
    /// object's start and for objects that are there twice: frees that a fast path took without a look. An address that a
    /// drain has dropped counts, too. Reports the first; true if there is none.
    #[track_caller]
    pub fn check_kept(&self) -> bool {
        /// Objects of a run that are looked at: each is compared with all others.
        const LOOKED_AT: usize = 64;
        let (env, design) = (self.env(), self.body.behind());
        let dropped = env.cache.dropped.load(Ordering::Relaxed);
        let mut found = NonNull::new(dropped).map(|object| (object, FreeError::NotAnObject));
        design.kept(env, |runs| {
            let [older, newer] = runs.map(|run| &run[run.len().saturating_sub(LOOKED_AT)..]);
            let wrong = |(at, object): (usize, &NonNull<u8>)| {
                let exact = design.find_slot(env, *object);
                let mut before = older.iter().chain(newer).take(at);
                let error = match exact.is_ok_and(|place| place.exact) {
                    true if before.any(|other| other == object) => FreeError::DoubleFree,
                    true => return None,
                    false => FreeError::NotAnObject,
                };
                Some((*object, error))
            };
            found = found.or_else(|| older.iter().chain(newer).enumerate().find_map(wrong));
        });
        if let Some((object, error)) = found {
            debug::found_late(env, object, error, CallSite::caller());
        }
        found.is_none()
    }
}
