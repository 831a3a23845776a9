//! The geometry of every cache of every recorded kernel, by the formulas of its design and era.
//!
//! The recordings are not part of the repository: without them the test says so and passes.

use std::collections::BTreeMap;

use crate::groundtruth::{kernels, stages};
use quarry_core::era::Era;
use quarry_core::geometry::{
    BootParams, CacheFlags, CacheParams, Geometry, MachineParams, kmalloc_classes, kmalloc_params,
};
use quarry_core::sheaf::geometry::{asked_capacity, own_flags, sheaf_era};
use quarry_core::slub::geometry::slub_era;
use quarry_designs::{DESIGNS, DesignEntry, DesignSpec, Setting, resolve};
use quarry_snapshot::{CacheAttributes, SlabinfoRow, Snapshot};

/// Caches whose creators name a place inside the object for the free pointer, which sysfs does not
/// show: from 6.12 on they have no word behind the object although they are
/// type-safe by RCU.
const FREEPTR_CACHES: [&str; 2] = ["vm_area_struct", "filp"];
/// The same from 7.0 on.
const FREEPTR_CACHES_7_0: [&str; 2] = ["TCP", "TCPv6"];

/// Caches that are not compared, by kernel and name, and why.
const EXCEPTIONS: &[(&str, &str, &str)] = &[(
    "E-6.1-slab-",
    "fs_cache",
    "asks for 56 bytes; the kernel with SLUB, which tells what was asked for, has merged it into a \
     cache of 64 bytes",
)];

/// Caches of the allocators' own structures: another design's kernel asks for another size.
const OWN_CACHES: [&str; 2] = ["kmem_cache", "kmem_cache_node"];

fn exception(kernel: &str, cache: &str) -> Option<&'static str> {
    EXCEPTIONS
        .iter()
        .find(|(at, name, _)| kernel.starts_with(at) && *name == cache)
        .map(|(_, _, cause)| *cause)
}

/// The era whose formulas a kernel follows: its own release.
fn era(release: &str) -> Era {
    Era::parse(release).expect("a release of Linux")
}

fn machine(snapshot: &Snapshot, era: Era) -> MachineParams {
    let is_ppc = snapshot.release.as_ref().unwrap().contains("powerpc");
    let (ids, present) = (snapshot.nr_cpu_ids.unwrap(), snapshot.present_cpus.unwrap());
    MachineParams {
        page_shift: snapshot.page_bytes.ilog2(),
        nr_cpus: sheaf_era(era)
            .map(|sheaves| &sheaves.slub)
            .or(slub_era(era))
            .unwrap()
            .formula_cpus(ids, present),
        cache_line: if is_ppc { 128 } else { 64 },
    }
}

/// The boot parameters of the kernel's command line.
fn boot(snapshot: &Snapshot, design: DesignSpec) -> BootParams {
    let names = ["slub_min_order", "slub_max_order", "slub_min_objects"];
    let settings = names.into_iter().filter_map(|name| {
        let other = name.replacen("slub_", "slab_", 1);
        let value = snapshot.boot_number(&[name, &other])?;
        Some(Setting::of(name, value.into()))
    });
    let settings: Vec<_> = settings.collect();
    resolve(&settings, &[design]).unwrap()[0].boot
}

/// One kernel: its formulas, and what did not come out.
struct Kernel<'a> {
    name: &'a str,
    machine: MachineParams,
    boot: BootParams,
    era: Era,
    compared: usize,
    wrong: Vec<String>,
}

impl Kernel<'_> {
    fn geometry(&self, design: &DesignEntry, params: &CacheParams) -> Geometry {
        (design.geometry)(self.era, &self.machine, &self.boot, params).unwrap()
    }

    fn expect(&mut self, cache: &str, what: &str, found: u64, reported: u64) {
        if found != reported && exception(self.name, cache).is_none() {
            let name = self.name;
            self.wrong.push(format!(
                "{name}: {cache}: {what} is {reported}, the formulas say {found}"
            ));
        }
    }

    /// A cache's directory in sysfs.
    fn check_sysfs(&mut self, slub: &DesignEntry, cache: &str, sysfs: &CacheAttributes) {
        let mut params = sysfs.params().unwrap();
        let since_7_0 = self.era >= Era::V7_0 && FREEPTR_CACHES_7_0.contains(&cache);
        if FREEPTR_CACHES.contains(&cache) || since_7_0 {
            params.flags |= CacheFlags::FREEPTR_OFFSET;
        }
        if cache.starts_with("kmalloc-") || cache.starts_with("dma-kmalloc-") {
            params.flags |= CacheFlags::KMALLOC;
        }
        params.sheaf_capacity = asked_capacity(cache);
        params.flags |= own_flags(cache);
        let geometry = self.geometry(slub, &params);
        if let Some(reported) = sysfs.number("sheaf_capacity") {
            let found = match slub.name {
                "sheaf" => geometry.sheaf_capacity,
                _ => params.sheaf_capacity,
            };
            self.expect(cache, "sheaf_capacity", found.into(), reported);
        }
        for (file, found) in [
            ("align", geometry.layout.align),
            ("slab_size", geometry.layout.size),
            ("order", geometry.order),
            ("objs_per_slab", geometry.objects),
            ("min_partial", geometry.min_partial),
            ("cpu_partial", geometry.cpu_partial),
        ] {
            self.expect(cache, file, found.into(), sysfs.number(file).unwrap());
        }
        self.compared += 1;
    }

    /// A row of slabinfo against the geometry of what its cache was asked to be.
    fn check_row(&mut self, design: &DesignEntry, row: &SlabinfoRow, params: &CacheParams) {
        let geometry = self.geometry(design, params);
        for (column, found, reported) in [
            ("objsize", u64::from(geometry.layout.size), row.objsize),
            ("objperslab", geometry.objects.into(), row.objperslab),
            ("pagesperslab", 1 << geometry.order, row.pagesperslab),
        ] {
            self.expect(&row.name, column, found, reported);
        }
        self.compared += 1;
    }
}

/// Parameters of a design's kmalloc class of this name; classes with a second word in front of
/// the size are like those without.
fn kmalloc_class(design: &DesignEntry, kernel: &Kernel<'_>, name: &str) -> Option<CacheParams> {
    let (family, size) = name.rsplit_once('-')?;
    let rules = (design.kmalloc_rules)(kernel.era).filter(|_| family.contains("kmalloc"))?;
    let plain = format!("kmalloc-{size}");
    kmalloc_classes(rules, &kernel.machine)
        .find(|class| class.to_string() == plain)
        .map(|class| kmalloc_params(rules, class))
}

#[test]
#[ignore = "reads recordings that are not in the repository: cargo xtask recordings"]
fn every_cache_of_every_kernel() {
    let kernels = kernels();
    let design = |name: &str| DESIGNS.iter().find(|design| design.name == name);
    let (slub, sheaf) = (design("slub").unwrap(), design("sheaf").unwrap());
    // What caches were asked to be, for kernels that do not show it: from another one that was
    // built from the same source with the same options.
    let mut asked: BTreeMap<String, CacheParams> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (name, path) in &kernels {
        for stage in stages(path) {
            let Ok(snapshot) = Snapshot::read(path, stage.as_deref()) else {
                // SLOB reports no caches.
                assert!(name.contains("slob"), "{name}");
                continue;
            };
            let era = era(snapshot.release.as_ref().unwrap());
            let slub = if era >= Era::V7_0 { sheaf } else { slub };
            let mut kernel = Kernel {
                name,
                machine: machine(&snapshot, era),
                boot: boot(&snapshot, DesignSpec { design: slub, era }),
                era,
                compared: 0,
                wrong: Vec::new(),
            };
            let is_slab = snapshot.slabinfo.rows.iter().any(|row| row.limit > 0);
            if !is_slab {
                for (cache, sysfs) in &snapshot.sysfs {
                    kernel.check_sysfs(slub, cache, sysfs);
                }
            }
            let design = if is_slab { design("slab") } else { Some(slub) };
            for row in &snapshot.slabinfo.rows {
                let own = snapshot
                    .attributes(&row.name)
                    .and_then(CacheAttributes::params);
                let tells = name.starts_with("E-6.1-slub");
                if let (Some(own), true) = (own, tells && !OWN_CACHES.contains(&&*row.name)) {
                    asked.insert(row.name.clone(), own);
                }
                let size = CacheParams::new(u32::try_from(row.objsize).unwrap());
                let params = match own {
                    // Checked with sysfs above, where the place of the free pointer is known.
                    Some(_) => size,
                    None if is_slab => design
                        .and_then(|design| kmalloc_class(design, &kernel, &row.name))
                        .or_else(|| asked.get(&row.name).copied())
                        .unwrap_or(size),
                    None => size,
                };
                if let Some(design) = design {
                    kernel.check_row(design, row, &params);
                }
            }
            if stage.as_deref().is_none_or(|stage| stage == "boot") {
                println!("{name}: {} rows and directories compared", kernel.compared);
            }
            wrong.extend(kernel.wrong);
        }
    }
    wrong.sort();
    wrong.dedup();
    assert!(
        wrong.is_empty(),
        "{} differences:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
