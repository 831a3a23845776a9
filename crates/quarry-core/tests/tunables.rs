//! The tables of all designs, and the errors.

use quarry_core::design::Design;
use quarry_core::era::Era;
use quarry_core::page::SYSCTLS;
use quarry_core::sheaf::SheafCache;
use quarry_core::slab::SlabCache;
use quarry_core::slob::Slob;
use quarry_core::slub::Slub;
use quarry_core::slubq::Slubq;
use quarry_core::tunables::{DefaultValue, Table};

const SLAB: &Table = SlabCache::TUNABLES;
const SLUB: &Table = Slub::TUNABLES;
const SLUBQ: &Table = Slubq::TUNABLES;
const SHEAF: &Table = SheafCache::TUNABLES;

fn names(table: &Table, era: Era) -> Vec<&'static str> {
    table.of(era).map(|tunable| tunable.name).collect()
}

#[test]
fn designs_have_their_own() {
    let boot = [
        "slub_min_order",
        "slub_max_order",
        "slub_min_objects",
        "slub_nomerge",
    ];
    assert_eq!(names(SLUB, Era::V2_6_22)[..4], boot);
    let own = ["slab_order", "cpu_slabs_max", "defrag_ratio"];
    assert_eq!(names(SLUB, Era::V2_6_22)[4..], own);
    let lists = ["min_partial", "cpu_partial", "remote_node_defrag_ratio"];
    assert!(names(SLUB, Era::V5_9).ends_with(&lists));
    let queue = [
        "remote_node_defrag_ratio",
        "cpu_queue_size",
        "cpu_batch_size",
        "shared_queue_size",
        "alien_queue_size",
        "idle_expiry",
    ];
    assert_eq!(names(SLUBQ, Era::V2_6_35)[4..], queue);
    let sheaf = ["sheaf_capacity", "barn_full", "barn_empty"];
    assert!(names(SHEAF, Era::V7_0).ends_with(&sheaf));
    assert!(names(SHEAF, Era::V6_18).ends_with(&sheaf));
    assert!(names(SLUBQ, Era::V5_9).is_empty() && names(SLAB, Era::V6_8).is_empty());
    let arrays = ["limit", "batchcount", "sharedfactor"];
    assert_eq!(names(SLAB, Era::V2_6_24), arrays);
    assert_eq!(names(SLAB, Era::V6_1)[1..], arrays);
}

#[test]
fn aliases_begin_with_their_era() {
    let found = SLUB.check(Era::V6_18, "slab_max_order", 1).unwrap();
    assert_eq!(found.name, "slub_max_order");
    assert!(SLUB.check(Era::V5_9, "slab_max_order", 1).is_err());
}

#[test]
fn errors_list_what_is_valid() {
    let message = |table: &'static Table, era, name, value| {
        let error = table.check(era, name, value).unwrap_err();
        error.to_string()
    };
    assert_eq!(
        message(SLUBQ, Era::V2_6_35, "cpu_queue_size", 3),
        "cpu_queue_size is 3; it takes 4..=10000 (objects)"
    );
    assert_eq!(
        message(SLUB, Era::V2_6_35, "cpu_partial", 3),
        "slub@2.6.35 has no tunable \"cpu_partial\"; it has \
         slub_min_order, slub_max_order, slub_min_objects, slub_nomerge, order, \
         slab_order, cpu_slabs_max, min_partial, remote_node_defrag_ratio"
    );
    assert!(message(Slob::TUNABLES, Era::V5_9, "x", 0).ends_with("it has none"));
}

/// A name is in one row of a table, and means the same tunable in all of them.
#[test]
fn tables_are_sound() {
    let tables = [SLAB, SLUB, SLUBQ, Slob::TUNABLES, SHEAF, &SYSCTLS];
    let rows = || tables.into_iter().flat_map(|table| table.rows);
    assert_eq!(rows().count(), 13 + 10 + 4 + 9 + 3);
    for row in rows() {
        let tunable = row.tunable;
        assert!(
            tunable.min < tunable.max && row.from <= row.to,
            "{tunable:?}"
        );
        let others = rows().filter(|other| other.tunable.name == tunable.name);
        assert!(others.clone().all(|other| other.tunable == tunable));
        if let DefaultValue::Value(value) = tunable.default {
            assert!((tunable.min..=tunable.max).contains(&value));
        }
    }
    for table in tables {
        let mut names: Vec<_> = table.rows.iter().map(|row| row.tunable.name).collect();
        names.sort_unstable();
        assert!(
            names.windows(2).all(|two| two[0] != two[1]),
            "{}",
            table.design
        );
    }
}
