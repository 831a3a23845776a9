use quarry_core::era::Era;
use quarry_core::sheaf::SheafCache;
use quarry_core::slab::SlabCache;
use quarry_core::slub::Slub;
use quarry_machines::Machine;

use super::*;
use crate::Setup;

fn spec(pattern: Pattern, cpus: u32, era: Era) -> MicroSpec {
    MicroSpec {
        pattern,
        object_bytes: 256,
        kmalloc: false,
        count: 1000,
        bulk: 16,
        cpus,
        rounds: 2,
        setup: Setup {
            memory_bytes: 1 << 30,
            ..Setup::new(era, Machine::bundled("haswell-ep-2x12").unwrap())
        },
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
    let memory = refused(|spec| (spec.object_bytes, spec.setup.memory_bytes) = (4096, 2 << 20));
    assert!(memory.ends_with("give the machine more memory, or ask for less"));
}
