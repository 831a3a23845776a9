//! A question about a snapshot.

use std::fmt;
use std::path::Path;

use quarry_ask::{Json, Kind, Value};
use quarry_core::era::Era;
use quarry_designs::{DesignEntry, DesignSpec, Setting, Tuning, list};

use crate::error::StateError;
use crate::kernel::debugging::Debugging;
use crate::kernel::{KernelModel, in_a_kernel, in_force};
use crate::on::configuration::NO_MERGE;

/// The question; settings that are `None` stay as they are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Question {
    /// Another design or era.
    pub design: Option<DesignSpec>,
    /// Another kernel release, with the design that it has; `design` counts if both are named.
    pub release: Option<Era>,
    /// Another page size in bytes.
    pub page_bytes: Option<u64>,
    /// Another number of CPUs, present and possible.
    pub cpus: Option<u32>,
    /// Another number of possible CPUs.
    pub possible_cpus: Option<u32>,
    /// Values of lists among the settings, as [`Prediction::set`](crate::Prediction::set) has them.
    pub set: String,
    /// Tunables.
    pub settings: Vec<Setting>,
    /// Other debugging, as `slub_debug` says it; none if it is empty. As in the snapshot's kernel if it is `None`.
    pub debug: Option<String>,
    /// Options of the configuration whose cost is added.
    pub configs: Vec<Config>,
    /// Guests that each have such a kernel, if their sum is asked for.
    pub guests: Option<u64>,
}

impl Question {
    /// The options that are asked for. Whether caches are merged is a boot parameter, too, which overrules the
    /// configuration.
    pub(crate) fn all_configs(&self) -> Vec<Config> {
        let merging = self.settings.iter().find_map(merges).map(|on| Config {
            option: &MERGING,
            on,
        });
        let is_overruled =
            |config: &&Config| merging.is_some() && config.option.cost == Cost::Merging;
        let others = self.configs.iter().filter(|config| !is_overruled(config));
        merging.into_iter().chain(others.copied()).collect()
    }

    /// True if a tiny kernel is asked for, false if another one; `None` if neither is.
    fn tiny(&self) -> Option<bool> {
        let mut configs = self.configs.iter();
        let config = configs.find(|config| config.option.cost == Cost::Tiny);
        config.map(|config| config.on)
    }

    /// The release that is asked about; `None` for the snapshot's own.
    #[must_use]
    pub fn era(&self) -> Option<Era> {
        self.design.map(|design| design.era).or(self.release)
    }
}

/// True if a setting has caches merged, false if it keeps them apart; `None` if it is another one. Every kernel with SLAB or
/// SLUB has the parameter, also where a design here does not merge.
fn merges(setting: &Setting) -> Option<bool> {
    let text = setting.short();
    let value = text.strip_prefix(setting.name())?;
    match value {
        "=0" | "=1" if NO_MERGE.contains(&setting.name()) => Some(value == "=0"),
        _ => None,
    }
}

impl KernelModel {
    /// The kernel that is asked about.
    pub(crate) fn asked(&self, question: &Question) -> Result<Self, StateError> {
        let design = match (question.design, question.release) {
            (Some(design), _) => design,
            (None, Some(release)) => design_of(release, self.design)?,
            (None, None) => self.design,
        };
        in_a_kernel(design)?;
        // What is not set stays as the snapshot's kernel was booted with.
        let asked: Vec<Setting> = question
            .settings
            .iter()
            .filter(|setting| merges(setting).is_none() || setting.is_taken_by(&design))
            .cloned()
            .collect();
        let settings = in_force(design, &self.booted_with, &asked)?;
        let possible = question.possible_cpus.or(question.cpus);
        let debug = match &question.debug {
            None => self.debug.clone(),
            Some(text) => {
                let mut tuning = Tuning::default();
                if !matches!(text.as_str(), "" | "-") {
                    tuning.set_debug(text, &design)?;
                }
                Debugging::asked(tuning.debug)
            }
        };
        let kernel = Self {
            design,
            page_bytes: question.page_bytes.unwrap_or(self.page_bytes),
            nr_cpu_ids: possible.unwrap_or(self.nr_cpu_ids),
            cpus: question.cpus.unwrap_or(self.cpus),
            settings,
            debug,
            is_tiny: question.tiny().unwrap_or(self.is_tiny),
            ..self.clone()
        };
        if question.tiny() == Some(true) && !kernel.has_slub() {
            return Err(StateError::Question(format!(
                "--config SLUB_TINY=y: {design} has no SLUB; ask for --design slub, too"
            )));
        }
        if kernel.nr_cpu_ids < kernel.cpus {
            return Err(StateError::Question(format!(
                "{} possible CPUs are fewer than the {} at work",
                kernel.nr_cpu_ids, kernel.cpus
            )));
        }
        kernel
            .machine()
            .check()
            .map_err(|error| StateError::Question(error.to_string()))?;
        Ok(kernel)
    }
}

/// The design of a release on the machine of a kernel with the design `of`: SLAB stays SLAB as long
/// as there was one, the others are SLUB, or sheaves from the release on that has them on every cache.
fn design_of(release: Era, of: DesignSpec) -> Result<DesignSpec, StateError> {
    let arrays = of.design.features.arrays_in_slabinfo && of.design.releases.contains(&release);
    let design = DesignEntry::of_kernel(Some(release), arrays).unwrap_or(of.design);
    Ok(DesignSpec::parse(&format!("{}@{release}", design.name))?)
}

/// An option of the kernel's configuration, on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    pub(crate) option: &'static Known,
    pub(crate) on: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// Name without `CONFIG_`.
    pub(crate) name: &'static str,
    /// First and last release that have it.
    pub(crate) first: Era,
    pub(crate) last: Era,
    pub(crate) cost: Cost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cost {
    Merging,
    Copies,
    Accounting,
    Profiling,
    ProfilingOn,
    Tiny,
    RandomLists,
    Nothing,
}

/// Caches alike are one, as boot parameters say, too.
static MERGING: Known = Known::from("SLAB_MERGE_DEFAULT", Era::V2_6_22, Cost::Merging);

static OTHERS: [Known; 8] = [
    Known {
        last: Era::V7_1,
        ..Known::from("RANDOM_KMALLOC_CACHES", Era::V6_6, Cost::Copies)
    },
    Known::from("PARTITION_KMALLOC_CACHES", Era::V7_2, Cost::Copies),
    Known::from("MEMCG", Era::V5_9, Cost::Accounting),
    Known::from("MEM_ALLOC_PROFILING", Era::V6_10, Cost::Profiling),
    Known::from(
        "MEM_ALLOC_PROFILING_ENABLED_BY_DEFAULT",
        Era::V6_10,
        Cost::ProfilingOn,
    ),
    Known::from("SLUB_TINY", Era::V6_2, Cost::Tiny),
    Known::from("SLAB_FREELIST_RANDOM", Era::V4_8, Cost::RandomLists),
    Known::from("SLAB_FREELIST_HARDENED", Era::V4_14, Cost::Nothing),
];

impl Known {
    /// An option that no release has dropped.
    const fn from(name: &'static str, first: Era, cost: Cost) -> Self {
        let last = Era::LAST;
        Self {
            name,
            first,
            last,
            cost,
        }
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on = if self.on { "y" } else { "n" };
        write!(f, "{}={on}", self.option.name)
    }
}

/// `NAME=y` or `NAME=n`; `CONFIG_` may stand in front.
impl Value for Config {
    const KIND: Kind = Kind::Text;

    fn parse(text: &str, _: &Path) -> Result<Self, String> {
        let (name, value) = text
            .split_once('=')
            .ok_or("write NAME=y or NAME=n, for example MEMCG=n")?;
        let on = match value {
            "y" => true,
            "n" => false,
            other => return Err(format!("{other:?} is neither y nor n")),
        };
        let plain = name.strip_prefix("CONFIG_").unwrap_or(name);
        let known = || std::iter::once(&MERGING).chain(&OTHERS);
        let option = known().find(|known| known.name == plain);
        let option = option.ok_or_else(|| {
            format!(
                "{plain} is not known; known are {}; debugging is --set slub_debug=FZPU",
                list(known().map(|known| known.name))
            )
        })?;
        Ok(Self { option, on })
    }

    fn json(&self) -> Json {
        self.to_string().into()
    }
}
