use super::*;

const NEW: &str = include_str!("../../tests/data/6.18-x86_64-4k/zoneinfo");
const OLD: &str = include_str!("../../tests/data/6.1-ppc64el-64k/zoneinfo");

fn parse(text: &str) -> Result<Zoneinfo, String> {
    Zoneinfo::parse("zoneinfo", text).map_err(|error| error.to_string())
}

#[test]
fn texts_of_real_kernels() {
    let new = parse(NEW).unwrap();
    let names: Vec<_> = new.zones.iter().map(|zone| zone.name.as_str()).collect();
    assert_eq!(names, ["DMA", "DMA32", "Normal", "Movable", "Device"]);
    assert_eq!(new.populated().count(), 3);
    let [dma, _, normal, movable, _] = new.zones.as_slice() else {
        unreachable!();
    };
    assert_eq!(dma.node_stats.get("nr_kernel_file_pages"), Some(0));
    assert!(normal.node_stats.is_empty());
    assert_eq!((normal.node, normal.managed()), (0, 393_216));
    assert_eq!(normal.pages.get("promo"), Some(9935));
    assert_eq!(normal.stats.get("numa_local"), Some(1_698_105));
    assert_eq!(dma.protection, [0, 3019, 4555, 4555, 4555]);
    assert_eq!(
        normal.pagesets[1],
        Pageset {
            cpu: 1,
            pcp: None,
            count: 8434,
            high: 11820,
            batch: 63,
            high_min: Some(3548),
            high_max: Some(24576),
            stat_threshold: Some(20),
        }
    );
    assert_eq!(normal.rest.get("start_pfn"), Some(1_048_576));
    assert_eq!(movable.pages.get("min"), Some(32));
    assert!(movable.pagesets.is_empty());
    let old = parse(OLD).unwrap();
    let [normal, _] = old.zones.as_slice() else {
        unreachable!();
    };
    assert_eq!(normal.pagesets.len(), 4);
    assert_eq!(
        (normal.pagesets[3].high, normal.pagesets[3].high_min),
        (110, None)
    );
    assert_eq!(normal.pages.get("promo"), None);
}

/// 4.14.x and 4.17 to 4.19 print a counter without a name.
#[test]
fn a_counter_without_a_name_is_passed_over() {
    const TEXT: &str = include_str!("../../tests/data/4.18-x86_64-4k/zoneinfo");
    let info = parse(TEXT).unwrap();
    let [dma, dma32] = info.zones.as_slice() else {
        unreachable!();
    };
    assert_eq!(dma.node_stats.get("nr_written"), Some(260_861));
    assert_eq!(dma.node_stats.iter().count(), 27);
    assert_eq!(dma32.managed(), 995_127);
    let lists = dma32
        .pagesets
        .iter()
        .map(|set| (set.count, set.high, set.batch));
    assert_eq!(lists.collect::<Vec<_>>(), [(68, 186, 31), (155, 186, 31)]);
    // The zone's own counters have names.
    let error = parse(&TEXT.replacen("nr_zspages   0", "0", 1)).unwrap_err();
    assert!(
        error.contains("a name and a number are expected"),
        "{error}"
    );
}

/// A zone with hot and cold lists, as mails of 2008 show it.
#[test]
fn hot_and_cold_lists() {
    let text = "\
Node 1, zone   Normal
  pages free     3160
        min      33
        low      41
        high     49
        scanned  0 (a: 20 i: 7)
        spanned  4096
        present  3163
    nr_free_pages 3160
    numa_hit     7
        protection: (0, 994, 994)
  pagesets
    cpu: 0 pcp: 0
              count: 2
              high:  6
              batch: 1
    cpu: 0 pcp: 1
              count: 1
              high:  2
              batch: 1
  vm stats threshold: 4
  all_unreclaimable: 0
  prev_priority:     12
  start_pfn:         0
";
    let info = parse(text).unwrap();
    let zone = &info.zones[0];
    assert_eq!((zone.node, zone.managed()), (1, 3163));
    assert_eq!(zone.stats.get("numa_hit"), Some(7));
    let lists: Vec<_> = zone
        .pagesets
        .iter()
        .map(|set| (set.pcp, set.high))
        .collect();
    assert_eq!(lists, [(Some(0), 6), (Some(1), 2)]);
    assert_eq!(zone.rest.get("prev_priority"), Some(12));
}

/// A file of another kind may be one line.
#[test]
fn a_long_line_is_cut() {
    let message = parse(&format!("{{\"slabinfo\": [{}]}}", "1, ".repeat(1000))).unwrap_err();
    assert!(
        message.contains("not \"{\\\"slabinfo\\\": [1, 1") && message.ends_with("\"..."),
        "{message}"
    );
    assert!(message.len() < 200, "{message}");
}

#[test]
fn errors_name_the_line() {
    let with = |from: &str, to: &str| parse(&NEW.replacen(from, to, 1)).unwrap_err();
    for (from, to, part) in [
        (
            "Node 0, zone      DMA",
            "Node x, zone      DMA",
            "line 1: node: \"x\" is not a number",
        ),
        (
            "Node 0, zone      DMA",
            "Zone DMA",
            "line 1: \"Node 0, zone ...\" is expected",
        ),
        (
            "zone      DMA",
            "zone DMA twice",
            "line 1: \" twice\" follows the name of zone DMA",
        ),
        (
            "nr_mapped    3964",
            "nr_mapped -3964",
            "nr_mapped: \"-3964\" is not a number",
        ),
        (
            "nr_mapped    3964",
            "nr_mapped",
            "line 21: a name and a number are expected",
        ),
        (
            "nr_mapped    3964",
            "nr_dirty 1",
            "nr_dirty stands there twice",
        ),
        (
            "        min      55\n",
            "",
            "\"min\" is missing before \"protection\"",
        ),
        (
            "protection: (0, 3019",
            "protection: (0; 3019",
            "protection: \"0; 3019\" is not",
        ),
        (
            "              batch:    1\n",
            "",
            "\"batch:\" is expected, not \"high_min: 34\"",
        ),
        (
            "    cpu: 0\n",
            "    cpu: 0 1\n",
            "\"cpu: 0\" is expected, not \"cpu: 0 1\"",
        ),
        (
            "  start_pfn:           1\n",
            "",
            "zone DMA ends before \"start_pfn\"",
        ),
    ] {
        let error = with(from, to);
        assert!(error.starts_with("zoneinfo: line "), "{error}");
        assert!(error.contains(part), "{error}\n{part}");
    }
    assert!(
        parse("")
            .unwrap_err()
            .contains("give a copy of /proc/zoneinfo")
    );
}

/// However a text is cut, it is an error or has the zones before the cut; only the last number can
/// be shorter.
#[test]
fn truncated_texts() {
    for whole in [NEW, OLD] {
        let zones = parse(whole).unwrap().zones;
        let mut found = 0;
        for cut in 0..whole.len() {
            let Ok(part) = parse(&whole[..cut]) else {
                continue;
            };
            found += 1;
            let (last, before) = part.zones.split_last().unwrap();
            assert_eq!(before, &zones[..before.len()], "cut at {cut}");
            let original = &zones[before.len()];
            assert_eq!(last.pagesets, original.pagesets, "cut at {cut}");
            assert_eq!(last.pages, original.pages, "cut at {cut}");
        }
        // Between zones, and inside the number that ends a zone.
        assert!((zones.len()..20 * zones.len()).contains(&found), "{found}");
    }
}

/// A damaged byte is an error or changes a number or a name; it never leads to a panic.
#[test]
fn damaged_texts() {
    let mut state = 1_u64;
    for _ in 0..crate::case_count(100_000) {
        let mut text = NEW.as_bytes().to_vec();
        for _ in 0..2 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let at = (state >> 33) as usize % text.len();
            text[at] = b" \n:(),0z9-_N"[(state >> 20) as usize % 12];
        }
        let text = String::from_utf8(text).unwrap();
        if let Ok(info) = parse(&text) {
            assert!(!info.zones.is_empty() && info.zones.len() <= 5);
        }
    }
}
