//! Debugging of a snapshot's kernel: `slub_debug` makes objects larger, and its caches have no per-CPU lists or sheaves.
//!
//! sysfs tells the letters of each cache, the command line those of all. Without either the sizes do: an object of
//! `kmalloc-64` that takes more than 64 bytes has debugging around it. The letters are then those of the usual settings
//! that give most kmalloc classes their sizes.

use quarry_core::debug::SlubDebug;
use quarry_core::geometry::{CacheFlags, CacheParams};

use quarry_snapshot::{CacheAttributes, SlabinfoRow, Snapshot};

use crate::kernel::KernelModel;
use crate::kernel::names::kmalloc_class;

/// Settings that are looked for, the commonest first: what security guides ask for, and what kernels with
/// `CONFIG_SLUB_DEBUG_ON` have.
const USUAL: [&str; 6] = ["P", "FZP", "FZPU", "Z", "U", "ZU"];

/// The debugging of a kernel.
#[derive(Clone, Debug, Default)]
pub(crate) struct Debugging {
    /// The setting; `None` if all that is known is what sysfs says of each cache.
    setting: Option<SlubDebug>,
    /// True if sysfs does not count, since another kernel is asked about.
    is_asked: bool,
    /// Bytes that an unknown setting adds to each object, at least and at most.
    extra: Option<[u64; 2]>,
    /// Evidence of debugging; empty if there is none.
    pub(crate) because: String,
}

impl Debugging {
    /// The debugging of a snapshot's kernel, whose model has none so far.
    pub(crate) fn of(snapshot: &Snapshot, kernel: &KernelModel) -> Self {
        // SLAB's debugging is a matter of its configuration, and its small classes have larger objects anyway.
        if !kernel.has_sysfs() {
            return Self::default();
        }
        let rows = &snapshot.slabinfo.rows;
        let has_flags = |row: &&SlabinfoRow| {
            let sysfs = snapshot.attributes(&row.name);
            sysfs.is_some_and(|sysfs| sysfs.flags().debug())
        };
        let era = kernel.design.era;
        let told = snapshot
            .boot_values(&["slub_debug", "slab_debug"])
            .next_back();
        let told = told.and_then(|text| Some((text, SlubDebug::parse(text, era).ok()?)));
        let with_flags = rows.iter().filter(has_flags).count();
        if with_flags > 0 {
            let because = format!("{with_flags} of {} caches have it in sysfs", rows.len());
            return Self {
                setting: told.map(|(_, setting)| setting),
                because,
                ..Self::default()
            };
        }
        let enlarged = || rows.iter().filter(|row| is_enlarged(row));
        if let Some((text, setting)) = told.filter(|(text, _)| *text != "-") {
            return Self {
                setting: Some(setting),
                because: format!("slub_debug={text} in the command line"),
                ..Self::default()
            };
        }
        let Some(first) = enlarged().next() else {
            return Self::default();
        };
        let explained = |text: &str| {
            let setting = SlubDebug::parse(text, era).ok()?;
            let debugging = Self {
                setting: Some(setting),
                ..Self::default()
            };
            let fits = |row: &&SlabinfoRow| {
                let params = debugging.original(kernel, row, None);
                params.is_some_and(|params| {
                    let params = debugging.on(params, row, None);
                    kernel.size_of(&params) == Some(row.objsize)
                })
            };
            Some((enlarged().filter(fits).count(), setting))
        };
        // The first of several that explain as many.
        let found = USUAL.iter().rev().filter_map(|text| explained(text));
        let (count, setting) = found.max_by_key(|found| found.0).unzip();
        let count = count.unwrap_or(0);
        let Some(setting) = setting.filter(|_| count > 0) else {
            return Self::unknown(&enlarged().collect::<Vec<_>>());
        };
        Self {
            setting: Some(setting),
            because: format!(
                "{} has objects of {} bytes; taken as slub_debug={}, which gives {count} of {} such sizes",
                first.name,
                first.objsize,
                setting.as_str(),
                enlarged().count()
            ),
            ..Self::default()
        }
    }

    /// Debugging of a kind that is not known, by the classes of kmalloc that have it. They are aligned to their size, or to
    /// the line that DMA needs, so that what it adds is less by up to that.
    fn unknown(enlarged: &[&SlabinfoRow]) -> Self {
        let added = enlarged.iter().filter_map(|row| {
            let (_, bytes) = kmalloc_class(&row.name)?;
            let most = row.objsize - bytes;
            let align = 1_u64 << row.objsize.trailing_zeros().min(bytes.trailing_zeros());
            let least = (most + 1).saturating_sub(align).next_multiple_of(4);
            Some(([least, most], row))
        });
        let Some((extra, row)) = added.min_by_key(|(extra, _)| extra[1]) else {
            return Self::default();
        };
        Self {
            extra: Some(extra),
            because: format!(
                "{} has objects of {} bytes; debugging of a kind that is not known adds {} to {} bytes to each object",
                row.name, row.objsize, extra[0], extra[1]
            ),
            ..Self::default()
        }
    }

    /// Bytes that debugging adds to each object of a cache; `original` is the cache without it.
    pub(crate) fn bytes(&self, row: &SlabinfoRow, original: Option<&CacheParams>) -> u64 {
        let added = match (original, self.extra) {
            (Some(params), _) => row
                .objsize
                .saturating_sub(u64::from(params.object_size).next_multiple_of(8)),
            (None, Some([least, most])) => match kmalloc_class(&row.name) {
                Some((_, bytes)) => row.objsize.saturating_sub(bytes),
                None => least.midpoint(most),
            },
            (None, None) => 0,
        };
        added.min(row.objsize)
    }

    /// Other debugging, as a setting says it.
    pub(crate) fn asked(setting: Option<SlubDebug>) -> Self {
        Self {
            because: setting.map_or_else(String::new, |setting| {
                format!("slub_debug={}", setting.as_str())
            }),
            setting,
            is_asked: true,
            extra: None,
        }
    }

    /// The debug flags of a cache.
    pub(crate) fn flags(&self, row: &SlabinfoRow, sysfs: Option<&CacheAttributes>) -> CacheFlags {
        let reported = sysfs.filter(|sysfs| !self.is_asked && sysfs.number("poison").is_some());
        match (reported, &self.setting) {
            (Some(sysfs), _) => {
                let all = sysfs.flags();
                all.without(all.without(CacheFlags::DEBUG))
            }
            (None, Some(setting)) => setting.flags_for(&row.name),
            (None, None) => CacheFlags::NONE,
        }
    }

    /// Parameters with this debugging.
    pub(crate) fn on(
        &self,
        params: CacheParams,
        row: &SlabinfoRow,
        sysfs: Option<&CacheAttributes>,
    ) -> CacheParams {
        params.with_flags(params.flags.without(CacheFlags::DEBUG) | self.flags(row, sysfs))
    }

    /// Parameters of a row's cache without debugging: its object is the largest whose slot with debugging has the
    /// row's size. `None` without debugging, or if no object has it.
    pub(crate) fn original(
        &self,
        kernel: &KernelModel,
        row: &SlabinfoRow,
        sysfs: Option<&CacheAttributes>,
    ) -> Option<CacheParams> {
        if !self.flags(row, sysfs).debug() {
            return None;
        }
        if let Some(params) = sysfs.and_then(CacheAttributes::params) {
            return Some(params);
        }
        if let Some((_, bytes)) = kmalloc_class(&row.name) {
            return kernel.class_params(bytes);
        }
        let size = u32::try_from(row.objsize).ok()?;
        let sizes = (0..=MOST_WORDS).map(|words| size.saturating_sub(8 * words));
        let mut caches = sizes.take_while(|size| *size > 0).map(CacheParams::new);
        caches.find(|params| {
            let with = self.on(*params, row, sysfs);
            kernel.size_of(&with) == Some(row.objsize)
        })
    }
}

/// Words that debugging adds to an object at most: red zones on both sides as long as a line, two tracks, padding.
const MOST_WORDS: u32 = 64;

/// True for a class of kmalloc whose objects take more than it says.
fn is_enlarged(row: &SlabinfoRow) -> bool {
    kmalloc_class(&row.name).is_some_and(|(_, bytes)| row.objsize > bytes)
}
