//! Reports of a kernel's log about pages that a request did not get: "page allocation failure" and "invoked oom-killer",
//! each with the zones of its `Mem-Info`.
//!
//! Releases print more and more of a zone in the same words. What one does not print is absent here, not 0.

mod request;

use quarry_core::page::watermark::{BlockTypes, FreeList};

use crate::machine;
use crate::words::Counters;
use crate::zoneinfo::Zone;

use request::ZONES;
pub use request::{Kind, Request};

/// Key of a moment that has them.
pub(crate) const KEY: &str = "page_failures";
/// Reports that a moment keeps, the last ones.
pub(crate) const KEPT_MAX: usize = 64;

/// Report about a request that did not get its pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageFailure {
    /// The request.
    pub request: Request,
    /// The kernel's release, if the report has it.
    pub release: Option<String>,
    /// True if a limit of a memory group was the cause, not memory.
    pub is_of_group: bool,
    /// Bytes of a page; `None` if the report is cut, then it has no zones.
    pub page_bytes: Option<u64>,
    /// Zones that have pages.
    pub zones: Vec<FailedZone>,
}

/// A zone at the time of the report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailedZone {
    /// Pages, as `/proc/zoneinfo` has them. The watermarks include the boost.
    pub zone: Zone,
    /// Free blocks by order; none if that line is cut or damaged.
    pub lists: Vec<FreeList>,
}

/// Reason why a request may not use a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// It is higher than the request's flags allow.
    Higher,
    /// It is of a node that the caller's policy or the cpuset leaves out.
    Node,
}

impl PageFailure {
    /// Layouts of zones that the kernel may have been built with, as places in [`ZONES`]: they have all zones that are
    /// listed, and as many as `lowmem_reserve[]`.
    fn layouts(&self) -> Vec<Vec<usize>> {
        let count = self.zones.iter().map(|of| of.zone.protection.len()).max();
        // DMA32 is of kernels with 64 bits, and HighMem of others.
        const OPTIONAL: [[bool; 4]; 12] = [
            [true, true, false, false],
            [true, false, true, false],
            [true, false, false, false],
            [false, true, false, false],
            [false, false, true, false],
            [false, false, false, false],
            [true, true, false, true],
            [true, false, true, true],
            [true, false, false, true],
            [false, true, false, true],
            [false, false, true, true],
            [false, false, false, true],
        ];
        let layouts = OPTIONAL.iter().map(|[dma, dma32, highmem, device]| {
            let has = [*dma, *dma32, true, *highmem, true, *device];
            let places = (0..ZONES.len()).filter(|at| has[*at]);
            places.collect::<Vec<usize>>()
        });
        let fits = |layout: &Vec<usize>| {
            Some(layout.len()) == count && self.zones.iter().all(|of| self.fits(of, layout))
        };
        layouts.filter(fits).collect()
    }

    /// True if a layout has the zone, which keeps pages from requests for the next listed one, and from none before it.
    fn fits(&self, of: &FailedZone, layout: &[usize]) -> bool {
        let place = |of: &FailedZone| layout.iter().position(|at| ZONES[*at] == of.zone.name);
        let Some(own) = place(of) else {
            return false;
        };
        let protection = &of.zone.protection;
        let others = self.zones.iter();
        let above = others
            .filter(|other| other.zone.node == of.zone.node)
            .filter_map(place)
            .filter(|at| *at > own);
        let next = above.min();
        // A text that is cut lacks zones.
        let kept_from = next.unwrap_or(own + 1).min(protection.len());
        let is_off = protection.iter().all(|pages| *pages == 0);
        let is_kept = |next: usize| protection.get(next).is_none_or(|pages| *pages > 0);
        protection[..kept_from].iter().all(|pages| *pages == 0)
            && (is_off || next.is_none_or(is_kept))
    }

    /// Pages that a zone keeps from this request, as it could have had a higher zone; `None` if the report does not tell.
    #[must_use]
    pub fn lowmem_reserve(&self, of: &FailedZone) -> Option<u64> {
        let mut told = self.layouts().into_iter().map(|layout| {
            let highest = self.request.highest(&layout);
            let at = layout.iter().position(|place| *place == highest)?;
            of.zone.protection.get(at).copied()
        });
        let first = told.next()??;
        told.all(|other| other == Some(first)).then_some(first)
    }

    /// The reason why the request may not use a zone; `None` if it may, or if nothing tells.
    #[must_use]
    pub fn closed(&self, of: &FailedZone) -> Option<Closed> {
        let place = ZONES.iter().position(|name| *name == of.zone.name)?;
        let mut layouts = self.layouts();
        if layouts.is_empty() {
            layouts.push((0..ZONES.len()).collect());
        }
        let mut highest = layouts.iter().map(|layout| self.request.highest(layout));
        if highest.all(|highest| place > highest) {
            return Some(Closed::Higher);
        }
        let lacks = |nodes: &Option<Vec<u32>>| {
            let mut nodes = nodes.iter();
            nodes.any(|nodes| !nodes.contains(&of.zone.node))
        };
        let by_cpuset = !self.request.leaves_cpuset() && lacks(&self.request.mems_allowed);
        (by_cpuset || lacks(&self.request.nodemask)).then_some(Closed::Node)
    }
}

impl FailedZone {
    /// A number of pages, such as `free` or `reserved_highatomic`; `None` if the release does not print it.
    #[must_use]
    pub fn pages(&self, name: &str) -> Option<u64> {
        let of = &self.zone;
        let counters = [&of.pages, &of.rest, &of.stats];
        counters.iter().find_map(|of| of.get(name))
    }

    /// True if the report names the types of the free blocks.
    #[must_use]
    pub fn has_types(&self) -> bool {
        let mut free = self.lists.iter().filter(|list| list.blocks > 0);
        free.all(|list| !list.types.is_empty())
    }
}

/// The lines of a log that these reports are read from, those of the last reports, and the number of all reports.
pub(crate) fn lines<'l>(lines: impl Iterator<Item = &'l str>) -> (String, usize) {
    let wanted: Vec<&str> = lines.map(str::trim).filter(|line| is_of(line)).collect();
    let each = wanted.iter().enumerate();
    let each = each.filter(|(_, line)| begins(line)).map(|(at, _)| at);
    let all: Vec<usize> = each.collect();
    let first = all.get(all.len().saturating_sub(KEPT_MAX));
    let text = first.map_or_else(String::new, |first| wanted[*first..].join("\n"));
    (text, all.len())
}

/// True for the first line of a report.
pub(crate) fn begins(line: &str) -> bool {
    Request::of(line).is_some()
}

/// Marks of lines that end the report above: the log has other things behind them.
const ENDS: [&str; 3] = ["page allocation stalls", "sysrq:", "vmalloc error"];
/// Marks of lines within a report.
const WITHIN: [&str; 9] = [
    "Mem-Info:",
    "lowmem_reserve[]:",
    "mems_allowed=",
    "constraint=",
    "Memory cgroup out of memory",
    "as a result of limit of",
    "ainted ",
    "ainted: ",
    "kB = ",
];

fn is_of(line: &str) -> bool {
    let has = |marks: &[&str]| marks.iter().any(|mark| line.contains(mark));
    let mut words = line.split_whitespace();
    has(&ENDS)
        || has(&WITHIN)
        || Request::of(line).is_some()
        || head(line).is_some()
        || words.next().is_some_and(goes_on)
}

/// True for the first word of the rest of a line that a mailer broke.
fn goes_on(word: &str) -> bool {
    kib(word).is_some() || blocks(word).is_some() || word == "=" || word.starts_with('(')
}

/// The reports of a log, in its order.
pub(crate) fn read(text: &str) -> Vec<PageFailure> {
    let mut open: Option<Reading> = None;
    let mut all = Vec::new();
    let mut end = |open: &mut Option<Reading>| all.extend(open.take().map(Reading::ended));
    for line in text.lines().map(str::trim) {
        if let Some(request) = Request::of(line) {
            end(&mut open);
            open = Some(Reading::of(request));
        } else if ENDS.iter().any(|mark| line.contains(mark)) {
            end(&mut open);
        } else if let Some(reading) = &mut open
            && !reading.take(line)
        {
            end(&mut open);
        }
    }
    end(&mut open);
    all
}

/// A report while it is read.
#[derive(Default)]
struct Reading {
    failure: PageFailure,
    has_info: bool,
    zones: Vec<Printed>,
    /// Place of the zone whose line goes on.
    at: usize,
    part: Part,
}

/// A zone in the report's units.
#[derive(Default)]
struct Printed {
    node: u32,
    name: String,
    kib: Vec<(String, u64)>,
    protection: Vec<u64>,
    /// Blocks, KiB of each and types.
    lists: Vec<(u64, u64, BlockTypes)>,
    list_kib: Option<u64>,
}

/// Part of a zone that further words belong to.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Part {
    #[default]
    None,
    Pages,
    Protection,
    Lists,
    Sum,
}

/// Node, zone, its part and the rest of a line: `Node 0 DMA free:1kB min:2kB`, `DMA32: 3*4kB (U) 1*8kB (M) = 20kB`.
fn head(line: &str) -> Option<(u32, &str, Part, &str)> {
    let (node, rest) = match line.strip_prefix("Node ") {
        Some(rest) => {
            let (node, rest) = rest.split_once(' ')?;
            (node.parse().ok()?, rest)
        }
        None => (0, line),
    };
    let (name, rest) = rest.split_once(' ')?;
    let part = match name.ends_with(':') {
        true => rest.contains("kB").then_some(Part::Lists)?,
        false => rest.starts_with("free:").then_some(Part::Pages)?,
    };
    let name = name.trim_end_matches(':');
    ZONES.contains(&name).then_some((node, name, part, rest))
}

/// `min:136kB`, `reserved_highatomic:0KB`.
fn kib(word: &str) -> Option<(&str, u64)> {
    let (name, value) = word.split_once(':')?;
    let value = value.strip_suffix("kB").or(value.strip_suffix("KB"))?;
    Some((name, value.parse().ok()?))
}

/// `12*4kB`: blocks, and KiB of each.
fn blocks(word: &str) -> Option<(u64, u64)> {
    let (blocks, kib) = word.strip_suffix("kB")?.split_once('*')?;
    Some((blocks.parse().ok()?, kib.parse().ok()?))
}

impl Reading {
    fn of(request: Request) -> Self {
        Self {
            failure: PageFailure {
                request,
                ..PageFailure::default()
            },
            ..Self::default()
        }
    }

    /// Takes a line; false for one that begins a report of another kind.
    fn take(&mut self, line: &str) -> bool {
        if line.contains("Mem-Info:") {
            return !std::mem::replace(&mut self.has_info, true);
        }
        let failure = &mut self.failure;
        if failure.release.is_none() {
            failure.release = machine::release_of_report(line);
        }
        failure.is_of_group |= [
            "constraint=CONSTRAINT_MEMCG",
            "Memory cgroup out of memory",
            "as a result of limit of",
        ]
        .iter()
        .any(|mark| line.contains(mark));
        failure.request.add_nodes(line);
        let mut rest = line;
        if let Some((node, name, part, behind)) = head(line) {
            let mut zones = self.zones.iter();
            let known = zones.position(|zone| (zone.node, &*zone.name) == (node, name));
            // A zone that is there already is another report's.
            let is_again = |at: usize| match part {
                Part::Lists => !self.zones[at].lists.is_empty(),
                _ => !self.zones[at].kib.is_empty(),
            };
            if known.is_some_and(is_again) {
                return false;
            }
            self.at = known.unwrap_or(self.zones.len());
            if known.is_none() {
                self.zones.push(Printed {
                    node,
                    name: name.to_string(),
                    ..Printed::default()
                });
            }
            (self.part, rest) = (part, behind);
        } else if let Some(behind) = line.strip_prefix("lowmem_reserve[]:") {
            (self.part, rest) = (Part::Protection, behind);
        }
        if let Some(zone) = self.zones.get_mut(self.at) {
            let mut words = rest.split_whitespace();
            let is_taken = words.all(|word| zone.take(word, &mut self.part));
            if !is_taken {
                self.part = Part::None;
            }
        }
        true
    }

    /// The report, with pages where the size of one is known.
    fn ended(self) -> PageFailure {
        let first = |zone: &Printed| zone.lists.first().map(|(_, kib, _)| *kib);
        let page_kib = self.zones.iter().find_map(first).filter(|kib| *kib > 0);
        let zones = page_kib.map(|page| {
            let zones = self.zones.iter().filter(|zone| zone.kib("free").is_some());
            zones.map(|zone| zone.in_pages(page)).collect()
        });
        PageFailure {
            page_bytes: page_kib.and_then(|kib| kib.checked_mul(1024)),
            zones: zones.unwrap_or_default(),
            ..self.failure
        }
    }
}

impl Printed {
    /// Takes a word of the part that is read; false for a word that is none of it.
    fn take(&mut self, word: &str, part: &mut Part) -> bool {
        match *part {
            Part::None => return false,
            Part::Pages => match (kib(word), word) {
                (Some((name, value)), _) => self.kib.push((name.to_string(), value)),
                (None, "all_unreclaimable?" | "yes" | "no") => {}
                (None, word) if word.starts_with("pages_scanned:") => {}
                (None, _) => return false,
            },
            Part::Protection => match word.parse() {
                Ok(pages) => self.protection.push(pages),
                Err(_) => return false,
            },
            Part::Lists if word == "=" => *part = Part::Sum,
            Part::Lists => match (blocks(word), self.lists.last_mut()) {
                (Some((count, kib)), _) => {
                    self.lists.push((count, kib, BlockTypes::default()));
                }
                (None, Some((_, _, types))) => {
                    let letters = word.strip_prefix('(').and_then(|it| it.strip_suffix(')'));
                    match letters.and_then(BlockTypes::parse) {
                        Some(told) => *types = told,
                        None => return false,
                    }
                }
                (None, None) => return false,
            },
            Part::Sum => {
                let sum = word.strip_suffix("kB").and_then(|sum| sum.parse().ok());
                (self.list_kib, *part) = (sum, Part::None);
            }
        }
        true
    }

    fn kib(&self, name: &str) -> Option<u64> {
        let mut kib = self.kib.iter();
        kib.find_map(|(known, value)| (known == name).then_some(*value))
    }

    fn in_pages(&self, page_kib: u64) -> FailedZone {
        let counters = |names: &[&str]| {
            let mut counters = Counters::default();
            for (name, value) in &self.kib {
                if names.contains(&name.as_str()) {
                    // A name that stands there twice keeps its first value.
                    _ = counters.add(&format!("{name} {}", value / page_kib));
                }
            }
            counters
        };
        FailedZone {
            zone: Zone {
                node: self.node,
                name: self.name.clone(),
                pages: counters(&["free", "boost", "min", "low", "high", "present", "managed"]),
                protection: self.protection.clone(),
                stats: counters(&["free_cma"]),
                rest: counters(&["reserved_highatomic", "free_highatomic"]),
                ..Zone::default()
            },
            lists: self.whole_lists(page_kib).unwrap_or_default(),
        }
    }

    /// Free blocks by order, if they make the sum behind them.
    fn whole_lists(&self, page_kib: u64) -> Option<Vec<FreeList>> {
        let (mut sum, mut lists) = (0_u64, Vec::new());
        for (order, (blocks, kib, types)) in (0_u32..).zip(&self.lists) {
            (page_kib.checked_shl(order)? == *kib).then_some(())?;
            sum = sum.checked_add(blocks.checked_mul(*kib)?)?;
            lists.push(FreeList {
                blocks: *blocks,
                types: *types,
            });
        }
        (self.list_kib == Some(sum) && lists.len() <= 32).then_some(lists)
    }
}

#[cfg(test)]
mod tests;
