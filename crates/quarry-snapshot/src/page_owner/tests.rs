//! Samples of `tests/data/forms`, whose README says where they are from.

use std::fs;
use std::path::Path;

use super::*;
use crate::{Detail, Form, Snapshot};

const SOCKETS: &str = "allocate_slab < kmem_cache_alloc < sk_prot_alloc < sk_alloc < inet_create";
const FILES: &str = "filemap_alloc_folio < page_cache_ra_order < filemap_get_pages < filemap_read";

fn sample(name: &str) -> String {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/forms");
    fs::read_to_string(data.join(name)).unwrap()
}

fn snapshot(text: &str) -> Snapshot {
    let mut found = Snapshot::of_bytes("paste", text.as_bytes()).unwrap();
    assert_eq!(found.len(), 1);
    found.remove(0)
}

fn owners(text: &str) -> PageOwners {
    snapshot(text).page_owners.unwrap()
}

/// Place, pages and allocations of each site.
type Site<'a> = (&'a str, Option<u64>, Option<u64>);

fn sites(owners: &PageOwners) -> Vec<Site<'_>> {
    let sites = owners.sites.iter();
    sites
        .map(|site| (site.place.as_str(), site.pages, site.allocations))
        .collect()
}

#[test]
fn records_of_the_kernel() {
    let read = snapshot(&sample("page_owner.txt"));
    assert_eq!((read.form, read.detail()), (Form::PageOwner, Detail::Bytes));
    assert!(read.notes.is_empty() && read.page_bytes == 0);
    let owners = read.page_owners.unwrap();
    let early = "init_page_owner < kernel_init_freeable < kernel_init";
    assert_eq!(
        sites(&owners),
        [
            (SOCKETS, Some(8), Some(1)),
            (FILES, Some(4), Some(1)),
            (early, Some(1), Some(1)),
            ("pte_alloc_one < asm_exc_page_fault", Some(1), Some(1)),
        ]
    );
    // The early page is a slab by its flag alone.
    assert_eq!(owners.slab_pages, Some(9));
    let types = [("Movable", 4), ("Unmovable", 10)].map(|(name, pages)| (name.to_string(), pages));
    assert_eq!(owners.type_pages, BTreeMap::from(types));
    assert_eq!(owners.misplaced_pages, 8);
}

#[test]
fn sorted_records() {
    let text = sample("page_owner_sort.txt");
    let expected = [
        (SOCKETS, Some(128), Some(16)),
        ("pte_alloc_one < asm_exc_page_fault", Some(5), Some(5)),
    ];
    let sorted = owners(&text);
    assert_eq!(sites(&sorted), expected);
    assert_eq!(sorted.slab_pages, Some(128));
    assert!(sorted.type_pages.is_empty());
    // Older tools count no pages.
    let older = text.replace(", 128 pages", "").replace(", 5 pages", "");
    assert_eq!(sites(&owners(&older)), expected);
    // Records that are put together by what they have in common.
    let culled = "3 times, 5 pages, PID 1, task_comm_name: init:\n2 times, 2 pages, PID 9:\n";
    assert_eq!(
        sites(&owners(culled)),
        [
            ("PID 1, task_comm_name: init", Some(5), Some(3)),
            ("PID 9", Some(2), Some(2)),
        ]
    );
}

#[test]
fn stacks_with_their_pages() {
    let text = sample("show_stacks.txt");
    let stacks = owners(&text);
    assert_eq!(
        sites(&stacks),
        [(FILES, Some(20824), None), (SOCKETS, Some(16), None)]
    );
    assert_eq!(stacks.slab_pages, Some(16));
    // The first kernels counted allocations, and nothing says their orders.
    let first = owners(&text.replace("nr_base_pages", "stack_count"));
    assert_eq!(sites(&first)[0], (FILES, None, Some(20824)));
    assert_eq!(first.slab_pages, None);
    let handles = owners("handle: 42\nnr_base_pages: 20824\n\nhandle: 7\nnr_base_pages: 3\n\n");
    assert_eq!(sites(&handles)[1], ("handle 7", Some(3), None));
}

/// Equal stacks are one site, and a text of many records gives no more sites than one.
#[test]
fn sites_do_not_grow_with_records() {
    let text = sample("page_owner.txt");
    let one = owners(&text);
    let many = owners(&text.repeat(1000));
    assert_eq!(many.sites.len(), one.sites.len());
    assert_eq!(sites(&many)[0], (SOCKETS, Some(8000), Some(1000)));
}

#[test]
fn texts_that_are_cut() {
    let text = sample("page_owner.txt");
    let lines: Vec<&str> = text.lines().collect();
    let cut = |from: usize, to: usize| {
        let read = snapshot(&(lines[from..to].join("\n") + "\n"));
        let owners = read.page_owners.unwrap();
        let blocks = owners.sites.iter().filter_map(|site| site.allocations);
        (blocks.sum::<u64>(), read.notes)
    };
    let out =
        |count: u64| format!("stacks that are left out, cut or without a number of pages: {count}");
    let open = "no blank line ends the last record: its stack may be cut, its pages count";
    // In a stack at the end, in a head at the end, in a stack at the beginning, before a `PFN` line.
    assert_eq!(cut(0, 12), (2, vec![open.to_string()]));
    assert_eq!(cut(0, 9), (1, vec![out(1)]));
    assert_eq!(cut(3, lines.len()), (3, vec![out(1)]));
    assert_eq!(cut(1, lines.len()), (3, vec![out(1)]));
    assert_eq!(cut(0, 8), (1, vec![]));
    let stacks = sample("show_stacks.txt");
    let short: Vec<&str> = stacks.lines().take(25).collect();
    let read = snapshot(&short.join("\n"));
    assert_eq!(read.page_owners.unwrap().sites.len(), 1);
    assert_eq!(read.notes, [out(1)]);
}

#[test]
fn packings_are_taken_off() {
    for name in ["page_owner.txt", "page_owner_sort.txt", "show_stacks.txt"] {
        let text = sample(name);
        let expected = owners(&text);
        let each = |with: &str| -> String {
            let lines = text.lines();
            lines.flat_map(|line| [with, line, "\n"]).collect()
        };
        for packed in [
            each("> "),
            each("[  178.502533] "),
            each("\t"),
            text.replace('\n', "\r\n"),
            format!("# cat {name}\n{text}"),
            format!("Hello,\nthis is what I found:\n\n{text}\nRegards\n"),
        ] {
            assert_eq!(owners(&packed), expected, "{packed}");
        }
    }
    // What else a post says are facts.
    let post = format!(
        "I run\n# uname -a\nLinux h 6.9.1 #1 SMP x86_64 GNU/Linux\n\n{}",
        sample("page_owner.txt")
    );
    let read = snapshot(&post);
    assert_eq!(
        (read.release.as_deref(), read.page_bytes),
        (Some("6.9.1"), 4096)
    );
    // Caches count before owners.
    let both = format!("{}\n{}", sample("slabinfo"), sample("page_owner.txt"));
    assert_eq!(snapshot(&both).form, Form::Slabinfo);
}

#[test]
fn frames() {
    for (line, expected) in [
        (
            "xfs_file_read_iter+0x1f0/0x380 [xfs]",
            Some("xfs_file_read_iter [xfs]"),
        ),
        ("xfs_init+0x1f0/0x380 [xfs 1a2b3c]", Some("xfs_init [xfs]")),
        ("__slab_alloc.isra.86+0x22/0x40", Some("__slab_alloc")),
        ("[<ffffffff811682c4>] new_slab+0xc8/0x580", Some("new_slab")),
        ("0xffffffffc0123456", Some("0xffffffffc0123456")),
        ("PFN 4540 type Unmovable", None),
        ("a+0x1", None),
        ("a+0xg/0x1", None),
        ("+0x/0x", None),
        ("", None),
    ] {
        assert_eq!(frame(line).as_deref(), expected, "{line}");
    }
}

/// Numbers that cannot be are left out, and sums do not overflow.
#[test]
fn numbers_that_cannot_be() {
    let stack = " prep_new_page+0x1/0x2\n a+0x1/0x2\n";
    let order = |order: &str| format!("Page allocated via order {order}, mask 0x0()\n{stack}\n");
    let good = owners(&(order("0") + &order("32") + &order("x")));
    assert_eq!(sites(&good), [("a", Some(1), Some(1))]);
    let huge = format!("{stack}nr_base_pages: {}\n\n", u64::MAX);
    assert_eq!(owners(&huge.repeat(2)).sites[0].pages, Some(u64::MAX));
    for none in [
        order("32"),
        "3 times:\n".to_string(),
        format!("{stack}nr_base_pages: x\n"),
    ] {
        assert!(
            Snapshot::of_bytes("paste", none.as_bytes()).is_err(),
            "{none}"
        );
    }
}
