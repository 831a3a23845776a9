//! The table and its errors.

use std::string::ToString;
use std::vec::Vec;

use super::*;

fn names(design: &str, era: Era) -> Vec<&'static str> {
    tunables_of(design, era)
        .map(|tunable| tunable.name)
        .collect()
}

#[test]
fn designs_have_their_own() {
    let boot = [
        "slub_min_order",
        "slub_max_order",
        "slub_min_objects",
        "slub_nomerge",
    ];
    assert_eq!(names("slub", Era::V2_6_22)[..4], boot);
    let own = ["slab_order", "cpu_slabs_max", "defrag_ratio"];
    assert_eq!(names("slub", Era::V2_6_22)[4..], own);
    let lists = ["min_partial", "cpu_partial", "remote_node_defrag_ratio"];
    assert!(names("slub", Era::V5_9).ends_with(&lists));
    let queue = [
        "remote_node_defrag_ratio",
        "cpu_queue_size",
        "cpu_batch_size",
        "shared_queue_size",
        "alien_queue_size",
        "idle_expiry",
    ];
    assert_eq!(names("slubq", Era::V2_6_35)[4..], queue);
    let sheaf = ["sheaf_capacity", "barn_full", "barn_empty"];
    assert!(names("sheaf", Era::V7_0).ends_with(&sheaf));
    assert!(names("sheaf", Era::V6_18).ends_with(&sheaf));
    assert!(names("slubq", Era::V5_9).is_empty() && names("slab", Era::V6_8).is_empty());
    let arrays = ["limit", "batchcount", "sharedfactor"];
    assert_eq!(names("slab", Era::V2_6_24), arrays);
    assert_eq!(names("slab", Era::V6_1)[1..], arrays);
}

#[test]
fn aliases_begin_with_their_era() {
    assert_eq!(
        lookup("slab_max_order").map(|tunable| tunable.name),
        Some("slub_max_order")
    );
    assert!(check("slub", Era::V6_18, "slab_max_order", 1).is_ok());
    assert!(check("slub", Era::V5_9, "slab_max_order", 1).is_err());
}

#[test]
fn errors_list_what_is_valid() {
    let message =
        |design, era, name, value| check(design, era, name, value).unwrap_err().to_string();
    assert_eq!(
        message("slubq", Era::V2_6_35, "cpu_queue_size", 3),
        "cpu_queue_size is 3; it takes 4..=10000 (objects)"
    );
    assert_eq!(
        message("slub", Era::V2_6_35, "cpu_partial", 3),
        "slub@2.6.35 has no tunable \"cpu_partial\"; it has \
         slub_min_order, slub_max_order, slub_min_objects, slub_nomerge, order, \
         slab_order, cpu_slabs_max, min_partial, remote_node_defrag_ratio"
    );
    assert!(message("slob", Era::V5_9, "x", 0).ends_with("it has none"));
}

#[test]
fn table_is_sound() {
    for (index, tunable) in TUNABLES.iter().enumerate() {
        assert!(tunable.min < tunable.max && !tunable.available.is_empty());
        assert!(
            TUNABLES[..index]
                .iter()
                .all(|other| other.name != tunable.name)
        );
        if let DefaultValue::Value(value) = tunable.default {
            assert!((tunable.min..=tunable.max).contains(&value));
        }
    }
}
