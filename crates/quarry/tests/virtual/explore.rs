//! Every design while tasks race, interleaved by seed.

use crate::model::cases::case_count;
use crate::model::scenario::{give, sized, small, take};
use quarry_core::design::Design;
use quarry_core::era::Era;
use quarry_core::sheaf::SheafCache;
use quarry_core::slab::SlabCache;
use quarry_core::slob::Slob;
use quarry_core::slub::Slub;
use quarry_core::slubq::Slubq;
use quarry_sim::Explore;

/// A flush inside the gate waits for slots that a walk holds, which waits for the gate to be empty.
#[test]
fn a_walk_lets_drains_pass() {
    fn walks<D: Design>(era: Era) {
        for seed in 0..u64::from(case_count(100)) {
            let heap = small::<D>(era, 2);
            let cache = sized(&heap, "walked", 100);
            let how = Explore {
                seed,
                tasks: 3,
                switch_per_mille: [1000, 100, 10][seed as usize % 3],
                move_per_mille: 0,
            };
            let explored = heap.machine().explore(&how, |task| {
                for _ in 0..3 {
                    match task {
                        0 => assert_eq!(cache.check_consistency(), Ok(()), "{era} {seed}"),
                        1 => assert_eq!(cache.shrink() + cache.flush(), 0, "{era} {seed}"),
                        _ => give(cache, &take(cache, 40)),
                    }
                }
            });
            assert!(explored.is_ok(), "{era} {seed}");
        }
    }
    walks::<SlabCache>(Era::V6_1);
    walks::<Slub>(Era::V6_18);
    walks::<Slubq>(Era::V2_6_35);
    walks::<Slob>(Era::V6_1);
    walks::<SheafCache>(Era::V7_0);
}
