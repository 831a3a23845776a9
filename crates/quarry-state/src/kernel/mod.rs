//! Kernels: all that the memory of slabs depends on.

pub(crate) mod debugging;
pub(crate) mod names;

use quarry_core::era::Era;
use quarry_core::geometry::{
    CacheFlags, CacheParams, Geometry, KmallocRules, KmallocService, MachineParams,
    kmalloc_classes, kmalloc_params,
};
use quarry_core::sheaf::geometry::{SheafEra, asked_capacity, own_flags, sheaf_era};
use quarry_core::slab::geometry::early_flag;
use quarry_core::slub::geometry::slub_era;
use quarry_core::tunables::Scope;

use crate::error::{StateError, refused};
use crate::lay::sheaves::Sheaves;
use quarry_designs::{DesignEntry, DesignSpec, Setting, Tuning, list, resolve};
use quarry_snapshot::{CacheAttributes, Detail, Releases, SlabinfoRow, Snapshot};

use self::debugging::Debugging;

/// A kernel, as far as geometry depends on it.
#[derive(Clone, Debug)]
pub(crate) struct KernelModel {
    pub(crate) design: DesignSpec,
    pub(crate) page_bytes: u64,
    /// Possible CPUs.
    pub(crate) nr_cpu_ids: u32,
    /// CPUs at work.
    pub(crate) cpus: u32,
    /// Nodes with slabs.
    pub(crate) nodes: u32,
    /// Bytes of a cache line.
    pub(crate) cache_line: u32,
    pub(crate) settings: Tuning,
    /// Boot parameters and sysctls that the snapshot's kernel ran with.
    pub(crate) booted_with: Vec<Setting>,
    pub(crate) debug: Debugging,
    /// `SLUB_TINY` (6.2 on): nothing is kept per CPU, nodes keep no empty slabs, orders end at 1.
    pub(crate) is_tiny: bool,
}

/// The kernel of a run, on a machine of one node.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Design and release.
    pub design: DesignSpec,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// CPUs, all of them at work.
    pub cpus: u32,
    /// Tunables.
    pub settings: &'a Tuning,
}

impl KernelModel {
    /// The kernels whose formulas give most of a snapshot's caches what it reports, the likeliest first, and the number of
    /// these caches. It is one kernel if release and CPUs are told.
    pub(crate) fn of(snapshot: &Snapshot) -> Result<(Vec<Self>, usize), StateError> {
        if snapshot.detail() == Detail::Bytes {
            let what = format!(
                "it has {}; nothing can be predicted of it (docs/inputs.md says which files have slabs); quarry look says \
                 what it has",
                snapshot.form.lacks().unwrap_or_default()
            );
            return Err(refused(snapshot, what));
        }
        let busiest = busiest(snapshot);
        let powers = (0..9).map(|shift| 1 << shift);
        let more = powers.filter(|cpus| *cpus > busiest);
        let guesses = match snapshot.present_cpus {
            Some(cpus) => vec![cpus],
            None => std::iter::once(busiest).chain(more).collect(),
        };
        let rows = &snapshot.slabinfo.rows;
        let (mut best, mut most) = (Vec::new(), 0);
        let mut try_boot = |design, booted_with: Vec<Setting>| -> Result<usize, StateError> {
            let settings = in_force(design, &booted_with, &[])?;
            for cpus in &guesses {
                let mut kernel = Self {
                    design,
                    page_bytes: snapshot.page_bytes,
                    nr_cpu_ids: snapshot.nr_cpu_ids.unwrap_or(*cpus),
                    cpus: *cpus,
                    nodes: snapshot.nodes(),
                    cache_line: cache_line(snapshot),
                    settings: settings.clone(),
                    booted_with: booted_with.clone(),
                    debug: Debugging::default(),
                    is_tiny: snapshot.config.get("SLUB_TINY").is_some_and(|on| on == "y"),
                };
                kernel.debug = Debugging::of(snapshot, &kernel);
                let explains =
                    |row: &&SlabinfoRow| kernel.explains(row, snapshot.attributes(&row.name));
                let explained = rows.iter().filter(explains).count();
                if explained > most {
                    best.clear();
                }
                if explained >= most {
                    most = explained;
                    best.push(kernel);
                }
            }
            Ok(most)
        };
        let designs = designs(snapshot);
        let mut explained = 0;
        for design in &designs {
            explained = try_boot(*design, booted_with(snapshot, *design))?;
        }
        // Without a command line the kernel may have had a limit of slabs' orders.
        if snapshot.cmdline.is_none() && explained * 100 < rows.len() * ENOUGH_PERCENT {
            let has_limit =
                |design: &&DesignSpec| design.tunables().any(|known| known.name == MAX_ORDER);
            for design in designs.iter().filter(has_limit) {
                for order in ORDERS {
                    let mut booted_with = booted_with(snapshot, *design);
                    booted_with.push(Setting::of(MAX_ORDER, order));
                    try_boot(*design, booted_with)?;
                }
            }
        }
        Ok((best, most))
    }

    /// The kernel of a run: its machine has one node, and as many possible CPUs as the snapshot's if it has as many at
    /// work.
    pub(crate) fn of_run(&self, run: &Run<'_>) -> Self {
        Self {
            design: run.design,
            page_bytes: run.page_bytes,
            nr_cpu_ids: match run.cpus == self.cpus {
                true => self.nr_cpu_ids,
                false => run.cpus,
            },
            cpus: run.cpus,
            nodes: 1,
            settings: run.settings.clone(),
            debug: Debugging::asked(run.settings.debug),
            is_tiny: false,
            ..self.clone()
        }
    }

    /// True if a machine with another kernel has to boot to have this one: caches' own tunables can be written.
    pub(crate) fn needs_boot_from(&self, other: &Self) -> bool {
        let boot = |kernel: &Self| {
            let machine = (kernel.page_bytes, kernel.cpus, kernel.nr_cpu_ids);
            let debug = kernel.debug.because.clone();
            (kernel.design, machine, kernel.settings.boot, debug)
        };
        boot(self) != boot(other)
    }

    pub(crate) fn machine(&self) -> MachineParams {
        let era = slub_era(self.design.era);
        MachineParams {
            page_shift: self.page_bytes.ilog2(),
            nr_cpus: era.map_or(self.cpus, |era| {
                era.formula_cpus(self.nr_cpu_ids, self.cpus)
            }),
            cache_line: self.cache_line,
        }
    }

    /// A cache's geometry; `None` if it cannot exist there.
    pub(crate) fn geometry(&self, params: &CacheParams) -> Option<Geometry> {
        let compute = self.design.design.geometry;
        let machine = self.machine();
        let mut boot = self.settings.boot;
        if self.is_tiny {
            boot.slub_max_order = boot.slub_max_order.or(Some(TINY_MAX_ORDER));
        }
        let mut geometry = compute(self.design.era, &machine, &boot, params).ok()?;
        if self.is_tiny {
            geometry.min_partial = 0;
            (geometry.cpu_partial, geometry.cpu_partial_slabs) = (0, 0);
            geometry.sheaf_capacity = 0;
        }
        self.settings.adjust(&mut geometry);
        Some(geometry)
    }

    /// The geometry of a cache by its name, which tells what its creator asks for beside `params`, as a heap's cache of
    /// this name has it.
    pub(crate) fn geometry_of(&self, name: &str, params: &CacheParams) -> Option<Geometry> {
        let mut params = params.with_flags(params.flags | early_flag(name) | own_flags(name));
        if self.sheaf_era().is_some() {
            params = params.with_sheaf_capacity(asked_capacity(name));
        }
        self.geometry(&params)
    }

    /// The geometry of a row's cache, with the debugging that it has.
    pub(crate) fn debugged(
        &self,
        params: CacheParams,
        row: &SlabinfoRow,
        sysfs: Option<&CacheAttributes>,
    ) -> Option<Geometry> {
        self.geometry_of(&row.name, &self.debug.on(params, row, sysfs))
    }

    /// The rules of sheaves, if the design has them.
    pub(crate) fn sheaf_era(&self) -> Option<&'static SheafEra> {
        let features = &self.design.design.features;
        features
            .sheaves
            .then(|| sheaf_era(self.design.era))
            .flatten()
    }

    /// Sheaves of a capacity, in objects, on this machine.
    pub(crate) fn sheaves(&self, capacity: u32) -> Sheaves {
        let Some(era) = self.sheaf_era() else {
            return Sheaves::default();
        };
        let mut set = self.settings.cache.iter().rev();
        let set = set.find(|(tunable, _)| tunable.name == "barn_full");
        let full = set.map_or(u64::from(era.barn.full), |(_, value)| *value);
        Sheaves {
            capacity: capacity.into(),
            cpus: self.cpus.into(),
            in_barns: full * u64::from(self.nodes),
        }
    }

    /// True if CPUs hold slabs: where sheaves are general they do not.
    pub(crate) fn has_cpu_slabs(&self) -> bool {
        !self.is_tiny && self.sheaf_era().is_none_or(|era| era.run.cpu_slabs)
    }

    /// True if slabs hold objects of all caches: a design that serves all sizes itself does so.
    pub(crate) fn is_shared(&self) -> bool {
        self.kmalloc_rules()
            .is_some_and(|rules| rules.service == KmallocService::Design)
    }

    /// The kmalloc caches; `None` where only geometry is known.
    pub(crate) fn kmalloc_rules(&self) -> Option<&'static KmallocRules> {
        (self.design.design.kmalloc_rules)(self.design.era)
    }

    /// True for SLUB, and what grew out of it.
    pub(crate) fn has_slub(&self) -> bool {
        self.design.design.features.sysfs
    }

    /// True if the kernel shows its caches in sysfs: SLUB does, unless it is tiny.
    pub(crate) fn has_sysfs(&self) -> bool {
        self.has_slub() && !self.is_tiny
    }

    /// True if sysfs shows the capacity of each cache's sheaves, be there sheaves or not.
    pub(crate) fn has_sheaf_files(&self) -> bool {
        self.has_sysfs() && self.design.era >= Era::V6_18
    }

    /// True if the formulas give the order and the objects of a row from its object size.
    fn explains(&self, row: &SlabinfoRow, sysfs: Option<&CacheAttributes>) -> bool {
        if let Some(original) = self.debug.original(self, row, sysfs) {
            let geometry = self.debugged(original, row, sysfs);
            return geometry.is_some_and(|geometry| is_of(row, &geometry));
        }
        slots(row).is_some_and(|slots| slots.iter().any(|slot| self.gives(row, slot)))
    }

    /// Bytes from one object to the next.
    pub(crate) fn size_of(&self, params: &CacheParams) -> Option<u64> {
        Some(self.geometry(params)?.layout.size.into())
    }

    /// Parameters of the kmalloc class of this many bytes.
    pub(crate) fn class_params(&self, bytes: u64) -> Option<CacheParams> {
        let rules = self.kmalloc_rules()?;
        let mut classes = kmalloc_classes(rules, &self.machine());
        let class = classes.find(|class| u64::from(class.size) == bytes)?;
        Some(kmalloc_params(rules, class))
    }

    /// A row's cache by its object size: the first that explains its slabs of those that it may be.
    pub(crate) fn slot(&self, row: &SlabinfoRow) -> Option<CacheParams> {
        let slots = slots(row)?;
        let explaining = slots.iter().find(|slot| self.gives(row, slot));
        Some(*explaining.unwrap_or(&slots[0]))
    }

    /// True if such a cache has the slabs of a row.
    fn gives(&self, row: &SlabinfoRow, slot: &CacheParams) -> bool {
        let geometry = self.geometry_of(&row.name, slot);
        geometry.is_some_and(|geometry| is_of(row, &geometry))
    }
}

pub(crate) fn no_design(snapshot: &Snapshot) -> StateError {
    StateError::Question(format!(
        "{}: it is of a kernel whose design this build does not have; designs are {}",
        snapshot.file,
        list(DesignEntry::of_kernels().map(|design| design.name))
    ))
}

/// True if slabs of this geometry are those of a row.
fn is_of(row: &SlabinfoRow, geometry: &Geometry) -> bool {
    u64::from(geometry.objects) == row.objperslab && 1 << geometry.order == row.pagesperslab
}

/// SLUB's limit of slabs' orders, and the values below its default.
pub(crate) const MAX_ORDER: &str = "slub_max_order";
const ORDERS: [u64; 3] = [0, 1, 2];
/// Its default in a tiny kernel.
const TINY_MAX_ORDER: u32 = 1;
/// Share of the caches in per cent that a kernel explains if no limit of orders is to be looked for.
const ENOUGH_PERCENT: usize = 95;

/// The tunables that a snapshot's kernel ran with beside those of each cache: the boot parameters of the design in the
/// command line, which has two spellings of SLUB's, and sysctls that are not 0 and size page lists. How much memory is
/// kept free is the machine's, not the kernel's: its zones say so.
fn booted_with(snapshot: &Snapshot, design: DesignSpec) -> Vec<Setting> {
    let boot = design
        .tunables()
        .filter(|tunable| tunable.scope == Scope::Boot)
        .filter_map(|tunable| {
            let other = tunable.name.replacen("slub_", "slab_", 1);
            let value = snapshot.boot_number(&[tunable.name, &other])?;
            Some(Setting::of(tunable.name, value.into()))
        });
    let sysctls = snapshot.sysctls.iter().filter_map(|(name, value)| {
        let name = name.strip_prefix("vm.percpu_")?;
        let setting = Setting::parse(&format!("page.percpu_{name}={value}")).ok()?;
        (value != "0").then_some(setting)
    });
    boot.chain(sysctls).collect()
}

/// Tuning of a design: of `old` what it takes and `new` does not name, and what of `new` is for it.
pub fn in_force(
    design: DesignSpec,
    old: &[Setting],
    new: &[Setting],
) -> Result<Tuning, StateError> {
    let stays = |setting: &&Setting| {
        let overruled = new.iter().any(|new| new.name() == setting.name());
        !overruled && setting.is_taken_by(&design)
    };
    let all: Vec<Setting> = old.iter().filter(stays).chain(new).cloned().collect();
    Ok(resolve(&all, &[design])?.pop().unwrap_or_default())
}

/// Refuses a design for programs: what a kernel would hold with it is not known.
pub fn in_a_kernel(design: DesignSpec) -> Result<(), StateError> {
    if !design.design.features.for_programs {
        return Ok(());
    }
    Err(StateError::Question(format!(
        "{design} is a design for programs, so a kernel's caches cannot be predicted with it; take sheaf@{}, or begin \
         with empty caches (replay --empty)",
        design.era
    )))
}

/// CPUs that use the busiest caches. The files of a cache are read one after the other while it is
/// used, so that the numbers of a few contradict each other: three caches must say so.
fn busiest(snapshot: &Snapshot) -> u32 {
    // Without a whole sysfs the slabs of CPUs' lists are among those that CPUs hold.
    let caches = snapshot.sysfs.values().filter(|_| snapshot.has_sysfs());
    let mut used_by: Vec<u64> = caches.map(users).collect();
    used_by.sort_unstable_by(|a, b| b.cmp(a));
    let third = used_by.get(2).or(used_by.last()).copied();
    let seen = third.and_then(|cpus| u32::try_from(cpus).ok()).unwrap_or(1);
    // Only with several CPUs is there an array that they share.
    let shares = snapshot
        .slabinfo
        .rows
        .iter()
        .any(|row| row.sharedfactor > 0);
    seen.max(if shares { 2 } else { 1 })
}

/// CPUs that hold a slab; sysfs counts the slabs of their partial lists with them.
fn users(cache: &CacheAttributes) -> u64 {
    let held = cache.number("cpu_slabs").unwrap_or(0);
    held.saturating_sub(cache.cpu_partial_slabs().unwrap_or(0))
}

/// Caches whose objects may lie as far apart as those of the row, the likeliest first. SLAB gives reclaimable ones
/// smaller slabs, and the size before alignment decides where it keeps its lists.
fn slots(row: &SlabinfoRow) -> Option<[CacheParams; 3]> {
    let size = u32::try_from(row.objsize).ok()?;
    let plain = CacheParams::new(size);
    // Words need no alignment.
    let aligned = match 1 << size.trailing_zeros().min(7) {
        1..=8 => plain,
        align => CacheParams::new(size.saturating_sub(8)).with_align(align),
    };
    Some([plain, plain.with_flags(CacheFlags::RECLAIM), aligned])
}

/// Cache lines of machines whose pages can be 64 KiB have 128 bytes (ppc64); the others have 64.
/// Only caches without sysfs attributes depend on it.
fn cache_line(snapshot: &Snapshot) -> u32 {
    let release = snapshot.release.as_deref();
    let is_ppc = release.is_some_and(|release| release.contains("powerpc"));
    if is_ppc { 128 } else { 64 }
}

/// The designs that the snapshot can be of, the likeliest first. SLAB has tunables, which some forms leave out. Where all
/// caches of the release have sheaves, or by sysfs most caches have, sheaves are the design. A kernel whose release is not
/// known can be of any.
fn designs(snapshot: &Snapshot) -> Vec<DesignSpec> {
    let rows = &snapshot.slabinfo.rows;
    let release = snapshot.release.as_deref().and_then(names::nearest_era);
    // SLUB's general caches were never named so, and before it there was SLAB alone.
    let is_slab = names::is_older(snapshot) || rows.iter().any(|row| names::is_of_slab(&row.name));
    let arrays = is_slab || rows.iter().any(|row| row.limit > 0);
    let hides_arrays = !arrays && snapshot.sysfs.is_empty() && snapshot.detail() == Detail::Thin;
    let known = |design: &&DesignEntry| release.is_none_or(|era| design.releases.contains(&era));
    let sysfs = snapshot.sysfs.values();
    let with_sheaves = sysfs.filter(|cache| cache.number("sheaf_capacity") > Some(0));
    let most_have_sheaves = with_sheaves.count() * 2 > snapshot.sysfs.len();
    let of_sheaves = DesignEntry::of_kernels().find(|design| design.features.sheaves);
    let mut found: Vec<&'static DesignEntry> = Vec::new();
    match release {
        None if most_have_sheaves && !arrays => found.extend(of_sheaves),
        _ => found.extend(DesignEntry::of_kernel(release, arrays)),
    }
    if release.is_none() && !arrays && !snapshot.has_sysfs() {
        found.extend(of_sheaves);
    }
    if hides_arrays {
        found.extend(DesignEntry::of_kernel(release, true).filter(known));
    }
    // By the names of its caches it can be of some releases only. Rules hold until the next ones, so the ends count, too.
    let range = snapshot.releases;
    let of = |design: &'static DesignEntry, range: Option<Releases>| {
        let known = &design.releases;
        let mut eras: Vec<Era> = match (release.filter(|release| known.contains(release)), range) {
            (Some(release), _) => vec![release],
            (None, Some(range)) => {
                let ends = [range.first, range.last].into_iter();
                let eras = ends.chain(design.eras.iter().copied());
                eras.filter(|era| range.contains(*era) && known.contains(era))
                    .collect()
            }
            (None, None) => design.eras.iter().copied().chain([*known.end()]).collect(),
        };
        eras.sort_unstable_by(|a, b| b.cmp(a));
        eras.dedup();
        eras.into_iter().map(move |era| DesignSpec { design, era })
    };
    let all = |range| {
        let specs = found.iter().flat_map(|design| of(design, range));
        specs.collect::<Vec<_>>()
    };
    let specs = all(range);
    if specs.is_empty() { all(None) } else { specs }
}
