//! A question about a snapshot.

use std::fmt;
use std::path::Path;

use quarry_ask::{Json, Kind, Value};
use quarry_core::era::Era;
use quarry_designs::{DesignSpec, Setting, list};

/// The question; settings that are `None` stay as they are.
#[derive(Clone, Debug, Default)]
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
    /// Values of lists among the settings, as [`Prediction::set`](super::Prediction::set) has them.
    pub set: String,
    /// Tunables.
    pub settings: Vec<Setting>,
    /// Other debugging, as `slub_debug` says it; none if it is empty. As in the snapshot's kernel if it is `None`.
    pub debug: Option<String>,
    /// Options of the configuration whose cost is added.
    pub configs: Vec<Config>,
}

impl Question {
    /// The release that is asked about; `None` for the snapshot's own.
    #[must_use]
    pub fn era(&self) -> Option<Era> {
        self.design.map(|design| design.era).or(self.release)
    }
}

/// An option of the kernel's configuration, on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    pub(super) option: &'static Known,
    pub(super) on: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// Name without `CONFIG_`.
    pub(super) name: &'static str,
    /// First and last release that have it.
    pub(super) first: Era,
    pub(super) last: Era,
    pub(super) cost: Cost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cost {
    Merging,
    Copies,
    Accounting,
    RandomLists,
    Nothing,
}

static KNOWN: [Known; 6] = [
    Known::new("SLAB_MERGE_DEFAULT", Era::V2_6_22, Era::LAST, Cost::Merging),
    Known::new("RANDOM_KMALLOC_CACHES", Era::V6_6, Era::V7_1, Cost::Copies),
    Known::new(
        "PARTITION_KMALLOC_CACHES",
        Era::V7_2,
        Era::LAST,
        Cost::Copies,
    ),
    Known::new("MEMCG", Era::V5_9, Era::LAST, Cost::Accounting),
    Known::new(
        "SLAB_FREELIST_RANDOM",
        Era::V4_8,
        Era::LAST,
        Cost::RandomLists,
    ),
    Known::new(
        "SLAB_FREELIST_HARDENED",
        Era::V4_14,
        Era::LAST,
        Cost::Nothing,
    ),
];

impl Known {
    const fn new(name: &'static str, first: Era, last: Era, cost: Cost) -> Self {
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
        write!(
            f,
            "{}={}",
            self.option.name,
            if self.on { "y" } else { "n" }
        )
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
        let option = KNOWN.iter().find(|known| known.name == plain);
        let option = option.ok_or_else(|| {
            format!(
                "{plain} is not known; known are {}; debugging is --set slub_debug=FZPU",
                list(KNOWN.iter().map(|known| known.name))
            )
        })?;
        Ok(Self { option, on })
    }

    fn json(&self) -> Json {
        self.to_string().into()
    }
}
