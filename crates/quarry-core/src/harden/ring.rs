//! Objects that were freed a while ago: one ring for each CPU.

use core::ptr::NonNull;

use crate::machine::{CpuId, Machine, Region};
use crate::sync::{AtomicPtr, AtomicU64, Ordering};

/// Objects of a ring at most.
const OBJECTS: usize = 32;
/// Objects of a ring at least.
const OBJECTS_MIN: usize = 4;
/// Bytes of the objects of a ring, where that is more than [`OBJECTS_MIN`].
const BYTES: usize = 4 << 10;

/// One CPU's part: valid if all bytes are zero.
#[repr(C, align(64))]
struct Part {
    objects: [AtomicPtr<u8>; OBJECTS],
    /// State of the numbers by which objects are chosen. Racing threads may draw the same one.
    chance: AtomicU64,
}

/// A ring for each CPU.
pub(super) struct Ring {
    parts: NonNull<Part>,
    cpus: usize,
    /// One less than the places in use, a power of two.
    mask: usize,
    secret: u64,
}

// SAFETY: the parts are atomics, whose memory is the ring's until `release`. An object in them has no user, and is of who
// takes it out.
unsafe impl Sync for Ring {}
// SAFETY: as for `Sync`.
unsafe impl Send for Ring {}

impl Ring {
    fn bytes(cpus: usize) -> usize {
        cpus * size_of::<Part>()
    }

    /// A ring for objects in slots of `size` bytes; `None` if there is no room for it.
    pub(super) fn new<M: Machine>(
        machine: &M,
        meta: &Region,
        size: usize,
        secret: u64,
    ) -> Option<Self> {
        let cpus = machine.topology().cpus as usize;
        let parts = meta.alloc(machine, Self::bytes(cpus))?.cast();
        #[cfg(loom)]
        for cpu in 0..cpus {
            // A modelled atomic is not valid when it is all zero.
            let part = Part {
                objects: [(); OBJECTS].map(|()| AtomicPtr::new(core::ptr::null_mut())),
                chance: AtomicU64::new(0),
            };
            // SAFETY: below the number of parts, whose memory was reserved just now.
            let place: NonNull<Part> = unsafe { parts.add(cpu) };
            // SAFETY: as above.
            unsafe { place.write(part) };
        }
        let places = (BYTES / size.max(1)).clamp(OBJECTS_MIN, OBJECTS);
        Some(Self {
            parts,
            cpus,
            mask: (1 << places.ilog2()) - 1,
            secret,
        })
    }

    /// The ring's memory, to be given back.
    pub(super) fn into_memory(self) -> (NonNull<u8>, usize) {
        (self.parts.cast(), Self::bytes(self.cpus))
    }

    fn part(&self, cpu: CpuId) -> &Part {
        // A CPU that the machine did not announce shares a part.
        let at = cpu.0 as usize % self.cpus;
        // SAFETY: below the number of parts.
        let part = unsafe { self.parts.add(at) };
        // SAFETY: zero-filled memory of the ring's, which is a valid part, and changes by atomics alone.
        unsafe { part.as_ref() }
    }

    /// Puts a free object in. Returns the one that leaves in its favour.
    #[inline(always)]
    pub(super) fn swap<M: Machine>(&self, machine: &M, object: NonNull<u8>) -> Option<NonNull<u8>> {
        let part = self.part(machine.current_cpu());
        let chance = part.chance.load(Ordering::Relaxed);
        // Knuth's MMIX generator, whose high bits are good; the secret makes the sequence another one for each heap.
        let next = chance
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(self.secret | 1);
        part.chance.store(next, Ordering::Relaxed);
        let place = &part.objects[(next >> 58) as usize & self.mask];
        // AcqRel: who gets an object sees what its last user and the fill wrote.
        NonNull::new(place.swap(object.as_ptr(), Ordering::AcqRel))
    }

    /// Takes the objects of all CPUs out.
    pub(super) fn drain(&self, mut take: impl FnMut(NonNull<u8>)) {
        for cpu in 0..self.cpus {
            for place in &self.part(CpuId(cpu as u32)).objects[..=self.mask] {
                if place.load(Ordering::Relaxed).is_null() {
                    continue;
                }
                if let Some(object) =
                    NonNull::new(place.swap(core::ptr::null_mut(), Ordering::AcqRel))
                {
                    take(object);
                }
            }
        }
    }
}
