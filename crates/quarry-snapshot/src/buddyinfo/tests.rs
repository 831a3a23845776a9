use super::*;

const FREE_BLOCKS: &str = include_str!("../../tests/data/6.18-x86_64-4k/buddyinfo");
const TYPES: &str = include_str!("../../tests/data/6.18-x86_64-4k/pagetypeinfo");
const LARGE_TYPES: &str = include_str!("../../tests/data/6.1-ppc64el-64k/pagetypeinfo");

fn buddy(text: &str) -> Result<Buddyinfo, String> {
    Buddyinfo::parse("buddyinfo", text).map_err(|error| error.to_string())
}

fn types(text: &str) -> Result<Pagetypeinfo, String> {
    Pagetypeinfo::parse("pagetypeinfo", text).map_err(|error| error.to_string())
}

#[test]
fn free_blocks_of_a_real_kernel() {
    let info = buddy(FREE_BLOCKS).unwrap();
    let zones: Vec<_> = info.zones.iter().map(|row| row.zone.as_str()).collect();
    assert_eq!(zones, ["DMA", "DMA32", "Normal"]);
    assert_eq!(info.zones[0].counts[8..], [1, 1, 3]);
    // What zoneinfo of the same moment calls free.
    assert_eq!(info.zones[0].pages(), 3840);
    assert_eq!(info.zones[1].pages(), 772_918);
}

#[test]
fn types_of_real_kernels() {
    let info = types(TYPES).unwrap();
    assert_eq!((info.pageblock_order, info.free.len()), (9, 15));
    assert_eq!(info.migratetypes[3..], ["HighAtomic", "Isolate"]);
    let movable = &info.free[11];
    assert_eq!(
        (movable.migratetype.as_str(), movable.row.zone.as_str()),
        ("Movable", "Normal")
    );
    assert_eq!(movable.row.counts[10], 41);
    assert_eq!(info.blocks[2].counts, [58, 661, 49, 0, 0]);
    let info = types(LARGE_TYPES).unwrap();
    assert_eq!((info.pageblock_order, info.migratetypes.len()), (5, 6));
    assert_eq!(info.free[0].row.counts.len(), 9);
}

#[test]
fn kernels_stop_counting() {
    let text = TYPES.replacen("Movable      0", "Movable >100000", 1);
    let (info, whole) = (types(&text).unwrap(), types(TYPES).unwrap());
    assert_eq!(info.free[1].uncounted, [0]);
    assert_eq!(info.free[1].row.counts[0], 100_000);
    assert_eq!(info.free[1].row.counts[1..], whole.free[1].row.counts[1..]);
    assert_eq!(info.free[2], whole.free[2]);
    let error = types(&text.replace(">100000", ">")).unwrap_err();
    assert!(error.contains("10 numbers where 11 are"), "{error}");
}

#[test]
fn errors_name_the_line() {
    let edit = |text: &str, from: &str, to: &str| text.replacen(from, to, 1);
    for (from, to, part) in [
        (
            "DMA32      2",
            "DMA32      x",
            "line 2: blocks: \"x\" is not a number",
        ),
        (
            "DMA32      2",
            "DMA32",
            "line 2: 10 numbers where 11 are expected",
        ),
        (
            "Node 0, zone",
            "Node 0 zone",
            "line 1: \"Node 0, zone ...\" is expected",
        ),
    ] {
        let error = buddy(&edit(FREE_BLOCKS, from, to)).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
    let error = buddy("").unwrap_err();
    assert!(error.contains("give a copy of /proc/buddyinfo"), "{error}");
    for (from, to, part) in [
        (
            "order: 9",
            "order: 8",
            "line 2: 512 pages is not a pageblock of order 8",
        ),
        ("order: 9", "order: 64", "not a pageblock of order 64"),
        (
            "9     10 ",
            "9     11 ",
            "the orders do not count up from 0",
        ),
        (
            "type    Unmovable ",
            "Unmovable ",
            "\", type ...\" is expected",
        ),
        ("Number of", "", "\"Number of blocks type \" is expected"),
        (
            "order: 9\n",
            "order: 9\n\n",
            "\"Pages per block:\" is expected",
        ),
        (
            "HighAtomic      Isolate \n",
            "HighAtomic \n",
            "5 numbers where 4 are expected",
        ),
        (
            "Node 0, zone   Normal           58",
            "Node 1, zone   Normal  58",
            "same zones and types",
        ),
    ] {
        let error = types(&edit(TYPES, from, to)).unwrap_err();
        assert!(error.contains(part), "{error}\n{part}");
    }
}

/// However a text is cut, it is an error or has the rows before the cut; the last number can be
/// shorter.
#[test]
fn truncated_texts() {
    let whole = buddy(FREE_BLOCKS).unwrap();
    for cut in 0..FREE_BLOCKS.len() {
        if let Ok(part) = buddy(&FREE_BLOCKS[..cut]) {
            let before = part.zones.len() - 1;
            assert_eq!(part.zones[..before], whole.zones[..before], "cut at {cut}");
            let [part, whole] = [&part.zones[before], &whole.zones[before]];
            assert!(before == 0 || part.counts.len() == whole.counts.len());
        }
    }
    for text in [TYPES, LARGE_TYPES] {
        let whole = types(text).unwrap();
        let accepted = (0..text.len()).filter(|&cut| match types(&text[..cut]) {
            Ok(part) => {
                assert_eq!(part.free, whole.free, "cut at {cut}");
                true
            }
            Err(_) => false,
        });
        // Only the blanks and the digits at the end can be missing.
        assert!(accepted.count() <= 5);
    }
}
