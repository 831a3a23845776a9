//! Parts of what a kernel has, as some forms show it: rows of some caches, bytes without objects.

use serde::{Deserialize, Serialize};

/// A list of some of a kernel's caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Excerpt {
    /// Sums of all caches, if the head of the list has them.
    pub totals: Option<Totals>,
}

impl Excerpt {
    /// A sentence about how much `rows` caches are.
    pub(crate) fn note(&self, rows: usize) -> String {
        match self.totals {
            Some(Totals {
                caches, num_objs, ..
            }) if caches > 0 => {
                let objects = match num_objs {
                    0 => String::new(),
                    count => format!("; its head has {count} objects in all"),
                };
                format!(
                    "an excerpt: it lists {rows} of {caches} caches, so sums are too small{objects}"
                )
            }
            _ => {
                let plural = if rows == 1 { "" } else { "s" };
                format!("an excerpt: it lists {rows} cache{plural}, of how many is not told")
            }
        }
    }
}

/// Sums of all caches, as the heads of slabtop and of the tool slabinfo have them; 0 for those that are cut or left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Totals {
    /// Objects that are not known to be free.
    pub active_objs: u64,
    /// Objects that all slabs have room for; those in use, if the head has no others.
    pub num_objs: u64,
    /// Slabs.
    pub slabs: u64,
    /// Caches.
    pub caches: u64,
    /// Bytes of `num_objs` objects; slabs have more by what is left over at their ends.
    pub object_bytes: u64,
    /// Bytes of the slabs; 0 if the head leaves them out.
    #[serde(default)]
    pub slab_bytes: u64,
}

/// Bytes of a cache, in a report that has neither objects nor slabs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct CacheBytes {
    /// Name; several caches may have the same.
    pub name: String,
    /// Bytes of objects in use.
    pub used_bytes: u64,
    /// Bytes of all objects.
    pub total_bytes: u64,
}

/// Sums of a report of exhausted memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct OomSums {
    /// Pages of caches whose objects can be reclaimed.
    pub slab_reclaimable_pages: Option<u64>,
    /// Pages of other caches.
    pub slab_unreclaimable_pages: Option<u64>,
    /// Pages of memory.
    pub ram_pages: Option<u64>,
    /// Bytes of a page, where the report has the same sum in pages and in bytes.
    pub page_bytes: Option<u64>,
}

/// Facts about a snapshot's machine that the user knows.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// The kernel's release.
    pub release: Option<String>,
    /// CPUs that are present.
    pub cpus: Option<u32>,
    /// Bytes of a page.
    pub page_bytes: Option<u64>,
}
