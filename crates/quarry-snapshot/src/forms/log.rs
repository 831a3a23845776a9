//! Kernel logs: rows of caches when memory was exhausted, sums of that report, and caches that could not grow.

use crate::snapshot::{CacheBytes, OomSums};

use super::rows::{Cache, PAGE_BYTES};

/// `kmalloc-2048           59164KB      59164KB`: bytes of objects in use, and of all.
pub(crate) fn bytes(words: &[&str]) -> Option<CacheBytes> {
    let [name @ .., used, total] = words else {
        return None;
    };
    let bytes = |word: &str| {
        word.strip_suffix("KB")?
            .parse::<u64>()
            .ok()?
            .checked_mul(1024)
    };
    (!name.is_empty()).then_some(CacheBytes {
        name: name.join(" "),
        used_bytes: bytes(used)?,
        total_bytes: bytes(total)?,
    })
}

/// True for the line of a report of exhausted memory that has its sum of unreclaimable slabs.
pub(crate) fn is_unreclaimable(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let pages = |word: &str| {
        word.strip_prefix("slab_unreclaimable:")?
            .parse::<u64>()
            .ok()
    };
    words.any(|word| pages(word).is_some())
}

/// Sums of each report of exhausted memory: `slab_reclaimable:11120 slab_unreclaimable:98031` in pages, and by node or zone
/// with `kB`; `1048445 pages RAM`. A sum that is there already begins another report.
pub(crate) fn sums<'l>(lines: impl Iterator<Item = &'l str>) -> Vec<OomSums> {
    let mut found: Vec<OomSums> = Vec::new();
    let (mut sums, mut kib, mut is_ram_first) = (OomSums::default(), 0_u64, false);
    let end = |sums: &mut OomSums, kib: &mut u64| {
        let pages = sums.slab_unreclaimable_pages;
        let page = pages.and_then(|pages| kib.saturating_mul(1024).checked_div(pages));
        sums.page_bytes = page.filter(|page| quarry_sim::PAGE_BYTES.contains(page));
        *kib = 0;
        std::mem::take(sums)
    };
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [count, "pages", "RAM"] = words.as_slice() {
            match sums.ram_pages.take() {
                // The kernel prints it behind the slabs: that was the end of another report.
                Some(pages) if is_ram_first => found.push(OomSums {
                    ram_pages: Some(pages),
                    ..OomSums::default()
                }),
                Some(pages) => {
                    sums.ram_pages = Some(pages);
                    found.push(end(&mut sums, &mut kib));
                }
                None => {}
            }
            is_ram_first = false;
            sums.ram_pages = count.parse().ok();
        }
        for word in words {
            let Some((name, value)) = word.split_once(':') else {
                continue;
            };
            let count = value.parse::<u64>().ok();
            match (name, value.strip_suffix("kB"), count) {
                ("slab_reclaimable", None, Some(_)) => {
                    if sums.slab_reclaimable_pages.is_some() {
                        found.push(end(&mut sums, &mut kib));
                    }
                    is_ram_first = sums.ram_pages.is_some();
                    sums.slab_reclaimable_pages = count;
                }
                ("slab_unreclaimable", None, Some(_)) => {
                    if sums.slab_unreclaimable_pages.is_some() {
                        found.push(end(&mut sums, &mut kib));
                    }
                    (sums.slab_unreclaimable_pages, kib) = (count, 0);
                }
                ("slab_unreclaimable", Some(value), _) => {
                    kib = kib.saturating_add(value.parse().unwrap_or(0))
                }
                _ => {}
            }
        }
    }
    let last = end(&mut sums, &mut kib);
    found.extend((last != OomSums::default()).then_some(last));
    found
}

/// Caches that SLUB could not enlarge, each by its last message that is whole:
/// `cache: kmalloc-256, object size: 256, buffer size: 256, default order: 0, min order: 0`, and for each node
/// `node 0: slabs: 113, objs: 1808, free: 0`. Caches of memory groups, such as `kmalloc-64(1793:system.slice)`, are added up
/// under the name of their root; the second of the result counts them.
pub(crate) fn failed(lines: &[&str]) -> (Vec<Cache>, usize) {
    let mut caches: Vec<Cache> = Vec::new();
    let mut open: Option<Cache> = None;
    for line in lines {
        let number = |mark: &str| -> Option<u64> {
            let (_, rest) = line.split_once(mark)?;
            let end = rest
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(rest.len());
            rest[..end].parse().ok()
        };
        if let Some(rest) = line.strip_prefix("cache: ") {
            let name = rest.split(", object size: ").next().unwrap_or_default();
            let (size, order) = (number("buffer size: "), number("default order: "));
            let (Some(objsize), Some(order)) = (size, order) else {
                continue;
            };
            let slab_bytes = u32::try_from(order).ok();
            let slab_bytes = slab_bytes.and_then(|order| PAGE_BYTES.checked_shl(order));
            let slab_bytes = slab_bytes.filter(|_| order < 20).unwrap_or(PAGE_BYTES);
            open = Some(Cache {
                name: name.to_string(),
                objsize,
                objperslab: slab_bytes.checked_div(objsize).unwrap_or(0),
                slab_bytes,
                ..Cache::default()
            });
        } else if line.starts_with("node ")
            && let (Some(slabs), Some(objects)) = (number("slabs: "), number("objs: "))
        {
            // A message that is cut before its nodes takes none of an earlier one away.
            if let Some(cache) = open.take() {
                caches.retain(|known| known.name != cache.name);
                caches.push(cache);
            }
            let Some(cache) = caches.last_mut() else {
                continue;
            };
            let used = objects.saturating_sub(number("free: ").unwrap_or(0));
            add(cache, [slabs, objects, used]);
        }
    }
    let mut roots: Vec<Cache> = Vec::new();
    let mut of_groups = 0;
    for mut cache in caches {
        if let Some(root) = root_of(&cache.name) {
            of_groups += 1;
            cache.name = root.to_string();
        }
        match roots.iter_mut().find(|root| root.name == cache.name) {
            Some(root) => add(root, [cache.num_slabs, cache.num_objs, cache.active_objs]),
            None => roots.push(cache),
        }
    }
    (roots, of_groups)
}

/// Adds slabs, objects and those in use.
fn add(cache: &mut Cache, [slabs, objects, used]: [u64; 3]) {
    cache.num_slabs = cache.num_slabs.saturating_add(slabs);
    cache.num_objs = cache.num_objs.saturating_add(objects);
    cache.active_objs = cache.active_objs.saturating_add(used);
}

/// The root of a memory group's cache: `kmalloc-64` of `kmalloc-64(1793:system.slice)`.
fn root_of(name: &str) -> Option<&str> {
    let (root, group) = name.strip_suffix(')')?.split_once('(')?;
    let (number, _) = group.split_once(':')?;
    number.bytes().all(|b| b.is_ascii_digit()).then_some(root)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each report has its own sums, also where one has a part of them.
    #[test]
    fn reports_have_their_own_sums() {
        let text = " slab_reclaimable:10 slab_unreclaimable:20\n slab_unreclaimable:80kB\n1000 pages RAM\n\
            slab_reclaimable:30 slab_unreclaimable:40\n2000 pages RAM\n3000 pages RAM\n";
        let found = sums(text.lines());
        let all = found.iter().map(|sums| {
            let slabs = [sums.slab_reclaimable_pages, sums.slab_unreclaimable_pages];
            (slabs, sums.ram_pages, sums.page_bytes)
        });
        let expected = [
            ([Some(10), Some(20)], Some(1000), Some(4096)),
            ([Some(30), Some(40)], Some(2000), None),
            ([None, None], Some(3000), None),
        ];
        assert_eq!(all.collect::<Vec<_>>(), expected);
        assert!(sums("nothing".lines()).is_empty());
        let cut = "1000 pages RAM\nslab_reclaimable:30 slab_unreclaimable:40\n";
        let alone = sums(cut.lines());
        assert_eq!((alone.len(), alone[0].ram_pages), (1, Some(1000)));
        let both = [cut, "2000 pages RAM\n"].concat();
        let two = sums(both.lines());
        assert_eq!((two.len(), two[1].ram_pages), (2, Some(2000)));
        assert_eq!(two[1].slab_unreclaimable_pages, Some(40));
    }

    #[test]
    fn caches_of_groups_are_of_their_root() {
        let message = |name: &str, slabs: u64| {
            let objects = slabs * 64;
            [
                format!(
                    "cache: {name}, object size: 64, buffer size: 64, default order: 0, min order: 0"
                ),
                format!("node 0: slabs: {slabs}, objs: {objects}, free: 1"),
            ]
        };
        let lines = [
            message("kmalloc-64(1793:system.slice)", 9),
            message("kmalloc-64", 2),
            message("kmalloc-64(1793:system.slice)", 3),
            message("kmalloc-64(20:a(b), c)", 4),
            message("dma(x)", 1),
        ];
        let lines: Vec<&str> = lines.iter().flatten().map(String::as_str).collect();
        let (caches, of_groups) = failed(&lines);
        let counts: Vec<_> = caches
            .iter()
            .map(|cache| (cache.name.as_str(), cache.num_slabs, cache.active_objs))
            .collect();
        // The last message of each counts.
        assert_eq!(counts, [("kmalloc-64", 9, 9 * 64 - 3), ("dma(x)", 1, 63)]);
        assert_eq!(of_groups, 2);
    }
}
