//! Provisional caches find their names.

use super::*;

/// Texts 0.. are the given names; site texts are `site0`, `site1`.
fn table(run: impl FnOnce(&mut Caches)) -> (Vec<CacheEntry>, CacheResolution) {
    let mut names = Interner::default();
    for name in ["kmalloc", "dentry", "filp", "inode"] {
        names.id(name.as_bytes());
    }
    let mut sites = Interner::default();
    for site in ["site0", "site1"] {
        sites.id(site.as_bytes());
    }
    let mut caches = Caches::new(0);
    run(&mut caches);
    caches.resolve(&names, &sites)
}

#[test]
fn majority_of_frees_names_a_site() {
    let (entries, resolution) = table(|caches| {
        let index = caches.provisional(0, 192, 192).unwrap();
        for name in [1, 2, 2, 1, 2] {
            caches.vote(index, name);
        }
        let other = caches.provisional(1, 192, 192).unwrap();
        caches.vote(other, 2);
    });
    assert_eq!(
        (entries[1].name.as_str(), entries[1].origin),
        ("filp", CacheOrigin::Frees)
    );
    assert_eq!(
        (entries[1].resolved, entries[2].resolved),
        (1, 1),
        "two sites of one cache merge"
    );
    assert_eq!((resolution.by_frees, resolution.outvoted_frees), (2, 2));
}

#[test]
fn a_tie_goes_to_the_name_seen_first() {
    let (entries, _) = table(|caches| {
        let index = caches.provisional(0, 8, 8).unwrap();
        caches.vote(index, 2);
        caches.vote(index, 1);
    });
    assert_eq!(entries[1].name, "dentry");
}

#[test]
fn one_known_cache_of_the_size_gives_its_name_and_two_do_not() {
    let (entries, resolution) = table(|caches| {
        caches.named_alloc(1, 192, 192).unwrap();
        caches.named_alloc(2, 256, 256).unwrap();
        caches.named_alloc(3, 256, 256).unwrap();
        caches.provisional(0, 192, 192).unwrap();
        caches.provisional(0, 256, 256).unwrap();
    });
    assert_eq!(
        (
            entries[4].name.as_str(),
            entries[4].origin,
            entries[4].resolved
        ),
        ("dentry", CacheOrigin::Size, 1)
    );
    assert_eq!(
        (entries[5].name.as_str(), entries[5].origin),
        ("anon-256-256", CacheOrigin::Synthetic)
    );
    assert_eq!(
        (
            resolution.provisional,
            resolution.by_size,
            resolution.synthetic
        ),
        (2, 1, 1)
    );
}

#[test]
fn a_cache_known_from_frees_takes_sizes_later() {
    let (entries, _) = table(|caches| {
        assert_eq!(caches.named_free(1), Some(1));
        assert_eq!(caches.named_alloc(1, 100, 104), Some(1));
        assert_eq!(
            caches.named_alloc(1, 200, 208),
            Some(2),
            "same name, other size: another cache"
        );
        assert_eq!(caches.named_free(2), Some(3));
        let index = caches.provisional(0, 30, 32).unwrap();
        caches.vote(index, 2);
    });
    assert_eq!((entries[1].object_size, entries[1].slab_size), (100, 104));
    assert_eq!(
        (
            entries[3].object_size,
            entries[3].slab_size,
            entries[4].resolved
        ),
        (30, 32, 3)
    );
}

#[test]
fn a_full_table_says_so() {
    let mut caches = Caches::new(0);
    for site in 1..CACHES_MAX as u32 {
        assert!(caches.provisional(site, 8, 8).is_some());
    }
    assert_eq!(caches.provisional(0, 8, 8), None);
    assert!(
        caches.provisional(7, 8, 8).is_some(),
        "known ones still work"
    );
}
