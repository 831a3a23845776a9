//! The direct map: page frame number of an address.
//!
//! A kernel maps all memory once, in a row, so that address = base + (page frame number << shift). The
//! base differs between machines and, with a randomised layout, between boots; the trace does not tell
//! it. But an object that is allocated soon after a page block, on the same CPU, often lies in that
//! block: then address and block give the base. Each such pair is a vote; pairs that have nothing to do
//! with each other vote for bases at random. The direct map is made of huge pages, so bases that are no
//! multiple of the smallest huge page are no candidates. That leaves one pair in 512 of the wrong ones.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;

use crate::addresses::HASH_LIMIT;

/// The smallest huge page of the machines that Linux runs on: 2 MiB.
const BASE_ALIGN: u64 = 2 << 20;
/// The last blocks of a CPU that are compared with an object.
const RECENT_BLOCKS: usize = 8;
/// Blocks that must agree on a base.
const VOTES_MIN: usize = 16;
/// Least ratio of these votes to those for any other base.
const VOTES_RATIO: usize = 4;
/// Candidates that are kept at most: with more the search gives up, as none of them can be right.
const CANDIDATES_MAX: usize = 1 << 14;

/// Pages of the machines that Linux runs on, as powers of two.
const SHIFTS: [u32; 3] = [12, 14, 16];

/// The search for the base, and what it found.
///
/// If the page size is not known each of [`SHIFTS`] is tried. With a wrong one, the distance of an address
/// from its page frame depends on the frame: no two blocks vote for one base.
#[derive(Debug, Default)]
pub(super) struct DirectMap {
    /// Base and shift.
    found: Option<(u64, u32)>,
    /// Start and order of each CPU's last blocks.
    recent: HashMap<u16, VecDeque<(u64, u8)>>,
    /// One for each page size that is possible.
    searches: Vec<Search>,
}

/// The search with one page size.
#[derive(Debug, Default)]
struct Search {
    shift: u32,
    /// Blocks by the base that they vote for.
    votes: HashMap<u64, HashSet<u64>>,
}

impl Search {
    /// An object at `address` may lie in this block. Gives the base, if the block votes for it for the
    /// first time.
    fn vote(&mut self, start: u64, order: u8, address: u64) -> Option<u64> {
        let block_bytes = 1_u64.checked_shl(u32::from(order) + self.shift)?;
        let physical = start.checked_mul(1 << self.shift)?;
        let base = (address & !(block_bytes - 1)).checked_sub(physical)?;
        let is_new = base % BASE_ALIGN == 0 && self.votes.entry(base).or_default().insert(start);
        is_new.then_some(base)
    }
}

impl DirectMap {
    pub(super) fn is_found(&self) -> bool {
        self.found.is_some()
    }

    /// Bytes of a page, if the base was found.
    pub(super) fn page_bytes(&self) -> Option<u32> {
        self.found.map(|(_, shift)| 1 << shift)
    }

    /// The page frame that an address lies in, and where in it, if that is known.
    pub(super) fn page_of(&self, address: u64) -> Option<(u64, u32)> {
        let (base, shift) = self.found?;
        let physical = address.checked_sub(base)?;
        Some((physical >> shift, (physical & ((1 << shift) - 1)) as u32))
    }

    /// The addresses of a block of pages, if they are known and can be.
    pub(super) fn addresses(&self, start: u64, order: u8) -> Option<Range<u64>> {
        let (base, shift) = self.found?;
        let address = |page: u64| base.checked_add(page.checked_mul(1 << shift)?);
        let end = start.checked_add(1_u64.checked_shl(order.into())?)?;
        Some(address(start)?..address(end)?)
    }

    /// Takes a block of pages of `page_bytes`, 0 if that is not known.
    pub(super) fn page_alloc(&mut self, cpu: u16, start: u64, order: u8, page_bytes: u32) {
        if self.found.is_some() {
            return;
        }
        if self.searches.is_empty() && self.recent.is_empty() {
            let known = (page_bytes != 0).then(|| page_bytes.ilog2());
            let shifts = SHIFTS.into_iter().filter(|_| known.is_none()).chain(known);
            let search = |shift| Search {
                shift,
                ..Search::default()
            };
            self.searches = shifts.map(search).collect();
        }
        let recent = self.recent.entry(cpu).or_default();
        if recent.len() == RECENT_BLOCKS {
            recent.pop_front();
        }
        recent.push_back((start, order));
    }

    pub(super) fn object_alloc(&mut self, cpu: u16, address: u64) {
        if self.found.is_some() || self.searches.is_empty() || address < HASH_LIMIT {
            return;
        }
        for at in 0..self.searches.len() {
            let mut grown = None;
            for (start, order) in self.recent.get(&cpu).into_iter().flatten() {
                grown = self.searches[at].vote(*start, *order, address).or(grown);
            }
            if grown.is_some_and(|base| self.decide(at, base)) {
                (self.recent, self.searches) = (HashMap::new(), Vec::new());
                return;
            }
        }
        self.searches
            .retain(|search| search.votes.len() <= CANDIDATES_MAX);
    }

    /// Returns true if the search at `at` has found its base.
    fn decide(&mut self, at: usize, base: u64) -> bool {
        let search = &self.searches[at];
        let votes = search.votes.get(&base).map_or(0, HashSet::len);
        if votes < VOTES_MIN {
            return false;
        }
        let shift = search.shift;
        let all = self.searches.iter().flat_map(|search| {
            let votes = search.votes.iter();
            votes.map(|(base, blocks)| ((*base, search.shift), blocks.len()))
        });
        let most = all
            .filter(|(other, _)| *other != (base, shift))
            .map(|(_, votes)| votes)
            .max();
        if votes < VOTES_RATIO * most.unwrap_or(0) {
            return false;
        }
        self.found = Some((base, shift));
        true
    }
}
