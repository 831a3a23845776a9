//! Pages of each cache's slabs for each 2 MiB, as a debugger read them.
//!
//! `contrib/quarry_snapshot.py` writes them with drgn, as the key `slab_blocks` of a snapshot's JSON:
//!
//! ```text
//!   {"block_bytes": 2097152, "caches": {"dentry": "5-7:512 9:3"}}      512 pages in each of the blocks 5 to 7, and 3 in block 9
//! ```

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::text::BLOCKS_MAX;
use super::{BLOCK_BYTES, BlockMap};
use crate::slabinfo::Slabinfo;
use crate::words::{number, quoted};

/// Pages of a machine's slabs by cache and by block of [`BLOCK_BYTES`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlabBlocks {
    /// Blocks with slabs of each cache by ascending index, and the pages there; by the cache's name in slabinfo.
    caches: BTreeMap<String, Vec<(u32, u16)>>,
}

/// Blocks of one size that slabs of a cache lie in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct CacheSpread {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Blocks that its slabs lie in.
    pub blocks: u64,
    /// Blocks in which it is the only cache.
    pub only_cache: u64,
    /// Blocks in which its slabs are the only pages of the kernel, for sure; null without a map of blocks.
    pub only_kernel: Option<u64>,
}

/// The JSON.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Told {
    block_bytes: u64,
    caches: BTreeMap<String, String>,
}

impl SlabBlocks {
    /// Reads the JSON. All caches have to be in a report; pages have `page_bytes`.
    pub(crate) fn of_json(
        value: &serde_json::Value,
        report: &Slabinfo,
        page_bytes: u64,
    ) -> Result<Self, String> {
        let told = Told::deserialize(value).map_err(|error| error.to_string())?;
        if told.block_bytes != BLOCK_BYTES {
            let found = told.block_bytes;
            return Err(format!(
                "block_bytes: blocks have {BLOCK_BYTES} bytes, not {found}"
            ));
        }
        let (mut places, mut all) = (Self::default(), 0);
        for (name, runs) in told.caches {
            if report.row(&name).is_none() {
                return Err(format!("{name} is not in slabinfo"));
            }
            let blocks = runs_of(&runs, &mut all).map_err(|what| format!("{name}: {what}"))?;
            places.caches.insert(name, blocks);
        }
        places.check(BLOCK_BYTES / page_bytes.max(4096))?;
        Ok(places)
    }

    /// Checks that no block has more pages than room.
    fn check(&self, room: u64) -> Result<(), String> {
        let mut sums: BTreeMap<u32, u64> = BTreeMap::new();
        for (name, blocks) in &self.caches {
            for (index, pages) in blocks {
                let sum = sums.entry(*index).or_default();
                *sum += u64::from(*pages);
                if *sum > room {
                    return Err(format!(
                        "{name}: block {index} has room for {room} pages of all caches, not for {sum}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Leaves out the caches for which `is_kept` is false.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.caches.retain(|name, _| is_kept(name));
    }

    /// Blocks with slabs of a cache by ascending index, and the pages there; none if it is not told.
    #[must_use]
    pub fn of(&self, cache: &str) -> &[(u32, u16)] {
        self.caches.get(cache).map_or(&[], Vec::as_slice)
    }

    /// Pages of all caches by block.
    #[must_use]
    pub fn sums(&self) -> BTreeMap<u64, u64> {
        self.sums_by(BLOCK_BYTES)
    }

    /// Pages of all caches by blocks of a size, a multiple of [`BLOCK_BYTES`].
    fn sums_by(&self, block_bytes: u64) -> BTreeMap<u64, u64> {
        let mut sums = BTreeMap::new();
        for (index, pages) in self.caches.values().flat_map(|of| by(of, block_bytes)) {
            *sums.entry(index).or_default() += pages;
        }
        sums
    }

    /// Blocks of a size, a multiple of [`BLOCK_BYTES`], that each cache lies in; `map` has the other pages of that moment.
    #[must_use]
    pub fn spread(&self, block_bytes: u64, map: Option<&BlockMap>) -> BTreeMap<&str, CacheSpread> {
        let sums = self.sums_by(block_bytes);
        // Pages without a flag may be the kernel's.
        let kernels: Option<BTreeMap<u64, u64>> = map.map(|map| {
            let blocks = map.by(block_bytes);
            blocks
                .map(|(index, pages)| (index, pages.kernels() + pages.untold))
                .collect()
        });
        let spread = |blocks: &[(u32, u16)]| {
            let mut spread = CacheSpread {
                block_bytes,
                only_kernel: kernels.as_ref().map(|_| 0),
                ..CacheSpread::default()
            };
            for (index, pages) in by(blocks, block_bytes) {
                spread.blocks += 1;
                let is_alone = sums.get(&index) == Some(&pages);
                spread.only_cache += u64::from(is_alone);
                if let (Some(only), Some(kernels)) = (&mut spread.only_kernel, &kernels) {
                    let others = kernels.get(&index).map(|all| all.saturating_sub(pages));
                    *only += u64::from(is_alone && others == Some(0));
                }
            }
            spread
        };
        let caches = self.caches.iter();
        caches
            .map(|(name, blocks)| (name.as_str(), spread(blocks)))
            .collect()
    }
}

/// Blocks of a larger size, and the pages there.
fn by(blocks: &[(u32, u16)], block_bytes: u64) -> impl Iterator<Item = (u64, u64)> {
    let each = (block_bytes / BLOCK_BYTES).max(1);
    let larger = move |(index, _): &(u32, u16)| u64::from(*index) / each;
    let parts = blocks.chunk_by(move |a, b| larger(a) == larger(b));
    parts.map(move |part| {
        let pages = part.iter().map(|(_, pages)| u64::from(*pages));
        (larger(&part[0]), pages.sum())
    })
}

/// The blocks of some runs; `all` counts those of all caches.
fn runs_of(runs: &str, all: &mut u64) -> Result<Vec<(u32, u16)>, String> {
    let mut blocks = Vec::new();
    let mut next = 0_u64;
    for run in runs.split_ascii_whitespace() {
        let bad = |what: &str| format!("{}: {what}", quoted(run));
        let (range, pages) = run
            .split_once(':')
            .ok_or_else(|| bad("a run is FIRST-LAST:PAGES, or BLOCK:PAGES"))?;
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (number("first", first)?, number("last", last)?);
        let pages: u16 = number("pages", pages)?;
        if u64::from(first) < next || last < first || pages == 0 {
            return Err(bad(&format!(
                "blocks ascend from {next} on, and each has a page or more"
            )));
        }
        next = u64::from(last) + 1;
        // A few bytes may claim billions of blocks.
        *all += next - u64::from(first);
        if *all > BLOCKS_MAX {
            return Err(format!("more than {BLOCKS_MAX} blocks of all caches"));
        }
        blocks.extend((first..=last).map(|index| (index, pages)));
    }
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::Snapshot;

    fn small(caches: &Value) -> Value {
        let row = |name: &str| {
            json!({"name": name, "active_objs": 40, "num_objs": 64, "objsize": 256, "objperslab": 16,
                "pagesperslab": 1, "active_slabs": 4, "num_slabs": 4})
        };
        json!({"page_size": 4096, "slabinfo": [row("pid"), row("dentry")],
            "slab_blocks": {"block_bytes": BLOCK_BYTES, "caches": caches}})
    }

    fn read(caches: &Value) -> Result<Snapshot, String> {
        let snapshot = Snapshot::parse("f", &small(caches).to_string(), None);
        snapshot.map_err(|error| error.to_string())
    }

    #[test]
    fn blocks_are_counted_by_who_else_is_there() {
        let snapshot = read(&json!({"pid": "5-7:2 600:1", "dentry": "6:3 8:1 9:2"})).unwrap();
        let places = snapshot.slab_blocks.as_ref().unwrap();
        assert_eq!(places.of("pid"), [(5, 2), (6, 2), (7, 2), (600, 1)]);
        assert_eq!(places.of("inode"), []);
        assert_eq!(places.sums()[&6], 5);
        let of = |block_bytes, map: Option<&BlockMap>, name| {
            let spread = places.spread(block_bytes, map)[name];
            (spread.blocks, spread.only_cache, spread.only_kernel)
        };
        assert_eq!(of(BLOCK_BYTES, None, "pid"), (4, 3, None));
        assert_eq!(of(1 << 30, None, "pid"), (2, 1, None));
        assert_eq!(of(1 << 30, None, "dentry"), (1, 0, None));
        // Block 5 has a page table, 7 users' pages, 8 a page without a flag; 600 is no memory at that moment.
        let map = super::super::tests::map(&[
            (5, [0, 0, 2, 1, 0, 0]),
            (6, [0, 0, 5, 0, 0, 0]),
            (7, [0, 9, 2, 0, 0, 0]),
            (8, [0, 0, 1, 0, 0, 1]),
            (9, [0, 0, 2, 0, 0, 0]),
        ]);
        assert_eq!(of(BLOCK_BYTES, Some(&map), "pid"), (4, 3, Some(1)));
        assert_eq!(of(BLOCK_BYTES, Some(&map), "dentry"), (3, 2, Some(1)));
    }

    #[test]
    fn runs_that_cannot_be_are_refused_with_the_cache() {
        let run = |runs: &str| json!({"pid": runs, "dentry": "6:3"});
        for (caches, told) in [
            (run("5:2 5:1"), "pid: \"5:1\": blocks ascend from 6 on"),
            (run("7-5:1"), "pid: \"7-5:1\": blocks ascend from 0 on"),
            (run("5:0"), "pid: \"5:0\": blocks ascend"),
            (run("5"), "pid: \"5\": a run is FIRST-LAST:PAGES"),
            (run("5:x"), "pid: pages"),
            (run("5:70000"), "pid: pages"),
            (run("4294967296:1"), "pid: first"),
            (run("0-4294967295:1"), "pid: more than"),
            (
                run("6:510"),
                "pid: block 6 has room for 512 pages of all caches, not for 513",
            ),
            (json!({"inode": "1:1"}), "inode is not in slabinfo"),
            (json!({"pid": 7}), "invalid type"),
        ] {
            let error = read(&caches).unwrap_err();
            assert!(
                error.starts_with("f: slab_blocks: ") && error.contains(told),
                "{error}"
            );
        }
        let mut other = small(&json!({}));
        other["slab_blocks"]["block_bytes"] = json!(4096);
        let error = Snapshot::parse("f", &other.to_string(), None).unwrap_err();
        assert!(error.to_string().contains("not 4096"), "{error}");
    }

    /// At another moment it stays for the caches that did not change.
    #[test]
    fn another_moment_keeps_what_did_not_change() {
        let snapshot = read(&json!({"pid": "5:2", "dentry": "6:3"})).unwrap();
        let mut report = snapshot.slabinfo.clone();
        report.rows[0].num_slabs += 1;
        let places = snapshot.at(report).slab_blocks.unwrap();
        assert_eq!((places.of("pid").len(), places.of("dentry").len()), (0, 1));
    }
}
