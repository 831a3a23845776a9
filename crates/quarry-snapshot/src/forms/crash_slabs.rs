//! Slabs of a cache as `kmem -S` of crash lists them below its row, with the free objects of each: SLUB's hidden state.
//!
//! ```text
//! CPU 0 SLAB:
//!   SLAB              MEMORY            NODE  TOTAL  ALLOCATED  FREE
//!   fffff8ef81b44e40  ffff93ab2d139000     0      8          7     1
//!   FREE / [ALLOCATED]
//!   [ffff93ab2d139000]
//!    ffff93ab2d139200  (cpu 0 cache)
//! CPU 0 PARTIAL:
//!   (empty)
//! KMEM_CACHE_NODE   NODE  SLABS  PARTIAL  PER-CPU
//! ffff93ab3d78f840     0      1        0        1
//! NODE 0 PARTIAL:
//!   (empty)
//! NODE 0 FULL:
//!   (not tracked)
//! ```
//!
//! ALLOCATED is without the free objects of CPUs: a row of TOTAL 8 and ALLOCATED 7 has this slab alone. Versions of crash
//! that count otherwise, or cannot read a kernel, contradict themselves; then nothing is taken. SLAB's caches have slabs
//! without these heads, and `(cpu 0 cache)` or `(shared cache)` stands behind free objects that an array has.

use std::collections::BTreeMap;

use crate::hidden::HiddenCache;

use super::crash::is_address;
use super::rows::{Cache, slot_of};

/// The list that slabs are of.
#[derive(Clone, Copy, Debug, Default)]
enum List {
    /// A cache of SLAB has one alone.
    #[default]
    Slab,
    Cpu(u32),
    CpuPartial(u32),
    /// The sums of a node, in the line behind the names of the columns.
    Nodes,
    NodePartial(u32),
    NodeFull,
}

/// Slabs of a cache.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slabs {
    list: List,
    hidden: HiddenCache,
    /// Objects and free ones of all slabs that are listed, and slabs.
    total: u64,
    free: u64,
    listed: u64,
    /// The largest number of objects in a slab.
    per_slab: u64,
    /// Slabs, partial ones and those of CPUs, as nodes count them.
    of_nodes: [u64; 3],
    /// Free objects of SLAB's last slab that no array has.
    unheld: u64,
    /// Heads of CPUs' slabs: a kernel without them has no such slabs, or crash cannot read them.
    cpus: u64,
    /// True if crash warned of a list that is damaged.
    is_damaged: bool,
}

impl Slabs {
    /// Takes a line. False if it is none of a cache's slabs.
    pub(crate) fn take(&mut self, line: &str) -> bool {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |word: &str| word.parse::<u32>().ok();
        match words.as_slice() {
            ["kmem:", ..] => self.is_damaged = true,
            ["CPU", cpu, "KMEM_CACHE_CPU:"] if number(cpu).is_some() => {}
            ["CPU", cpu, kind @ ("SLAB:" | "PARTIAL:")] => match number(cpu) {
                Some(cpu) if *kind == "SLAB:" => {
                    self.cpus += 1;
                    self.list = List::Cpu(cpu);
                }
                Some(cpu) => self.list = List::CpuPartial(cpu),
                None => return false,
            },
            ["KMEM_CACHE_NODE", "NODE", ..] => self.list = List::Nodes,
            ["NODE", node, kind @ ("PARTIAL:" | "FULL:")] => match number(node) {
                Some(node) if *kind == "PARTIAL:" => self.list = List::NodePartial(node),
                Some(_) => self.list = List::NodeFull,
                None => return false,
            },
            ["SLAB", "MEMORY", .., "TOTAL", "ALLOCATED", "FREE"]
            | ["FREE", "/", "[ALLOCATED]"]
            | ["(empty)"]
            | ["(not", "tracked)"] => {}
            [object] if is_address(object.trim_matches(['[', ']'])) => {}
            [object, "(cpu", cpu, "cache)"] if is_address(object) => match number(cpu) {
                Some(cpu) => self.in_array(Some(cpu)),
                None => return false,
            },
            [object, "(shared", "cache)"] if is_address(object) => self.in_array(None),
            [address, rest @ ..] if is_address(address) => return self.numbers(rest).is_some(),
            _ => return false,
        }
        true
    }

    /// Takes the numbers behind an address: of a node, or of a slab behind the address of its memory.
    fn numbers(&mut self, words: &[&str]) -> Option<()> {
        let number = |word: &str| word.parse::<u64>().ok();
        if let (List::Nodes, [_, slabs, partial, per_cpu]) = (self.list, words) {
            let counts = [number(slabs)?, number(partial)?, number(per_cpu)?];
            for (sum, count) in self.of_nodes.iter_mut().zip(counts) {
                *sum = sum.saturating_add(count);
            }
            return Some(());
        }
        let (memory, numbers) = words.split_first()?;
        is_address(memory).then_some(())?;
        let numbers: Option<Vec<u64>> = numbers.iter().map(|word| number(word)).collect();
        let numbers = numbers?;
        // A row of a cache whose name looks like an address has more.
        matches!(numbers.len(), 3 | 4).then_some(())?;
        let [total, allocated, free] = *numbers.last_chunk()?;
        self.is_damaged |= allocated.checked_add(free) != Some(total);
        self.total = self.total.saturating_add(total);
        self.free = self.free.saturating_add(free);
        self.listed += 1;
        self.per_slab = self.per_slab.max(total);
        let cpus = &mut self.hidden.cpus;
        match self.list {
            List::Cpu(cpu) => {
                let is_second = cpus.entry(cpu).or_default().slab_free.replace(free);
                self.is_damaged |= is_second.is_some();
            }
            List::CpuPartial(cpu) => add(&mut cpus.entry(cpu).or_default().partial, free),
            List::NodePartial(node) => {
                add(
                    &mut self.hidden.nodes.entry(node).or_default().partial,
                    free,
                );
            }
            List::Slab => {
                self.end_slab();
                self.unheld = free;
            }
            List::Nodes | List::NodeFull => {}
        }
        Some(())
    }

    /// Takes a free object that an array of SLAB has: a CPU's, or the one that CPUs share.
    fn in_array(&mut self, cpu: Option<u32>) {
        if self.is_slub() {
            return;
        }
        match self.unheld.checked_sub(1) {
            Some(left) => self.unheld = left,
            None => self.is_damaged = true,
        }
        *match cpu {
            Some(cpu) => {
                let array = &mut self.hidden.cpus.entry(cpu).or_default().main;
                array.get_or_insert_default()
            }
            None => &mut self.hidden.nodes.entry(0).or_default().full_sheaf_objects,
        } += 1;
    }

    /// Ends a slab of SLAB: what no array has of it is free on its node.
    fn end_slab(&mut self) {
        let free = std::mem::take(&mut self.unheld);
        if free > 0 {
            add(&mut self.hidden.nodes.entry(0).or_default().partial, free);
        }
    }

    /// True if nothing but the row was listed.
    pub(crate) fn is_empty(&self) -> bool {
        self.listed == 0 && self.cpus == 0 && !self.is_damaged
    }

    /// The hidden state, with the counts of the row as the kernel has them: it counts as active what CPUs hold. `None`
    /// if a part is left out, or if they contradict the row.
    pub(crate) fn complete(mut self, cache: &mut Cache) -> Option<HiddenCache> {
        self.end_slab();
        let row_free = cache.num_objs.checked_sub(cache.active_objs)?;
        let is_whole = !self.is_damaged && self.free == row_free;
        let of_cpus = self.hidden.cpu_slabs().count() as u64;
        let of_cpus = of_cpus.saturating_add(self.hidden.listed_slabs());
        let is_all = match self.is_slub() {
            true => {
                let expected = [cache.num_slabs, self.hidden.partial_slabs(), of_cpus];
                self.cpus > 0 && self.of_nodes == expected
            }
            false => (self.total, self.listed) == (cache.num_objs, cache.num_slabs),
        };
        (is_whole && is_all).then_some(())?;
        if self.per_slab > 0 {
            cache.objperslab = self.per_slab;
            cache.objsize = slot_of(cache.objsize, 8, self.per_slab, cache.slab_bytes);
        }
        cache.active_objs = cache.num_objs.checked_sub(self.hidden.partial_free())?;
        Some(self.hidden)
    }

    /// True for lists of SLUB.
    fn is_slub(&self) -> bool {
        !matches!(self.list, List::Slab)
    }
}

fn add(slabs: &mut BTreeMap<u64, u64>, free: u64) {
    *slabs.entry(free).or_default() += 1;
}
