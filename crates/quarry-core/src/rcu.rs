//! Deferred frees in batches: what a cache does whose design has nothing better (`kfree_rcu()`).
//!
//! Objects are noted in a page of pointers. A full page, or one that a flush or a reap finds, waits
//! for the grace period that the machine then names; when it is over the objects are freed in bulk.
//! The free that fills a page frees those pages whose grace period is over. So with readers that finish,
//! a cache holds its page of pointers and what was deferred during two sections at most. An allocation
//! that finds no memory frees what it can, too.

mod batch;

use core::ptr::NonNull;

use crate::debug::{self, CallSite};
use crate::design::{Design, Env, FreeError};
use crate::harden::{self, Hardened};
use crate::machine::Machine;
use crate::sync::Ordering;

use batch::BatchBox;
pub(crate) use batch::Batches;

/// Notes an object of the cache to be freed when all readers that run now have finished.
///
/// # Errors
///
/// [`FreeError`] if it is not this cache's, or there is no memory to note it.
///
/// # Safety
///
/// The object is not freed otherwise, and no reader finds it any more that does not run already.
pub(crate) unsafe fn defer<M: Machine, D: Design>(
    design: &D,
    env: Env<'_, M>,
    object: NonNull<u8>,
) -> Result<(), FreeError> {
    let (machine, map) = (env.machine(), env.map());
    let pfn = map.pfn_of(object).ok_or(FreeError::Foreign)?;
    map.page(pfn).head().ok_or(FreeError::Foreign)?;
    if map.owner(pfn) != env.cache.id() {
        // It may be in a page of many caches.
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
                free_batch::<M, D>(env, unused);
            }
            return Err(FreeError::NoRoom);
        };
        if batches.push(machine, object, &mut spare) {
            let mut elapsed = None;
            if batches.is_full() {
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
        spare = Some(new_batch::<M, D>(env).ok_or(FreeError::NoRoom)?);
    }
    if let Some(unused) = spare {
        free_batch::<M, D>(env, unused);
    }
    Ok(())
}

/// Frees what was deferred and whose grace period is over. What is noted so far waits for the next
/// one, which may be over at once.
pub(crate) fn settle<M: Machine, D: Design>(design: &D, env: Env<'_, M>) {
    let machine = env.machine();
    let _pass = env.enter();
    let Some(mut batches) = env.cache.rcu.lock(machine) else {
        return;
    };
    batches.seal(machine);
    let elapsed = batches.take_elapsed(machine);
    let noted = u32::from(batches.is_waiting());
    env.cache.rcu_noted.store(noted, Ordering::Relaxed);
    drop(batches);
    free_batches(design, env, elapsed);
}

/// [`settle`] for an allocation that found no memory; whether it is worth another attempt.
#[cold]
pub(crate) fn settle_for_memory<M: Machine, D: Design>(design: &D, env: Env<'_, M>) -> bool {
    let noted = env.cache.rcu_noted.load(Ordering::Relaxed) != 0;
    if noted {
        settle(design, env);
    }
    noted
}

/// Frees the objects of batches and these themselves. The gate has been entered.
fn free_batches<M: Machine, D: Design>(design: &D, env: Env<'_, M>, mut elapsed: Option<BatchBox>) {
    while let Some(mut batch) = elapsed {
        elapsed = batch.take_next();
        // The objects that are refused were freed otherwise, too, against the contract of `defer`.
        if env.cache.flags().debug() {
            for object in batch.objects(env.machine()).iter().flatten() {
                // SAFETY: the object was given up, and its readers have finished.
                let _ = unsafe { debug::free(design, env, *object, CallSite::UNKNOWN, || None) };
            }
        } else if let Some(armour) = env.cache.armour() {
            // SAFETY: the cache's state is of this design.
            let hardened = unsafe { Hardened::of(armour) };
            for object in batch.objects(env.machine()).iter().flatten() {
                // SAFETY: the object was given up, and its readers have finished.
                let freed = unsafe {
                    harden::free::<M, D>(
                        hardened,
                        env,
                        *object,
                        None,
                        (false, true),
                        CallSite::UNKNOWN,
                    )
                };
                if let Err(error) = freed {
                    debug::refused(env, *object, error, CallSite::UNKNOWN, None);
                }
            }
        } else {
            // SAFETY: the objects were given up to `defer`, and their readers have finished.
            let _ = unsafe { design.free_bulk(env, batch.objects(env.machine())) };
        }
        free_batch::<M, D>(env, batch);
    }
}

/// A page of memory for a batch, from kmalloc of the same heap. `None` when memory is exhausted.
fn new_batch<M: Machine, D: Design>(env: Env<'_, M>) -> Option<BatchBox> {
    let bytes = env.machine().topology().page_size();
    let block = env.kmalloc::<D>(bytes, None)?;
    // SAFETY: kmalloc handed out a page of bytes, aligned to a word at least.
    Some(unsafe { BatchBox::new(block, bytes) })
}

/// Frees the memory of a batch, not its objects.
fn free_batch<M: Machine, D: Design>(env: Env<'_, M>, batch: BatchBox) {
    // SAFETY: `new_batch` got the block from there, and the box was its only user.
    unsafe { env.kfree::<D>(batch.into_block()) };
}
