//! Owners of pages (kernels with `page_owner=on`), in three texts: `/sys/kernel/debug/page_owner`, the output of
//! `page_owner_sort`, and `page_owner_stacks/show_stacks` (6.9 on). Formats are those of the kernel's documentation
//! (`Documentation/mm/page_owner.rst`) and of people's posts.
//!
//! ```text
//! Page allocated via order 0, mask 0x400dc0(GFP_KERNEL_ACCOUNT|__GFP_ZERO), pid 737, tgid 737 (NetworkManager), ts 3964670439 ns
//! PFN 11172 type Unmovable Block 21 type Unmovable Flags 0xfffffc0000000(node=0|zone=1|lastcpupid=0x1fffff)
//!  get_page_from_freelist+0x3f0/0x500
//!  __alloc_pages+0xe6/0x230
//!  pte_alloc_one+0x15/0x50
//! ```
//!
//! The sort tool puts `16 times, 16 pages:` before a record and leaves out its `PFN` line. `show_stacks` has stacks alone,
//! each with `nr_base_pages: 16` below it; it was `stack_count: 16`, the allocations, when the file was new.
//!
//! A record is added to its site as soon as it ends: memory grows with sites, and not with records.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde::{Deserialize, Serialize};

/// First words of a record of the kernel.
const HEAD: &str = "Page allocated via order ";
/// Words before the pages of a stack.
const PAGES: &str = "nr_base_pages:";
/// Words before the allocations of a stack.
const ALLOCATIONS: &str = "stack_count:";
/// Orders from here on are damage: no kernel has blocks as large.
const ORDER_END: u32 = 32;
/// Frames of a stack that are kept. The kernel keeps 16.
const FRAMES_MAX: usize = 64;
/// Callers that the name of a site has, behind the function that asks for pages.
const CALLERS: usize = 3;

/// Beginnings of the names of the page allocator's own functions.
const PAGE_ALLOCATOR: [&str; 17] = [
    "__alloc_frozen_page",
    "__alloc_page",
    "__folio_alloc",
    "__get_free_page",
    "__set_page_owner",
    "alloc_frozen_page",
    "alloc_page",
    "folio_alloc",
    "get_free_page",
    "get_page_from_freelist",
    "get_zeroed_page",
    "post_alloc_hook",
    "prep_new_page",
    "register_early_stack",
    "save_stack",
    "set_page_owner",
    "vma_alloc_folio",
];

/// Beginnings of the names of the slab allocators' functions, those of large kmallocs among them.
const SLAB_ALLOCATORS: [&str; 24] = [
    "____cache_alloc",
    "___kmalloc",
    "___slab_alloc",
    "__do_cache_alloc",
    "__do_kmalloc",
    "__kmalloc",
    "__kmem_cache_alloc",
    "__pcs_",
    "__refill_objects",
    "__slab_alloc",
    "alloc_from_pcs",
    "alloc_slab_page",
    "allocate_slab",
    "cache_alloc_refill",
    "cache_grow",
    "fallback_alloc",
    "kmalloc_large",
    "kmalloc_order",
    "kmem_cache_alloc",
    "kmem_getpages",
    "new_slab",
    "refill_objects",
    "refill_sheaf",
    "slab_alloc",
];

/// Pages in use, by the stacks that allocated them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageOwners {
    /// Call sites, with most pages first.
    pub sites: Vec<PageSite>,
    /// Pages of slabs and of large kmallocs; `None` if the text has allocations alone.
    pub slab_pages: Option<u64>,
    /// Pages by their migrate type; none if the text has no types.
    pub type_pages: BTreeMap<String, u64>,
    /// Pages in blocks of another type than their own, among those of `type_pages`.
    pub misplaced_pages: u64,
}

/// A call site, and the pages that it holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageSite {
    /// The function that asked the page allocator, and its callers; of the slab allocators' own functions the first and
    /// the last. Stacks that begin alike are one site.
    pub place: String,
    /// Pages; `None` if the text has allocations alone.
    pub pages: Option<u64>,
    /// Allocations; `None` if the text has pages alone.
    pub allocations: Option<u64>,
}

/// Owners of pages as a text has them.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Place of its first record among the lines.
    pub(crate) first: usize,
    pub(crate) owners: PageOwners,
    /// Sentences about what was left out.
    pub(crate) notes: Vec<String>,
}

/// True for a line without its packing that one of the texts can begin with, cut or not.
pub(crate) fn begins(line: &str) -> bool {
    let words = [HEAD, "PFN ", "handle: "];
    begins_with(line, &words) || Times::of(line).is_some() || frame(line).is_some()
}

/// True for a text that can have a record.
pub(crate) fn is_in(text: &str) -> bool {
    let marks = [HEAD, PAGES, ALLOCATIONS, " times, ", " times:"];
    marks.iter().any(|mark| text.contains(mark))
}

/// Reads the records of lines without their packing, those of each reading: another line above a record begins one if
/// stacks repeat behind it, or pages.
pub(crate) fn read<L: AsRef<str>>(lines: impl Iterator<Item = L>) -> Vec<Found> {
    let mut readers = vec![Reader::default()];
    let mut is_apart = true;
    for (at, line) in lines.enumerate() {
        let line = line.as_ref();
        let is_other = is_apart && !line.is_empty() && !begins(line);
        is_apart = line.is_empty() || is_other;
        if is_other && readers.last().is_some_and(|last| !last.is_empty()) {
            readers.push(Reader::default());
        }
        if let Some(last) = readers.last_mut() {
            if last.is_empty() {
                last.first = at;
            }
            last.line(line);
        }
    }
    let mut several: Vec<Reader> = Vec::new();
    let are_several = readers.len() > 1;
    for mut reader in readers {
        if are_several {
            reader.finish_whole();
        }
        match several.last_mut() {
            Some(last) if !reader.repeats(last) => last.join(reader),
            _ => several.push(reader),
        }
    }
    several.into_iter().filter_map(Reader::end).collect()
}

/// Head of the sort tool's records.
struct Times<'t> {
    times: u64,
    pages: Option<u64>,
    /// Keys that the records share, in words; empty if it is the stack.
    culled: &'t str,
}

impl<'t> Times<'t> {
    fn of(line: &'t str) -> Option<Self> {
        let (times, rest) = line.split_once(" times")?;
        let times = times.parse().ok()?;
        let rest = rest.strip_suffix(':')?;
        let Some(rest) = rest.strip_prefix(", ") else {
            return rest.is_empty().then_some(Self {
                times,
                pages: None,
                culled: "",
            });
        };
        let (pages, culled) = rest.split_once(" pages")?;
        Some(Self {
            times,
            pages: Some(pages.parse().ok()?),
            culled: culled.trim_start_matches([',', ' ']),
        })
    }
}

/// A record so far.
#[derive(Debug, Default)]
struct Record {
    is_begun: bool,
    order: Option<u32>,
    times: Option<u64>,
    pages: Option<u64>,
    culled: String,
    frames: Vec<String>,
    handle: Option<u64>,
    /// Types of the page and of its block.
    types: Option<[String; 2]>,
    is_slab: bool,
    frame_number: Option<u64>,
    /// Its first line, if another record of the reading has none like it.
    head: String,
}

impl Record {
    /// A number that no other record of a reading has.
    fn key(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.head, &self.frames, self.handle, &self.culled).hash(&mut hasher);
        hasher.finish()
    }

    /// Allocations and pages; `None` for a record that has neither, as one that is cut.
    fn amount(&self) -> Option<(Option<u64>, Option<u64>)> {
        let allocations = self.times.or(self.order.map(|_| 1));
        let of_order = |order: u32| allocations?.checked_mul(1 << order);
        let pages = self.pages.or(self.order.and_then(of_order));
        (allocations.is_some() || pages.is_some()).then_some((allocations, pages))
    }

    /// The frame that asked the page allocator, and those that called it.
    fn outside(&self) -> &[String] {
        let inside = |name: &String| begins_with(name, &PAGE_ALLOCATOR);
        let inner = self.frames.iter().take_while(|name| inside(name)).count();
        let last = self.frames.len().saturating_sub(1);
        &self.frames[inner.min(last)..]
    }

    fn place(&self) -> Option<String> {
        let frames = self.outside();
        let is_slab = |name: &String| begins_with(name, &SLAB_ALLOCATORS);
        let slab = frames.iter().take_while(|name| is_slab(name)).count();
        let (own, callers) = frames.split_at(slab.max(1).min(frames.len()));
        let ends = own
            .first()
            .into_iter()
            .chain(own[1.min(own.len())..].last());
        let names: Vec<&str> = ends
            .chain(callers.iter().take(CALLERS))
            .map(String::as_str)
            .collect();
        match (names.as_slice(), self.handle, self.culled.as_str()) {
            ([], None, "") => None,
            ([], Some(handle), _) => Some(format!("handle {handle}")),
            ([], None, culled) => Some(culled.to_string()),
            (names, ..) => Some(names.join(" < ")),
        }
    }

    /// True if the pages are a slab's, or a large kmalloc's.
    fn is_slab(&self) -> bool {
        let first = self.outside().first();
        self.is_slab || first.is_some_and(|name| begins_with(name, &SLAB_ALLOCATORS))
    }
}

/// Reads lines into records, and records into sites.
#[derive(Debug, Default)]
struct Reader {
    record: Record,
    sites: BTreeMap<String, (Option<u64>, Option<u64>)>,
    slab_pages: u64,
    /// True once a record had allocations and no pages.
    has_unknown: bool,
    type_pages: BTreeMap<String, u64>,
    misplaced_pages: u64,
    left_out: u64,
    /// Place of its first record among the lines.
    first: usize,
    /// Stacks of records without a number of the page.
    keys: BTreeSet<u64>,
    /// Least and largest number of a page: the kernel prints them in their order.
    frame_numbers: Option<(u64, u64)>,
}

impl Reader {
    fn is_empty(&self) -> bool {
        !self.record.is_begun && self.sites.is_empty() && self.left_out == 0
    }

    /// True if it has a stack of another again, or pages before the other's last.
    fn repeats(&self, other: &Self) -> bool {
        let falls = self.frame_numbers.zip(other.frame_numbers);
        !self.keys.is_disjoint(&other.keys) || falls.is_some_and(|(own, other)| own.0 <= other.1)
    }

    /// Ends its record, unless that may be cut.
    fn finish_whole(&mut self) {
        if self.record.is_begun && !self.record.frames.is_empty() {
            self.finish(false);
        }
    }

    /// Adds another part of the same reading.
    fn join(&mut self, other: Self) {
        let add = |sum: Option<u64>, more: Option<u64>| Some(sum?.saturating_add(more?));
        for (place, (pages, allocations)) in other.sites {
            let site = self.sites.entry(place).or_insert((Some(0), Some(0)));
            *site = (add(site.0, pages), add(site.1, allocations));
        }
        for (name, pages) in other.type_pages {
            *self.type_pages.entry(name).or_default() += pages;
        }
        self.slab_pages = self.slab_pages.saturating_add(other.slab_pages);
        self.misplaced_pages = self.misplaced_pages.saturating_add(other.misplaced_pages);
        self.has_unknown |= other.has_unknown;
        self.left_out += other.left_out;
        self.keys.extend(other.keys);
        if let Some((least, most)) = other.frame_numbers {
            self.number(least);
            self.number(most);
        }
        self.record = other.record;
    }

    fn number(&mut self, number: u64) {
        let (least, most) = self.frame_numbers.unwrap_or((number, number));
        self.frame_numbers = Some((least.min(number), most.max(number)));
    }

    fn line(&mut self, line: &str) {
        let count = |rest: &str| rest.trim().parse().ok();
        if line.is_empty() {
            self.finish(false);
        } else if let Some(rest) = line.strip_prefix(HEAD) {
            if self.record.order.is_some() || !self.record.frames.is_empty() {
                self.finish(false);
            }
            self.record.is_begun = true;
            let digits = rest.split(|c: char| !c.is_ascii_digit()).next();
            let order = digits.and_then(|order| order.parse().ok());
            self.record.order = order.filter(|order| *order < ORDER_END);
            self.record.head = rest.to_string();
        } else if let Some(head) = Times::of(line) {
            self.finish(false);
            self.record.is_begun = true;
            self.record.times = Some(head.times);
            self.record.pages = head.pages;
            self.record.culled = head.culled.to_string();
        } else if let Some(rest) = line.strip_prefix(PAGES) {
            self.record.is_begun = true;
            self.record.pages = count(rest);
            self.finish(false);
        } else if let Some(rest) = line.strip_prefix(ALLOCATIONS) {
            self.record.is_begun = true;
            self.record.times = count(rest);
            self.finish(false);
        } else if let Some(rest) = line.strip_prefix("handle:") {
            self.record.handle = count(rest);
        } else if let Some(rest) = line.strip_prefix("PFN ") {
            self.record.is_begun = true;
            self.record.types = types(rest);
            let number = rest.split_whitespace().next().unwrap_or_default();
            self.record.frame_number = match number.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16).ok(),
                None => number.parse().ok(),
            };
            self.record.is_slab |= has_slab_flag(rest);
        } else if line == "Slab cache page" {
            self.record.is_slab = true;
        } else if let Some(name) = frame(line)
            && self.record.frames.len() < FRAMES_MAX
        {
            self.record.is_begun = true;
            self.record.frames.push(name);
        }
    }

    /// Adds the record to its site, unless it is cut: without pages, or without a stack at the end of the text.
    fn finish(&mut self, at_end: bool) {
        let record = std::mem::take(&mut self.record);
        let place = record.place();
        let amount = record.amount();
        let is_cut = place.is_none() && (at_end || record.order.is_none());
        if amount.is_none() || is_cut {
            self.left_out += u64::from(record.is_begun);
            return;
        }
        let (allocations, pages) = amount.unwrap_or_default();
        match record.frame_number {
            Some(number) => self.number(number),
            None => _ = self.keys.insert(record.key()),
        }
        let place = place.unwrap_or_else(|| "no stack".to_string());
        let add = |sum: Option<u64>, more: Option<u64>| Some(sum?.saturating_add(more?));
        let site = self.sites.entry(place).or_insert((Some(0), Some(0)));
        *site = (add(site.0, pages), add(site.1, allocations));
        self.has_unknown |= pages.is_none();
        let pages = pages.unwrap_or_default();
        if record.is_slab() {
            self.slab_pages = self.slab_pages.saturating_add(pages);
        }
        if let Some([own, block]) = record.types {
            if own != block {
                self.misplaced_pages = self.misplaced_pages.saturating_add(pages);
            }
            let sum = self.type_pages.entry(own).or_default();
            *sum = sum.saturating_add(pages);
        }
    }

    fn end(mut self) -> Option<Found> {
        let is_open = self.record.order.is_some() && !self.record.frames.is_empty();
        self.finish(true);
        if self.sites.is_empty() {
            return None;
        }
        let mut notes = Vec::new();
        if self.left_out > 0 {
            notes.push(format!(
                "stacks that are left out, cut or without a number of pages: {}",
                self.left_out
            ));
        }
        if is_open {
            notes.push(
                "no blank line ends the last record: its stack may be cut, its pages count"
                    .to_string(),
            );
        }
        let sites = self.sites.into_iter();
        let mut sites: Vec<PageSite> = sites
            .map(|(place, (pages, allocations))| PageSite {
                place,
                pages,
                allocations,
            })
            .collect();
        sites.sort_by_key(|site| std::cmp::Reverse((site.pages, site.allocations)));
        let owners = PageOwners {
            sites,
            slab_pages: (!self.has_unknown).then_some(self.slab_pages),
            type_pages: self.type_pages,
            misplaced_pages: self.misplaced_pages,
        };
        Some(Found {
            first: self.first,
            owners,
            notes,
        })
    }
}

fn begins_with(name: &str, beginnings: &[&str]) -> bool {
    beginnings
        .iter()
        .any(|beginning| name.starts_with(beginning))
}

/// The function of a frame, with its module: `xfs_file_read_iter+0x1f0/0x380 [xfs]`. Older kernels print the address
/// before it, and any the address alone of a function without a name.
fn frame(line: &str) -> Option<String> {
    let line = match line.strip_prefix("[<") {
        Some(rest) => rest.split_once(">]")?.1,
        None => line,
    };
    let is_hex = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
    let mut words = line.split_whitespace();
    let first = words.next()?;
    let name = match first.split_once("+0x") {
        Some((name, offset)) => {
            let (offset, size) = offset.split_once("/0x")?;
            Some(uncompiled(name)).filter(|_| is_hex(offset) && is_hex(size))?
        }
        None => Some(first).filter(|name| name.strip_prefix("0x").is_some_and(is_hex))?,
    };
    let module = words.next().and_then(|word| word.strip_prefix('['));
    Some(match module {
        Some(module) => format!("{name} [{}]", module.trim_end_matches(']')),
        None => name.to_string(),
    })
}

/// A name without the suffixes of the compiler, such as `.isra.0`.
fn uncompiled(name: &str) -> &str {
    let dots = name.match_indices('.').map(|(at, _)| at);
    let end = dots.into_iter().find(|at| *at > 0);
    &name[..end.unwrap_or(name.len())]
}

/// Types of a page and of its block: `0x114 type Unmovable Block 0 type Movable Flags`.
fn types(rest: &str) -> Option<[String; 2]> {
    let mut words = rest.split_whitespace();
    let mut next = || {
        words.by_ref().find(|word| *word == "type")?;
        let name = words.next()?;
        let is_name = name.bytes().all(|b| b.is_ascii_alphabetic());
        is_name.then(|| name.to_string())
    };
    Some([next()?, next()?])
}

/// True if the page's flags say that it is a slab; newer kernels have no such flag.
fn has_slab_flag(rest: &str) -> bool {
    let flags = rest.split_once(" Flags ").map(|(_, flags)| flags);
    flags.is_some_and(|flags| flags.split(['(', '|', ')']).any(|flag| flag == "slab"))
}

#[cfg(test)]
mod tests;
