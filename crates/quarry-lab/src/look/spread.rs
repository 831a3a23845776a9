//! Blocks of memory by what lies in them: how far the pages of slabs are spread.

use quarry_snapshot::Snapshot;
use quarry_snapshot::blocks::{BLOCK_BYTES, BlockMap, PageSums, Spread, SpreadChange};
use quarry_view::Form::{Bytes, Count};
use quarry_view::units::{bytes, count};
use quarry_view::value::list;
use quarry_view::{Section, Spec, column};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::CacheLook;
use super::map::{self, MemoryMap};

pub(super) const BLOCKS: Spec = Spec {
    title: "Blocks of memory",
    rows: "blocks",
    first: 0,
    columns: || {
        vec![
            column("block", "block_bytes", Bytes),
            column("blocks", "blocks", Count),
            column("free", "free", Count).more(),
            column("free if dropped", "free_if_dropped", Count).more(),
            column("dropped, at most", "free_if_dropped_at_most", Count).more(),
            column("tainted", "tainted", Count),
            column("at most", "tainted_at_most", Count).rare(),
            column("with slabs", "with_slab", Count),
            column("slabs alone", "slab_only", Count),
            column("beside movable", "slab_and_movable", Count),
            column("packed", "packed", Count),
        ]
    },
};

pub(super) const CHANGED: Spec = Spec {
    title: "Blocks of memory since the first snapshot",
    rows: "growth.blocks",
    first: 0,
    columns: || {
        vec![
            column("block", "block_bytes", Bytes),
            column("got slabs", "got_slabs", Count),
            column("lost slabs", "lost_slabs", Count),
            column("tainted", "tainted", Count),
            column("cleaned", "cleaned", Count),
            column("open", "open", Count),
        ]
    },
};

/// Sizes of blocks that huge pages of many machines have.
const SIZES: [u64; 3] = [BLOCK_BYTES, 32 << 20, 1 << 30];

/// Places of a machine's pages, by a map of its blocks.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct Places {
    /// Blocks of memory by what lies in them, a row for each size; none without a map of blocks.
    pub blocks: Vec<Spread>,
    /// Pages of the machine's memory by kind; null without a map of blocks.
    pub pages: Option<PageSums>,
    /// Pages on CPUs' lists, by zoneinfo; they are among those without a flag. Null if unknown.
    pub on_cpu_lists: Option<u64>,
    /// Map of the memory; null without a map of blocks.
    pub map: Option<MemoryMap>,
}

impl Places {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let map = snapshot.blocks.as_ref();
        map.map_or_else(Self::default, |map| Self {
            blocks: all(map),
            pages: Some(map.sums()),
            on_cpu_lists: map.on_cpu_lists,
            map: Some(MemoryMap::of(map)),
        })
    }

    /// Sentences about the snapshot's blocks; none without a map.
    pub(super) fn found(&self, snapshot: &Snapshot) -> Vec<String> {
        let map = snapshot.blocks.as_ref();
        map.map_or_else(Vec::new, |map| found(map, &self.blocks))
    }
}

/// Tables of blocks, and the map of memory; `None` for an answer without blocks.
pub(super) fn section(answer: &Value) -> Option<Section> {
    (!list(answer, BLOCKS.rows).is_empty()).then(|| {
        let mut blocks = Section::new(BLOCKS.title).with(BLOCKS.of(answer));
        if !list(answer, CHANGED.rows).is_empty() {
            let changed = CHANGED.of(answer);
            blocks = blocks.with(changed.noted("From the first snapshot to the last."));
        }
        map::chart(answer).into_iter().fold(blocks, Section::with)
    })
}

/// Blocks of each size by what lies in them. The last level of page tables but one has a huge page of its own: a page of tables has
/// entries of 8 bytes, so 4 KiB give 2 MiB and 64 KiB give 512 MiB.
fn all(map: &BlockMap) -> Vec<Spread> {
    sizes(map)
        .into_iter()
        .map(|size| map.spread(size))
        .collect()
}

/// Blocks of each size by what changed in them from one snapshot to another of the same boot.
pub(super) fn since(first: &Snapshot, last: &Snapshot) -> Vec<SpreadChange> {
    let is_one_boot = first.boot_id.is_some() && first.boot_id == last.boot_id;
    let maps = first.blocks.as_ref().zip(last.blocks.as_ref());
    let maps = maps.filter(|(first, last)| is_one_boot && first.page_bytes == last.page_bytes);
    maps.map_or_else(Vec::new, |(first, last)| {
        let sizes = sizes(last).into_iter();
        sizes.map(|size| last.change_since(first, size)).collect()
    })
}

/// Adds the blocks that slabs lie in to caches, if a debugger read them.
pub(super) fn of_caches(snapshot: &Snapshot, caches: &mut [CacheLook]) {
    let Some(places) = &snapshot.slab_blocks else {
        return;
    };
    for size in [BLOCK_BYTES, 1 << 30] {
        let spread = places.spread(size, snapshot.blocks.as_ref());
        for cache in &mut *caches {
            cache.blocks.extend(spread.get(cache.name.as_str()));
        }
    }
}

/// The cache whose slabs lie in most blocks, in a sentence.
pub(super) fn widest(caches: &[CacheLook]) -> Option<String> {
    let told = caches
        .iter()
        .filter_map(|cache| Some((&cache.name, cache.blocks.first()?)));
    let (name, most) = told.reduce(|most, next| match most.1.blocks < next.1.blocks {
        true => next,
        false => most,
    })?;
    let (alone, what) = match most.only_kernel {
        Some(alone) => (alone, "pages of the kernel"),
        None => (most.only_cache, "cache"),
    };
    Some(format!(
        "{name}'s slabs lie in {} blocks of {}, in {} as the only {what}",
        count(most.blocks),
        bytes(most.block_bytes),
        count(alone),
    ))
}

fn sizes(map: &BlockMap) -> Vec<u64> {
    let own = map.page_bytes / 8 * map.page_bytes;
    let mut sizes: Vec<u64> = SIZES.into_iter().chain([own.max(BLOCK_BYTES)]).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Blocks that changed since the first snapshot, in a sentence.
pub(super) fn changed(blocks: &[SpreadChange]) -> Option<String> {
    let small = blocks
        .iter()
        .find(|change| change.block_bytes == BLOCK_BYTES)?;
    let open = match small.open {
        0 => String::new(),
        open => format!("; pages without a flag leave it open of {}", count(open)),
    };
    Some(format!(
        "since the first snapshot {} blocks of {} got slabs and {} lost theirs; {} became tainted and {} clean{open}",
        count(small.got_slabs),
        bytes(small.block_bytes),
        count(small.lost_slabs),
        count(small.tainted),
        count(small.cleaned),
    ))
}

/// Spread of the slabs' pages, and the doubt about pages without flags; a sentence each.
fn found(map: &BlockMap, blocks: &[Spread]) -> Vec<String> {
    let [Some(small), Some(large)] = [BLOCK_BYTES, 1 << 30].map(|size| {
        let mut blocks = blocks.iter();
        blocks.find(|spread| spread.block_bytes == size)
    }) else {
        return Vec::new();
    };
    let sums = map.sums();
    let mut told = vec![format!(
        "{} slab pages are in {} of {} blocks of {} and {} of {} of {}; packed, {} and {} would do",
        count(sums.slab),
        count(small.with_slab),
        count(small.blocks),
        bytes(small.block_bytes),
        count(large.with_slab),
        count(large.blocks),
        bytes(large.block_bytes),
        count(small.packed),
        count(large.packed),
    )];
    let [least, most] = [small.free_if_dropped, small.free_if_dropped_at_most];
    if most > small.free {
        let least = match least < most {
            true => format!("{} to ", count(least)),
            false => String::new(),
        };
        told.push(format!(
            "drop_caches would leave {least}{} blocks of {} all free; now {} are",
            count(most),
            bytes(small.block_bytes),
            count(small.free),
        ));
    }
    if small.tainted_at_most > small.tainted {
        let lists = map.on_cpu_lists.map_or_else(String::new, |pages| {
            format!(", where {} pages were", count(pages))
        });
        told.push(format!(
            "{} blocks of {} have no kernel page but {} pages without a flag: these are the kernel's, or free on CPUs' lists{lists}",
            count(small.tainted_at_most - small.tainted),
            bytes(small.block_bytes),
            count(map.untold_alone()),
        ));
    }
    if map.is_free_guessed {
        let what = "this kernel flags the first page of a free block alone: which others are free is a guess";
        told.push(what.to_string());
    }
    told
}

#[cfg(test)]
mod tests {
    use quarry_snapshot::blocks::CacheSpread;

    use super::*;

    const TEXT: &str = "quarry blocks - version: 1\npage_bytes 65536\nblock_bytes 2097152\non_cpu_lists 9\n\
        # first blocks free movable slab page_tables kernel untold cached\n0 1 20 0 12 0 0 0 0\n1 1 31 0 0 0 0 1 0\n512 300 0 32 0 0 0 0 32\n";

    #[test]
    fn the_cache_in_most_blocks_is_said() {
        let cache = |name: &str, only_cache, only_kernel| CacheLook {
            name: name.to_string(),
            blocks: vec![CacheSpread {
                block_bytes: BLOCK_BYTES,
                blocks: 412,
                only_cache,
                only_kernel,
            }],
            ..CacheLook::default()
        };
        let told = |caches: &[CacheLook]| widest(caches).unwrap_or_default();
        let caches = [
            CacheLook::default(),
            cache("dentry", 120, Some(97)),
            cache("pid", 1, Some(0)),
        ];
        let expected =
            "dentry's slabs lie in 412 blocks of 2.0 MiB, in 97 as the only pages of the kernel";
        assert_eq!(told(&caches), expected);
        let expected = "pid's slabs lie in 412 blocks of 2.0 MiB, in 1 as the only cache";
        assert_eq!(told(&[cache("pid", 1, None)]), expected);
        assert_eq!(told(&caches[..1]), "");
    }

    #[test]
    fn a_machine_has_blocks_of_its_own_huge_pages() {
        let map = BlockMap::parse("blocks", TEXT).unwrap();
        let blocks = all(&map);
        let sizes: Vec<u64> = blocks
            .iter()
            .map(|spread| spread.block_bytes >> 20)
            .collect();
        assert_eq!(sizes, [2, 32, 512, 1024]);
        assert_eq!(blocks[2].blocks, 3);
        let told = found(&map, &blocks);
        let slabs = "12 slab pages are in 1 of 302 blocks of 2.0 MiB and 1 of 2 of 1.0 GiB; packed, 1 and 1 would do";
        assert_eq!(told[0], slabs);
        let mut other =
            BlockMap::parse("blocks", &TEXT.replace("0 1 20 0 12", "0 1 32 0 0")).unwrap();
        let change = [map.change_since(&other, BLOCK_BYTES)];
        let expected = "since the first snapshot 1 blocks of 2.0 MiB got slabs and 0 lost theirs; 1 became tainted and 0 clean; pages \
            without a flag leave it open of 1";
        assert_eq!(changed(&change).unwrap(), expected);
        let snapshot = |boot: &str, map: &BlockMap| {
            let mut snapshot = super::super::tests::snapshot(Vec::new());
            snapshot.boot_id = Some(boot.to_string());
            snapshot.blocks = Some(map.clone());
            snapshot
        };
        let first = snapshot("a", &other);
        assert_eq!(since(&first, &snapshot("a", &map)).len(), 4);
        assert!(since(&first, &snapshot("b", &map)).is_empty());
        other.page_bytes = 4096;
        assert!(since(&snapshot("a", &other), &snapshot("a", &map)).is_empty());
        assert!(
            told[2]
                .starts_with("1 blocks of 2.0 MiB have no kernel page but 1 pages without a flag"),
            "{told:?}"
        );
    }
}
