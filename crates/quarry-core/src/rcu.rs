//! Deferred frees in batches: what a cache does whose design has nothing better (`kfree_rcu()`).
//!
//! Objects are noted in a page of pointers. A full page, or one that a flush or a reap finds, waits
//! for the grace period that the machine then names; when it is over the objects are freed in bulk.
//! The free that fills a page frees those pages whose grace period is over. So with readers that finish,
//! a cache holds its page of pointers and what was deferred during two sections at most. An allocation
//! that finds no memory frees what it can, too.

use core::mem::offset_of;
use core::ptr::NonNull;

use crate::debug::{self, CallSite};
use crate::design::{Env, Free, FreeError, Slots};
use crate::machine::{Access, Line, LockClass, Machine, SpinLock, access, access_run};
use crate::sync::Ordering;

/// Head of a batch; the pointers follow it.
#[repr(C)]
struct Batch {
    /// Next older batch that waits.
    next: Option<BatchBox>,
    /// The grace period waited for.
    cookie: u64,
    /// Filled entries.
    count: usize,
    /// Room for entries.
    room: usize,
    first: [Option<NonNull<u8>>; 0],
}

/// A batch that the holder of this value owns. It is not freed when dropped.
#[repr(transparent)]
struct BatchBox(NonNull<Batch>);

// SAFETY: a batch is memory that only the holder of its box uses.
unsafe impl Send for BatchBox {}

impl BatchBox {
    fn new<M: Machine>(env: Env<'_, M>) -> Option<Self> {
        let bytes = env.machine().topology().page_size();
        let block = env.kmalloc(bytes, None)?.cast::<Batch>();
        let batch = Batch {
            next: None,
            cookie: 0,
            count: 0,
            room: (bytes - offset_of!(Batch, first)) / size_of::<usize>(),
            first: [],
        };
        // SAFETY: kmalloc handed out a page of bytes, aligned to a word at least.
        unsafe { block.write(batch) };
        Some(Self(block))
    }

    fn free<M: Machine>(self, env: Env<'_, M>) {
        // SAFETY: `new` got the block from there, and the box was its only user.
        unsafe { env.kfree(self.0.cast()) };
    }

    fn head(&self) -> &Batch {
        // SAFETY: the box owns an initialised batch (`new`).
        unsafe { self.0.as_ref() }
    }

    fn head_mut(&mut self) -> &mut Batch {
        // SAFETY: as in `head`, and the box is borrowed mutably.
        unsafe { self.0.as_mut() }
    }

    fn is_full(&self) -> bool {
        self.head().count == self.head().room
    }

    fn entries(&self) -> *mut Option<NonNull<u8>> {
        let offset = offset_of!(Batch, first);
        self.0.as_ptr().wrapping_byte_add(offset).cast()
    }

    fn push<M: Machine>(&mut self, machine: &M, object: NonNull<u8>) {
        let at = self.head().count;
        debug_assert!(at < self.head().room);
        let entry = self.entries().wrapping_add(at);
        access(machine, Line::Object, Access::Write, self.0.as_ptr());
        access(machine, Line::Object, Access::Write, entry);
        // SAFETY: at < room, so the entry lies in the block.
        unsafe { entry.write(Some(object)) };
        self.head_mut().count += 1;
    }

    fn objects<M: Machine>(&mut self, machine: &M) -> &mut [Option<NonNull<u8>>] {
        let count = self.head().count;
        access_run(machine, Line::Object, Access::Read, self.entries(), count);
        // SAFETY: `count` entries are filled, and the box is borrowed mutably.
        unsafe { core::slice::from_raw_parts_mut(self.entries(), self.head().count) }
    }
}

/// The batches of a cache.
pub(crate) struct Batches {
    filling: Option<BatchBox>,
    /// Newest first.
    waiting: Option<BatchBox>,
}

impl Batches {
    pub(crate) fn new() -> SpinLock<Self> {
        SpinLock::new(
            LockClass::Rcu,
            Self {
                filling: None,
                waiting: None,
            },
        )
    }

    /// Lets the batch that is being filled wait.
    fn seal<M: Machine>(&mut self, machine: &M) {
        if let Some(mut batch) = self.filling.take() {
            batch.head_mut().cookie = machine.rcu_cookie();
            batch.head_mut().next = self.waiting.take();
            self.waiting = Some(batch);
        }
    }

    /// Takes a batch whose grace period is over: the newest such, with all older ones.
    fn take_elapsed<M: Machine>(&mut self, machine: &M) -> Option<BatchBox> {
        let mut at = &mut self.waiting;
        while at
            .as_ref()
            .is_some_and(|batch| !machine.rcu_elapsed(batch.head().cookie))
        {
            at = &mut at.as_mut()?.head_mut().next;
        }
        at.take()
    }
}

/// Notes an object of the cache to be freed when all readers that run now have finished.
///
/// # Errors
///
/// [`FreeError`] if it is not this cache's, or there is no memory to note it.
///
/// # Safety
///
/// The object is not freed otherwise, and no reader finds it any more that does not run already.
pub(crate) unsafe fn defer<M: Machine, D: Free + Slots>(
    design: &D,
    env: Env<'_, M>,
    object: NonNull<u8>,
) -> Result<(), FreeError> {
    let (machine, map) = (env.machine(), env.map());
    let page = map.page(map.pfn_of(object).ok_or(FreeError::Foreign)?);
    page.head().ok_or(FreeError::Foreign)?;
    if page.cache.load(Ordering::Relaxed) != env.cache.id() {
        // It may lie in a page of many caches.
        let place = design.find_slot(env, object).map_err(|(error, _)| error)?;
        if !place.exact {
            return Err(FreeError::NotAnObject);
        }
    }
    let _pass = env.enter();
    let mut spare: Option<BatchBox> = None;
    loop {
        let Some(mut batches) = env.cache.rcu.lock(machine) else {
            if let Some(unused) = spare {
                unused.free(env);
            }
            return Err(FreeError::NoRoom);
        };
        if batches.filling.is_none() {
            batches.filling = spare.take();
        }
        if let Some(batch) = &mut batches.filling {
            batch.push(machine, object);
            let mut elapsed = None;
            if batch.is_full() {
                batches.seal(machine);
                elapsed = batches.take_elapsed(machine);
            }
            // Relaxed: only says whether it is worth looking.
            env.cache.rcu_noted.store(1, Ordering::Relaxed);
            drop(batches);
            free_batches(design, env, elapsed);
            break;
        }
        // kmalloc takes locks of its own, so this one is not held meanwhile.
        drop(batches);
        spare = Some(BatchBox::new(env).ok_or(FreeError::NoRoom)?);
    }
    if let Some(unused) = spare {
        unused.free(env);
    }
    Ok(())
}

/// Frees what was deferred and whose grace period is over. What is noted so far waits for the next
/// one, which may be over at once.
pub(crate) fn settle<M: Machine, D: Free + Slots>(design: &D, env: Env<'_, M>) {
    let machine = env.machine();
    let _pass = env.enter();
    let Some(mut batches) = env.cache.rcu.lock(machine) else {
        return;
    };
    batches.seal(machine);
    let elapsed = batches.take_elapsed(machine);
    let noted = u32::from(batches.waiting.is_some());
    env.cache.rcu_noted.store(noted, Ordering::Relaxed);
    drop(batches);
    free_batches(design, env, elapsed);
}

/// [`settle`] for an allocation that found no memory; whether it is worth another attempt.
#[cold]
pub(crate) fn settle_for_memory<M: Machine, D: Free + Slots>(design: &D, env: Env<'_, M>) -> bool {
    let noted = env.cache.rcu_noted.load(Ordering::Relaxed) != 0;
    if noted {
        settle(design, env);
    }
    noted
}

/// Frees the objects of batches and these themselves. The gate has been entered.
fn free_batches<M: Machine, D: Free + Slots>(
    design: &D,
    env: Env<'_, M>,
    mut elapsed: Option<BatchBox>,
) {
    while let Some(mut batch) = elapsed {
        elapsed = batch.head_mut().next.take();
        // The objects that are refused were freed otherwise, too, against the contract of `defer`.
        if env.cache.flags().debug() {
            for object in batch.objects(env.machine()).iter().flatten() {
                // SAFETY: the object was given up, and its readers have finished.
                let _ = unsafe { debug::free(design, env, *object, CallSite::UNKNOWN, || None) };
            }
        } else {
            // SAFETY: as above.
            let _ = unsafe { design.free_bulk(env, batch.objects(env.machine())) };
        }
        batch.free(env);
    }
}
