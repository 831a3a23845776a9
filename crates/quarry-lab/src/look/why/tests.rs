use super::*;

macro_rules! report {
    ($file:literal) => {
        include_str!(concat!(
            "../../../../quarry-snapshot/tests/data/failures/",
            $file
        ))
    };
}

/// The sentences about the last report of a text, and its rows: zone, mark, what is kept back, usable blocks, verdict.
type Row = (String, Option<u64>, Option<u64>, Option<u64>, &'static str);

fn told(text: &str) -> (String, Vec<Row>, Vec<String>) {
    let read = Snapshot::of_bytes("log", text.as_bytes()).unwrap();
    let why = Why::of(&read);
    let rows = why
        .why
        .iter()
        .filter(|row| row.request == why.failures[0].request);
    let rows = rows.map(|row| {
        let zone = row.zone.to_string();
        (
            zone,
            row.mark_pages,
            row.kept_back_pages,
            row.usable_blocks,
            row.verdict,
        )
    });
    let passes_on = why.failures[0].passes_on.clone();
    (why.found().unwrap(), rows.collect(), passes_on)
}

fn finding(text: &str) -> String {
    told(text).0
}

/// The mail asked why an order 4 fails with 15 and 14 free blocks of it.
#[test]
fn an_old_kernel_asks_at_each_order() {
    let (finding, rows, passes_on) = told(report!("3.13-order4.txt"));
    assert_eq!(
        finding,
        "java did not get order 4 with mode 0x10c0d0. In Normal 6 328 free pages are above min (2 988), but without smaller \
         blocks they are 202 too few, as kernels before 4.4 ask at each order. In DMA32 30 388 free pages are above min \
         (13 840) with lowmem_reserve (694), but without smaller blocks they are 1 058 too few, as kernels before 4.4 ask at \
         each order. In DMA 3 975 free pages are 19 too few for min (66) with lowmem_reserve (3 912) and its 16 pages. With \
         the same memory the check of 4.4 and later would have passed, as they ask for one block of the order, whatever \
         smaller ones there are."
    );
    let verdicts: Vec<_> = rows.iter().map(|row| (&*row.0, row.3, row.4)).collect();
    let too_few = "too few pages";
    let expected = [
        ("DMA", Some(9), too_few),
        ("DMA32", Some(15), too_few),
        ("Normal", Some(14), too_few),
    ];
    assert_eq!(verdicts, expected);
    assert_eq!(passes_on, ["4.4 and later"]);
}

#[test]
fn a_block_of_the_order_is_missing() {
    let (finding, rows, passes_on) = told(report!("6.19-order5.txt"));
    assert_eq!(
        finding,
        "v4l2src0:src did not get order 5 with GFP_KERNEL. In DMA32 2 176 free pages are above min (429), but no free block \
         has order 5 or more. In DMA 226 free pages are 33 too few for min (33) with lowmem_reserve (194) and its 32 pages."
    );
    let expected: [Row; 2] = [
        ("DMA".into(), Some(33), Some(0), Some(0), "too few pages"),
        ("DMA32".into(), Some(429), Some(0), Some(0), "no block"),
    ];
    assert_eq!(rows, expected);
    assert!(passes_on.is_empty());
}

#[test]
fn memory_that_was_freed_meanwhile_is_said() {
    let (finding, rows, passes_on) = told(report!("arm64-order4.txt"));
    assert_eq!(
        finding,
        "cat did not get order 4 with GFP_NOFS|__GFP_COMP. Normal passes the check as the report shows it (13 635 free pages, \
         171 free blocks that it may take): memory may have been freed before it was printed. In DMA32 13 343 free pages, \
         less 504 kept for atomic requests, are 190 too few for min (9 059) with lowmem_reserve (3 954) and its 16 pages. In \
         DMA 12 084 free pages, less 508 kept for atomic requests and 15 of CMA, are 340 too few for min (4 923) with \
         lowmem_reserve (6 962) and its 16 pages."
    );
    assert_eq!(rows[2].4, "passes now");
    assert!(passes_on.is_empty(), "it would pass on its own");
}

/// Both mails name the cause, and the release that has the cure.
#[test]
fn reserves_are_the_cause_of_kills() {
    let (finding, _, passes_on) = told(report!("oom-reserve-in-use.txt"));
    assert_eq!(
        finding,
        "app needed order 0 with GFP_HIGHUSER_MOVABLE, and a task was killed. The release is not told (--kernel): the rules \
         of 6.8 to 6.11 are taken. In Normal 370 734 free pages, less 268 288 kept for atomic requests, are 159 too few for \
         min (102 604) and its page. With the same memory the check of 6.12 and later would have passed, as they keep back \
         free pages of the reserve alone, and let atomic requests take single ones."
    );
    assert_eq!(passes_on, ["6.12 and later"]);
    let (finding, _, passes_on) = told(report!("oom-reserve-larger-than-free.txt"));
    // A reserve of 8 MiB in 48 MiB cannot be of 6.8.
    assert_eq!(
        finding,
        "init needed order 0 with GFP_KERNEL, and a task was killed. In Normal 1 932 free pages, less 2 048 kept for atomic \
         requests, are 202 too few for min (201) and its page. With the same memory the check of 6.8 and later would have \
         passed, as they limit the reserve, and give it back before a task is killed."
    );
    assert_eq!(passes_on, ["6.8 and later"]);
}

const HEAD: &str = "sh: page allocation failure: order:2, mode:0x40820(GFP_ATOMIC|__GFP_COMP), \
    nodemask=(null),cpuset=/,mems_allowed=0\nCPU: 0 PID: 9 Comm: sh Not tainted 6.1.0-20-amd64 #1\nMem-Info:\n";

/// A log with one zone of 6.1.
fn log(zone: &str, lists: &str) -> String {
    format!(
        "{HEAD}Node 0 Normal {zone} managed:4000000kB\nlowmem_reserve[]: 0 0 0 0\nNode 0 Normal: {lists}\n"
    )
}

/// GFP_ATOMIC needs 300 of 800 pages of min (half, and a quarter less), and may have blocks of HighAtomic but not of CMA.
#[test]
fn blocks_of_other_types_are_named() {
    let zone = "free:4000kB boost:0kB min:3200kB reserved_highatomic:2048KB free_cma:0kB";
    let cma = log(zone, "492*4kB (UM) 4*8kB (C) 125*16kB (C) = 4000kB");
    let (found, rows, passes_on) = told(&cma);
    assert_eq!(
        found,
        "sh did not get order 2 with GFP_ATOMIC|__GFP_COMP. In Normal 1 000 free pages are above its part of min (300 of 800), \
         but it may take none of the 125 free blocks of order 2 or more: all are CMA."
    );
    assert_eq!(
        (rows[0].1, rows[0].3, rows[0].4),
        (Some(300), Some(0), "other types")
    );
    assert!(passes_on.is_empty());
    let reserved = cma.replace("(C)", "(H)");
    assert!(finding(&reserved).contains("Normal passes the check"));
    let kernel = reserved
        .replace("GFP_ATOMIC", "GFP_KERNEL")
        .replace("0x40820", "0x40cc0");
    assert_eq!(
        finding(&kernel),
        "sh did not get order 2 with GFP_KERNEL|__GFP_COMP. In Normal 1 000 free pages, less 512 kept for atomic requests, are \
         316 too few for min (800) and its 4 pages."
    );
}

/// Both ways are tried if the report lacks something, and a difference is said.
#[test]
fn what_is_not_told_leaves_the_answer_open() {
    let zone = "free:4000kB min:400kB";
    let types = log(zone, "500*4kB 0*8kB 125*16kB = 4000kB");
    let told = finding(&types);
    let whether = "Whether Normal could serve it with 1 000 free pages is not told";
    assert!(
        told.contains(&format!(
            "{whether}: the types of its free blocks of order 2 or more are not."
        )),
        "{told}"
    );
    let cut = log(zone, "500*4kB (U) 0*8kB");
    let told = finding(&cut);
    assert!(
        told.contains(&format!("{whether}: its free blocks are cut.")),
        "{told}"
    );
    // The report has no reserve: of 1,000,000 pages at most 10,000 and a block of 512 are reserved, so 21 blocks.
    let kernel = log(zone, "500*4kB (U) 0*8kB 125*16kB (UH) = 4000kB")
        .replace("GFP_ATOMIC", "GFP_KERNEL")
        .replace("0x40820", "0x40cc0")
        .replace("6.1.0-20", "5.4.0");
    let told = finding(&kernel);
    assert!(
        told.contains(&format!("{whether}: if all 10 752 that may be kept")),
        "{told}"
    );
    // Without the letter no page of it is free, and 6.12 counts these alone.
    let newer = kernel.replace("5.4.0", "6.12.9").replace("(UH)", "(U)");
    assert!(finding(&newer).contains("Normal passes the check"));
    let no_zones = finding(HEAD);
    assert!(
        no_zones.ends_with("the report is cut before its zones."),
        "{no_zones}"
    );
}

#[test]
fn zones_that_are_closed_and_limits_of_groups() {
    let text = log("free:400kB min:4000kB", "100*4kB (U) = 400kB");
    let movable = text.replace("Normal", "Movable");
    let told = finding(&movable);
    let closed =
        "The report lists no zone that it could use. It could not use Movable by its flags.";
    assert!(told.ends_with(closed), "{told}");
    let group = text.replace(
        "sh: page allocation failure: order:2, mode:",
        "sh invoked oom-killer: order=2, gfp_mask=",
    ) + "Memory cgroup out of memory: Killed process 9 (sh)\n";
    assert_eq!(
        finding(&group),
        "sh needed order 2 with GFP_ATOMIC|__GFP_COMP, and a task was killed: a memory group was at its limit, so watermarks of \
         zones are not the reason."
    );
}

/// The finding is of the last of several, and each has its rows, the last first.
#[test]
fn several_reports_have_rows_each() {
    let text = [report!("6.19-order5.txt"), report!("3.13-order4.txt")].concat();
    let read = Snapshot::of_bytes("log", text.as_bytes()).unwrap();
    let why = Why::of(&read);
    let requests: Vec<usize> = why.why.iter().map(|row| row.request).collect();
    assert_eq!(requests, [2, 2, 2, 1, 1]);
    let found = why.found().unwrap();
    assert!(found.starts_with("2 requests for pages failed; of the last: java did not get"));
    assert_eq!(
        why.failures[1].kernel,
        Some("6.19.5-1.qubes.42.fc41.x86_64")
    );
    assert!(Why::of(&[]).found().is_none());
}

/// Bounds on unknown numbers are not printed as numbers of the report.
#[test]
fn what_is_unknown_has_no_numbers() {
    let zone = "free:4000kB min:400kB";
    let lists = "500*4kB (U) 0*8kB 125*16kB (UH) = 4000kB";
    let text = format!("{HEAD}Node 0 DMA32 {zone}\nNode 0 DMA32: {lists}\n")
        .replace("GFP_ATOMIC", "GFP_KERNEL")
        .replace("0x40820", "0x40cc0");
    // Nothing is managed: as many pages as are free may be reserved.
    let (told, rows, _) = told(&text);
    assert!(
        told.contains("if all 1 000 that may be kept back"),
        "{told}"
    );
    assert_eq!(rows[0].4, "not told");
    let higher = text + &format!("Node 0 Normal {zone}\nNode 0 Normal: {lists}\n");
    let read = Snapshot::of_bytes("log", higher.as_bytes()).unwrap();
    let why = Why::of(&read);
    let found = why.found().unwrap();
    assert!(found.contains("Whether DMA32 could serve it with 1 000 free pages is not told: its lowmem_reserve is cut."), "{found}");
    assert!(why.why.iter().all(|row| row.missing_pages.is_none()));
}

/// Single pages for atomic requests are not in the reserve before 6.12, but for late updates.
#[test]
fn single_pages_beside_the_reserve() {
    let zone = "free:4000kB boost:0kB min:400kB reserved_highatomic:4096KB free_cma:0kB";
    let text = log(zone, "500*4kB (H) 0*8kB 125*16kB (H) = 4000kB").replace("order:2", "order:0");
    let (told, _, passes_on) = told(&text);
    assert!(
        told.contains(
            "none of the 625 free blocks of order 0 or more: all are HighAtomic, which late stable"
        ),
        "{told}"
    );
    assert_eq!(passes_on, ["6.12 and later"]);
}
