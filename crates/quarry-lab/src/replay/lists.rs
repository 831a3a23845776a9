//! The kernel's page lists before the part that is replayed, from its `/proc/zoneinfo`.
//!
//! A zoneinfo that was read just before the part tells how many pages each CPU's lists held and, where a
//! kernel tunes it, at how many pages they were trimmed. The replayed machine has one zone: it takes the
//! place of the reported zone with the most pages, which serves all requests that ask for no particular
//! memory. Its limits come out as reported if its memory is that of the zone ([`memory_bytes`]);
//! what the watermarks keep back is taken from the report.
//!
//! Not reported, and assumed: all pages on the lists are single ones, of the migrate types of the single
//! pages that the part allocates and frees, in their proportions; and nothing is on its way
//! (`alloc_factor`, `free_count`).
//!
//! Nor is memory scarce: all of the machine's is free but for what the part frees, however little the zone
//! had left. A kernel that reclaims while it is recorded holds `high` down and empties lists, which has no
//! events; a machine with as little would run out where the kernel's took from other zones.
//!
//! With another page size or number of CPUs than the report's, the lists begin empty.

use quarry_core::design::Design;
use quarry_sim::driver::Driver;

use super::input::Input;
use crate::error::LabError;
use crate::kernel::Zoneinfo;
use crate::kernel::zoneinfo::{Pageset, Zone};
use crate::plan::RunSpec;

/// The zone whose place the replayed machine's takes.
fn largest(zoneinfo: &Zoneinfo) -> Option<&Zone> {
    zoneinfo.populated().max_by_key(|zone| zone.managed())
}

/// Memory of a machine whose zone is as large as the reported one.
#[must_use]
pub fn memory_bytes(zoneinfo: &Zoneinfo, page_bytes: u64) -> u64 {
    largest(zoneinfo).map_or(0, |zone| zone.managed().saturating_mul(page_bytes))
}

/// Gives the machine the reported watermarks and finds what its CPUs' lists held; nothing if it is too
/// different.
pub(super) fn reported<D: Design>(
    zoneinfo: &Zoneinfo,
    spec: &RunSpec,
    input: &Input,
    driver: &Driver<'_, D>,
) -> Result<Vec<Pageset>, LabError> {
    let config = &spec.config;
    let Some(zone) = largest(zoneinfo) else {
        return Ok(Vec::new());
    };
    // Kernels of 2.6 have a second set, for pages in no cache.
    let hot = |set: &&Pageset| set.pcp.is_none_or(|pcp| pcp == 0);
    let lists: Vec<Pageset> = zone.pagesets.iter().filter(hot).cloned().collect();
    let alike = u64::from(input.file.meta().page_size) == config.page_bytes
        && lists.len() == config.cpus as usize
        && lists.iter().all(|list| list.cpu < config.cpus);
    if !alike {
        return Ok(Vec::new());
    }
    // Raised for a while after memory was mixed up, which the limits of the lists do not follow.
    let boost = zone.pages.get("boost").unwrap_or(0);
    let min = zone.pages.get("min").unwrap_or(0).saturating_sub(boost);
    let set = driver.pages().set_sysctl(
        "min_free_kbytes",
        min.saturating_mul(config.page_bytes >> 10),
    );
    set.map_err(|error| {
        LabError::Usage(format!(
            "{}: the zoneinfo does not fit: {error}",
            spec.label()
        ))
    })?;
    Ok(lists)
}
