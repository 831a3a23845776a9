//! Reasons why requests for pages failed, by the reports of a kernel's log: the zone, the watermark, the reserve, and the
//! releases that would have served them.

mod judge;
#[cfg(test)]
mod tests;

use quarry_core::page::watermark::{BlockTypes, Checked, Verdict};
use quarry_snapshot::failures::{Closed, FailedZone, Kind};
use quarry_snapshot::{PageFailure, Snapshot};
use quarry_view::Form::{Count, Text};
use quarry_view::units::count;
use quarry_view::{Spec, column};
use schemars::JsonSchema;
use serde::Serialize;

use judge::{Outcome, Rules, SPANS, is_highest, judge, spans};

pub(super) const WHY: Spec = Spec {
    title: "Zones of requests that failed",
    rows: "why",
    first: 12,
    columns: || {
        vec![
            column("no.", "request", Count),
            column("node", "node", Count).rare(),
            column("zone", "zone", Text),
            column("free", "free_pages", Count),
            column("mark", "mark_pages", Count),
            column("lowmem", "lowmem_reserve_pages", Count).rare(),
            column("kept back", "kept_back_pages", Count).rare(),
            column("blocks", "usable_blocks", Count),
            column("verdict", "verdict", Text),
        ]
    },
};

/// Zones that a sentence is said about.
const TOLD_MAX: usize = 4;

/// Requests for pages that failed, and why.
#[derive(Default, JsonSchema, Serialize)]
pub struct Why<'a> {
    /// Requests that the log reports as failed, the last first.
    pub failures: Vec<Failed<'a>>,
    /// A row for each zone of each of them.
    pub why: Vec<OfZone<'a>>,
}

/// A request that failed.
#[derive(JsonSchema, Serialize)]
pub struct Failed<'a> {
    /// Number of the report among all, from 1 on.
    pub request: usize,
    /// True if the request had a task killed; else it got nothing ("page allocation failure").
    pub had_task_killed: bool,
    /// Name of the task that asked.
    pub task: &'a str,
    /// Order of the block.
    pub order: u32,
    /// Flags of the request.
    pub flags: String,
    /// The kernel's release; null if unknown.
    pub kernel: Option<&'a str>,
    /// Reason in sentences.
    pub finding: String,
    /// Releases whose check the same memory would have passed.
    pub passes_on: Vec<String>,
}

/// A zone at the time of a report, and what the kernel's check says of it.
#[derive(JsonSchema, Serialize)]
pub struct OfZone<'a> {
    /// Number of the report among all, from 1 on.
    pub request: usize,
    /// The node.
    pub node: u32,
    /// Name of the zone.
    pub zone: &'a str,
    /// Free pages; null if the report is cut.
    pub free_pages: Option<u64>,
    /// Pages of the min watermark that this request must leave; null if it may not use the zone.
    pub mark_pages: Option<u64>,
    /// Pages that the zone keeps from requests that could have had a higher zone; null if untold.
    pub lowmem_reserve_pages: Option<u64>,
    /// Free pages that do not count for the request: the reserve for atomic requests, and CMA. The most that can be, if the
    /// verdict is "not told".
    pub kept_back_pages: Option<u64>,
    /// Pages that are missing; null if none are, or if nothing tells.
    pub missing_pages: Option<u64>,
    /// Free blocks that are large enough and of a type that the request may take.
    pub usable_blocks: Option<u64>,
    /// The outcome in a few words.
    pub verdict: &'static str,
}

impl<'a> Why<'a> {
    /// The reasons of all reports of some snapshots.
    pub(super) fn of(snapshots: &'a [Snapshot]) -> Self {
        let mut why = Self::default();
        let each = snapshots.iter().flat_map(|snapshot| {
            let failures = snapshot.page_failures.iter();
            failures.map(move |failure| (snapshot, failure))
        });
        let all: Vec<(&Snapshot, &PageFailure)> = each.collect();
        for (at, (snapshot, failure)) in all.into_iter().enumerate().rev() {
            let at = at + 1;
            let release = failure.release.as_deref().or(snapshot.release.as_deref());
            let told = Told::of(failure, release);
            why.failures.push(Failed {
                request: at,
                had_task_killed: failure.request.kind == Kind::Killed,
                task: &failure.request.task,
                order: failure.request.order,
                flags: failure.request.flags_told(),
                kernel: release,
                finding: told.finding(),
                passes_on: told.passes_on(),
            });
            let rows = told
                .zones
                .iter()
                .map(|(of, zone)| row(at, failure, of, zone));
            why.why.extend(rows);
        }
        why
    }

    /// The reason of the last request in sentences, and the number of all; `None` without one.
    pub(super) fn found(&self) -> Option<String> {
        let last = self.failures.first()?;
        let others = match self.failures.len() {
            1 => String::new(),
            all => format!("{all} requests for pages failed; of the last: "),
        };
        Some(format!("{others}{}", last.finding))
    }
}

/// A zone for a request.
enum ForRequest {
    Closed(Closed),
    Judged(Outcome),
    /// The report lacks its free pages or its mark.
    Cut,
}

/// A report with the outcome of each zone, by the rules of the release that it is of, or is taken to be of.
struct Told<'a> {
    failure: &'a PageFailure,
    /// Places in [`SPANS`] that the report can be of.
    spans: Vec<usize>,
    /// The one that is taken.
    span: usize,
    zones: Vec<(&'a FailedZone, ForRequest)>,
}

impl<'a> Told<'a> {
    fn of(failure: &'a PageFailure, release: Option<&str>) -> Self {
        let spans = spans(failure, release);
        let newest = spans.last().copied().unwrap_or(SPANS.len() - 1);
        let at = |span| Self {
            failure,
            spans: spans.clone(),
            span,
            zones: zones(failure, span, false),
        };
        // The request failed: of releases that can be, the newest that explains it.
        let each = || spans.iter().rev().map(|span| at(*span));
        let fails = each().find(Self::fails);
        let fails = fails.or_else(|| each().find(|told| !told.passes()));
        fails.unwrap_or_else(|| at(newest))
    }

    fn outcomes(&self) -> impl Iterator<Item = (&'a FailedZone, Outcome)> {
        let zones = self.zones.iter();
        zones.filter_map(|(of, zone)| match zone {
            ForRequest::Judged(outcome) => Some((*of, *outcome)),
            _ => None,
        })
    }

    fn passes(&self) -> bool {
        passes(&self.zones)
    }

    /// True if no zone could have served it.
    fn fails(&self) -> bool {
        let fails = |outcome| matches!(outcome, Outcome::Fails(_));
        self.outcomes().all(|(_, outcome)| fails(outcome))
    }

    /// Spans of releases whose check the same memory would have passed for sure.
    fn others(&self) -> Vec<usize> {
        if self.passes() || self.outcomes().next().is_none() || self.failure.is_of_group {
            return Vec::new();
        }
        // What earlier kernels kept in the reserve's place is not known.
        let others = (1..SPANS.len()).filter(|span| *span != self.span);
        others
            .filter(|span| passes(&zones(self.failure, *span, true)))
            .collect()
    }

    fn passes_on(&self) -> Vec<String> {
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for span in self.others() {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == span => *last = span,
                _ => runs.push((span, span)),
            }
        }
        let told = runs.into_iter().map(|(first, last)| range(first, last));
        told.collect()
    }

    /// The reason in sentences.
    fn finding(&self) -> String {
        let request = &self.failure.request;
        let pages = format!("order {} with {}", request.order, request.flags_told());
        let head = match request.kind {
            Kind::Failure => format!("{} did not get {pages}", request.task),
            Kind::Killed => format!("{} needed {pages}, and a task was killed", request.task),
        };
        if self.failure.is_of_group {
            return format!(
                "{head}: a memory group was at its limit, so watermarks of zones are not the reason."
            );
        }
        if self.failure.zones.is_empty() {
            return format!("{head}: the report is cut before its zones.");
        }
        let mut sentences = vec![format!("{head}.")];
        let outcomes: Vec<_> = self.outcomes().collect();
        if outcomes.is_empty() {
            sentences.push("The report lists no zone that it could use.".to_string());
        }
        if let Some(guess) = self.guess() {
            sentences.push(guess);
        }
        // Kernels try the highest zone first.
        let zones = outcomes.iter().rev().take(TOLD_MAX);
        sentences.extend(zones.map(|(of, outcome)| self.clause(of, outcome)));
        if outcomes.len() > TOLD_MAX {
            let more = outcomes.len() - TOLD_MAX;
            sentences.push(format!("The table has {more} more zones."));
        }
        sentences.extend(self.closed());
        if request.is_of_one_node() && self.nodes() > 1 {
            sentences.push("It was for one node, which is not told.".to_string());
        }
        sentences.extend(self.passed_elsewhere());
        sentences.join(" ")
    }

    fn nodes(&self) -> usize {
        let zones = self.failure.zones.iter();
        let mut nodes: Vec<u32> = zones.map(|of| of.zone.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.len()
    }

    /// The releases whose rules are taken, if the release is not told and they differ.
    fn guess(&self) -> Option<String> {
        let first = *self.spans.first()?;
        let last = *self.spans.last()?;
        let same = |span: usize| {
            let of = |zones: &[(&FailedZone, ForRequest)]| -> Vec<Option<Outcome>> {
                let each = zones.iter().map(|(_, zone)| match zone {
                    ForRequest::Judged(outcome) => Some(*outcome),
                    _ => None,
                });
                each.collect()
            };
            of(&zones(self.failure, span, false)) == of(&self.zones)
        };
        let differ = self.spans.iter().any(|span| !same(*span));
        (first < last && differ).then(|| {
            format!(
                "The release is not told (--kernel): the rules of {} are taken.",
                range(self.span, self.span)
            )
        })
    }

    /// The reason of a zone, as a sentence.
    fn clause(&self, of: &FailedZone, outcome: &Outcome) -> String {
        let name = match self.nodes() {
            1 => of.zone.name.clone(),
            _ => format!("{} of node {}", of.zone.name, of.zone.node),
        };
        let free = of.pages("free").unwrap_or(0);
        let order = self.failure.request.order;
        match outcome {
            Outcome::Fails(checked) => {
                format!("In {name} {}.", self.lacks(of, free, checked))
            }
            Outcome::Passes(checked) => format!(
                "{name} passes the check as the report shows it ({} free pages, {} free blocks that it may take): memory may \
                 have been freed before it was printed.",
                count(free),
                count(checked.usable_blocks)
            ),
            Outcome::Open(checked) => {
                let reserve = self.failure.lowmem_reserve(of);
                let why = match checked.verdict {
                    _ if of.lists.is_empty() => "its free blocks are cut".to_string(),
                    Verdict::Below { .. } if reserve.is_none() && !is_highest(self.failure, of) => {
                        "its lowmem_reserve is cut".to_string()
                    }
                    Verdict::Below { pages } => format!(
                        "if all {} that may be kept back for atomic requests are, its pages are {} too few",
                        count(checked.kept_back),
                        count(pages)
                    ),
                    _ => format!("the types of its free blocks of order {order} or more are not"),
                };
                format!(
                    "Whether {name} could serve it with {} free pages is not told: {why}.",
                    count(free)
                )
            }
        }
    }

    /// Free pages that do not count, between commas.
    fn kept_back(&self, of: &FailedZone, checked: &Checked) -> String {
        let is_cma = self.failure.request.access(SPANS[self.span].1).cma;
        let cma = of.pages("free_cma").filter(|_| !is_cma).unwrap_or(0);
        let parts = [
            (
                checked.kept_back.saturating_sub(cma),
                "kept for atomic requests",
            ),
            (cma, "of CMA"),
        ];
        let parts = parts.iter().filter(|(pages, _)| *pages > 0);
        let parts: Vec<String> = parts
            .map(|(pages, whose)| format!("{} {whose}", count(*pages)))
            .collect();
        match parts.as_slice() {
            [] => String::new(),
            parts => format!(", less {},", parts.join(" and ")),
        }
    }

    /// The cause in a zone, behind its name.
    fn lacks(&self, of: &FailedZone, free: u64, checked: &Checked) -> String {
        let request = &self.failure.request;
        let min = of.pages("min").unwrap_or(0);
        let reserve = self.failure.lowmem_reserve(of).unwrap_or(0);
        let less = self.kept_back(of, checked);
        let mark = match checked.mark {
            mark if mark < min => format!("its part of min ({} of {})", count(mark), count(min)),
            mark => format!("min ({})", count(mark)),
        };
        let with_reserve = match reserve {
            0 => mark,
            pages => format!("{mark} with lowmem_reserve ({})", count(pages)),
        };
        let free = format!("{} free pages{less}", count(free));
        let above = format!("{free} are above {with_reserve}");
        let size = format!("order {} or more", request.order);
        match checked.verdict {
            Verdict::Below { pages } => {
                let asked = match request.order {
                    0 => "its page".to_string(),
                    order => format!("its {} pages", count(1 << order)),
                };
                let all = of
                    .pages("free")
                    .unwrap_or(0)
                    .saturating_sub(checked.kept_back);
                let needed = checked.mark.saturating_add(reserve);
                let needed = needed.saturating_add(1 << request.order);
                match all >= needed {
                    // Only kernels before 4.4 ask at each order.
                    true => format!(
                        "{above}, but without smaller blocks they are {} too few, as kernels before 4.4 ask at each order",
                        count(pages)
                    ),
                    false => format!(
                        "{free} are {} too few for {with_reserve} and {asked}",
                        count(pages)
                    ),
                }
            }
            Verdict::NoBlock => format!("{above}, but no free block has {size}"),
            Verdict::OtherTypes { blocks, types } => {
                let names: Vec<&str> = types.names().collect();
                let is_early = request.order == 0 && types.meets(BlockTypes::HIGH_ATOMIC);
                // The rule of 6.12 for single pages is in 6.1.y, too.
                let unless = if is_early {
                    ", which late stable updates let it take"
                } else {
                    ""
                };
                format!(
                    "{above}, but it may take none of the {} free blocks of {size}: all are {}{unless}",
                    count(blocks),
                    names.join(" or ")
                )
            }
            Verdict::Passes => above,
        }
    }

    /// Zones that the request could not use, as a sentence.
    fn closed(&self) -> Option<String> {
        let names = |why: Closed| {
            let zones = self.zones.iter();
            let zones =
                zones.filter(|(_, zone)| matches!(zone, ForRequest::Closed(of) if *of == why));
            let mut names: Vec<&str> = zones.map(|(of, _)| &*of.zone.name).collect();
            names.dedup();
            names.join(", ")
        };
        let parts = [
            (names(Closed::Higher), "by its flags"),
            (names(Closed::Node), "by its policy or cpuset"),
        ];
        let parts = parts.iter().filter(|(names, _)| !names.is_empty());
        let parts: Vec<String> = parts.map(|(names, why)| format!("{names} {why}")).collect();
        (!parts.is_empty()).then(|| format!("It could not use {}.", parts.join(", and ")))
    }

    /// Releases that would have served it, as a sentence.
    fn passed_elsewhere(&self) -> Option<String> {
        let passes_on = self.passes_on();
        let first = self.others().into_iter().find(|span| *span > self.span);
        let because = match first {
            Some(1) => ", as they ask for one block of the order, whatever smaller ones there are",
            Some(2) => ", as they leave the boost out for single pages",
            Some(3) => ", as they limit the reserve, and give it back before a task is killed",
            Some(4) => {
                ", as they keep back free pages of the reserve alone, and let atomic requests take single ones"
            }
            _ => "",
        };
        (!passes_on.is_empty()).then(|| {
            let on = passes_on.join(" and ");
            format!("With the same memory the check of {on} would have passed{because}.")
        })
    }
}

/// True if a zone could serve the request for sure.
fn passes(zones: &[(&FailedZone, ForRequest)]) -> bool {
    let mut zones = zones.iter();
    zones.any(|(_, zone)| matches!(zone, ForRequest::Judged(Outcome::Passes(_))))
}

/// Zones of a report by the rules of a span of releases.
fn zones(failure: &PageFailure, span: usize, is_other: bool) -> Vec<(&FailedZone, ForRequest)> {
    let rules = Rules {
        era: SPANS[span].1,
        is_other,
    };
    let each = failure.zones.iter().map(|of| {
        let zone = match failure.closed(of) {
            Some(closed) => ForRequest::Closed(closed),
            None => judge(failure, of, rules).map_or(ForRequest::Cut, ForRequest::Judged),
        };
        (of, zone)
    });
    each.collect()
}

/// Releases from the first of a span to the last of another.
fn range(first: usize, last: usize) -> String {
    let [from, to] = [SPANS[first].0, SPANS[last].1].map(|era| era.name());
    match (first, last) {
        (0, _) => format!("{to} and earlier"),
        (_, last) if last + 1 == SPANS.len() => format!("{from} and later"),
        _ => format!("{from} to {to}"),
    }
}

fn row<'a>(
    request: usize,
    failure: &PageFailure,
    of: &'a FailedZone,
    zone: &ForRequest,
) -> OfZone<'a> {
    let (checked, verdict) = match zone {
        ForRequest::Closed(Closed::Higher) => (None, "not for its flags"),
        ForRequest::Closed(Closed::Node) => (None, "not on its nodes"),
        ForRequest::Cut => (None, "cut"),
        ForRequest::Judged(Outcome::Passes(checked)) => (Some(checked), "passes now"),
        ForRequest::Judged(Outcome::Open(checked)) => (Some(checked), "not told"),
        ForRequest::Judged(Outcome::Fails(checked)) => {
            let told = match checked.verdict {
                Verdict::Below { .. } => "too few pages",
                Verdict::NoBlock => "no block",
                Verdict::OtherTypes { .. } => "other types",
                Verdict::Passes => "passes now",
            };
            (Some(checked), told)
        }
    };
    OfZone {
        request,
        node: of.zone.node,
        zone: &of.zone.name,
        free_pages: of.pages("free"),
        mark_pages: checked.map(|checked| checked.mark),
        lowmem_reserve_pages: failure.lowmem_reserve(of),
        kept_back_pages: checked.map(|checked| checked.kept_back),
        missing_pages: match zone {
            ForRequest::Judged(Outcome::Fails(checked)) => match checked.verdict {
                Verdict::Below { pages } => Some(pages),
                _ => None,
            },
            _ => None,
        },
        usable_blocks: checked
            .filter(|_| !of.lists.is_empty())
            .map(|checked| checked.usable_blocks),
        verdict,
    }
}
