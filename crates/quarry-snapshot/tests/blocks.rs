//! Maps of guests against a fold in Python that shares no code with the crate (`quarry-lab/tests/data/mixing/check.py`), and against drgn.

use std::fs::{self, File};
use std::path::Path;

use lzma_rust2::XzReader;
use quarry_snapshot::blocks::BLOCK_BYTES;
use quarry_snapshot::{BlockMap, Snapshot};

/// Lines of `fold.txt` for a stage, from the files of that stage.
fn folded(guest: &Path, stage: &str, page_bytes: u64) -> Vec<String> {
    let root = guest.join(stage);
    fs::create_dir(root.join("proc")).unwrap();
    fs::rename(root.join("kpageflags"), root.join("proc/kpageflags")).unwrap();
    fs::copy(guest.join("guest/iomem"), root.join("proc/iomem")).unwrap();
    let map = BlockMap::read(&root, page_bytes).unwrap();
    let lines = map.blocks.iter().map(|block| {
        let [kinds @ .., _cached] = block.pages.counts();
        let kinds = kinds.map(|pages| pages.to_string()).join(" ");
        format!("{stage} {} {kinds}", block.index)
    });
    lines.collect()
}

#[test]
fn blocks_of_guests_are_those_of_an_independent_fold() {
    const STAGES: [&str; 7] = [
        "boot", "filled", "grown", "dropped", "regrown", "dropped2", "refilled",
    ];
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../quarry-lab/tests/data/mixing");
    let mut guests = 0;
    for entry in fs::read_dir(data).unwrap() {
        let path = entry.unwrap().path();
        let name = path.to_string_lossy();
        // Guests of the load `atomic` have other stages, and no fold.
        if !name.ends_with(".reports.tar.xz") || name.contains("-atomic.") {
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        let reports = XzReader::new(File::open(&path).unwrap(), false);
        tar::Archive::new(reports).unpack(dir.path()).unwrap();
        let expected = fs::read_to_string(dir.path().join("fold.txt")).unwrap();
        let page_bytes = fs::read_to_string(dir.path().join("guest/page_size"));
        let page_bytes = page_bytes.map_or(4096, |text| text.trim().parse().unwrap());
        let of_stages = STAGES.map(|stage| folded(dir.path(), stage, page_bytes));
        let lines = of_stages.concat();
        let first_of_other = lines.iter().zip(expected.lines()).find(|(a, b)| a != b);
        assert_eq!(first_of_other, None, "{}", path.display());
        assert_eq!(lines.len(), expected.lines().count(), "{}", path.display());
        guests += 1;
    }
    assert!(guests > 0);
}

/// Snapshots of a guest at one moment: its own, and drgn's of its memory.
fn pair(release: &str) -> [Snapshot; 2] {
    ["map", "places"].map(|of| {
        let file = format!("tests/data/drgn/{release}-{of}.json.gz");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        Snapshot::read(&path, None).unwrap()
    })
}

/// The caches that drgn finds in a block have as many pages there as the kernel flags. Blocks that are named changed between the two
/// moments: the guest's next map differs there, too.
#[test]
fn slabs_that_drgn_places_are_those_that_the_kernel_flags() {
    for (release, changed) in [("6.1", vec![]), ("7.3", vec![100_u32, 500])] {
        let [own, drgn] = pair(release);
        assert_eq!(own.boot_id, drgn.boot_id);
        let map = own.blocks.as_ref().unwrap();
        let places = drgn.slab_blocks.as_ref().unwrap();
        let found = places.sums();
        let others = map.blocks.iter().filter_map(|block| {
            let slab = u64::from(block.pages.slab);
            let found = found.get(&block.index.into()).copied().unwrap_or_default();
            (slab != found).then_some(block.index)
        });
        assert_eq!(others.collect::<Vec<_>>(), changed, "{release}");
        assert!(map.sums().slab > 10_000, "{release}");
        for row in &drgn.slabinfo.rows {
            let pages = places.of(&row.name).iter();
            let pages: u64 = pages.map(|(_, pages)| u64::from(*pages)).sum();
            assert_eq!(pages, row.num_slabs * row.pagesperslab, "{}", row.name);
        }
        let with_slab = map.spread(BLOCK_BYTES).with_slab;
        let spread = places.spread(BLOCK_BYTES, drgn.blocks.as_ref());
        let widest = spread.values().map(|cache| cache.blocks).max();
        assert!(widest.is_some_and(|blocks| blocks <= with_slab));
    }
}

/// The map that drgn makes of struct page is the one that the kernel's flags give, but for blocks that changed between the moments.
#[test]
fn the_map_of_drgn_is_that_of_the_kernel() {
    for (release, differing, moved) in [("6.1", 6, 228), ("7.3", 14, 272)] {
        let [own, drgn] = pair(release).map(|snapshot| snapshot.blocks.unwrap());
        let index = |map: &BlockMap| {
            map.blocks
                .iter()
                .map(|block| block.index)
                .collect::<Vec<_>>()
        };
        assert_eq!(index(&own), index(&drgn), "{release}");
        let pairs = own.blocks.iter().zip(&drgn.blocks);
        let others = pairs.filter(|(own, drgn)| own != drgn);
        let pages = others.clone().map(|(own, drgn)| {
            let counts = own.pages.counts().into_iter().zip(drgn.pages.counts());
            counts
                .map(|(own, drgn)| u64::from(own.abs_diff(drgn)))
                .sum::<u64>()
        });
        assert_eq!(
            (others.clone().count(), pages.sum::<u64>()),
            (differing, moved),
            "{release}"
        );
        let sums = own.sums();
        assert!(
            sums.cached > 5_000 && sums.cached < sums.movable,
            "{sums:?}"
        );
    }
}
