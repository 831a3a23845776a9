//! Copies of kmalloc's classes: sixteen caches in place of each, and each call site or type has its objects in one of them.
//!
//! Sites fall into the copies at random, and have few objects or many, so copies differ. Slabs follow from the objects of each
//! copy: every CPU that uses it has a slab there, half empty in the mean, or a sheaf. One hundred such falls give the price
//! as a distribution.
//!
//! * *With `/proc/allocinfo`* a class has the sites whose allocations are as large as it, if these hold half of its objects or
//!   more. The kernel counts an object of a slab with its slot, so a site of kmalloc has the size of the class. Sites of
//!   caches with slots as large are among them.
//! * *Without* the number of sites is unknown: from one to as many as there are objects, no scale preferred. Objects are
//!   spread over them as a stick that is broken at random places.
//! * *CPUs* that use each copy: one to all, no scale preferred either.

use quarry_core::sheaf::geometry::sheaf_bytes;
use quarry_snapshot::CallSite;

use crate::kernel::KernelModel;
use crate::kernel::names::kmalloc_class;
use crate::on::prediction::{CachePrediction, Prediction};
use crate::unknown::{Range, Spread};

/// Caches in place of one.
const COPIES: usize = 16;
/// Falls of the sites.
const DRAWS: u64 = 100;
/// Sites that are told apart; with more the copies hardly differ.
const SITES: f64 = 1024.0;
/// The golden section: multiples spread evenly between 0 and 1 in any order.
const GOLDEN: f64 = 0.618_033_988_749_894_9;

/// Price of the copies, and where it lies nine times in ten.
pub(crate) fn price(
    kernel: &KernelModel,
    sites: &[CallSite],
    told: &Prediction,
) -> (Range, Spread) {
    let mut totals = [0.0; DRAWS as usize];
    let (mut fixed, mut most) = (0.0, 0.0);
    for cache in &told.caches {
        let Some(("kmalloc", bytes)) = kmalloc_class(&cache.name) else {
            continue;
        };
        let class = Class::of(kernel, sites, bytes, cache);
        for (draw, total) in (0..).zip(&mut totals) {
            *total += class.more(draw);
        }
        fixed += class.sheaves;
        most += class.most();
    }
    totals.sort_unstable_by(f64::total_cmp);
    let mean = totals.iter().sum::<f64>() / DRAWS as f64;
    let [low, high, top] = [5, 94, 99].map(|place| totals[place]);
    let spread = Spread {
        less: (mean - low).max(0.0),
        more: (high - mean).max(0.0),
    };
    let range = [0.0, mean, f64::max(most, top)].map(|bytes| bytes + fixed);
    (range, spread)
}

/// A class of kmalloc.
struct Class {
    bytes: u64,
    slab_bytes: f64,
    /// Objects of a slab.
    slots: f64,
    objects: f64,
    /// Objects of each site; empty if they are not told.
    sites: Vec<f64>,
    cpus: f64,
    /// Objects that a CPU takes at once.
    grain: f64,
    has_sheaves: bool,
    /// Objects that sheaves and barns keep now.
    kept: f64,
    /// Bytes of the main sheaves of the other copies.
    sheaves: f64,
}

impl Class {
    fn of(kernel: &KernelModel, sites: &[CallSite], bytes: u64, cache: &CachePrediction) -> Self {
        let objects = cache.objects as f64;
        let of_class = sites.iter().filter(|site| site.mean_bytes() == bytes);
        let calls: Vec<f64> = of_class.map(|site| site.calls as f64).collect();
        let all: f64 = calls.iter().sum();
        let sites = match all > 0.0 && all * 2.0 >= objects {
            true => calls.iter().map(|calls| calls * objects / all).collect(),
            false => Vec::new(),
        };
        let slots = cache.objs_per_slab.max(1) as f64;
        let capacity = cache.sheaf_capacity;
        let sheaf = u32::try_from(capacity).ok().filter(|objects| *objects > 0);
        let sheaf = sheaf.map_or(0, sheaf_bytes);
        let copies = (COPIES - 1) as f64;
        Self {
            bytes,
            slab_bytes: cache.pages_per_slab.saturating_mul(kernel.page_bytes) as f64,
            slots,
            objects,
            sites,
            cpus: f64::from(kernel.cpus.max(1)),
            grain: if capacity > 0 { capacity as f64 } else { slots },
            has_sheaves: capacity > 0,
            kept: cache.kept_objects as f64,
            sheaves: copies * f64::from(kernel.nr_cpu_ids) * f64::from(sheaf),
        }
    }

    /// Slabs that `objects` objects take if `cpus` CPUs use their cache: a grain of each is half in use, or has all objects.
    fn slabs(&self, objects: f64, cpus: f64) -> f64 {
        if objects < 1.0 {
            // A part of an object is the chance that there is one.
            return objects * self.slabs(1.0, cpus);
        }
        let cpus = cpus.min(objects);
        let free = cpus * (self.grain / 2.0).max(self.grain - objects / cpus);
        let slabs = (objects + free) / self.slots;
        match self.has_sheaves {
            // Sheaves end within slabs.
            true => (slabs + 0.5).max(1.0),
            false => slabs,
        }
    }

    /// Bytes that the copies take beyond those of the class, in one fall.
    fn more(&self, draw: u64) -> f64 {
        let part = (draw as f64 + 0.5) / DRAWS as f64;
        let cpus = self.cpus.powf((part / GOLDEN).fract());
        let mut copies = [0.0; COPIES];
        let seed = self.bytes.wrapping_mul(DRAWS) + draw;
        let place = |site: u64| hash(hash(seed) ^ site);
        if self.sites.is_empty() {
            let count = self.objects.clamp(1.0, SITES).powf(part).round() as u64;
            let piece = |site: u64| -(unit(place(site + (1 << 32)))).ln();
            let all: f64 = (0..count).map(piece).sum();
            for site in 0..count {
                let copy = place(site) as usize % COPIES;
                copies[copy] += self.objects * piece(site) / all;
            }
        } else {
            for (site, objects) in (0..).zip(&self.sites) {
                copies[place(site) as usize % COPIES] += objects;
            }
        }
        let apart: f64 = copies
            .iter()
            .map(|objects| self.slabs(*objects, cpus))
            .sum();
        (apart - self.slabs(self.objects, cpus)).max(0.0) * self.slab_bytes
    }

    /// Bytes that the copies can take beyond those of the class.
    fn most(&self) -> f64 {
        let sites = match self.sites.len() {
            0 => self.objects,
            sites => sites as f64,
        };
        let more = sites.min(COPIES as f64) - 1.0;
        if more <= 0.0 {
            return 0.0;
        }
        let slabs = match self.has_sheaves {
            true => more * ((self.cpus * self.grain + self.kept) / self.slots + 1.0),
            false => (more * self.cpus).min(self.objects),
        };
        slabs * self.slab_bytes
    }
}

/// A number between 0 and 1, never 0.
fn unit(hash: u64) -> f64 {
    ((hash >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
}

/// Mixes the bits of a number (splitmix64).
fn hash(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slabs of 8 objects on one CPU.
    fn class(objects: f64, sites: &[f64]) -> Class {
        Class {
            bytes: 512,
            slab_bytes: 4096.0,
            slots: 8.0,
            objects,
            sites: sites.to_vec(),
            cpus: 1.0,
            grain: 8.0,
            has_sheaves: false,
            kept: 0.0,
            sheaves: 0.0,
        }
    }

    fn mean(class: &Class) -> f64 {
        (0..DRAWS).map(|draw| class.more(draw)).sum::<f64>() / DRAWS as f64 / class.slab_bytes
    }

    #[test]
    fn one_site_costs_nothing() {
        let one = class(80.0, &[80.0]);
        assert_eq!((mean(&one), one.most()), (0.0, 0.0));
    }

    /// Two large sites share a copy one time in sixteen; else one more slab is half empty.
    #[test]
    fn two_sites_are_apart_mostly() {
        let two = class(80.0, &[40.0, 40.0]);
        let found = mean(&two);
        assert!((found - 15.0 / 16.0 / 2.0).abs() < 0.05, "{found}");
        assert!(two.most() >= found * 4096.0);
    }

    /// Many sites use all copies: fifteen more slabs are half empty. Unknown sites cost less, and differ.
    #[test]
    fn many_sites_use_all_copies() {
        let many = class(16_000.0, &[10.0; 1600]);
        assert!((mean(&many) - 7.5).abs() < 0.01);
        let unknown = class(16_000.0, &[]);
        let found = mean(&unknown);
        assert!((4.0..7.5).contains(&found), "{found}");
    }

    /// Single objects that fall apart need a slab each.
    #[test]
    fn few_objects_need_a_slab_each() {
        let few = class(3.0, &[1.0; 3]);
        // 16 (1 - (15/16)^3) copies are in use, where one slab was.
        let expected = 16.0 * (1.0 - (15.0_f64 / 16.0).powi(3)) - 1.0;
        let found = mean(&few);
        assert!((found - expected).abs() < 0.1, "{found} {expected}");
        assert_eq!(few.most(), 2.0 * 4096.0);
    }
}
