//! Recycled ids, the orphan rule, and the names of caches.

use super::*;
use crate::event::{Flags, Kind, NO_OBJECT};
use crate::meta::CacheOrigin;

#[test]
fn ids_are_recycled() {
    let (a, b, c) = (1 << 40, 2 << 40, 3 << 40);
    let (trace, rows) = good(&[
        kmalloc(a, 8, 8),
        kmalloc(b, 8, 8),
        kfree(a),
        kmalloc(c, 8, 8),
        kfree(b),
        kfree(c),
    ]);
    let ids: Vec<u32> = rows.iter().map(|row| row.event.object).collect();
    assert_eq!(ids, [0, 1, 0, 0, 1, 0]);
    assert_eq!(
        (trace.meta().object_slots, trace.meta().peak_bytes_req),
        (2, 16)
    );
    assert_eq!(trace.meta().orphans, crate::meta::Orphans::default());
}

#[test]
fn an_overlap_proves_the_old_one_gone() {
    let base = 1 << 40;
    let (trace, rows) = good(&[
        kmalloc(base, 64, 64),
        kmalloc(base + 64, 60, 64),
        cache_alloc("f", base + 32, 64),
        kfree(base),
    ]);
    let shape: Vec<_> = rows
        .iter()
        .map(|r| {
            (
                r.event.kind,
                r.event.object,
                r.event.flags.has(Flags::IMPLIED),
            )
        })
        .collect();
    assert_eq!(
        shape,
        [
            (Kind::Kmalloc, 0, false),
            (Kind::Kmalloc, 1, false),
            (Kind::Kfree, 1, true),
            (Kind::Kfree, 0, true),
            (Kind::KmemCacheAlloc, 0, false),
            (Kind::Kfree, NO_OBJECT, false),
        ]
    );
    let orphans = trace.meta().orphans;
    assert_eq!(
        (
            orphans.implied_object_frees,
            orphans.unknown_kfree,
            orphans.never_freed_objects
        ),
        (2, 1, 1)
    );
    assert!(rows[5].event.flags.has(Flags::UNKNOWN));
}

#[test]
fn slack_proves_nothing() {
    // SLOB counts its header in bytes_alloc, and it lies before the address.
    let (trace, _) = good(&[
        kmalloc(1 << 40, 2048, 2056),
        kmalloc((1 << 40) + 2048, 8, 16),
    ]);
    assert_eq!(trace.meta().orphans.implied_frees(), 0);
}

#[test]
fn hashed_addresses_overlap_only_when_equal() {
    let (trace, _) = good(&[
        format!(
            "{P}kmalloc: call_site=f ptr=00000000a1b2c3d4 bytes_req=64 bytes_alloc=64 gfp_flags=GFP_KERNEL"
        ),
        kmalloc(0xa1b2_c3d8, 64, 64),
        kmalloc(0xa1b2_c3d4, 64, 64),
    ]);
    assert!(trace.meta().hashed_addresses);
    assert_eq!(
        (
            trace.meta().orphans.implied_frees(),
            trace.meta().object_slots
        ),
        (1, 2)
    );
}

#[test]
fn page_blocks_have_their_own_ids_and_the_same_rule() {
    let (trace, rows) = good(&[
        page("mm_page_alloc", 64, 3),
        kmalloc(1 << 40, 8, 8),
        page("mm_page_free", 66, 0),
        page("mm_page_alloc", 64, 0),
        page("mm_page_alloc", 128, 1),
        page("mm_page_free", 128, 0),
    ]);
    let shape: Vec<_> = rows
        .iter()
        .map(|r| (r.event.kind, r.event.object, r.event.order))
        .collect();
    assert_eq!(
        shape,
        [
            (Kind::MmPageAlloc, 0, 3),
            (Kind::Kmalloc, 0, 0),
            (Kind::MmPageFree, 0, 3),
            (Kind::MmPageFree, NO_OBJECT, 0),
            (Kind::MmPageAlloc, 0, 0),
            (Kind::MmPageAlloc, 1, 1),
            (Kind::MmPageFree, 1, 1),
        ]
    );
    let meta = trace.meta();
    assert_eq!(
        (meta.page_slots, meta.object_slots, meta.peak_pages),
        (2, 1, 8)
    );
    let orphans = meta.orphans;
    assert_eq!(
        (
            orphans.unknown_page_free,
            orphans.implied_page_frees,
            orphans.page_order_mismatches
        ),
        (1, 1, 1)
    );
}

#[test]
fn a_cache_without_a_name_gets_it_from_frees() {
    let (a, b) = (1 << 40, 2 << 40);
    let free = |ptr: u64| format!("{P}kmem_cache_free: call_site=h ptr={ptr:#x} name=dentry");
    let (trace, rows) = good(&[
        cache_alloc("d", a, 192),
        free(a),
        cache_alloc("d", a, 192),
        cache_alloc("other", b, 192),
        cache_alloc("lonely", 3 << 40, 40),
        free(5 << 40),
    ]);
    let names: Vec<_> = rows.iter().map(|row| row.cache.as_deref()).collect();
    assert_eq!(
        names,
        [
            None,
            Some("dentry"),
            Some("dentry"),
            None,
            None,
            Some("dentry")
        ]
    );
    let meta = trace.meta();
    let found: Vec<_> = meta
        .caches
        .iter()
        .map(|c| (c.name.as_str(), c.origin, c.resolved))
        .collect();
    assert_eq!(
        found,
        [
            ("kmalloc", CacheOrigin::Kmalloc, 0),
            ("dentry", CacheOrigin::Frees, 1),
            ("dentry", CacheOrigin::Size, 1),
            ("anon-40-40", CacheOrigin::Synthetic, 3),
            ("dentry", CacheOrigin::Event, 1),
        ]
    );
    let ids: Vec<u16> = rows.iter().map(|row| row.event.cache).collect();
    assert_eq!(ids, [1, 1, 1, 1, 3, 1]);
    assert_eq!(
        meta.canonical_caches()
            .map(|(index, _)| index)
            .collect::<Vec<_>>(),
        [0, 1, 3]
    );
}

#[test]
fn a_kernel_that_is_no_release_is_an_assumption() {
    for (kernel, known) in [
        ("6.18.44-fc", true),
        ("v6.6.30", true),
        ("foo.bar", false),
        ("6", false),
        ("", false),
    ] {
        let options = ImportOptions {
            kernel: Some(kernel.to_string()),
            ..options()
        };
        let trace = run(format!("{}\n", kfree(1 << 40)).as_bytes(), &options).unwrap();
        let told = trace
            .meta()
            .assumptions
            .iter()
            .any(|sentence| sentence.starts_with("the kernel"));
        assert_eq!(told, !known, "{kernel:?}");
    }
}
