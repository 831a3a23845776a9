//! Slab memory over time, and what the objects that are alive at the end asked for.

use std::collections::BTreeMap;

use quarry_core::design::Design;

use super::super::memory::MemorySample;
use super::Engine;

/// Recorded objects of a cache that are alive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) objects: u64,
    /// Bytes that they asked for.
    pub(crate) bytes: u64,
}

impl<D: Design> Engine<'_, '_, D> {
    /// Bytes of slabs now.
    fn slab_bytes(&self) -> u64 {
        self.driver.slab_pages() * self.spec.config.page_bytes
    }

    /// Notes slab memory, if that is due.
    pub(super) fn note_memory(&mut self, now_ns: u64) {
        if self.sampler.due_ns() <= now_ns {
            let slab_bytes = self.slab_bytes();
            let object_bytes = self.outcome.object_bytes;
            self.sampler.take(now_ns, slab_bytes, object_bytes);
        }
    }

    /// The peak, and the end.
    pub(super) fn peak_and_end(&self) -> [MemorySample; 2] {
        let outcome = &self.outcome;
        let peak = MemorySample {
            time_ns: match outcome.peak_row {
                0 => self.sampler.begin_ns(),
                _ => outcome.peak_time_ns,
            },
            slab_bytes: outcome.peak_pages * self.spec.config.page_bytes,
            object_bytes: outcome.peak_object_bytes,
        };
        let end = MemorySample {
            time_ns: self.now_ns,
            slab_bytes: self.slab_bytes(),
            object_bytes: outcome.object_bytes,
        };
        [peak, end]
    }

    /// By cache, what the recorded objects in slabs asked for. Costs time proportional to the
    /// objects that were alive at once.
    pub(super) fn asked(&self) -> BTreeMap<String, Asked> {
        // Few sizes are asked for, so names are looked up once for each.
        let mut sizes: BTreeMap<(u16, u32), u64> = BTreeMap::new();
        for entry in self.table.iter().filter(|entry| entry.object.is_some()) {
            *sizes.entry((entry.cache, entry.bytes)).or_default() += 1;
        }
        let mut asked: BTreeMap<String, Asked> = BTreeMap::new();
        for ((cache, bytes), objects) in sizes {
            // SLOB's kmalloc has no classes, and one name.
            let name = match &self.view(cache, bytes) {
                Some(view) => view.head().name().to_string(),
                None => "kmalloc".to_string(),
            };
            let of = asked.entry(name).or_default();
            of.objects += objects;
            of.bytes += objects * u64::from(bytes);
        }
        asked
    }
}
