use super::*;

fn row(line: &str) -> Option<Reported> {
    let mut words: Vec<&str> = line.split_whitespace().collect();
    let flags = match words.len() {
        10 => words.pop().unwrap(),
        _ => "",
    };
    cache(words[0].to_string(), &words[1..], flags)
}

/// Rows of five kernels: `slabinfo -S` of 2008 (ubuntuforums.org, "dentry cache"), Bharata B Rao on linux-mm in 2020 with
/// pages of 4 and 64 KiB, David Hildenbrand on linux-mm in 2025, Sergey Senozhatsky's `slabinfo -X` on linux-mm in 2015.
#[test]
fn rows_of_several_kernels() {
    for (line, [num_objs, objsize, pages, slabs], page) in [
        (
            "dentry                  223064     208    48.0M      11742/9/2   19 0   0  96 a",
            [223_136, 208, 1, 11_744],
            Some(4096),
        ),
        (
            "task_struct                371    9856            4.1M        88/6/40    3 3   4  87",
            [384, 9856, 8, 128],
            Some(4096),
        ),
        (
            "thread_stack               709   16384           12.0M         6/1/17   32 3   4  96",
            [736, 16384, 8, 23],
            Some(65536),
        ),
        (
            "task_struct               1491   12376           24.8M      721/25/37    2 3   3  74",
            [1516, 12_376, 8, 758],
            Some(4096),
        ),
        (
            "biovec-256                  46    4096               204800          7/7/5    8 3  58  47 A",
            [96, 4096, 8, 12],
            // The table that is sorted by loss.
            None,
        ),
        (
            "bdev_cache                  32     984           32.7K          1/0/1   16 2   0  96 Aa",
            [32, 1024, 4, 2],
            Some(4096),
        ),
    ] {
        let cache = row(line).unwrap();
        let found = &cache.row;
        assert_eq!(
            [
                found.num_objs,
                found.objsize,
                found.pagesperslab,
                found.num_slabs
            ],
            [num_objs, objsize, pages, slabs],
            "{line}"
        );
        assert_eq!(cache.page_bytes, page, "{line}");
        assert_eq!(cache.files["aliases"], 0, "{line}");
        assert_eq!(cache.files["reclaim_account"] > 0, line.ends_with('a'));
        assert_eq!(cache.files["hwcache_align"] > 0, line.contains(" A"));
    }
    for bad in [
        "a 9 8 4.0K 1/0/0 8 0 0 99",
        "a 1 8 4.0K 1/0 8 0 0 99",
        "a 1 8 4.0K 1/2/0 8 0 0 99",
        "a 1 8 4.0K 1/0/0 8 11 0 99",
        "a 1 8 xK 1/0/0 8 0 0 99",
        "a 1 8 4.0K 18446744073709551615/0/1 8 0 0 99",
        "a 1 8 4.0K 1/0/0 0 0 0 99",
    ] {
        assert_eq!(row(bad), None, "{bad}");
    }
}

/// `slabinfo -r kmalloc-2k` of a leak with `slub_debug`, from linux-kernel in March 2024.
const REPORT: &str = "\
Slabcache: kmalloc-2k       Aliases:  0 Order :  3 Objects: 1272941

Sizes (bytes)     Slabs              Debug                Memory
------------------------------------------------------------------------
Object :    2048  Total  :  264991   Sanity Checks : On   Total: 8683225088
SlabObj:    6144  Full   :  264972   Redzoning     : On   Used : 2606983168
SlabSiz:   32768  Partial:      19   Poisoning     : On   Loss : 6076241920
Loss   :    4096  CpuSlab:       0   Tracking      : On   Lalig: 5213966336
Align  :    2048  Objects:       5   Tracing       : Off  Lpadd: 542701568

kmalloc-2k has no kmem_cache operations
";

#[test]
fn a_report_has_exact_sizes_and_debugging() {
    let (cache, lines) = report(REPORT.lines()).unwrap();
    assert_eq!(lines, 9);
    let row = &cache.row;
    assert_eq!(
        (row.name.as_str(), row.active_objs, row.num_objs),
        ("kmalloc-2k", 1_272_941, 1_324_955)
    );
    assert_eq!(
        (row.objsize, row.objperslab, row.pagesperslab, row.num_slabs),
        (6144, 5, 8, 264_991)
    );
    assert_eq!(cache.page_bytes, Some(4096));
    let files = [
        "object_size",
        "slab_size",
        "align",
        "partial",
        "cpu_slabs",
        "red_zone",
        "poison",
        "store_user",
        "trace",
    ];
    let values = files.map(|file| cache.files[file]);
    assert_eq!(values, [2048, 6144, 2048, 19, 0, 1, 1, 1, 0]);
    // The tool's total is that of the slabs.
    assert_eq!(row.slab_bytes(4096), 8_683_225_088);
    for cut in 0..9 {
        assert_eq!(report(REPORT.lines().take(cut)), None, "{cut} lines");
    }
    assert_eq!(
        report(REPORT.replace("Order :  3", "Order : 64").lines()),
        None
    );
}
