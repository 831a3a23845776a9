//! Slab memory over recorded time, at a bounded number of moments.

use schemars::JsonSchema;
use serde::Serialize;

/// Most samples of a run.
pub const SAMPLES_MAX: usize = 200;

/// Slab memory over recorded time.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Memory {
    /// Nanoseconds from one sample to the next; the peak and the end have samples of their own in between.
    pub interval_ns: u64,
    /// At most 200 samples in the order of their times: the beginning, every interval, the peak, the end.
    pub samples: Vec<MemorySample>,
}

/// Slab memory at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct MemorySample {
    /// Nanoseconds after the trace's first event.
    pub time_ns: u64,
    /// Bytes of slabs.
    pub slab_bytes: u64,
    /// Bytes asked for by the objects in slabs.
    pub object_bytes: u64,
}

/// Takes samples by the recording's clock. All times but those of samples are the clock's.
pub(super) struct Sampler {
    first_ns: u64,
    from_ns: u64,
    next_ns: u64,
    memory: Memory,
}

impl Sampler {
    /// For a replay of what lies between two times in a trace that begins at `first_ns`.
    pub(super) fn new(first_ns: u64, from_ns: u64, until_ns: u64) -> Self {
        // The beginning, the peak and the end have samples of their own.
        let intervals = SAMPLES_MAX as u64 - 3;
        let interval_ns = until_ns.saturating_sub(from_ns).div_ceil(intervals).max(1);
        Self {
            first_ns,
            from_ns,
            next_ns: from_ns,
            memory: Memory {
                interval_ns,
                samples: Vec::with_capacity(SAMPLES_MAX),
            },
        }
    }

    /// Time at which the part begins.
    pub(super) fn begin_ns(&self) -> u64 {
        self.from_ns
    }

    /// When the next sample is due.
    pub(super) fn due_ns(&self) -> u64 {
        self.next_ns
    }

    /// Takes the samples that are due at `now_ns`, if nothing changed since the first of them.
    pub(super) fn take(&mut self, now_ns: u64, slab_bytes: u64, object_bytes: u64) {
        while self.next_ns <= now_ns {
            // Keep room for the peak and the end: a clock that steps back may have passed the end.
            if self.memory.samples.len() + 2 >= SAMPLES_MAX {
                self.next_ns = u64::MAX;
                return;
            }
            self.memory.samples.push(MemorySample {
                time_ns: self.next_ns.saturating_sub(self.first_ns),
                slab_bytes,
                object_bytes,
            });
            self.next_ns = self.next_ns.saturating_add(self.memory.interval_ns);
        }
    }

    /// Adds the peak and the end; their times are the clock's.
    pub(super) fn finish(mut self, peak: MemorySample, end: MemorySample) -> Memory {
        let samples = &mut self.memory.samples;
        for (sample, last) in [(peak, false), (end, true)] {
            let mut sample = MemorySample {
                time_ns: sample.time_ns.saturating_sub(self.first_ns),
                ..sample
            };
            if let Some(latest) = samples.last().filter(|_| last) {
                sample.time_ns = sample.time_ns.max(latest.time_ns);
            }
            // Behind samples of the same time: these were taken before its event.
            let at = samples.partition_point(|before| before.time_ns <= sample.time_ns);
            if at == 0 || samples[at - 1] != sample {
                samples.insert(at, sample);
            }
        }
        self.memory
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{alloc, axes, free, input, kmalloc};
    use super::*;
    use crate::plan::Plan;

    #[test]
    fn memory_of_a_cache_is_asked_for_wasted_or_free() {
        let kept: Vec<_> = (0..9).map(|n| alloc(n, 0, "odd", 1000)).collect();
        let mut events = kept.clone();
        events.extend((20..25).map(|n| kmalloc(n, 1, 100)));
        // Without a kfree() no peak would be known.
        let short = kmalloc(30, 1, 100);
        events.extend([short, free(&short, 1)]);
        events.extend(kept[..4].iter().map(|object| free(object, 2)));
        for design in ["slab", "slub", "slubq", "slob", "sheaf"] {
            let plan = Plan::new(&axes(design)).unwrap();
            let run = &plan.execute(&input(&events), 1, &|_| ()).unwrap()[0];
            let named = |name: &str| run.caches.iter().find(|cache| cache.name == name);
            let odd = named("odd").unwrap();
            assert_eq!(odd.object_bytes, 5 * 1000, "{design}");
            // No padding but SLAB's management and what no object fits into.
            if let Some(kmalloc) = named("kmalloc-128") {
                assert_eq!(kmalloc.object_bytes, 5 * 100, "{design}");
                assert!(kmalloc.waste_bytes >= 5 * 28, "{design}");
            }
            for cache in run.caches.iter().filter(|_| design != "slob") {
                let sum = cache.object_bytes + cache.waste_bytes + cache.free_bytes;
                assert_eq!(sum, cache.slab_bytes, "{design}: {}", cache.name);
                let free = cache.num_objs - cache.allocs + cache.frees;
                assert_eq!(cache.free_bytes, free * u64::from(cache.slab_size));
            }
            let samples = &run.memory.samples;
            let most = samples.iter().map(|sample| sample.slab_bytes).max();
            assert_eq!(most, run.peak_slab_bytes, "{design}");
            let last = samples.last().unwrap();
            assert_eq!(last.slab_bytes, run.final_slab_bytes, "{design}");
            assert_eq!(last.object_bytes, run.final_object_bytes, "{design}");
        }
    }

    fn sample(time_ns: u64, slab_bytes: u64) -> MemorySample {
        MemorySample {
            time_ns,
            slab_bytes,
            object_bytes: slab_bytes / 2,
        }
    }

    #[test]
    fn samples_are_bounded_sorted_and_have_the_peak() {
        for duration in [0, 1, 100, 197, 198, 1000, 123_456_789] {
            let (first, from) = (1000, 1500);
            let mut sampler = Sampler::new(first, from, from + duration);
            for step in 0..=50 {
                // The clock steps back between events of two CPUs.
                let now = from + duration * step / 50 - (step % 2) * 3;
                if sampler.due_ns() <= now {
                    sampler.take(now, 10 + step, 5);
                }
            }
            let peak = from + duration / 3;
            let end = from + duration;
            let memory = sampler.finish(sample(peak, 900), sample(end, 40));
            let samples = &memory.samples;
            assert!(
                samples.len() <= SAMPLES_MAX,
                "{duration}: {}",
                samples.len()
            );
            assert!(samples.is_sorted_by_key(|sample| sample.time_ns));
            assert!(samples.contains(&sample(peak - first, 900)), "{duration}");
            assert_eq!(samples.last().unwrap().slab_bytes, 40);
            assert_eq!(samples[0].time_ns, from - first);
        }
    }

    #[test]
    fn a_pause_has_the_memory_that_was_held_in_it() {
        let mut sampler = Sampler::new(0, 0, 197);
        sampler.take(0, 1, 0);
        sampler.take(100, 7, 0);
        let memory = sampler.finish(sample(0, 0), sample(100, 9));
        let held = memory
            .samples
            .iter()
            .filter(|sample| sample.slab_bytes == 7);
        assert_eq!(held.count(), 100);
    }
}
