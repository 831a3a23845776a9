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

/// Sums of a report of exhausted memory: `slab_reclaimable:11120 slab_unreclaimable:98031` in pages, and by node or zone
/// with `kB`; `1048445 pages RAM`.
pub(crate) fn sums<'l>(lines: impl Iterator<Item = &'l str>) -> OomSums {
    let mut sums = OomSums::default();
    let (mut kib, mut pages) = (0_u64, None);
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [count, "pages", "RAM"] = words.as_slice() {
            sums.ram_pages = count.parse().ok();
        }
        for word in words {
            let Some((name, value)) = word.split_once(':') else {
                continue;
            };
            match (name, value.strip_suffix("kB"), value.parse().ok()) {
                ("slab_reclaimable", None, Some(count)) => {
                    sums.slab_reclaimable_pages = Some(count)
                }
                ("slab_unreclaimable", None, Some(count)) => {
                    (sums.slab_unreclaimable_pages, pages) = (Some(count), Some(count));
                    kib = 0;
                }
                ("slab_unreclaimable", Some(value), _) => {
                    kib = kib.saturating_add(value.parse().unwrap_or(0))
                }
                _ => {}
            }
        }
    }
    let page = pages.and_then(|pages: u64| kib.saturating_mul(1024).checked_div(pages));
    sums.page_bytes = page.filter(|page| quarry_sim::PAGE_BYTES.contains(page));
    sums
}

/// Caches that SLUB could not enlarge, each by its last message that is whole:
/// `cache: kmalloc-256, object size: 256, buffer size: 256, default order: 0, min order: 0`, and for each node
/// `node 0: slabs: 113, objs: 1808, free: 0`.
pub(crate) fn failed(lines: &[&str]) -> Vec<Cache> {
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
            let name = rest.split([',', '(']).next().unwrap_or_default();
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
            cache.num_slabs = cache.num_slabs.saturating_add(slabs);
            cache.num_objs = cache.num_objs.saturating_add(objects);
            let used = objects.saturating_sub(number("free: ").unwrap_or(0));
            cache.active_objs = cache.active_objs.saturating_add(used);
        }
    }
    caches
}
