//! The check of a zone by what a report tells of it, and by what it leaves open: at best and at worst.

use quarry_core::era::Era;
use quarry_core::page::watermark::{
    BlockTypes, Checked, FreeList, Verdict, ZonePages, check, empties_reserve_before_kill,
    reserve_limit,
};
use quarry_snapshot::PageFailure;
use quarry_snapshot::failures::{FailedZone, Kind};

/// Releases at which the rules changed, each with the last one before the next; the first are older than the reserve.
pub(super) const SPANS: [(Era, Era); 5] = [
    (Era::V2_6_22, Era::V4_3),
    (Era::V4_4, Era::V5_8),
    (Era::V5_9, Era::V6_7),
    (Era::V6_8, Era::V6_11),
    (Era::V6_12, Era::LAST),
];

/// Smallest block that kernels keep pages of one type in.
const BLOCK_BYTES_MIN: u64 = 2 << 20;

/// Outcome of a zone by what the report tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It could not serve the request; what is missing is the least.
    Fails(Checked),
    /// It could.
    Passes(Checked),
    /// It could not by this check, which is the worst that the report allows; at best it could.
    Open(Checked),
}

/// A number between two bounds.
#[derive(Clone, Copy)]
struct Bounds {
    least: u64,
    most: u64,
}

impl Bounds {
    fn exactly(value: u64) -> Self {
        Self {
            least: value,
            most: value,
        }
    }
}

/// The rules of a release, which the report is of, or to which its memory is put.
#[derive(Clone, Copy)]
pub(super) struct Rules {
    pub(super) era: Era,
    /// True if the report is of another release, whose reserve may have been larger.
    pub(super) is_other: bool,
}

/// The outcome of a zone; `None` if the report lacks its free pages or its mark.
pub(super) fn judge(failure: &PageFailure, of: &FailedZone, rules: Rules) -> Option<Outcome> {
    let access = failure.request.access(rules.era);
    let order = failure.request.order;
    let zone = ZonePages {
        free: of.pages("free")?,
        mark: of.pages("min")?,
        boost: of.pages("boost").unwrap_or(0),
        free_cma: of.pages("free_cma").unwrap_or(0),
        ..ZonePages::default()
    };
    let kept = match failure.lowmem_reserve(of) {
        Some(pages) => Bounds::exactly(pages),
        None if is_highest(failure, of) => Bounds::exactly(0),
        None => Bounds {
            least: 0,
            most: u64::MAX,
        },
    };
    let (reserved, free) = reserve(failure, of, rules.era);
    let limit = limit(failure, of, rules);
    let told = |reserved: u64, free: u64, limit: u64, kept: u64, untold: &str| {
        let given_back = reserved.saturating_sub(limit);
        let is_empty = given_back > 0 && limit == 0;
        let types = BlockTypes::parse(untold).unwrap_or_default();
        let lists = of.lists.iter().map(|list| FreeList {
            types: match list.types {
                told if told.is_empty() => types,
                // Blocks of a reserve that is given back are for all.
                told if is_empty && told.meets(BlockTypes::HIGH_ATOMIC) => {
                    told.and(BlockTypes::parse("U").unwrap_or_default())
                }
                told => told,
            },
            ..*list
        });
        let lists: Vec<FreeList> = lists.collect();
        let pages = ZonePages {
            reserved_high_atomic: reserved - given_back,
            free_high_atomic: free.min(reserved - given_back),
            lowmem_reserve: kept,
            lists: &lists,
            ..zone
        };
        check(rules.era, order, access, &pages)
    };
    let best = told(reserved.least, free.least, limit.least, kept.least, "");
    let worst = told(reserved.most, free.most, limit.most, kept.most, "I");
    // Without lists only pages tell, and not all.
    let is_open = of.lists.is_empty();
    Some(match (best.verdict, worst.verdict) {
        (Verdict::Passes, Verdict::Passes) if is_open => Outcome::Open(worst),
        (Verdict::Passes, Verdict::Passes) => Outcome::Passes(worst),
        (Verdict::Passes, _) => Outcome::Open(worst),
        _ => Outcome::Fails(best),
    })
}

/// True if the report lists no zone of the node behind it: there is none to keep pages from requests for.
pub(super) fn is_highest(failure: &PageFailure, of: &FailedZone) -> bool {
    let zones = failure.zones.iter();
    let mut behind = zones.skip_while(|other| *other != of).skip(1);
    behind.all(|other| other.zone.node != of.zone.node)
}

/// Pages of the reserve, and free ones of them.
fn reserve(failure: &PageFailure, of: &FailedZone, era: Era) -> (Bounds, Bounds) {
    let has = |list: &FreeList| list.types.meets(BlockTypes::HIGH_ATOMIC);
    let orders = || of.lists.iter().zip(0_u32..);
    let pages = |blocks: u64, order: u32| blocks.saturating_mul(1 << order);
    // Of each order that has the type at least a block is of it; if it alone has, all.
    let least = orders().filter(|(list, _)| has(list) && list.blocks > 0);
    let least = least.map(|(list, order)| match list.types {
        BlockTypes::HIGH_ATOMIC => pages(list.blocks, order),
        _ => pages(1, order),
    });
    let least = least.fold(0, u64::saturating_add);
    let most = orders().filter(|(list, _)| has(list) || list.types.is_empty());
    let most = most.map(|(list, order)| pages(list.blocks, order));
    let most = match of.lists.is_empty() {
        true => u64::MAX,
        false => most.fold(0, u64::saturating_add),
    };
    let all = of.zone.managed().max(of.pages("free").unwrap_or(0));
    let reserved = match of.pages("reserved_highatomic") {
        Some(told) => Bounds::exactly(told),
        None => {
            let limits = block_pages(failure, of).map(|block| limit_of(of, era, block));
            Bounds {
                least,
                most: limits.into_iter().max().unwrap_or(0).min(all).max(least),
            }
        }
    };
    let free = match of.pages("free_highatomic") {
        Some(told) => Bounds::exactly(told),
        None => Bounds {
            least: least.min(reserved.most),
            most: most.min(reserved.most),
        },
    };
    (reserved, free)
}

/// The least and the largest block that the kernel may have been built with, in pages.
fn block_pages(failure: &PageFailure, of: &FailedZone) -> [u64; 2] {
    let page = failure.page_bytes.unwrap_or(BLOCK_BYTES_MIN);
    let least = (BLOCK_BYTES_MIN / page.max(1)).max(1);
    let largest = of.lists.len().saturating_sub(1).min(31);
    [least, (1 << largest).max(least)]
}

fn limit_of(of: &FailedZone, era: Era, block: u64) -> u64 {
    let managed = of.zone.managed();
    // A line that is cut has neither number.
    match managed {
        0 => u64::MAX,
        _ => reserve_limit(era, managed, block),
    }
}

/// The reserve that the rules allow at most, if the report is of other ones.
fn limit(failure: &PageFailure, of: &FailedZone, rules: Rules) -> Bounds {
    if !rules.is_other {
        return Bounds::exactly(u64::MAX);
    }
    if failure.request.kind == Kind::Killed && empties_reserve_before_kill(rules.era) {
        return Bounds::exactly(0);
    }
    let [one, other] = block_pages(failure, of).map(|block| limit_of(of, rules.era, block));
    Bounds {
        least: one.min(other),
        most: one.max(other),
    }
}

/// Releases that the report can be of, as places in [`SPANS`], by its release, else by its form.
pub(super) fn spans(failure: &PageFailure, release: Option<&str>) -> Vec<usize> {
    let place = |era: Era| SPANS.iter().rposition(|(first, _)| era >= *first);
    let told = failure.release.as_deref().or(release);
    if let Some(at) = told.and_then(Era::parse).and_then(place) {
        return vec![at];
    }
    let has = |name: &str| failure.zones.iter().any(|of| of.pages(name).is_some());
    let first = match () {
        () if has("free_highatomic") => 4,
        () if has("boost") => 2,
        () if has("reserved_highatomic") || !failure.request.flags.is_empty() => 1,
        () => 0,
    };
    // Names of flags came with 4.6.
    let last = match failure.request.flags.is_empty() {
        true => first.max(1),
        false => SPANS.len() - 1,
    };
    // A reserve that is larger than the rules allow is of other ones.
    let allows = |span: &usize| {
        let mut zones = failure.zones.iter();
        zones.all(|of| {
            let limits = block_pages(failure, of).map(|block| limit_of(of, SPANS[*span].1, block));
            of.pages("reserved_highatomic")
                .is_none_or(|reserved| limits.iter().any(|limit| reserved <= *limit))
        })
    };
    let all: Vec<usize> = (first..=last).collect();
    let some: Vec<usize> = all.iter().copied().filter(allows).collect();
    if some.is_empty() { all } else { some }
}
