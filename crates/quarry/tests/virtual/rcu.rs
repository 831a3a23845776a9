//! Deferred frees in every design: not before readers have finished, and then all of them.

use crate::prelude::*;

fn frees_wait_for_readers<D: Design>(_: &str, era: Era) {
    let heap = small::<D>(era, 2);
    let cache = sized(&heap, "one", 100);
    let other = sized(&heap, "other", 100);
    // More than a page of pointers.
    let objects = take(cache, 1500);
    let stranger = take(other, 1);
    let live = || live(cache).len();
    for (at, &object) in objects[..1400].iter().enumerate() {
        on(&heap, at as u32 / 300 % 2);
        give_later(cache, &[object]);
    }
    // SAFETY: it is not this cache's, so the free is refused.
    let wrong = unsafe { cache.free_rcu(stranger[0]) };
    assert_eq!(wrong, Err(FreeError::WrongCache));
    cache.flush();
    heap.reap();
    assert_eq!(live(), 1500, "readers may still look");
    grace_period(&heap);
    heap.reap();
    cache.flush();
    assert_eq!(live(), 100);
    give(cache, &objects[1400..]);
    give(other, &stranger);
    assert_eq!(cache.check_consistency(), Ok(()));
    destroy(cache);
    // What noted the frees is gone as well.
    shrink_all(&heap);
    assert_eq!(heap.pages().slab_pages(), 0);
}

design_tests!(deferred: frees_wait_for_readers);

/// A cache of 6.18 without sheaves notes its deferred frees like other designs.
#[test]
fn without_sheaves_frees_are_noted() {
    let heap = small::<SheafCache>(Era::V6_18, 1);
    let cache = sized(&heap, "one", 100);
    let objects = take(cache, 5);
    give_later(cache, &objects);
    assert_eq!(stat(cache, Stat::FreeRcuSheaf), 0);
    assert_eq!(stat(cache, Stat::FreeRcuSheafFail), 5);
}

/// Objects of one cache and where the test has them.
#[derive(Default)]
struct Places {
    held: Vec<Object>,
    /// Deferred frees with the number of the grace period they were made in.
    deferred: Vec<(u64, Object)>,
}

impl Places {
    fn admit(&mut self, object: Object) {
        let known = self.held.contains(&object) || self.deferred.iter().any(|d| d.1 == object);
        assert!(!known, "{object:p} is in use");
        self.held.push(object);
    }

    fn pick(&mut self, rng: &mut Rng) -> Option<Object> {
        let count = self.held.len() as u64;
        (count > 0).then(|| self.held.swap_remove(rng.below(count) as usize))
    }
}

/// Random calls; no object comes out again before its readers have finished, and none is lost.
fn keeps_what_readers_see(era: Era, setup: Setup) {
    let mut rng = Rng::new(setup.seed);
    let heap = boot::<SheafCache>(era, setup);
    let spec = CacheSpec {
        sheaf_capacity: 1 + rng.below(40) as u32,
        ..CacheSpec::new("random", 8 << rng.below(8))
    };
    let cache = heap.create_cache(&spec).expect("a cache");
    let (mut places, mut period) = (Places::default(), 0);
    for _ in 0..1500 {
        on(&heap, rng.below(setup.cpus.into()) as u32);
        match rng.below(100) {
            0..40 => places.admit(cache.alloc().expect("memory")),
            40..60 => {
                if let Some(object) = places.pick(&mut rng) {
                    give(cache, &[object]);
                }
            }
            60..80 => {
                if let Some(object) = places.pick(&mut rng) {
                    give_later(cache, &[object]);
                    places.deferred.push((period, object));
                }
            }
            80..88 => {
                let mut slots = [None; 60];
                let slots = &mut slots[..rng.below(60) as usize];
                assert!(cache.alloc_bulk(slots));
                slots
                    .iter()
                    .flatten()
                    .for_each(|object| places.admit(*object));
            }
            88..92 => {
                let some = places.held.len().min(rng.below(60) as usize);
                give(cache, &places.held.split_off(places.held.len() - some));
            }
            92..95 => {
                grace_period(&heap);
                period += 1;
                places.deferred.retain(|(made, _)| *made >= period);
            }
            95..97 => heap.reap(),
            97 => assert_eq!(cache.flush(), 0),
            98 => assert_eq!(cache.shrink(), 0),
            _ => {
                let attribute =
                    ["sheaf_capacity", "barn_full", "barn_empty"][rng.below(3) as usize];
                assert!(cache.set_attribute(attribute, rng.below(20)));
            }
        }
    }
    assert_eq!(cache.check_consistency(), Ok(()), "{setup:?}");
    give(cache, &places.held);
    cache.flush();
    grace_period(&heap);
    assert!(cache.set_attribute("sheaf_capacity", 0));
    cache.shrink();
    let usage = cache.usage();
    assert_eq!(usage.slabs, 0, "{setup:?}: {usage:?}");
    let [made, freed] = stats(cache, [Stat::SheafAlloc, Stat::SheafFree]);
    assert_eq!(made, freed, "{setup:?}");
    shrink_all(&heap);
    assert_eq!(heap.pages().slab_pages(), 0, "{setup:?}");
}

#[test]
fn sheaf_keeps_what_readers_see() {
    for seed in 0..40 {
        let setup = Setup {
            cpus: [1, 2, 5, 64][seed as usize % 4],
            nodes: [1, 2, 4, 3][seed as usize % 4].min([1, 2, 5, 64][seed as usize % 4]),
            page_shift: [12, 14, 16][seed as usize % 3],
            seed,
            ..Setup::default()
        };
        keeps_what_readers_see(Era::V7_0, setup);
        keeps_what_readers_see(Era::V6_18, setup);
    }
}
