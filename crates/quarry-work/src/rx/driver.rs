//! The drivers that are compared, as data.

/// Number of packets that a driver puts into one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PerPage {
    /// One, however short.
    One,
    /// As many as fit by their footprint (page reuse).
    Footprint,
}

/// Source of a driver's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The page allocator, one call per page.
    Pages,
    /// A recycler of [`CACHE_ENTRIES`](super::recycle::CACHE_ENTRIES).
    SmallCache,
    /// A recycler of [`RxSpec::cache_entries`](super::RxSpec::cache_entries).
    HugeCache,
    /// A page pool.
    Pool,
}

/// One driver.
#[derive(Debug, PartialEq, Eq)]
pub struct RxDriver {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its number in the thread "Page allocator bottleneck" of September 2017.
    pub thread: Option<&'static str>,
    /// The driver in a few words.
    pub about: &'static str,
    /// Packets in one page.
    pub per_page: PerPage,
    /// Source of its pages.
    pub source: Source,
}

/// All drivers. In the thread, the page cache of #1 and #2 is disabled; with it, and two packets per
/// page, is how the driver was shipped.
pub const DRIVERS: [RxDriver; 5] = [
    RxDriver {
        name: "small",
        thread: Some("#1"),
        about: "several packets per page, no page cache",
        per_page: PerPage::Footprint,
        source: Source::Pages,
    },
    RxDriver {
        name: "none",
        thread: Some("#2"),
        about: "one packet per page, no page cache",
        per_page: PerPage::One,
        source: Source::Pages,
    },
    RxDriver {
        name: "huge",
        thread: Some("#3"),
        about: "one packet per page, huge page cache",
        per_page: PerPage::One,
        source: Source::HugeCache,
    },
    RxDriver {
        name: "pool",
        thread: None,
        about: "one packet per page, page pool",
        per_page: PerPage::One,
        source: Source::Pool,
    },
    RxDriver {
        name: "shipped",
        thread: None,
        about: "several packets per page, page cache of 256 entries",
        per_page: PerPage::Footprint,
        source: Source::SmallCache,
    },
];

impl RxDriver {
    /// The driver of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static RxDriver> {
        DRIVERS.iter().find(|driver| driver.name == name)
    }
}
