//! Geometry against tables: computed ones for every era, and observed ones of a running kernel.
//!
//! `vectors/` has a thinned selection of each table and is always tested. The full tables are
//! those of `$QUARRY_SHARED/facts/vectors`, which `cargo xtask recordings` sets.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use quarry_core::era::Era;
use quarry_core::geometry::{
    BootParams, CacheFlags, CacheParams, FreelistPlace, Geometry, KmallocTarget, MachineParams,
    kmalloc_index, kmalloc_params,
};
use quarry_core::sheaf;
use quarry_core::slab;
use quarry_core::slab::geometry::slab_era;
use quarry_core::slub::geometry::{geometry, slub_era};
use quarry_core::slubq;

/// Caches of 6.18 whose creators name a place for the free pointer, which sysfs does not show.
const FREEPTR_CACHES: [&str; 2] = ["vm_area_struct", "filp"];

type Row = HashMap<String, String>;

/// The fields of a line; a field in quotes may hold commas.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            c => fields.last_mut().expect("never empty").push(c),
        }
    }
    fields
}

/// The rows of a table: fields by column name. Lines that begin with `#` are notes.
fn rows(path: &Path) -> Option<Vec<Row>> {
    let text = fs::read_to_string(path).ok()?;
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let columns: Vec<&str> = lines.next()?.split(',').collect();
    let row = |line: &str| {
        let fields = fields(line);
        assert_eq!(fields.len(), columns.len(), "{}: {line}", path.display());
        columns
            .iter()
            .map(|column| column.to_string())
            .zip(fields)
            .collect()
    };
    Some(lines.map(row).collect())
}

/// Checks the bundled selection, then the full table if `QUARRY_SHARED` is set; both row counts must match.
fn check_tables(file: &str, bundled_rows: usize, full_rows: usize, check: impl Fn(&Row)) {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let bundled = rows(&manifest.join("vectors").join(file)).expect("bundled vectors");
    bundled.iter().for_each(&check);
    assert_eq!(bundled.len(), bundled_rows, "{file}: bundled rows");
    if let Some(shared) = std::env::var_os("QUARRY_SHARED") {
        let full = rows(&Path::new(&shared).join("facts/vectors").join(file));
        let full = full.expect("the full table");
        full.iter().for_each(&check);
        assert_eq!(full.len(), full_rows, "{file}: full rows");
    }
}

fn number(row: &Row, column: &str) -> u32 {
    row[column]
        .parse()
        .unwrap_or_else(|_| panic!("{column} of {row:?}"))
}

fn machine(row: &Row, nr_cpus: u32) -> MachineParams {
    let page_shift = row
        .get("page_size")
        .map_or(12, |bytes| bytes.parse::<u32>().unwrap().ilog2());
    MachineParams {
        page_shift,
        nr_cpus,
        cache_line: 64,
    }
}

/// The eras whose formulas a row's era column covers.
fn eras(column: &str) -> &'static [Era] {
    match column {
        "2.6.22" => &[Era::V2_6_22],
        "2.6.23-2.6.24" => &[Era::V2_6_24],
        "2.6.35" => &[Era::V2_6_35],
        "5.9" => &[Era::V4_13, Era::V5_9],
        "6.1-6.18" => &[Era::V6_1, Era::V6_18],
        "6.18" => &[Era::V6_18],
        other => panic!("unknown era {other}"),
    }
}

fn plain(era: Era, machine: &MachineParams, boot: &BootParams, size: u32) -> Geometry {
    let era = slub_era(era).unwrap();
    let g = geometry(era, machine, boot, &CacheParams::new(size)).unwrap();
    assert_eq!(g.layout.size, size, "table sizes are slot sizes");
    assert_eq!(
        u64::from(g.objects) * u64::from(size) + u64::from(g.slack_bytes),
        machine.slab_bytes(g.order)
    );
    g
}

#[test]
fn slub_orders() {
    check_tables("slub_geometry.csv", 150, 9120, |row| {
        let size = number(row, "size");
        let want = (number(row, "order"), number(row, "objs_per_slab"));
        let cpus: &[u32] = match row["nr_cpu_ids"].as_str() {
            "any" => &[1, 3, 64, 512],
            one => &[one.parse().unwrap()],
        };
        // 6.1 has 5.9's search and 6.18's CPU count.
        let also: &[Era] = if row["era"] == "5.9" {
            &[Era::V6_1]
        } else {
            &[]
        };
        for era in eras(&row["era"]).iter().chain(also) {
            for nr_cpus in cpus {
                let machine = machine(row, *nr_cpus);
                let g = plain(*era, &machine, &BootParams::default(), size);
                assert_eq!((g.order, g.objects), want, "{era} {row:?}");
            }
        }
    });
}

#[test]
fn slub_orders_with_max_order() {
    check_tables("slub_geometry_max_order.csv", 36, 1008, |row| {
        let machine = machine(row, number(row, "nr_cpu_ids"));
        let boot = BootParams {
            slub_max_order: Some(number(row, "slub_max_order")),
            ..BootParams::default()
        };
        for era in eras(&row["era"]) {
            let g = plain(*era, &machine, &boot, number(row, "size"));
            let want = (number(row, "order"), number(row, "objs_per_slab"));
            assert_eq!((g.order, g.objects), want, "{era} {row:?}");
        }
    });
}

#[test]
fn slub_partial_limits() {
    check_tables("slub_cpu_partial.csv", 42, 2280, |row| {
        let machine = machine(row, number(row, "nr_cpu_ids"));
        for era in eras(&row["era"]) {
            let g = plain(*era, &machine, &BootParams::default(), number(row, "size"));
            assert_eq!(g.objects, number(row, "objs_per_slab"), "{era} {row:?}");
            assert_eq!(
                g.cpu_partial,
                number(row, "cpu_partial_objects"),
                "{era} {row:?}"
            );
            assert_eq!(g.min_partial, number(row, "min_partial"), "{era} {row:?}");
            let slabs = row["cpu_partial_slabs"].parse().unwrap_or(0);
            assert_eq!(g.cpu_partial_slabs, slabs, "{era} {row:?}");
        }
    });
}

#[test]
fn slubq_orders_and_queues() {
    check_tables("slub_queue_geometry.csv", 30, 570, |row| {
        let machine = machine(row, number(row, "nr_cpu_ids"));
        let cache = CacheParams::new(number(row, "size"));
        let rules = &slubq::geometry::RULES;
        let g = slubq::geometry::geometry(rules, &machine, &BootParams::default(), &cache).unwrap();
        assert_eq!(g.order, number(row, "order"), "{row:?}");
        assert_eq!(g.objects, number(row, "objs_per_slab"), "{row:?}");
        assert_eq!(
            g.bitmap_in_slab,
            number(row, "bitmap_in_slab") == 1,
            "{row:?}"
        );
        assert_eq!(
            (g.queue, g.batch),
            (number(row, "queue"), number(row, "batch")),
            "{row:?}"
        );
    });
}

/// Checks a cache against SLAB's tables: sizes, order, colours, limits.
fn check_slab(row: &Row, g: &Geometry) {
    let want = |column| number(row, column);
    assert_eq!(g.layout.size, want("buffer_size"), "{row:?}");
    assert_eq!(g.layout.align, want("align"), "{row:?}");
    assert_eq!(
        (g.order, g.objects),
        (want("order"), want("num")),
        "{row:?}"
    );
    assert_eq!(g.slack_bytes, want("left_over"), "{row:?}");
    assert_eq!(
        (g.slab.colours, g.slab.colour_off),
        (want("colours"), want("colour_off")),
        "{row:?}"
    );
    assert_eq!(
        (g.queue, g.batch, g.slab.shared_factor),
        (want("limit"), want("batchcount"), want("shared_factor")),
        "{row:?}"
    );
}

#[test]
fn slab_2_6_24() {
    let era = slab_era(Era::V2_6_24).unwrap();
    check_tables("slab_geometry_2_6_24.csv", 45, 45, |row| {
        let machine = MachineParams {
            cache_line: number(row, "cache_line"),
            ..machine(row, 2)
        };
        let name = &row["cache"];
        let mut flags = flag(name.contains("reclaim"), CacheFlags::RECLAIM);
        flags |= flag(number(row, "align") > 8, CacheFlags::HWCACHE_ALIGN);
        let cache = CacheParams::new(number(row, "object_size")).with_flags(flags);
        let g = slab::geometry::geometry(era, &machine, &BootParams::default(), &cache).unwrap();
        check_slab(row, &g);
        let place = match number(row, "off_slab") {
            0 => FreelistPlace::SlabStart,
            _ => FreelistPlace::OffSlab,
        };
        assert_eq!(g.slab.freelist, place, "{row:?}");
        assert_eq!(g.slab.freelist_bytes, number(row, "mgmt_bytes"), "{row:?}");
        if let Some(class) = name.strip_prefix("size-") {
            let target = kmalloc_index(&era.kmalloc, &machine, class.parse().unwrap());
            let KmallocTarget::Class(class) = target else {
                panic!("{row:?}")
            };
            assert_eq!(class.to_string(), *name);
            let params = kmalloc_params(&era.kmalloc, class);
            let of_class =
                slab::geometry::geometry(era, &machine, &BootParams::default(), &params).unwrap();
            assert_eq!(of_class.layout.size, g.layout.size, "{row:?}");
        }
    });
}

#[test]
fn slab_6_1() {
    let era = slab_era(Era::V6_1).unwrap();
    check_tables("slab_geometry_6_1.csv", 129, 1310, |row| {
        let machine = MachineParams {
            cache_line: number(row, "cache_line"),
            ..machine(row, 2)
        };
        let boot = BootParams {
            slab_max_order: Some(number(row, "slab_max_order")),
            ..BootParams::default()
        };
        let kind = row["kind"].as_str();
        let params = match kind {
            "kmalloc" => {
                let bytes = number(row, "object_size").into();
                let KmallocTarget::Class(class) = kmalloc_index(&era.kmalloc, &machine, bytes)
                else {
                    panic!("{row:?}")
                };
                assert_eq!(class.size, number(row, "object_size"), "{row:?}");
                kmalloc_params(&era.kmalloc, class)
            }
            kind => {
                let flags = flag(kind.contains("ctor"), CacheFlags::CTOR)
                    | flag(kind.contains("reclaim"), CacheFlags::RECLAIM)
                    | flag(row["hwcache"] == "1", CacheFlags::HWCACHE_ALIGN);
                CacheParams::new(number(row, "object_size")).with_flags(flags)
            }
        };
        let g = slab::geometry::geometry(era, &machine, &boot, &params).unwrap();
        check_slab(row, &g);
        let place = match row["freelist"].as_str() {
            "in-object" => FreelistPlace::InObject,
            "off-slab" => FreelistPlace::OffSlab,
            "on-slab" => FreelistPlace::SlabEnd,
            other => panic!("{other}"),
        };
        assert_eq!(g.slab.freelist, place, "{row:?}");
        let bytes = number(row, "freelist_bytes");
        assert_eq!(g.slab.freelist_bytes, bytes, "{row:?}");
        if place == FreelistPlace::OffSlab {
            let target = kmalloc_index(&era.kmalloc, &machine, bytes.into());
            let KmallocTarget::Class(class) = target else {
                panic!("{row:?}")
            };
            let params = kmalloc_params(&era.kmalloc, class);
            let holder = slab::geometry::geometry(era, &machine, &boot, &params).unwrap();
            assert_eq!(holder.layout.size, number(row, "freelist_cache"), "{row:?}");
        }
    });
}

#[test]
fn sheaf_capacities() {
    check_tables("sheaf_capacity_7_0.csv", 20, 95, |row| {
        let era = sheaf::geometry::sheaf_era(Era::V7_0).unwrap();
        let cache = CacheParams::new(number(row, "size"));
        for nr_cpus in [1, 8, 512] {
            let machine = machine(row, nr_cpus);
            let boot = BootParams::default();
            let g = sheaf::geometry::geometry(era, &machine, &boot, &cache).unwrap();
            assert_eq!(
                g.layout.size, cache.object_size,
                "table sizes are slot sizes"
            );
            assert_eq!(g.sheaf_capacity, number(row, "sheaf_capacity"), "{row:?}");
            let rounded = number(row, "kmalloc_bucket");
            let bytes = sheaf::geometry::sheaf_bytes(g.sheaf_capacity);
            assert_eq!(bytes, rounded, "{row:?}");
        }
    });
}

/// The sysfs values of a cache of 6.18.
struct Observed {
    name: String,
    params: CacheParams,
    slab_size: u32,
    order: u32,
    objs_per_slab: u32,
    cpu_partial: u32,
    min_partial: u32,
}

impl Observed {
    /// From a lookup of numbers by name.
    fn new(name: &str, flags: CacheFlags, get: impl Fn(&str) -> u32) -> Self {
        let hint = FREEPTR_CACHES.contains(&name);
        let flags = if hint {
            flags | CacheFlags::FREEPTR_OFFSET
        } else {
            flags
        };
        Observed {
            name: name.into(),
            params: CacheParams::new(get("object_size"))
                .with_align(get("align"))
                .with_flags(flags),
            slab_size: get("slab_size"),
            order: get("order"),
            objs_per_slab: get("objs_per_slab"),
            cpu_partial: get("cpu_partial"),
            min_partial: get("min_partial"),
        }
    }

    fn check(&self, machine: &MachineParams, has_cpu_partial: bool) {
        let era = slub_era(Era::V6_18).unwrap();
        let g = geometry(era, machine, &BootParams::default(), &self.params).unwrap();
        let name = &self.name;
        assert_eq!(g.layout.align, self.params.align, "align of {name}");
        assert_eq!(g.layout.size, self.slab_size, "slab_size of {name}");
        assert_eq!(g.order, self.order, "order of {name}");
        assert_eq!(g.objects, self.objs_per_slab, "objs_per_slab of {name}");
        assert_eq!(g.min_partial, self.min_partial, "min_partial of {name}");
        if has_cpu_partial {
            assert_eq!(g.cpu_partial, self.cpu_partial, "cpu_partial of {name}");
        }
    }
}

fn flag(set: bool, flag: CacheFlags) -> CacheFlags {
    if set { flag } else { CacheFlags::NONE }
}

#[test]
fn observed_kernel_6_18() {
    let machine = MachineParams {
        page_shift: 12,
        nr_cpus: 2,
        cache_line: 64,
    };
    check_tables("slub_running_kernel_6_18.csv", 31, 235, |row| {
        let flags = flag(row["hwcache_align"] == "1", CacheFlags::HWCACHE_ALIGN)
            | flag(row["destroy_by_rcu"] == "1", CacheFlags::RCU)
            | flag(row["has_ctor"] == "1", CacheFlags::CTOR);
        Observed::new(&row["cache"], flags, |column| number(row, column)).check(&machine, true);
    });
}

/// The CPUs of a kernel list such as `0-3,8`: their number, and one more than the highest.
fn cpu_list(list: &str) -> (u32, u32) {
    let mut count = 0;
    let mut ids = 0;
    for range in list.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().unwrap(), last.parse().unwrap());
        count += last - first + 1;
        ids = ids.max(last + 1);
    }
    (count, ids)
}

/// This machine, or why it cannot be compared.
fn this_machine() -> Result<MachineParams, String> {
    const CPU: &str = "/sys/devices/system/cpu";
    let read = |path: &str| fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
    let release = read("/proc/sys/kernel/osrelease")?;
    if !release.starts_with("6.18.") {
        return Err(format!("the kernel is {}, not 6.18", release.trim()));
    }
    let cmdline = read("/proc/cmdline")?;
    if cmdline.contains("slub_") || cmdline.contains("slab_") {
        return Err("the kernel was booted with slab parameters".into());
    }
    // Pairs of words in the auxiliary vector; 6 is the page size.
    let auxv = fs::read("/proc/self/auxv").map_err(|error| error.to_string())?;
    let words: Vec<usize> = auxv
        .chunks_exact(size_of::<usize>())
        .map(|bytes| usize::from_ne_bytes(bytes.try_into().unwrap()))
        .collect();
    let page = words
        .chunks_exact(2)
        .find(|pair| pair[0] == 6)
        .ok_or("no page size")?[1];
    let (present, _) = cpu_list(&read(&format!("{CPU}/present"))?);
    let (_, nr_cpu_ids) = cpu_list(&read(&format!("{CPU}/possible"))?);
    let line = read(&format!("{CPU}/cpu0/cache/index0/coherency_line_size"));
    Ok(MachineParams {
        page_shift: page.ilog2(),
        nr_cpus: slub_era(Era::V6_18)
            .unwrap()
            .formula_cpus(nr_cpu_ids, present),
        cache_line: line
            .ok()
            .and_then(|bytes| bytes.trim().parse().ok())
            .unwrap_or(64),
    })
}

/// A cache from its directory in sysfs; `None` if a file cannot be read.
fn observe(dir: &Path) -> Option<Observed> {
    let files = [
        "object_size",
        "align",
        "slab_size",
        "order",
        "objs_per_slab",
        "cpu_partial",
        "min_partial",
        "hwcache_align",
        "destroy_by_rcu",
        "red_zone",
        "poison",
        "store_user",
        "sanity_checks",
    ];
    let mut values = HashMap::new();
    for file in files {
        let text = fs::read_to_string(dir.join(file)).ok()?;
        values.insert(file, text.trim().parse::<u32>().ok()?);
    }
    let ctor = fs::read_to_string(dir.join("ctor")).ok()?;
    let is = |file: &str| values[file] != 0;
    let flags = flag(is("hwcache_align"), CacheFlags::HWCACHE_ALIGN)
        | flag(is("destroy_by_rcu"), CacheFlags::RCU)
        | flag(!ctor.trim().is_empty(), CacheFlags::CTOR)
        | flag(is("red_zone"), CacheFlags::RED_ZONE)
        | flag(is("poison"), CacheFlags::POISON)
        | flag(is("store_user"), CacheFlags::STORE_USER)
        | flag(is("sanity_checks"), CacheFlags::CONSISTENCY);
    Some(Observed::new(dir.file_name()?.to_str()?, flags, |file| {
        values[file]
    }))
}

/// Every cache of this machine's kernel, of the 6.18 era.
#[test]
#[ignore = "compares with the running kernel, as root: cargo xtask root"]
fn this_kernel() {
    let machine = this_machine().unwrap();
    let dirs = fs::read_dir("/sys/kernel/slab").unwrap();
    // Aliases are symbolic links; each cache has one directory of its own.
    let own = dirs
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let caches: Vec<Observed> = own.filter_map(|entry| observe(&entry.path())).collect();
    assert!(
        !caches.is_empty(),
        "no file of /sys/kernel/slab is readable"
    );
    // A kernel can be built without cpu partial lists.
    let has_cpu_partial = caches.iter().any(|cache| cache.cpu_partial != 0);
    caches
        .iter()
        .for_each(|cache| cache.check(&machine, has_cpu_partial));
    println!("{} caches of this kernel match", caches.len());
}
