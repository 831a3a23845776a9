//! Objects that rest during a `fork`.
//!
//! # Idea
//!
//! The child of a `fork` has one thread. Locks that other threads held stay held for ever, and
//! what they protected may be half changed. So before a fork all locks of registered objects are
//! taken (`prepare`), and both processes release them afterwards (`parent`, `child`). The C
//! library calls the handlers that [`register`] installs with `pthread_atfork` the first time.
//!
//! Slot words that are held across a fork should have the value
//! [`PERCPU_QUIESCED`](quarry_core::machine::PERCPU_QUIESCED). Restartable sequences need no
//! care: the child's thread keeps its registration, and a sequence of any other thread either
//! committed or did not.
//!
//! # Order
//!
//! `prepare` runs in the reverse order of registration, the other two in order. The table is
//! locked from `prepare` until the fork is over. So forks of several threads happen one after
//! the other, and meanwhile no object can be registered or removed. A fork inside a fork (a
//! signal handler that forks) runs no hooks: the outer one already holds everything. The same
//! holds for a handler that forks while its thread registers an object, where nothing rests; such
//! a child should only `exec`.
//!
//! The table is a static of [`OBJECTS_MAX`] entries; nothing here allocates, but
//! `pthread_atfork` may.

use core::cell::UnsafeCell;
use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::{os, rseq};

/// Objects that can be registered at the same time.
pub const OBJECTS_MAX: usize = 64;

/// Functions that are called around a fork, each with the object's address.
#[derive(Clone, Copy, Debug)]
pub struct ForkHooks {
    /// Before the fork: take all locks.
    pub prepare: unsafe fn(NonNull<()>),
    /// After it in the parent: release them.
    pub parent: unsafe fn(NonNull<()>),
    /// After it in the child: release them; no other thread exists.
    pub child: unsafe fn(NonNull<()>),
}

/// The reason for which an object was not registered or removed.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForkError {
    /// [`OBJECTS_MAX`] objects are registered.
    Full,
    /// Called from one of the hooks, or from a signal handler that interrupted this module.
    Busy,
    /// No such object is registered.
    Unknown,
    /// `pthread_atfork` failed.
    Atfork {
        /// The error number that it returned.
        errno: i32,
    },
}

impl fmt::Display for ForkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => write!(f, "all {OBJECTS_MAX} places for objects to rest are taken"),
            Self::Busy => f.write_str("called while the same thread forks or registers"),
            Self::Unknown => f.write_str("no such object is registered"),
            Self::Atfork { errno } => write!(f, "pthread_atfork failed with errno {errno}"),
        }
    }
}

quarry_core::debug_is_display!(ForkError);

impl core::error::Error for ForkError {}

#[derive(Clone, Copy)]
struct Entry {
    object: NonNull<()>,
    hooks: ForkHooks,
}

struct State {
    entries: [Option<Entry>; OBJECTS_MAX],
    /// Entries below this are in order of registration, with gaps.
    used: usize,
    installed: bool,
}

/// The table; `owner` is 0 or the thread that has it.
struct Table {
    owner: AtomicUsize,
    /// Forks of the owner inside the one that has the table. Only the owner touches it.
    nested: AtomicU32,
    state: UnsafeCell<State>,
}

// SAFETY: `state` is only reached by the thread whose number is in `owner` (`Table::take`); the
// addresses of objects are passed on, never followed here.
unsafe impl Sync for Table {}

static TABLE: Table = Table {
    owner: AtomicUsize::new(0),
    nested: AtomicU32::new(0),
    state: UnsafeCell::new(State {
        entries: [None; OBJECTS_MAX],
        used: 0,
        installed: false,
    }),
};

impl Table {
    /// Waits for the table; `false` if the calling thread has it already.
    fn take(&self) -> bool {
        let me = rseq::thread_pointer();
        let mut attempt = 0;
        // Acquire: pairs with the Release in `give_back`.
        while self
            .owner
            .compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            if self.owner.load(Ordering::Relaxed) == me {
                return false;
            }
            os::pause_long(attempt);
            attempt = attempt.saturating_add(1);
        }
        true
    }

    fn give_back(&self) {
        // Release: pairs with the Acquire in `take`.
        self.owner.store(0, Ordering::Release);
    }

    /// Runs `f` on the state, unless the calling thread has the table already.
    fn with<R>(&self, f: impl FnOnce(&mut State) -> Result<R, ForkError>) -> Result<R, ForkError> {
        if !self.take() {
            return Err(ForkError::Busy);
        }
        // SAFETY: `take` made this thread the only one that has the table, and a second use by
        // the same thread is refused above.
        let result = f(unsafe { &mut *self.state.get() });
        self.give_back();
        result
    }
}

/// Has `hooks` called with `object` around every fork from now on.
///
/// # Errors
///
/// [`ForkError::Full`], [`ForkError::Busy`] or [`ForkError::Atfork`].
///
/// # Safety
///
/// Until [`unregister`] returns, the hooks may be called with `object` from any thread that
/// forks, `prepare` first and then one of the other two. They must not register or remove objects.
pub unsafe fn register(object: NonNull<()>, hooks: ForkHooks) -> Result<(), ForkError> {
    TABLE.with(|state| {
        state.compact();
        let place = state.entries.get_mut(state.used).ok_or(ForkError::Full)?;
        if !state.installed {
            // SAFETY: the three functions live as long as the program.
            let errno = unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
            if errno != 0 {
                return Err(ForkError::Atfork { errno });
            }
            state.installed = true;
        }
        *place = Some(Entry { object, hooks });
        state.used += 1;
        Ok(())
    })
}

/// Removes an object; waits for a fork that is under way.
///
/// # Errors
///
/// [`ForkError::Unknown`] or [`ForkError::Busy`].
pub fn unregister(object: NonNull<()>) -> Result<(), ForkError> {
    TABLE.with(|state| {
        let is_object = |entry: &&mut Option<Entry>| entry.is_some_and(|e| e.object == object);
        let place = state
            .entries
            .iter_mut()
            .find(is_object)
            .ok_or(ForkError::Unknown)?;
        *place = None;
        Ok(())
    })
}

impl State {
    /// Closes the gaps that removals left.
    fn compact(&mut self) {
        let mut kept = 0;
        for index in 0..self.used {
            if let Some(entry) = self.entries[index].take() {
                self.entries[kept] = Some(entry);
                kept += 1;
            }
        }
        self.used = kept;
    }
}

/// A copy of entry `index`, so that no reference into the table lives while a hook runs.
fn entry(index: usize) -> Option<Entry> {
    // SAFETY: the calling thread has the table from `prepare` to `parent` or `child`, during
    // which nothing changes the entries.
    let state = unsafe { &*TABLE.state.get() };
    state.entries[index]
}

extern "C" fn prepare() {
    if !TABLE.take() {
        TABLE.nested.fetch_add(1, Ordering::Relaxed);
        return;
    }
    for entry in (0..OBJECTS_MAX).rev().filter_map(entry) {
        // SAFETY: the contract of `register` allows the call.
        unsafe { (entry.hooks.prepare)(entry.object) };
    }
}

fn finish(hook: fn(&ForkHooks) -> unsafe fn(NonNull<()>)) {
    if TABLE.nested.load(Ordering::Relaxed) > 0 {
        TABLE.nested.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    for entry in (0..OBJECTS_MAX).filter_map(entry) {
        // SAFETY: the contract of `register` allows the call, once after `prepare`.
        unsafe { hook(&entry.hooks)(entry.object) };
    }
    TABLE.give_back();
}

extern "C" fn parent() {
    finish(|hooks| hooks.parent);
}

extern "C" fn child() {
    finish(|hooks| hooks.child);
}
