//! Allocation and free of hardened caches, around those of the design behind.

use core::ptr::NonNull;

use super::ring::Ring;
use super::word::{self, FREE, State};
use super::{Armour, CANARY_BYTES, FILL, Hardened};
use crate::debug::{CallSite, Damage, During, EXCERPT_BYTES, Finding, Fix, Report, report_of};
use crate::design::{CacheHead, Design, Env, FreeError};
use crate::geometry::{CacheFlags, Hardening, TRAILER};
use crate::machine::Machine;
use crate::page::Pfn;
use crate::rcu;
use crate::slabs;

/// Objects that one allocation finds damaged before it gives up.
const DAMAGED_MAX: usize = 64;
const WORD: usize = 8;
/// Objects up to this many bytes are filled word by word.
const SMALL: usize = 64;
/// Bytes of a free object that are looked at when it is used again: its first ones, and as many at its end. Each costs a
/// load, and most blocks that are larger are buffers.
const LOOKED_AT: usize = 1024;
/// Each word of a freed object, and of a canary: no byte of text or of a small number.
const FILLED: u64 = u64::from_ne_bytes([FILL; WORD]);

impl Armour {
    /// The armour of a new cache; `None` if there is no room for it.
    pub(crate) fn new<M: Machine>(env: Env<'_, M>) -> Option<Self> {
        let (measures, secret) = (env.system.boot.hardening, env.system.boot.secret);
        let layout = &env.cache.geometry.layout;
        let size = layout.size as usize;
        let ring = match measures.contains(Hardening::DELAY) {
            true => Some(Ring::new(env.machine(), env.pages().meta(), size, secret)?),
            false => None,
        };
        let keeps_state = CacheFlags::RCU | CacheFlags::CTOR;
        Some(Self {
            measures,
            secret,
            usable: (layout.object_size - TRAILER) as usize,
            fills: measures.contains(Hardening::FILL) && !env.cache.flags.intersects(keeps_state),
            ring,
        })
    }

    /// Gives the armour's own memory back. The cache has no user left.
    pub(crate) fn release<M: Machine>(self, env: Env<'_, M>) {
        if let Some(ring) = self.ring {
            let (memory, bytes) = ring.into_memory();
            // SAFETY: `new` took it for these bytes, and it has no user any more.
            unsafe { env.system.free_meta(memory, bytes) };
        }
    }

    /// The word of an object.
    fn word(&self, object: NonNull<u8>) -> NonNull<u8> {
        let at = object
            .as_ptr()
            .wrapping_add(self.usable + TRAILER as usize - WORD);
        // SAFETY: behind an address that is not null, in a range of memory that does not wrap.
        unsafe { NonNull::new_unchecked(at) }
    }

    /// The state at an address that may be no object's.
    #[inline(always)]
    fn number<M: Machine>(&self, env: Env<'_, M>, object: NonNull<u8>) -> u64 {
        let word = self.word(object);
        let aligned = object.addr().get().is_multiple_of(WORD);
        // Slots end in the range that they begin in; other addresses may be near its end.
        if !aligned || env.map().pfn_of(word).is_none() {
            return u64::MAX >> 1;
        }
        // SAFETY: aligned, and memory of the machine (M2), which can be read.
        unsafe { word::load(word, self.secret, object.addr().get()) }
    }

    /// # Safety
    ///
    /// The object is the caller's.
    #[inline(always)]
    unsafe fn set_number(&self, object: NonNull<u8>, number: u64) {
        // SAFETY: the object's own word, as the caller says.
        unsafe { word::store(self.word(object), self.secret, object.addr().get(), number) };
    }

    /// Offset of the canary's words behind a request, and of their end.
    const fn canary(&self, request: usize) -> (usize, usize) {
        let most = (request + CANARY_BYTES) & !(WORD - 1);
        let end = self.usable + WORD;
        (request & !(WORD - 1), if most < end { most } else { end })
    }

    /// Bits of the canary's first word that are behind the request.
    const fn first_mask(request: usize) -> u64 {
        u64::MAX << (8 * (request % WORD))
    }

    /// Puts an object in use for a request.
    ///
    /// # Safety
    ///
    /// The object is the caller's.
    #[inline(always)]
    unsafe fn arm(&self, object: NonNull<u8>, request: usize) {
        // SAFETY: the caller's object.
        unsafe { self.set_number(object, request as u64) };
        if !self.measures.contains(Hardening::CANARY) {
            return;
        }
        let (start, end) = self.canary(request);
        let mut mask = Self::first_mask(request);
        let mut at = start;
        while at < end {
            let place = object.as_ptr().wrapping_add(at).cast::<u64>();
            // SAFETY: inside the slot, in front of its word, and aligned as the slot is. The bytes may be uninitialised
            // memory of the allocator's, which is memory of the machine and has some value (M2).
            let old = unsafe { place.read_volatile() };
            // SAFETY: as above.
            unsafe { place.write(old & !mask | FILLED & mask) };
            (at, mask) = (at + WORD, u64::MAX);
        }
    }

    /// Offset of the first byte behind a request that was written to.
    #[inline(always)]
    fn overrun(&self, object: NonNull<u8>, request: usize) -> Option<usize> {
        let (start, end) = self.canary(request);
        let mut mask = Self::first_mask(request);
        let mut at = start;
        while at < end {
            let place = object.as_ptr().wrapping_add(at).cast::<u64>();
            // SAFETY: as in `arm`, which wrote it.
            let wrong = (unsafe { place.read() } ^ FILLED) & mask;
            if wrong != 0 {
                return Some(at + wrong.trailing_zeros() as usize / 8);
            }
            (at, mask) = (at + WORD, u64::MAX);
        }
        None
    }

    /// True if the word in front of an object is none that the slot before it can have.
    #[inline(always)]
    fn underrun<M: Machine, D: Design>(
        &self,
        env: Env<'_, M>,
        design: &D,
        object: NonNull<u8>,
    ) -> bool {
        let size = env.cache.geometry.layout.size as usize;
        if self.usable + TRAILER as usize != size {
            // Padding lies between.
            return false;
        }
        let address = object.addr().get();
        let starts_page = address & ((1 << env.map().page_shift()) - 1) == 0;
        let first = || slab_of(env, object).map(|slab| design.first_slot(env, slab));
        // Slots begin with their slab, and that with a page, but for slabs with colours.
        let colours = env.cache.geometry.slab.colour_off != 0;
        if (starts_page || colours) && first() == Some(object) {
            return false;
        }
        let before = object.as_ptr().wrapping_sub(size);
        let Some(before) = NonNull::new(before) else {
            return false;
        };
        // SAFETY: the word of the slot before this one, in the same slab, which `set_up` wrote (N1).
        let number = unsafe { word::load(self.word(before), self.secret, before.addr().get()) };
        word::state(number, self.usable) == State::Broken
    }

    /// Offset of the first byte of a free object that is not as [`Armour::fill`] wrote it, where free objects are looked at.
    #[inline(always)]
    fn written(&self, object: NonNull<u8>, bytes: usize) -> Option<usize> {
        if !self.fills || !self.measures.contains(Hardening::REUSE) {
            return None;
        }
        match bytes.checked_sub(2 * LOOKED_AT) {
            None | Some(0) => Self::not_filled_in(object, 0, bytes),
            Some(between) => Self::not_filled_in(object, 0, LOOKED_AT)
                .or_else(|| Self::not_filled_in(object, between + LOOKED_AT, LOOKED_AT)),
        }
    }

    /// The same of some bytes from one on.
    #[inline]
    fn not_filled_in(object: NonNull<u8>, start: usize, bytes: usize) -> Option<usize> {
        // SAFETY: the object is the caller's alone and has these bytes, which were written when it was freed.
        let first = object.as_ptr().wrapping_add(start).cast::<u64>();
        // SAFETY: as above.
        let words = unsafe { core::slice::from_raw_parts(first, bytes / WORD) };
        // All of them, without an end at the first wrong one: in vectors.
        if words.iter().fold(0, |all, word| all | (word ^ FILLED)) != 0 {
            let first = words.iter().position(|word| *word != FILLED)?;
            return Some(
                start + first * WORD + (words[first] ^ FILLED).trailing_zeros() as usize / 8,
            );
        }
        None
    }

    /// Fills an object that was in use. Returns its state.
    ///
    /// # Safety
    ///
    /// The object is the caller's.
    #[inline(always)]
    unsafe fn fill(&self, object: NonNull<u8>, request: usize) -> u64 {
        if !self.fills {
            return FREE;
        }
        let bytes = request.next_multiple_of(WORD).min(self.usable);
        if bytes <= SMALL {
            for at in (0..bytes).step_by(WORD) {
                let place = object.as_ptr().wrapping_add(at).cast::<u64>();
                // SAFETY: inside the object, which is the caller's. Volatile, so that this is no call of `memset`.
                unsafe { place.write_volatile(FILLED) };
            }
        } else {
            // SAFETY: the object has these bytes and is the caller's.
            unsafe { object.write_bytes(FILL, bytes) };
        }
        FREE | bytes as u64
    }
}

fn slab_of<M: Machine>(env: Env<'_, M>, object: NonNull<u8>) -> Option<Pfn> {
    let map = env.map();
    map.page(map.pfn_of(object)?).head()
}

/// A report about an object; `offset` is that of the first wrong byte.
#[cold]
#[inline(never)]
fn report<M: Machine>(
    env: Env<'_, M>,
    what: Finding,
    during: During,
    object: NonNull<u8>,
    offset: Option<(isize, u8)>,
    site: CallSite,
) {
    let here = crate::debug::here(env.machine(), site);
    let damage = offset.map(|(offset, expected)| {
        let mut found = [0; EXCERPT_BYTES];
        for (at, byte) in found.iter_mut().enumerate() {
            let place = object.as_ptr().wrapping_offset(offset + at as isize);
            // SAFETY: in the slab of the object or right behind it, which is memory of the machine.
            *byte = unsafe { place.read_volatile() };
        }
        Damage {
            offset: offset as i64,
            bytes: WORD as u32,
            expected,
            found,
        }
    });
    let slab = slab_of(env, object);
    let report = Report {
        object: object.addr().get(),
        slab: slab.map(|slab| (slab, env.map().address(slab).addr().get())),
        damage,
        ..report_of(env, what, during, Fix::Withheld, here)
    };
    env.system.debug.report(&report);
}

/// Writes the words of a new slab's slots, before others know it.
pub(crate) fn set_up<M: Machine>(
    env: Env<'_, M>,
    armour: &Armour,
    first: NonNull<u8>,
    objects: u32,
) {
    let size = env.cache.geometry.layout.size as usize;
    for number in 0..objects as usize {
        // SAFETY: the slab has this many slots (geometry).
        let object = unsafe { first.byte_add(number * size) };
        // SAFETY: a slot of a new slab, which no other code knows.
        unsafe { armour.set_number(object, FREE) };
    }
}

/// Allocates an object of at least `bytes` bytes, which the cache has. `direct` is past all per-CPU state.
#[inline(always)]
pub(crate) fn alloc<M: Machine, D: Design>(
    hardened: &Hardened<D>,
    env: Env<'_, M>,
    node: Option<crate::machine::NodeId>,
    bytes: usize,
    direct: bool,
    site: CallSite,
) -> Option<NonNull<u8>> {
    let Hardened { armour, design } = hardened;
    for _ in 0..DAMAGED_MAX {
        let object = match direct {
            true => design.alloc_direct(env, node),
            false => match design.alloc_fast(env, node) {
                None => alloc_missed(design, env, node),
                object => object,
            },
        };
        let object = object?;
        let number = armour.number(env, object);
        let state = word::state(number, armour.usable);
        let wrong = match state {
            State::Free(filled) => armour.written(object, filled),
            _ => Some(0),
        };
        let Some(offset) = wrong else {
            // SAFETY: allocated just now, and of this cache by its word.
            unsafe { armour.arm(object, bytes.min(armour.usable)) };
            return Some(object);
        };
        // The object stays out of circulation: it counts as in use for the design.
        let (what, offset) = match state {
            State::Free(_) => (Finding::Poison, Some((offset as isize, FILL))),
            State::Used(_) => (Finding::DoubleFree, None),
            State::Broken => (Finding::FreelistCorrupt, None),
        };
        report(env, what, During::Alloc, object, offset, site);
    }
    None
}

#[inline(never)]
fn alloc_missed<M: Machine, D: Design>(
    design: &D,
    env: Env<'_, M>,
    node: Option<crate::machine::NodeId>,
) -> Option<NonNull<u8>> {
    design.alloc_slow(env, node).or_else(|| {
        let settled = rcu::settle_for_memory(design, env);
        settled.then(|| design.alloc(env, node)).flatten()
    })
}

/// Frees an object; `size` is what its user says that it has. It is `owned` if the caller knows that a slab of the cache has
/// the address, and its free goes past all per-CPU state if it is `direct`. After an error nothing has changed but for an object that
/// was overrun, which is not used again. `Corrupt` has been reported, other errors have not.
///
/// # Safety
///
/// The object has no user left.
#[inline(always)]
pub(crate) unsafe fn free<M: Machine, D: Design>(
    hardened: &Hardened<D>,
    env: Env<'_, M>,
    object: NonNull<u8>,
    size: Option<usize>,
    (owned, direct): (bool, bool),
    site: CallSite,
) -> Result<(), FreeError> {
    let Hardened { armour, design } = hardened;
    if !owned && !slabs::owns(env, object) {
        return Err(mistake(hardened, env, object, site));
    }
    let State::Used(request) = word::state(armour.number(env, object), armour.usable) else {
        return Err(mistake(hardened, env, object, site));
    };
    if let Some(size) = size
        && size != request
        && armour.measures.contains(Hardening::SIZES)
    {
        return Err(FreeError::WrongSize);
    }
    if armour.measures.contains(Hardening::CANARY) {
        let over = armour.overrun(object, request);
        if over.is_some() || armour.underrun(env, design, object) {
            // SAFETY: the caller gave the object up.
            return Err(unsafe { overrun(armour, env, object, over, site) });
        }
    }
    // SAFETY: the caller gave the object up.
    let number = unsafe { armour.fill(object, request) };
    // SAFETY: as above.
    unsafe { armour.set_number(object, number) };
    let leaving = match &armour.ring {
        Some(ring) if !direct => ring.swap(env.machine(), object),
        _ => Some(object),
    };
    let Some(object) = leaving else { return Ok(()) };
    if direct {
        // SAFETY: the caller gave the object up.
        return unsafe { design.free_direct(env, object) };
    }
    // SAFETY: the object is free by its word, and came out of the ring if it is another one; no other code has it.
    if unsafe { design.free_own_fast(env, object) } {
        return Ok(());
    }
    // SAFETY: as above; the attempt has not freed it.
    unsafe { design.free_slow(env, object) }
}

/// Error of a free of what is no object in use.
#[cold]
#[inline(never)]
fn mistake<M: Machine, D: Design>(
    hardened: &Hardened<D>,
    env: Env<'_, M>,
    object: NonNull<u8>,
    site: CallSite,
) -> FreeError {
    let Hardened { armour, design } = hardened;
    match design.find_slot(env, object) {
        Err((error, _)) => error,
        Ok(place) if !place.exact => FreeError::NotAnObject,
        Ok(_) => match word::state(armour.number(env, object), armour.usable) {
            State::Free(_) => FreeError::DoubleFree,
            _ => {
                let at = armour.usable + TRAILER as usize - WORD;
                report(
                    env,
                    Finding::RedZone,
                    During::Free,
                    object,
                    Some((at as isize, 0)),
                    site,
                );
                FreeError::Corrupt
            }
        },
    }
}

/// Reports an overrun, behind the object at `over` or in front of it, and takes the object out of circulation.
///
/// # Safety
///
/// The object is the caller's.
#[cold]
#[inline(never)]
unsafe fn overrun<M: Machine>(
    armour: &Armour,
    env: Env<'_, M>,
    object: NonNull<u8>,
    over: Option<usize>,
    site: CallSite,
) -> FreeError {
    let at = match over {
        Some(at) => (at as isize, FILL),
        None => (-(WORD as isize), 0),
    };
    report(env, Finding::RedZone, During::Free, object, Some(at), site);
    // SAFETY: the caller's object.
    unsafe { armour.set_number(object, FREE) };
    FreeError::Corrupt
}

/// Bytes of the request for an object in use; `None` for all other addresses.
pub(crate) fn request<M: Machine>(
    env: Env<'_, M>,
    armour: &Armour,
    object: NonNull<u8>,
) -> Option<usize> {
    match word::state(armour.number(env, object), armour.usable) {
        State::Used(request) => Some(request),
        _ => None,
    }
}

/// Changes the request of an object in use, in place; `false` if it has no room or is none.
///
/// # Safety
///
/// Only the caller uses the object.
pub(crate) unsafe fn set_request<M: Machine>(
    env: Env<'_, M>,
    armour: &Armour,
    object: NonNull<u8>,
    bytes: usize,
) -> bool {
    let fits = bytes <= armour.usable && request(env, armour, object).is_some();
    if fits {
        // SAFETY: an object in use, which is the caller's.
        unsafe { armour.arm(object, bytes) };
    }
    fits
}

/// True unless a slot's object is free by its word: the ring has it, or it is out of circulation.
pub(crate) fn is_live(head: &CacheHead, object: NonNull<u8>) -> bool {
    let Some(armour) = head.armour() else {
        return true;
    };
    // SAFETY: the word of a slot, which is always valid (N1).
    let number = unsafe { word::load(armour.word(object), armour.secret, object.addr().get()) };
    !matches!(word::state(number, armour.usable), State::Free(_))
}

/// Empties the rings into the design, and looks at what they held.
pub(crate) fn drain<M: Machine, D: Design>(hardened: &Hardened<D>, env: Env<'_, M>) {
    let Hardened { armour, design } = hardened;
    let Some(ring) = &armour.ring else { return };
    ring.drain(|object| {
        let written = match word::state(armour.number(env, object), armour.usable) {
            State::Free(filled) => armour.written(object, filled),
            _ => None,
        };
        match written {
            Some(at) => report(
                env,
                Finding::Poison,
                During::Validate,
                object,
                Some((at as isize, FILL)),
                CallSite::UNKNOWN,
            ),
            None => {
                // SAFETY: out of the ring, so no other code has it.
                let freed = unsafe { design.free(env, object) };
                debug_assert!(freed.is_ok(), "{freed:?}");
            }
        }
    });
}
