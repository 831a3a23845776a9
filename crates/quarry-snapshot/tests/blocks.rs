//! Maps of guests against a fold in Python that shares no code with the crate (`quarry-lab/tests/data/mixing/check.py`).

use std::fs::{self, File};
use std::path::Path;

use lzma_rust2::XzReader;
use quarry_snapshot::BlockMap;

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
        if !path.to_string_lossy().ends_with(".reports.tar.xz") {
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
