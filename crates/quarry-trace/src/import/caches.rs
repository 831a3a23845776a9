//! The cache table, and how an allocation without a name finds its cache.
//!
//! Kernels before 6.3 do not print the cache of `kmem_cache_alloc`. Such an allocation belongs to a
//! *provisional* cache, keyed by (call site, bytes asked, bytes given): one site and size usually means one
//! cache. Every free that tells a name (5.12 and later do) votes for the name of its object's provisional
//! cache. At the end each provisional cache is resolved:
//!
//! 1. the name with most votes, ties to the name seen first;
//! 2. without a vote, the only named cache with the same two sizes, if there is exactly one;
//! 3. otherwise `anon-<bytes asked>-<bytes given>`.
//!
//! Rows refer to table indexes, so nothing is rewritten: [`CacheEntry::resolved`] leads from a
//! provisional index to the canonical one.

use std::collections::{BTreeMap, HashMap};

use crate::event::NO_CACHE;
use crate::intern::{Interner, NO_TEXT};
use crate::meta::{CacheEntry, CacheOrigin, CacheResolution};

/// Index of the kmalloc entry.
pub(crate) const KMALLOC: u16 = 0;
/// Most entries; the index above them means "no cache".
pub(crate) const CACHES_MAX: usize = NO_CACHE as usize;

#[derive(Debug, Default)]
struct Entry {
    /// Name as an interned text, or `NO_TEXT` for a provisional entry.
    name: u32,
    site: u32,
    object_size: u32,
    slab_size: u32,
    accounted: bool,
    allocs: u64,
    frees: u64,
    /// Votes by name, for a provisional entry.
    votes: BTreeMap<u32, u64>,
    /// The name that leads, kept so that asking is cheap.
    leader: u32,
    leader_votes: u64,
}

/// The cache table while events arrive.
#[derive(Debug)]
pub(crate) struct Caches {
    entries: Vec<Entry>,
    named: HashMap<u32, Vec<u16>>,
    provisional: HashMap<(u32, u32, u32), u16>,
    outvoted: u64,
}

impl Caches {
    /// A table with the kmalloc entry, whose name has the text id `kmalloc_name`.
    pub(crate) fn new(kmalloc_name: u32) -> Caches {
        let kmalloc = Entry {
            name: kmalloc_name,
            site: NO_TEXT,
            leader: NO_TEXT,
            ..Entry::default()
        };
        Caches {
            entries: vec![kmalloc],
            named: HashMap::new(),
            provisional: HashMap::new(),
            outvoted: 0,
        }
    }

    /// The cache of an allocation that told its name. `None` if the table is full.
    pub(crate) fn named_alloc(
        &mut self,
        name: u32,
        object_size: u32,
        slab_size: u32,
    ) -> Option<u16> {
        for index in self.named.get(&name).into_iter().flatten() {
            let entry = &mut self.entries[usize::from(*index)];
            if entry.slab_size == 0 {
                (entry.object_size, entry.slab_size) = (object_size, slab_size);
            }
            if (entry.object_size, entry.slab_size) == (object_size, slab_size) {
                return Some(*index);
            }
        }
        let entry = Entry {
            name,
            site: NO_TEXT,
            object_size,
            slab_size,
            leader: NO_TEXT,
            ..Entry::default()
        };
        self.add(entry)
    }

    /// The cache of a free that told a name, of an object that is not known.
    pub(crate) fn named_free(&mut self, name: u32) -> Option<u16> {
        if let Some(index) = self.named.get(&name).and_then(|list| list.first()) {
            return Some(*index);
        }
        self.add(Entry {
            name,
            site: NO_TEXT,
            leader: NO_TEXT,
            ..Entry::default()
        })
    }

    /// The provisional cache of an allocation without a name.
    pub(crate) fn provisional(
        &mut self,
        site: u32,
        object_size: u32,
        slab_size: u32,
    ) -> Option<u16> {
        if let Some(index) = self.provisional.get(&(site, object_size, slab_size)) {
            return Some(*index);
        }
        let entry = Entry {
            name: NO_TEXT,
            site,
            object_size,
            slab_size,
            leader: NO_TEXT,
            ..Entry::default()
        };
        let index = self.add(entry)?;
        self.provisional
            .insert((site, object_size, slab_size), index);
        Some(index)
    }

    fn add(&mut self, entry: Entry) -> Option<u16> {
        if self.entries.len() >= CACHES_MAX {
            return None;
        }
        let index = self.entries.len() as u16;
        if entry.name != NO_TEXT {
            self.named.entry(entry.name).or_default().push(index);
        }
        self.entries.push(entry);
        Some(index)
    }

    /// A free told `name` for an object of cache `index`: a vote if that cache is provisional.
    pub(crate) fn vote(&mut self, index: u16, name: u32) {
        let entry = &mut self.entries[usize::from(index)];
        if index == KMALLOC || entry.name != NO_TEXT {
            return;
        }
        let votes = entry.votes.entry(name).or_default();
        *votes += 1;
        if *votes > entry.leader_votes || entry.leader == NO_TEXT {
            (entry.leader, entry.leader_votes) = (name, *votes);
        }
    }

    pub(crate) fn count_alloc(&mut self, index: u16, accounted: bool) {
        let entry = &mut self.entries[usize::from(index)];
        entry.allocs += 1;
        entry.accounted |= accounted;
    }

    pub(crate) fn count_free(&mut self, index: u16) {
        self.entries[usize::from(index)].frees += 1;
    }

    /// The best name known so far, or `NO_TEXT`: the `cache` column of an allocation without a name.
    pub(crate) fn name_now(&self, index: u16) -> u32 {
        let entry = &self.entries[usize::from(index)];
        if entry.name == NO_TEXT {
            entry.leader
        } else {
            entry.name
        }
    }

    /// Resolves every provisional cache and gives the final table.
    pub(crate) fn resolve(
        mut self,
        names: &Interner,
        sites: &Interner,
    ) -> (Vec<CacheEntry>, CacheResolution) {
        let mut resolution = CacheResolution {
            provisional: self.provisional.len() as u64,
            ..CacheResolution::default()
        };
        let mut origins = vec![CacheOrigin::Event; self.entries.len()];
        origins[usize::from(KMALLOC)] = CacheOrigin::Kmalloc;
        for (entry, origin) in self.entries.iter_mut().zip(&mut origins) {
            if entry.name != NO_TEXT || entry.votes.is_empty() {
                continue;
            }
            let winner = winner(&entry.votes);
            self.outvoted += entry.votes.values().sum::<u64>() - entry.votes[&winner];
            entry.name = winner;
            *origin = CacheOrigin::Frees;
            resolution.by_frees += 1;
        }
        self.fill_sizes();
        let by_size = self.names_by_size();
        for (entry, origin) in self.entries.iter_mut().zip(&mut origins) {
            if entry.name != NO_TEXT {
                continue;
            }
            if let Some(Some(name)) = by_size.get(&(entry.object_size, entry.slab_size)) {
                entry.name = *name;
                *origin = CacheOrigin::Size;
                resolution.by_size += 1;
            } else {
                *origin = CacheOrigin::Synthetic;
                resolution.synthetic += 1;
            }
        }
        resolution.outvoted_frees = self.outvoted;
        (self.finish(&origins, names, sites), resolution)
    }

    /// A cache known from frees alone takes its sizes from the first provisional cache of its name.
    fn fill_sizes(&mut self) {
        let mut sizes: HashMap<u32, (u32, u32)> = HashMap::new();
        for entry in &self.entries {
            if entry.slab_size != 0 && entry.name != NO_TEXT {
                sizes
                    .entry(entry.name)
                    .or_insert((entry.object_size, entry.slab_size));
            }
        }
        for entry in self
            .entries
            .iter_mut()
            .skip(1)
            .filter(|entry| entry.slab_size == 0)
        {
            if let Some((object_size, slab_size)) = sizes.get(&entry.name) {
                (entry.object_size, entry.slab_size) = (*object_size, *slab_size);
            }
        }
    }

    /// For each pair of sizes the one name that has it, or `None` if several do.
    fn names_by_size(&self) -> HashMap<(u32, u32), Option<u32>> {
        let mut by_size: HashMap<(u32, u32), Option<u32>> = HashMap::new();
        for entry in self
            .entries
            .iter()
            .skip(1)
            .filter(|e| e.name != NO_TEXT && e.slab_size != 0)
        {
            by_size
                .entry((entry.object_size, entry.slab_size))
                .and_modify(|name| *name = name.filter(|name| *name == entry.name))
                .or_insert(Some(entry.name));
        }
        by_size
    }

    fn finish(
        self,
        origins: &[CacheOrigin],
        names: &Interner,
        sites: &Interner,
    ) -> Vec<CacheEntry> {
        let text = |table: &Interner, id| String::from_utf8_lossy(table.text(id)).into_owned();
        let mut first: HashMap<(String, u32, u32), u16> = HashMap::new();
        let mut table = Vec::with_capacity(self.entries.len());
        for (index, (entry, origin)) in self.entries.iter().zip(origins).enumerate() {
            let name = match (origin, entry.name) {
                (CacheOrigin::Synthetic, _) | (_, NO_TEXT) => {
                    format!("anon-{}-{}", entry.object_size, entry.slab_size)
                }
                (_, id) => text(names, id),
            };
            // Entry 0 stays alone: a cache that calls itself `kmalloc` is not it.
            let key = (name.clone(), entry.object_size, entry.slab_size);
            let index = index as u16;
            let resolved = if index == KMALLOC {
                KMALLOC
            } else {
                *first.entry(key).or_insert(index)
            };
            table.push(CacheEntry {
                name,
                origin: *origin,
                object_size: entry.object_size,
                slab_size: entry.slab_size,
                accounted: entry.accounted,
                allocs: entry.allocs,
                frees: entry.frees,
                resolved,
                call_site: (entry.site != NO_TEXT).then(|| text(sites, entry.site)),
            });
        }
        table
    }
}

/// Most votes; among equals the name seen first.
fn winner(votes: &BTreeMap<u32, u64>) -> u32 {
    let best = votes
        .iter()
        .max_by_key(|(name, count)| (**count, std::cmp::Reverse(**name)));
    *best.expect("a provisional cache with votes has a winner").0
}

#[cfg(test)]
mod tests;
