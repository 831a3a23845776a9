//! The direct map: page frame number of an address.
//!
//! A kernel maps all memory once, in a row, so that address = base + (page frame number << shift). The
//! base differs between machines and, with a randomised layout, between boots; the trace does not tell
//! it. But an object that is allocated soon after a page block, on the same CPU, often lies in that
//! block: then address and block give the base. Each such pair is a vote; pairs that have nothing to do
//! with each other vote for bases at random. The direct map is made of huge pages, so bases that are no
//! multiple of the smallest huge page are no candidates, which leaves one pair in 512 of those that
//! are wrong.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;

use crate::build::{HASH_LIMIT, PAGE_SIZE_ASSUMED};

/// The smallest huge page of the machines that Linux runs on: 2 MiB.
const BASE_ALIGN: u64 = 2 << 20;
/// The last blocks of a CPU that are compared with an object.
const RECENT_BLOCKS: usize = 8;
/// Blocks that must agree on a base.
const VOTES_MIN: usize = 16;
/// How many times more they must be than those for any other base.
const VOTES_RATIO: usize = 4;
/// Candidates that are kept at most: with more the search gives up, as none of them can be right.
const CANDIDATES_MAX: usize = 1 << 14;

/// The search for the base, and what it found.
#[derive(Debug, Default)]
pub(super) struct DirectMap {
    /// Base and shift.
    found: Option<(u64, u32)>,
    shift: u32,
    /// Start and order of each CPU's last blocks.
    recent: HashMap<u16, VecDeque<(u64, u8)>>,
    /// Blocks by the base that they vote for.
    votes: HashMap<u64, HashSet<u64>>,
    given_up: bool,
}

impl DirectMap {
    pub(super) fn is_found(&self) -> bool {
        self.found.is_some()
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

    pub(super) fn page_alloc(&mut self, cpu: u16, start: u64, order: u8, page_bytes: u32) {
        if self.found.is_some() || self.given_up {
            return;
        }
        let page_bytes = if page_bytes == 0 {
            PAGE_SIZE_ASSUMED
        } else {
            page_bytes
        };
        self.shift = page_bytes.ilog2();
        let recent = self.recent.entry(cpu).or_default();
        if recent.len() == RECENT_BLOCKS {
            recent.pop_front();
        }
        recent.push_back((start, order));
    }

    pub(super) fn object_alloc(&mut self, cpu: u16, address: u64) {
        if self.found.is_some() || self.given_up || address < HASH_LIMIT {
            return;
        }
        let mut grown = None;
        for (start, order) in self.recent.get(&cpu).into_iter().flatten() {
            let block_bytes = 1 << (u32::from(*order) + self.shift);
            let Some(base) = (address & !(block_bytes - 1)).checked_sub(start << self.shift) else {
                continue;
            };
            if base % BASE_ALIGN == 0 && self.votes.entry(base).or_default().insert(*start) {
                grown = Some(base);
            }
        }
        if let Some(base) = grown {
            self.decide(base);
        }
    }

    fn decide(&mut self, base: u64) {
        let votes = self.votes.get(&base).map_or(0, HashSet::len);
        let others = self.votes.iter().filter(|(other, _)| **other != base);
        let most = others.map(|(_, blocks)| blocks.len()).max().unwrap_or(0);
        if votes >= VOTES_MIN && votes >= VOTES_RATIO * most {
            self.found = Some((base, self.shift));
        }
        self.given_up = self.votes.len() > CANDIDATES_MAX;
        if self.found.is_some() || self.given_up {
            (self.recent, self.votes) = (HashMap::new(), HashMap::new());
        }
    }
}
