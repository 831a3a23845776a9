//! Caches that exist because of the page size, and those that would exist with another.
//!
//! * *kmalloc classes* end where the design's formula says; what is larger comes from the page
//!   allocator. When classes are added, the bytes of such kmallocs are what meminfo's `Slab` has
//!   beyond slabinfo, if it lists all caches; of a part nothing tells them from other caches. Their sizes are not told: each class gets as many bytes. Nor is who asked: on
//!   one CPU at least, on as many as random ones at most; the geometric middle is expected.
//! * *A page asked of kmalloc.* Code that wants a buffer of one page asks for `PAGE_SIZE` bytes: the
//!   class of 4096 with 4 KiB pages, of 65536 with 64 KiB pages. How many objects of the class of
//!   one page are that is not told: between none and all, half is expected.
//! * *Vectors of pages* (`biovec-max`) are kept in stock by the block layer: the larger a page, the more. Two machines that
//!   booted with 4, 16 and 64 KiB have 48, 160 and 544 (`tests/data/cpus`): 8.25 for each KiB.
//! * *Thread stacks* are a cache, `thread_stack`, where a page is larger than a stack. On kernels
//!   recorded with 4 KiB pages there is none, with 64 KiB pages there is one, with objects of 16
//!   KiB. meminfo's `KernelStack` tells their bytes, and they come and go with `task_struct`. On
//!   arm64 a stack is never smaller than a page.

use quarry_core::geometry::{CacheParams, KmallocService, kmalloc_classes, kmalloc_params};

use quarry_snapshot::{CallSite, SlabinfoRow};

use super::{CachePrediction, Teller};
use crate::kernel::KernelModel;
use crate::kernel::names::{is_arm64, kmalloc_class};
use crate::lay::Shape;
use crate::lay::places::Holding;
use crate::lay::users::reached;
use crate::state::CacheState;
use crate::unknown::{Level, Point, Range};

const THREAD_STACK: &str = "thread_stack";
/// Vectors of pages in stock for each KiB of a page.
const VECTORS_PER_KIB: f64 = 8.25;

/// The largest kmalloc class in bytes.
fn kmalloc_max(kernel: &KernelModel) -> u64 {
    match kernel.kmalloc_rules() {
        Some(rules) if rules.service == KmallocService::Classes => {
            1 << rules.shift_high(kernel.page_bytes.ilog2())
        }
        _ => u64::MAX,
    }
}

/// Bytes of kmallocs above `largest` in each of the larger classes `sizes`; `bytes` in all. Without a list of call sites
/// they are spread evenly. With one, by what its sites hold: those of page allocations among them cannot be
/// told apart, but for those of memory management itself.
fn parts(sites: &[CallSite], largest: u64, sizes: &[u64], bytes: f64) -> Vec<f64> {
    let mut parts = vec![0.0; sizes.len()];
    let large = sites.iter().filter(|site| site.mean_bytes() > largest);
    for site in large.filter(|site| !site.place.starts_with("mm/")) {
        let class = sizes.iter().position(|size| *size >= site.mean_bytes());
        if let Some(part) = class.and_then(|class| parts.get_mut(class)) {
            *part += site.bytes as f64;
        }
    }
    let found: f64 = parts.iter().sum();
    let rest = (bytes - found).max(0.0) / sizes.len().max(1) as f64;
    let scale = (bytes / found.max(1.0)).min(1.0);
    parts.iter().map(|part| part * scale + rest).collect()
}

impl Teller<'_, '_> {
    /// True if the new kernel has no such cache: the page allocator serves its objects.
    pub(crate) fn is_gone(&self, row: &SlabinfoRow) -> bool {
        if self.old.page_bytes == self.new.page_bytes {
            return false;
        }
        if row.name == THREAD_STACK {
            return row.objsize >= self.new.page_bytes;
        }
        kmalloc_class(&row.name).is_some_and(|(_, bytes)| bytes > kmalloc_max(self.new))
    }

    /// Vectors of pages that the other kernel's block layer does not keep in stock; less than 0 if it keeps more.
    pub(crate) fn vectors_of_pages_gone(&self) -> f64 {
        let kib = |kernel: &KernelModel| (kernel.page_bytes >> 10) as f64;
        VECTORS_PER_KIB * (kib(self.old) - kib(self.new))
    }

    /// True if kmallocs come into slabs that had no class before.
    pub(crate) fn has_larger_classes(&self) -> bool {
        kmalloc_max(self.new) > kmalloc_max(self.old)
    }

    /// Bytes of kmallocs that had no class before: what meminfo has beyond a slabinfo that is whole.
    pub(crate) fn kmalloc_of_pages(&self) -> u64 {
        if !self.has_larger_classes() || self.snapshot.unlisted_bytes() > 0 {
            return 0;
        }
        let all = self.snapshot.meminfo_slab_bytes.unwrap_or(0);
        all.saturating_sub(self.snapshot.slab_bytes())
    }

    /// Caches that the snapshot has not, or not with these objects.
    pub(crate) fn of_larger_pages(&self) -> Vec<CachePrediction> {
        if self.new.page_bytes <= self.old.page_bytes {
            return Vec::new();
        }
        let caches = self.caches.iter();
        let mut caches: Vec<_> = caches
            .filter_map(|cache| self.pages_of_class(cache))
            .collect();
        caches.extend(self.thread_stacks());
        caches.extend(self.classes_of_pages());
        caches
    }

    /// The classes that are added, with the kmallocs that had none.
    fn classes_of_pages(&self) -> Vec<CachePrediction> {
        let (bytes, Some(rules)) = (self.kmalloc_of_pages(), self.new.kmalloc_rules()) else {
            return Vec::new();
        };
        if bytes == 0 {
            return Vec::new();
        }
        let largest = kmalloc_max(self.old);
        let classes = kmalloc_classes(rules, &self.new.machine());
        let added: Vec<_> = classes
            .filter(|class| u64::from(class.size) > largest)
            .collect();
        let sizes: Vec<u64> = added.iter().map(|class| class.size.into()).collect();
        let parts = parts(&self.snapshot.call_sites, largest, &sizes, bytes as f64);
        let told = added.iter().zip(parts).filter_map(|(class, part)| {
            let geometry = self.new.geometry(&kmalloc_params(rules, *class))?;
            let to = Shape::of(&geometry, self.new);
            let objects = part / f64::from(class.size);
            // A part of an object is the chance that there is one.
            let there_is = objects.min(1.0);
            let cpus = reached(objects, self.new.cpus.into()).max(1.0);
            let (middle, most) = (cpus.sqrt() * there_is, cpus * there_is);
            let packed = objects / to.slots;
            let mut told = CachePrediction::new(format!("{class} (was pages)"), class.size.into());
            told.objects = objects.round() as u64;
            told.holding.add(objects.round() as i64);
            told.take_shape(&geometry);
            told.set_bytes(
                [packed, middle.max(packed), most.max(packed)].map(|n| n * to.slab_bytes),
            );
            told.spread_evenly();
            Some(told)
        });
        told.collect()
    }

    /// The requests for a page in the class of a page.
    fn pages_of_class(&self, cache: &CacheState<'_>) -> Option<CachePrediction> {
        let (family, bytes) = kmalloc_class(&cache.row.name)?;
        let page = self.new.page_bytes;
        if bytes != self.old.page_bytes || page > kmalloc_max(self.new) {
            return None;
        }
        let name = format!("{family}-{}k", page >> 10);
        let mut told = self.as_cache(name, cache, page, [0.0, 0.5, 1.0])?;
        told.bytes.low_bytes = 0;
        Some(told)
    }

    /// The stacks of all tasks.
    fn thread_stacks(&self) -> Option<CachePrediction> {
        let named = |name: &str| self.caches.iter().find(|cache| cache.row.name == name);
        if is_arm64(self.snapshot) || named(THREAD_STACK).is_some() {
            return None;
        }
        let tasks = named("task_struct")?;
        let all = self.snapshot.kernel_stack_bytes?;
        // Tasks that are counted as active may be free: a stack is not smaller than this.
        let at_least = all.checked_div(tasks.row.active_objs)?;
        let stack = at_least.checked_next_power_of_two()?;
        if stack >= self.new.page_bytes {
            return None;
        }
        let mut told = self.as_cache(THREAD_STACK.to_string(), tasks, stack, [1.0; 3])?;
        told.objects = all / stack;
        told.holding.objects = told.objects;
        Some(told)
    }

    /// The cache `name` if parts of the objects of `cache` were objects of `size` bytes.
    fn as_cache(
        &self,
        name: String,
        cache: &CacheState<'_>,
        size: u64,
        parts: Range,
    ) -> Option<CachePrediction> {
        let lay = &cache.lay;
        let params = CacheParams::new(u32::try_from(size).ok()?);
        let geometry = self.new.geometry(&params)?;
        let to = Shape::of(&geometry, self.new);
        let slabs = std::array::from_fn(|end| {
            let at = Point::all(Level::OF_RANGE[end]);
            lay.demand_in(&at, &to, &self.cpus, parts[end])
        });
        let mut told = CachePrediction::new(name, size);
        told.take_shape(&geometry);
        told.set_bytes(slabs.map(|slabs: f64| slabs * to.slab_bytes));
        told.spread_evenly();
        told.holding = Holding::of(lay, &to, &self.cpus, 0.0, slabs[1]);
        if !to.shared {
            told.holding.objects = (told.holding.objects as f64 * parts[1]).round() as u64;
        }
        Some(told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 96 KiB of kmallocs that have classes of 16 to 64 KiB elsewhere.
    #[test]
    fn call_sites_tell_the_classes_of_pages() {
        let site = |place: &str, bytes: u64, calls: u64| CallSite {
            place: place.to_string(),
            bytes,
            calls,
        };
        let (sizes, total) = ([16 << 10, 32 << 10, 64 << 10], 96.0 * 1024.0);
        let kib = |sites: &[CallSite]| -> Vec<f64> {
            let parts = parts(sites, 8192, &sizes, total).into_iter();
            parts.map(|bytes| bytes / 1024.0).collect()
        };
        assert_eq!(kib(&[]), [32.0; 3]);
        let small = site("fs/a.c:1 func:a", 80 << 10, 20);
        let pages = site("mm/slub.c:1 func:b", 1 << 20, 32);
        let of_32k = site("net/b.c:1 func:b", 64 << 10, 2);
        let of_64k = site("net/c.c:1 func:c", 128 << 10, 3);
        let huge = site("net/d.c:1 func:d", 4 << 20, 1);
        // Some of it is not explained.
        let sites = [small, pages, of_32k, huge];
        let rest = 32.0 / 3.0;
        assert_eq!(kib(&sites), [rest, 64.0 + rest, rest]);
        // More than there is: some are pages.
        let [.., of_32k, huge] = sites;
        assert_eq!(kib(&[of_32k, huge, of_64k]), [0.0, 32.0, 64.0]);
    }

    #[test]
    fn classes_of_kmalloc() {
        for (name, expected) in [
            ("kmalloc-96", Some(("kmalloc", 96))),
            ("kmalloc-cg-8k", Some(("kmalloc-cg", 8192))),
            ("dma-kmalloc-1M", Some(("dma-kmalloc", 1 << 20))),
            ("kmalloc-rnd-01-4k", Some(("kmalloc-rnd-01", 4096))),
            ("kmalloc", None),
            ("bio-256", None),
            ("kmalloc-x", None),
            ("kmalloc-4q", None),
        ] {
            assert_eq!(kmalloc_class(name), expected, "{name}");
        }
    }
}
