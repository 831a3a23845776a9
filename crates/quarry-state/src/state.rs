//! A snapshot as every question about it takes it: the kernels that explain it, and how objects lie in its slabs.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use quarry_core::era::Era;
use quarry_core::geometry::{CacheParams, Geometry};
use quarry_core::sheaf::geometry::SHEAF_CAPACITY_MAX;
use quarry_designs::{DesignSpec, Setting};
use quarry_snapshot::{CacheAttributes, HiddenCache, SlabinfoRow, Snapshot};

use crate::error::StateError;
use crate::kernel::{KernelModel, MAX_ORDER, Run, no_design};
use crate::lay::brought::Brought;
use crate::lay::possible;
use crate::lay::{Lay, longest_list};

/// A snapshot, ready for questions. That costs more than to answer one of them.
pub struct State<'a> {
    pub(crate) snapshot: &'a Snapshot,
    /// Other names of its caches that are merged.
    pub(crate) aliases: BTreeMap<String, Vec<String>>,
    pub(crate) likeliest: Observed<'a>,
    /// Kernels that explain as many caches.
    pub(crate) others: Vec<Observed<'a>>,
}

/// A snapshot as one kernel explains it.
pub(crate) struct Observed<'a> {
    pub(crate) kernel: KernelModel,
    /// Caches that it explains.
    pub(crate) explained: usize,
    /// Computed when they are asked for: who wants the kernel alone does not wait for them.
    caches: OnceLock<(Vec<CacheState<'a>>, bool)>,
}

/// Facts about a cache of a snapshot that no question changes.
pub struct CacheState<'a> {
    /// Its row.
    pub row: &'a SlabinfoRow,
    /// Its attributes in sysfs.
    pub sysfs: Option<&'a CacheAttributes>,
    /// Hidden state that a debugger read of it.
    pub(crate) hidden: Option<&'a HiddenCache>,
    /// Slabs on nodes' lists, if sysfs counted them at the moment of the row.
    pub(crate) partial: Option<u64>,
    /// The cache by the distance of its objects; `None` if no cache has it.
    pub(crate) slot: Option<CacheParams>,
    /// The cache without debugging, if it has debugging.
    pub(crate) original: Option<CacheParams>,
    /// Bytes that debugging adds to each object.
    pub debugging_bytes: u64,
    /// Objects of a sheaf: as sysfs says, or as the formula does.
    pub(crate) sheaf_capacity: u32,
    /// Empty slabs that a node keeps: as sysfs says, or as the formula does.
    pub(crate) min_partial: u64,
    /// Distribution of the objects over the slabs.
    pub(crate) lay: Lay,
    /// The same if a single CPU uses the cache and its other slabs are full, where no count of sysfs tells.
    pub(crate) lay_of_one_cpu: Option<Lay>,
}

/// Caches that tell of a shrink; of fewer it can be chance.
const SHRUNK_CACHES: usize = 10;

impl<'a> State<'a> {
    /// Finds the kernels that explain a snapshot.
    ///
    /// # Errors
    ///
    /// [`StateError`] if this build does not have the kernel's design.
    pub fn of(snapshot: &'a Snapshot) -> Result<Self, StateError> {
        let (kernels, explained) = KernelModel::of(snapshot)?;
        let mut kernels = kernels.into_iter();
        let first = kernels.next().ok_or_else(|| no_design(snapshot))?;
        let mut others: Vec<_> = kernels.collect();
        // One of each other release, with as many CPUs if it can be; of the likeliest release every number of CPUs.
        let mut taken: Vec<DesignSpec> = Vec::new();
        others.sort_by_key(|kernel| kernel.cpus != first.cpus);
        others.retain(|kernel| {
            let is_other = kernel.design != first.design && !taken.contains(&kernel.design);
            taken.push(kernel.design);
            is_other || kernel.design == first.design && kernel.cpus != first.cpus
        });
        let observed = |kernel| Observed {
            kernel,
            explained,
            caches: OnceLock::new(),
        };
        Ok(Self {
            snapshot,
            aliases: snapshot.all_aliases(),
            likeliest: observed(first),
            others: others.into_iter().map(observed).collect(),
        })
    }

    /// The design of the snapshot's kernel.
    #[must_use]
    pub fn design(&self) -> DesignSpec {
        self.likeliest.kernel.design
    }

    /// The tunables that the kernel ran with beside those of each cache.
    #[must_use]
    pub fn booted_with(&self) -> &[Setting] {
        &self.likeliest.kernel.booted_with
    }

    /// The caches of the snapshot, in its order.
    #[must_use]
    pub fn caches(&self) -> &[CacheState<'a>] {
        &self.likeliest.caches(self.snapshot).0
    }

    /// The geometry of each cache by the formulas of the snapshot's kernel, in its order; `None` if no cache has such
    /// objects.
    pub fn geometries(&self) -> impl Iterator<Item = Option<Geometry>> {
        let kernel = &self.likeliest.kernel;
        self.caches().iter().map(move |cache| {
            let asked = || cache.sysfs.and_then(CacheAttributes::params);
            let params = cache.original.or_else(asked).or(cache.slot)?;
            kernel.debugged(params, cache.row, cache.sysfs)
        })
    }

    /// The snapshot's kernel in words, as far as a run has another one: its design, CPUs and pages. `None` if it has the same.
    pub fn unlike(&self, design: &str, era: Era, config: &quarry_sim::Config) -> Option<String> {
        let kernel = &self.likeliest.kernel;
        let own = kernel.design;
        let mut unlike = Vec::new();
        if (own.design.name, own.era) != (design, era) {
            unlike.push(own.to_string());
        }
        if kernel.cpus != config.cpus {
            let plural = if kernel.cpus == 1 { "" } else { "s" };
            unlike.push(format!("{} CPU{plural}", kernel.cpus));
        }
        if kernel.page_bytes != config.page_bytes {
            unlike.push(format!("{} KiB pages", kernel.page_bytes >> 10));
        }
        (!unlike.is_empty()).then(|| unlike.join(", "))
    }

    /// True if a run has the design, the machine and the settings of the snapshot's kernel.
    pub fn is_of(&self, run: &Run<'_>) -> bool {
        let kernel = &self.likeliest.kernel;
        (kernel.design, kernel.page_bytes, kernel.cpus) == (run.design, run.page_bytes, run.cpus)
            && kernel.settings == *run.settings
    }

    /// Facts that no file tells, each with what explains the slabs as well.
    pub fn guessed(&self) -> Vec<String> {
        let first = &self.likeliest.kernel;
        let mut guessed = Vec::new();
        let kernels = || {
            let others = self.others.iter().map(|other| &other.kernel);
            others.chain([first])
        };
        let eras = || kernels().map(|kernel| kernel.design.era);
        if self.snapshot.release.is_none()
            && let (Some(oldest), Some(newest)) = (eras().min(), eras().max())
        {
            let design = first.design;
            guessed.push(match oldest == newest {
                true => format!(
                    "the release is not told: the rules of {design} are taken, which give most caches their slabs"
                ),
                false => format!(
                    "the release is not told: the rules of {design} are taken; some from {oldest} to {newest} give as \
                     many caches their slabs; the bounds hold for all of them"
                ),
            });
        }
        if let Some(release) = &self.snapshot.release
            && Era::parse(release).is_none()
        {
            guessed.push(format!(
                "the kernel is {release}, which is none from {} to {}: the rules of {} are taken",
                Era::FIRST,
                Era::LAST,
                first.design
            ));
        }
        let mut settings = first.booted_with.iter();
        let limit = settings.find(|setting| setting.name() == MAX_ORDER);
        if let (None, Some(limit)) = (&self.snapshot.cmdline, limit) {
            guessed.push(format!(
                "the command line is not told: {} is taken, which gives more caches their slabs than the default",
                limit.short()
            ));
        }
        if self.likeliest.caches(self.snapshot).1 {
            let what = "its caches were shrunk a short time ago, by their free objects: CPUs are taken to hold no more than is counted";
            guessed.push(what.to_string());
        }
        if self.snapshot.present_cpus.is_none() {
            let cpus = || kernels().map(|kernel| kernel.cpus);
            let (fewest, most) = (cpus().min().unwrap_or(1), cpus().max().unwrap_or(1));
            // Few caches say little of CPUs.
            let weak = match self.snapshot.excerpt {
                Some(_) => {
                    "; of a part of the caches this is a weak guess (--had-cpus gives the number)"
                }
                None => "",
            };
            guessed.push(match fewest == most {
                true => format!(
                    "the number of CPUs is not told: {most} is taken, which gives most caches their slabs{weak}"
                ),
                false => format!(
                    "the number of CPUs is not told: {} is taken; {fewest} to {most} give as many caches their slabs; the \
                     bounds hold for all{weak}",
                    first.cpus
                ),
            });
        }
        guessed
    }

    /// The guess behind a prediction for another number of CPUs that are only possible.
    pub(crate) fn guessed_of_possible(&self, possible: u32, cpus: u32) -> Option<String> {
        let only_possible = |possible: u32, cpus| i64::from(possible) - i64::from(cpus);
        let kernel = &self.likeliest.kernel;
        let more = only_possible(possible, cpus) - only_possible(kernel.nr_cpu_ids, kernel.cpus);
        (more != 0).then(|| {
            let (count, change) = (more.unsigned_abs(), if more < 0 { "fewer" } else { "more" });
            format!(
                "what {count} {change} CPUs change that are only possible is a guess: objects by boots of two kernels with 2 to 512 \
                 possible CPUs, and of one distribution with 16 and 64; a third to twice as many are likely"
            )
        })
    }
}

impl<'a> Observed<'a> {
    /// True if all caches were shrunk a short time ago: CPUs held nothing then, and have taken little since.
    ///
    /// * Sheaves come out of slabs as a whole, so that what counts as active is a multiple of their capacity, but for
    ///   caches whose sheaves were emptied one object after the other: a shrink does that.
    /// * Where CPUs hold slabs, a cache with no more slabs than CPUs has all of them there, and all objects count as active.
    fn look_shrunk(&self, snapshot: &Snapshot, caches: &[CacheState<'a>]) -> bool {
        if snapshot.form.counts_held_as_free() {
            return false;
        }
        let used = caches.iter().filter(|cache| {
            let debug = self.kernel.debug.flags(cache.row, cache.sysfs).debug();
            let is_known = cache.lay.is_exact || cache.row.limit > 0 || debug;
            !is_known && cache.row.num_slabs > 0 && cache.row.objperslab > 1
        });
        let has_free = |row: &SlabinfoRow| row.active_objs < row.num_objs;
        let (mut all, mut as_shrunk) = (0_usize, 0_usize);
        for cache in used {
            let row = cache.row;
            let told = match u64::from(cache.sheaf_capacity) {
                0 if row.num_slabs <= u64::from(self.kernel.cpus) => Some(has_free(row)),
                0 => None,
                capacity => Some(row.active_objs % capacity != 0 && has_free(row)),
            };
            all += usize::from(told.is_some());
            as_shrunk += usize::from(told == Some(true));
        }
        all >= SHRUNK_CACHES && as_shrunk * 2 > all
    }

    /// The caches of the snapshot that the kernel explains, in its order, and whether all were shrunk a short time ago.
    pub(crate) fn caches(&self, snapshot: &'a Snapshot) -> &(Vec<CacheState<'a>>, bool) {
        self.caches.get_or_init(|| {
            let caches = |are_shrunk| -> Vec<_> {
                let rows = snapshot.slabinfo.rows.iter();
                rows.map(|row| CacheState::of(snapshot, &self.kernel, row, are_shrunk))
                    .collect()
            };
            let all = caches(false);
            let are_shrunk = self.look_shrunk(snapshot, &all);
            (if are_shrunk { caches(true) } else { all }, are_shrunk)
        })
    }
}

impl<'a> CacheState<'a> {
    fn of(
        snapshot: &'a Snapshot,
        kernel: &KernelModel,
        row: &'a SlabinfoRow,
        is_shrunk: bool,
    ) -> Self {
        let sysfs = snapshot.attributes(&row.name);
        let slot = kernel.slot(row);
        let original = kernel.debug.original(kernel, row, sysfs);
        let params = original.or(slot);
        let computed = params.and_then(|params| kernel.debugged(params, row, sysfs));
        let told = |file| sysfs.and_then(|sysfs| sysfs.number(file));
        let by_formula = |number: fn(&Geometry) -> u32| computed.as_ref().map_or(0, number);
        let sheaf_capacity = match told("sheaf_capacity") {
            Some(told) => u32::try_from(told).unwrap_or(0).min(SHEAF_CAPACITY_MAX),
            None => by_formula(|geometry| geometry.sheaf_capacity),
        };
        let longest = computed.as_ref().map_or(0.0, longest_list);
        let lay_of = |cpus| {
            let sheaves = kernel.sheaves(sheaf_capacity);
            let hidden = snapshot.hidden(&row.name);
            Lay::of(row, sysfs, cpus, longest, &sheaves, hidden, is_shrunk)
        };
        // With debugging no CPU holds a slab, nor in the smallest configuration; and some forms count apart what CPUs hold.
        let debug = kernel.debug.flags(row, sysfs).debug();
        let is_counted = snapshot.form.counts_held_as_free();
        let has_cpus = !debug && !kernel.is_tiny && !is_counted;
        let mut lay = lay_of(if has_cpus { kernel.cpus } else { 0 });
        let groups = possible::groups(snapshot.slabinfo.row(possible::GROUPS), kernel.cpus);
        let brought = Brought::of(&row.name, lay.objects(), kernel.cpus);
        lay.brought = brought.with_possible(&row.name, lay.objects(), kernel, groups);
        // What overflowed the lists of CPUs came to all of them.
        lay.brought.by_all |= lay.partial > 0.0 && !is_shrunk;
        let min_partial = || by_formula(|geometry| geometry.min_partial).into();
        Self {
            row,
            sysfs,
            hidden: snapshot.hidden(&row.name),
            partial: snapshot.partial_slabs(row),
            slot,
            original,
            debugging_bytes: kernel.debug.bytes(row, original.as_ref()),
            sheaf_capacity,
            min_partial: told("min_partial").unwrap_or_else(min_partial),
            lay_of_one_cpu: lay.half_full.then(|| Lay {
                brought: lay.brought,
                ..lay_of(1)
            }),
            lay,
        }
    }
}

impl CacheState<'_> {
    /// Objects in use: as a debugger read them, else as estimated.
    #[must_use]
    pub fn objects(&self) -> u64 {
        self.lay.objects().round() as u64
    }
}
