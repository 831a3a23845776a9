//! A row of `slabtop -o`.

use super::rows::{Cache, bytes_of, slab_bytes_of};

/// `208530 201942  79%    0.19K   9930       21     39720K dentry`.
pub(crate) fn cache(line: &str) -> Option<Cache> {
    let mut words = line.split_whitespace();
    let mut number = || words.next()?.parse::<u64>().ok();
    let (num_objs, active_objs) = (number()?, number()?);
    words.next()?.strip_suffix('%')?;
    // Some locales have a comma.
    let kib = words.next()?.strip_suffix('K')?.replace(',', ".");
    let kib: f64 = kib.parse().ok()?;
    let mut number = || words.next()?.parse::<u64>().ok();
    let (num_slabs, objperslab) = (number()?, number()?);
    // Some versions leave the unit out.
    let cache_size = words.next()?;
    let cache_bytes = match cache_size.ends_with('K') {
        true => bytes_of(cache_size)?,
        false => cache_size.parse::<u64>().ok()?.checked_mul(1024)?,
    };
    let name = words.collect::<Vec<_>>().join(" ");
    let (slab_bytes, objsize) = match cache_bytes.checked_div(num_slabs) {
        Some(slab_bytes) => (slab_bytes, size_of(&name, kib, objperslab, slab_bytes)),
        // Nothing says how large the slabs of an empty cache are: the smallest that fit.
        None => {
            let slabs = (12..22).map(|shift| 1_u64 << shift);
            let mut fitting = slabs.filter_map(|slab_bytes| {
                let objsize = fitting_size(&name, kib, objperslab, slab_bytes)?;
                Some((slab_bytes, objsize))
            });
            fitting.next().unwrap_or_else(|| {
                let objsize = (kib * 1024.0) as u64;
                (slab_bytes_of(objsize, objperslab), objsize)
            })
        }
    };
    (!name.is_empty() && (0.0..1e9).contains(&kib)).then_some(Cache {
        name,
        active_objs,
        num_objs,
        objsize,
        objperslab,
        slab_bytes,
        num_slabs,
    })
}

/// The size that rounds to a number of KiB with two digits, and that fits `objperslab` times into a slab; the class of a
/// kmalloc cache if it does. Sizes are multiples of 8.
fn fitting_size(name: &str, kib: f64, objperslab: u64, slab_bytes: u64) -> Option<u64> {
    let low = ((kib - 0.005) * 1024.0).max(0.0) as u64;
    let high = ((kib + 0.005) * 1024.0) as u64;
    let fits = |size: &u64| *size > 0 && slab_bytes / size == objperslab;
    let class = name.rsplit_once("kmalloc-").map(|(_, class)| class);
    let class = class.and_then(|class| bytes_of(class.rsplit('-').next()?));
    // Of several, the largest: rounding is to the nearest, and slabs are full.
    let sizes = (low.div_ceil(8)..=high / 8).rev().map(|eighth| eighth * 8);
    let class = class.filter(|class| (low..=high).contains(class));
    class.into_iter().chain(sizes).find(fits)
}

/// The same, or the number as it is where no size fits.
fn size_of(name: &str, kib: f64, objperslab: u64, slab_bytes: u64) -> u64 {
    fitting_size(name, kib, objperslab, slab_bytes).unwrap_or_else(|| {
        let most = slab_bytes.checked_div(objperslab).unwrap_or(u64::MAX);
        ((kib * 1024.0) as u64).min(most)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A size of two digits is one of several; classes of kmalloc and slabs say which, also of an empty cache.
    #[test]
    fn sizes_are_those_that_fit() {
        for (line, expected) in [
            ("512 256 50% 0.02K 2 256 8K kmalloc-16", (16, 4096)),
            ("0 0 0% 0.02K 0 256 0K dma-kmalloc-16", (16, 4096)),
            ("42 42 100% 0.19K 2 21 8K pid", (192, 4096)),
            ("0 0 0% 0.19K 0 341 0K empty", (192, 65536)),
            ("8 8 100% 4.00K 1 8 32K names_cache", (4096, 32768)),
            // Nothing fits: the number as it is.
            ("4 4 100% 3.00K 1 4 8K odd", (2048, 8192)),
        ] {
            let cache = cache(line).unwrap();
            assert_eq!((cache.objsize, cache.slab_bytes), expected, "{line}");
        }
    }
}
