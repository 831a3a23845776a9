//! Slabinfo and sysfs of every design in every era, on virtual machines.

use crate::model::inspect::{CPUS, NODES, cache, heap, read, use_it};
use crate::prelude::*;
use quarry::kernel::heap::Cache;
use quarry::kernel::inspect::{SLABINFO_HEADER, SlabinfoError, Source, SysfsError, attributes_of};
use quarry::kernel::tunables::{Scope, Tunable};
use quarry::{Design, Era, Stat};

/// The sum, and its parts by the number behind `letter`.
fn parts(text: &str, letter: char) -> (u64, Vec<(u32, u64)>) {
    let mut words = text.strip_suffix('\n').expect("a newline").split(' ');
    let sum = words.next().unwrap().parse().unwrap();
    let part = |word: &str| {
        let (id, value) = word.strip_prefix(letter)?.split_once('=')?;
        Some((id.parse().ok()?, value.parse().ok()?))
    };
    (sum, words.map(|word| part(word).expect(text)).collect())
}

fn every_attribute_reads<D: Design>(era: Era) {
    let heap = heap::<D>(era);
    let cache = cache(&heap, "dentry", 192);
    use_it(&heap, cache);
    let (usage, stats) = (cache.usage(), cache.stats());
    assert!(usage.slabs > 10 && usage.partial_slabs > 0);
    let mut seen = 0;
    for attribute in cache.sysfs_attributes() {
        let (name, text) = match attribute.source {
            Source::Calls => {
                let error = cache.sysfs_read(attribute.name, &mut String::new());
                assert_eq!(error.unwrap_err().errno_name(), "ENOSYS");
                continue;
            }
            _ => (attribute.name, read(&cache, attribute.name)),
        };
        seen += 1;
        match attribute.source {
            Source::Nodes(_) => {
                let (sum, nodes) = parts(&text, 'N');
                assert_eq!(nodes.iter().map(|(_, part)| part).sum::<u64>(), sum);
                assert!(nodes.iter().all(|(id, part)| *id < NODES && *part > 0));
                let expected = match name {
                    "slabs" => usage.slabs,
                    "total_objects" => usage.num_objs,
                    "objects" => usage.active_objs,
                    "cpu_slabs" => usage.cpu_slabs + usage.cpu_partial_slabs,
                    _ => continue,
                };
                assert_eq!(sum, expected, "{name}");
            }
            Source::Statistic => {
                let (sum, cpus) = parts(&text, 'C');
                let expected = Stat::named(name).map_or(0, |stat| stats.get(stat));
                assert_eq!(sum, expected, "{name}");
                let on_cpus = cpus.iter().map(|(_, part)| part).sum::<u64>();
                // What goes past the sheaves is counted without a CPU.
                assert!(on_cpus == sum || D::FEATURES.sheaves && on_cpus < sum);
                assert!(cpus.iter().all(|(id, part)| *id < CPUS && *part > 0));
            }
            Source::CpuPartial { .. } => {
                let slabs = text.split_once('(').unwrap().1.split_once(')').unwrap().0;
                assert_eq!(slabs.parse(), Ok(usage.cpu_partial_slabs));
            }
            Source::Action(_) => assert_eq!(text, ""),
            Source::Ctor => assert_eq!(text, ""),
            _ => {
                let value: u64 = text.trim_end().parse().unwrap();
                assert_eq!(text, format!("{value}\n"));
            }
        }
    }
    assert!(seen > 20);
    if !cache
        .sysfs_attributes()
        .any(|own| own.name == "objects_partial")
    {
        return;
    }
    // Free objects of listed slabs are what is neither in use nor on a CPU.
    let (objects, _) = parts(&read(&cache, "objects"), 'N');
    let (in_use, _) = parts(&read(&cache, "objects_partial"), 'N');
    let (listed, _) = parts(&read(&cache, "partial"), 'N');
    let (total, _) = parts(&read(&cache, "total_objects"), 'N');
    let per_slab: u64 = read(&cache, "objs_per_slab").trim_end().parse().unwrap();
    assert_eq!(objects + (listed * per_slab - in_use), total);
    for fixed in [
        "object_size=192",
        "reclaim_account=1",
        "hwcache_align=0",
        "poison=0",
    ] {
        let (name, value) = fixed.split_once('=').unwrap();
        assert_eq!(read(&cache, name), format!("{value}\n"), "{name}");
    }
}

fn every_writable_attribute_writes<D: Design>(era: Era) {
    let heap = heap::<D>(era);
    let cache = cache(&heap, "dentry", 192);
    let of_caches = |one: &&Tunable| one.scope == Scope::Cache;
    // Before there are slabs: some eras refuse some of them later.
    for tunable in D::TUNABLES.of(era).filter(of_caches) {
        tunable_writes(&cache, tunable);
    }
    let kept = use_it(&heap, cache);
    let mut counters = 0;
    for attribute in cache.sysfs_attributes() {
        let name = attribute.name;
        let (bad, good) = match attribute.source {
            Source::Statistic => ("1", "0\n"),
            Source::Action(_) => ("0", "1\n"),
            _ if attribute.writable(D::TUNABLES, era) => continue,
            _ => {
                let error = cache.sysfs_write(name, "1").unwrap_err();
                let refused = matches!(error, SysfsError::ReadOnly { .. });
                assert!(refused, "{name}: {error}");
                continue;
            }
        };
        let error = cache.sysfs_write(name, bad).unwrap_err();
        assert_eq!(error.errno_name(), "EINVAL", "{name}: {error}");
        cache.sysfs_write(name, good).unwrap();
        if matches!(attribute.source, Source::Statistic) {
            counters += 1;
            assert_eq!(read(&cache, name), "0\n");
        }
    }
    assert_eq!(counters > 0, era >= Era::V2_6_35);
    give(cache, &kept);
    // Shrinking is done, not only accepted.
    cache.sysfs_write("shrink", "1").unwrap();
    assert_eq!(read(&cache, "slabs"), "0\n");
}

/// Writes another value, reads it back, and restores the first.
fn tunable_writes<D: Design>(cache: &Cache<'_, VirtualMachine, D>, tunable: &Tunable) {
    let name = tunable.name;
    let value: u64 = read(cache, name).trim_end().parse().unwrap();
    let other = match value < tunable.max {
        true => value + 1,
        false => value - 1,
    };
    for value in [other, value] {
        let text = format!("{value}\n");
        cache.sysfs_write(name, &text).unwrap();
        assert_eq!(read(cache, name), text, "{name}");
    }
    let error = cache.sysfs_write(name, "many").unwrap_err();
    assert_eq!(error.errno_name(), "EINVAL", "{name}: {error}");
    let above = (tunable.max + 1).to_string();
    let error = cache.sysfs_write(name, &above).unwrap_err();
    assert!(matches!(error, SysfsError::Tunable(_)), "{name}: {error}");
}

fn slabinfo_lists_every_cache<D: Design>(era: Era) {
    let heap = heap::<D>(era);
    heap.make_kmalloc_caches().unwrap();
    let kept = use_it(&heap, cache(&heap, "dentry", 192));
    cache(&heap, "a name that is longer than the column", 64);
    let mut text = String::new();
    match heap.write_slabinfo(&mut text) {
        Err(SlabinfoError::NoFile { .. }) => {
            assert_eq!((D::NAME, text.as_str()), ("slob", ""));
            return;
        }
        written => written.unwrap(),
    }
    let lines = text.strip_prefix(SLABINFO_HEADER).unwrap();
    let mut rows = lines.lines();
    heap.for_each_cache(|cache| {
        assert_eq!(rows.next().unwrap(), cache.slabinfo_row().to_string());
    });
    assert_eq!(rows.next(), None);
    let names: Vec<_> = lines.lines().collect();
    assert!(names[0].starts_with("a name that is longer than the column      0      0"));
    assert!(names[1].starts_with("dentry "), "the newest comes first");
    let dentry = kept.len();
    let mut rows = Vec::new();
    heap.for_each_cache(|cache| rows.push(cache.slabinfo_row().active_objs));
    assert!(rows[1] >= dentry as u64 && rows.len() == names.len());
}

/// Slabinfo shows SLAB's tunables, which change while objects are out; others refuse them.
fn slabinfo_shows_tunables<D: Design>(era: Era) {
    let heap = heap::<D>(era);
    let cache = cache(&heap, "dentry", 192);
    let kept = use_it(&heap, cache);
    let columns = ["limit", "batchcount", "sharedfactor"];
    let known = D::TUNABLES.of(era).any(|tunable| tunable.name == "limit");
    for values in [[10, 5, 2], [200, 150, 0], [8, 8, 1]] {
        for (name, value) in each(columns.into_iter().zip(values)) {
            assert_eq!(cache.set_attribute(name, value), known);
        }
        if known {
            let row = cache.slabinfo_row();
            assert_eq!([row.limit, row.batchcount, row.sharedfactor], values);
        }
    }
    give(cache, &kept);
    cache.check_consistency().unwrap();
}

/// Runs a check in every era of a design whose kernel has sysfs folders.
fn in_eras_with_folders<D: Design>(check: fn(Era)) {
    for era in D::ERAS {
        match attributes_of(D::TUNABLES, *era).next() {
            Some(_) => check(*era),
            None => has_no_folder::<D>(*era),
        }
    }
}

fn has_no_folder<D: Design>(era: Era) {
    let heap = heap::<D>(era);
    let cache = cache(&heap, "dentry", 192);
    heap.sysfs_caches(|cache| panic!("{} has a folder", cache.name()));
    let error = cache.sysfs_read("slabs", &mut String::new()).unwrap_err();
    assert!(
        error.to_string().ends_with("it has no sysfs folders"),
        "{error}"
    );
    assert_eq!(
        cache.sysfs_write("shrink", "1").unwrap_err().errno_name(),
        "ENOENT"
    );
}

macro_rules! designs {
    ({} $($name:ident: $design:ty),+) => {
        $(mod $name {
            use super::*;

            #[test]
            fn reads() {
                in_eras_with_folders::<$design>(every_attribute_reads::<$design>);
            }

            #[test]
            fn writes() {
                in_eras_with_folders::<$design>(every_writable_attribute_writes::<$design>);
            }

            #[test]
            fn slabinfo() {
                for era in <$design>::ERAS {
                    slabinfo_lists_every_cache::<$design>(*era);
                    slabinfo_shows_tunables::<$design>(*era);
                }
            }
        })+
    };
}

quarry_core::for_all_designs! { designs! {} }
