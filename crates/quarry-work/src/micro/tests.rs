use quarry_core::era::Era;
use quarry_core::sheaf::SheafCache;
use quarry_core::slab::SlabCache;
use quarry_core::slub::Slub;
use quarry_machines::Machine;

use std::path::Path;

use quarry_ask::Value as _;

use super::*;
use crate::Setup;

fn spec(pattern: Pattern, cpus: u32, era: Era) -> MicroSpec {
    MicroSpec {
        pattern,
        count: 1000,
        cpus,
        rounds: 2,
        ..MicroSpec::new(Setup {
            memory_bytes: 1 << 30,
            ..Setup::new(era, Machine::bundled("haswell-ep-2x12").unwrap())
        })
    }
}

#[test]
fn one_cpu_waits_for_no_lock_and_fetches_no_line_of_another() {
    for pattern in [Pattern::Batch, Pattern::Pair, Pattern::Bulk] {
        let report = run::<Slub>(&spec(pattern, 1, Era::V3_18)).unwrap();
        assert_eq!(report.causes.lock_wait_ns(), 0.0, "{pattern:?}");
        assert_eq!(report.causes.lines.between_cpus(), 0.0, "{pattern:?}");
        assert!(report.alloc.ns > 0.0, "{pattern:?}");
        assert_eq!(report.free.is_some(), pattern == Pattern::Batch);
    }
}

#[test]
fn what_the_time_went_into_adds_up_to_it() {
    let report = run::<SlabCache>(&spec(Pattern::Cross, 4, Era::V6_1)).unwrap();
    let causes = &report.causes;
    let named = causes.access_ns.iter().chain(&causes.work_ns);
    let named: f64 = named.map(|(_, ns)| ns).sum();
    let locks = causes.locks.iter().map(|lock| lock.wait_ns + lock.own_ns);
    let parts = named + causes.fill_ns + causes.outside_ns + locks.sum::<f64>();
    let whole = report.alloc.ns + report.free.unwrap().ns;
    assert!((parts / whole - 1.0).abs() < 0.001, "{parts} of {whole}");
}

#[test]
fn bulk_calls_are_single_ones_in_releases_without_them() {
    let ns = |pattern, [slab, slub]: [Era; 2]| {
        let slab = run::<SlabCache>(&spec(pattern, 1, slab)).unwrap();
        [slab, run::<Slub>(&spec(pattern, 1, slub)).unwrap()].map(|report| report.alloc.ns)
    };
    let before = [Era::V4_5, Era::V4_2];
    let [before, since] = [before, [Era::V4_6, Era::V4_3]].map(|eras| ns(Pattern::Bulk, eras));
    for (before, since) in before.into_iter().zip(since) {
        assert!(before > 1.15 * since, "{before} {since}");
    }
}

#[test]
fn a_node_without_free_objects_grows_without_a_look_under_its_lock_from_4_7_on() {
    // The look, and the new slab that joins the lists, are two holds up to 4.6 and one later (facts 8.8).
    let taken = [Era::V4_6, Era::V4_7].map(|era| {
        let spec = MicroSpec {
            rounds: 1,
            ..spec(Pattern::Batch, 1, era)
        };
        let report = run::<SlabCache>(&spec).unwrap();
        let locks = report.causes.locks.iter();
        locks.map(|lock| lock.taken).sum::<f64>()
    });
    assert!(taken[0] > 1.2 * taken[1], "{taken:?}");
}

#[test]
fn objects_that_a_neighbour_frees_move_lines_and_cost_more() {
    let own = run::<Slub>(&spec(Pattern::Batch, 2, Era::V6_18)).unwrap();
    let cross = run::<Slub>(&spec(Pattern::Cross, 2, Era::V6_18)).unwrap();
    let lines = [&own, &cross].map(|report| report.causes.lines.between_cpus());
    assert!(lines[1] > 2.0 * lines[0], "{lines:?}");
    assert!(cross.free.unwrap().ns > own.free.unwrap().ns);
}

#[test]
fn objects_that_others_free_stay_in_their_sheaves() {
    let of_capacity = |text: &str| {
        let mut spec = spec(Pattern::Spread, 8, Era::V7_0);
        let settings = [quarry_designs::Setting::parse(text).unwrap()];
        let design = quarry_designs::DesignSpec::parse("sheaf@7.0").unwrap();
        let tunings = quarry_designs::resolve(&settings, &[design]).unwrap();
        spec.setup.tuning = tunings[0].clone();
        run::<SheafCache>(&spec).unwrap()
    };
    let [few, many] = ["sheaf_capacity=4", "sheaf_capacity=120"].map(of_capacity);
    // 7 CPUs free 2 x 1000 objects of one.
    assert_eq!(few.objects, 2000);
    assert!(few.peak_slab_bytes >= 1000 * 256);
    assert!(few.final_slab_bytes < few.peak_slab_bytes / 2, "{few:?}");
    assert!(many.final_slab_bytes > few.final_slab_bytes, "{many:?}");
    assert_eq!(few.object_ns, few.alloc.ns + few.free.unwrap().ns);
}

#[test]
fn a_kmalloc_looks_its_cache_up_besides() {
    let own = spec(Pattern::Pair, 1, Era::V3_18);
    let sized = MicroSpec {
        kmalloc: true,
        ..own.clone()
    };
    let [own, sized] = [own, sized].map(|spec| run::<Slub>(&spec).unwrap().alloc.cycles);
    assert!(own < sized && sized < own + 20.0, "{own} {sized}");
}

#[test]
fn calls_for_many_objects_are_cheaper_an_object() {
    let one = run::<SheafCache>(&spec(Pattern::Pair, 1, Era::V7_0)).unwrap();
    let many = run::<SheafCache>(&spec(Pattern::Bulk, 1, Era::V7_0)).unwrap();
    assert!(many.alloc.ns < one.alloc.ns, "{many:?} {one:?}");
}

/// One CPU of node 0 asks for objects of a node; memory of nodes is in use.
fn on_node(node: u32, free: &[&str], era: Era) -> MicroSpec {
    let parse = |text: &&str| NodeFree::parse(text, Path::new("")).unwrap();
    MicroSpec {
        node: Some(node),
        node_free: free.iter().map(parse).collect(),
        ..spec(Pattern::Batch, 1, era)
    }
}

#[test]
fn objects_of_a_node_are_there_and_far_away() {
    let [near, far] = [0, 1].map(|node| {
        // 32 MB and their descriptors, more than the caches hold.
        let spec = MicroSpec {
            object_bytes: 4096,
            count: 8000,
            ..on_node(node, &[], Era::V6_6)
        };
        run::<Slub>(&spec).unwrap()
    });
    assert_eq!([near.other_node, far.other_node], [Some(0.0); 2]);
    assert_eq!([near.node, far.node], [Some(0), Some(1)]);
    assert!(far.object_ns > near.object_ns, "{far:?} {near:?}");
    let [[own, other], [none, there]] = [near, far].map(|report| report.causes.lines.memory);
    assert!(own > 0.0 && there > 0.0, "{own} {there}");
    assert_eq!([other, none], [0.0; 2]);
    let anywhere = run::<Slub>(&spec(Pattern::Batch, 1, Era::V6_6)).unwrap();
    assert_eq!((anywhere.node, anywhere.other_node), (None, None));
    let sized = MicroSpec {
        kmalloc: true,
        ..on_node(1, &[], Era::V6_6)
    };
    assert_eq!(run::<Slub>(&sized).unwrap().other_node, Some(0.0));
}

#[test]
fn objects_of_other_nodes_pass_sheaves_by() {
    let [near, far] = [0, 1].map(|node| {
        let spec = MicroSpec {
            pattern: Pattern::Pair,
            ..on_node(node, &[], Era::V7_0)
        };
        run::<SheafCache>(&spec).unwrap().alloc.ns
    });
    assert!(far > 2.0 * near, "{far} {near}");
}

#[test]
fn a_node_without_memory_costs_a_slab_an_object_before_6_10() {
    // Chen Jun, 2024: a new slab of another node is let go at the next call, as it is not of the node. 6.10 takes partial slabs
    // of other nodes. Published for four nodes of 1 GiB: 13,519,712 objects in slabs before, 4,200,768 after.
    let [before, from] = [Era::V6_9, Era::V6_10].map(|era| {
        let spec = on_node(1, &["1:0"], era);
        run::<Slub>(&spec).unwrap()
    });
    assert_eq!([before.other_node, from.other_node], [Some(1.0); 2]);
    assert!(
        before.peak_slab_bytes > 8 * from.peak_slab_bytes,
        "{before:?} {from:?}"
    );
    // Where nothing is in use, both have the same.
    let [before, from] = [Era::V6_9, Era::V6_10].map(|era| {
        let spec = on_node(1, &[], era);
        run::<Slub>(&spec).unwrap().peak_slab_bytes
    });
    assert_eq!(before, from);
}

#[test]
fn what_is_free_of_a_node_is_used_first() {
    let spec = MicroSpec {
        count: 20_000,
        ..on_node(1, &["1:8M", "0:100M"], Era::V7_0)
    };
    let report = run::<SheafCache>(&spec).unwrap();
    // 20,000 objects of 256 bytes are 4.9 MiB, and a node keeps a part back.
    let elsewhere = report.other_node.unwrap();
    assert!(elsewhere < 0.5, "{report:?}");
    let few = MicroSpec {
        count: 20_000,
        ..on_node(1, &["1:2M"], Era::V7_0)
    };
    let few = run::<SheafCache>(&few).unwrap().other_node.unwrap();
    assert!(few > elsewhere && few > 0.5, "{few} {elsewhere}");
}

#[test]
fn the_same_seed_gives_the_same_report() {
    let once = run::<Slub>(&spec(Pattern::Cross, 8, Era::V2_6_24)).unwrap();
    let again = run::<Slub>(&spec(Pattern::Cross, 8, Era::V2_6_24)).unwrap();
    assert_eq!(again, once);
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |change: fn(&mut MicroSpec)| {
        let mut spec = spec(Pattern::Batch, 2, Era::V6_18);
        change(&mut spec);
        run::<Slub>(&spec).unwrap_err().to_string()
    };
    let none = refused(|spec| spec.count = 0);
    assert_eq!(none, "count and rounds must be at least 1");
    let empty = refused(|spec| spec.object_bytes = 0);
    assert_eq!(empty, "size must be at least 1");
    let bulk = refused(|spec| spec.bulk = 0);
    assert_eq!(bulk, "bulk must be 1 to 1024, not 0");
    let few = refused(|spec| (spec.pattern, spec.count) = (Pattern::Bulk, 7));
    assert_eq!(few, "count must be at least bulk, 16, not 7");
    let kmalloc = refused(|spec| (spec.pattern, spec.kmalloc) = (Pattern::Bulk, true));
    assert!(kmalloc.starts_with("bulk with kmalloc: "), "{kmalloc}");
    let large = refused(|spec| (spec.object_bytes, spec.kmalloc) = (5 << 20, true));
    assert_eq!(
        large,
        "size must be at most 4194304 with kmalloc, not 5242880"
    );
    let alone = refused(|spec| (spec.pattern, spec.cpus) = (Pattern::Cross, 1));
    assert_eq!(alone, "cpus must be at least 2 for cross");
    let cpus = refused(|spec| spec.cpus = 97);
    assert!(cpus.contains("take 1 to 96; "), "{cpus}");
    let node = refused(|spec| spec.node = Some(2));
    assert_eq!(
        node,
        "node: there is no node 2; haswell-ep-2x12 has 2 nodes, the first is 0"
    );
    let bulk = refused(|spec| (spec.pattern, spec.node) = (Pattern::Bulk, Some(1)));
    assert!(bulk.starts_with("bulk with node: "), "{bulk}");
    let free = |texts: &[&str]| {
        let spec = on_node(0, texts, Era::V6_18);
        run::<Slub>(&spec).unwrap_err().to_string()
    };
    assert_eq!(free(&["0:1M", "0:2M"]), "node-free names node 0 twice");
    assert!(free(&["5:1M"]).starts_with("node-free: there is no node 5"));
    let much = free(&["1:600M"]);
    assert!(
        much.contains("node-free must be at most 512M, which node 1 has; "),
        "{much}"
    );
    let memory = refused(|spec| (spec.object_bytes, spec.setup.memory_bytes) = (4096, 2 << 20));
    assert!(memory.ends_with("give the machine more memory, or ask for less"));
}
