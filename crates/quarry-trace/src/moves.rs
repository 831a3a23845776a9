//! Pages that the page allocator moves from list to list: events that the footer keeps, as a replay makes its own.

use serde::{Deserialize, Serialize};

/// Events of lists of free pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageMoves {
    /// Allocations that took a block of another type, by time. The first [`PageMoves::EVENTS_MAX`].
    pub extfrags: Vec<Extfrag>,
    /// Number of all of them.
    pub extfrag_events: u64,
    /// True if the recorder switched `mm_page_alloc_extfrag` on.
    #[serde(default)]
    pub extfrag_on: bool,
    /// Pages that CPUs' lists gave back to their zone, by time. The first [`PageMoves::EVENTS_MAX`].
    pub drains: Vec<Drain>,
    /// Number of all of them.
    pub drain_events: u64,
    /// True if the recorder switched `mm_page_pcpu_drain` on.
    #[serde(default)]
    pub drain_on: bool,
}

impl PageMoves {
    /// Most events of a kind that the footer has; further ones are only counted.
    pub const EVENTS_MAX: usize = 100_000;

    /// Those in a window.
    pub(crate) fn within(&self, from_ns: Option<u64>, until_ns: Option<u64>) -> Self {
        if (from_ns, until_ns) == (None, None) {
            return self.clone();
        }
        let window = from_ns.unwrap_or(0)..until_ns.unwrap_or(u64::MAX);
        let is_in = |time_ns: u64| window.contains(&time_ns);
        let mut part = self.clone();
        part.extfrags.retain(|event| is_in(event.time_ns));
        part.drains.retain(|event| is_in(event.time_ns));
        part.extfrag_events = part.extfrags.len() as u64;
        part.drain_events = part.drains.len() as u64;
        part
    }

    /// True if there are none, and none were switched on.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn add_extfrag(&mut self, event: Extfrag) {
        self.extfrag_events += 1;
        if self.extfrags.len() < Self::EVENTS_MAX {
            self.extfrags.push(event);
        }
    }

    pub(crate) fn add_drain(&mut self, event: Drain) {
        self.drain_events += 1;
        if self.drains.len() < Self::EVENTS_MAX {
            self.drains.push(event);
        }
    }
}

type ExtfragRow = (
    u64,
    u16,
    i32,
    u64,
    [u8; 2],
    [i8; 2],
    Option<bool>,
    Option<bool>,
);

/// `mm_page_alloc_extfrag`: an allocation took a free block of another migrate type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "ExtfragRow", into = "ExtfragRow")]
pub struct Extfrag {
    /// Time by the events' clock.
    pub time_ns: u64,
    /// The CPU that allocated.
    pub cpu: u16,
    /// The running thread.
    pub pid: i32,
    /// Frame number of the first page that was taken.
    pub pfn: u64,
    /// Order that was asked for.
    pub alloc_order: u8,
    /// Order of the free block that was taken.
    pub fallback_order: u8,
    /// Migrate type that was asked for.
    pub alloc_type: i8,
    /// Migrate type of the block.
    pub fallback_type: i8,
    /// True if the free block was smaller than a pageblock, so that the types mix; `None` if that is unknown.
    pub fragmenting: Option<bool>,
    /// True if the pageblock got the type that was asked for; `None` if the kernel does not tell.
    pub change_ownership: Option<bool>,
}

impl From<ExtfragRow> for Extfrag {
    fn from(row: ExtfragRow) -> Self {
        let (time_ns, cpu, pid, pfn, orders, types, fragmenting, change_ownership) = row;
        Self {
            time_ns,
            cpu,
            pid,
            pfn,
            alloc_order: orders[0],
            fallback_order: orders[1],
            alloc_type: types[0],
            fallback_type: types[1],
            fragmenting,
            change_ownership,
        }
    }
}

impl From<Extfrag> for ExtfragRow {
    fn from(event: Extfrag) -> Self {
        (
            event.time_ns,
            event.cpu,
            event.pid,
            event.pfn,
            [event.alloc_order, event.fallback_order],
            [event.alloc_type, event.fallback_type],
            event.fragmenting,
            event.change_ownership,
        )
    }
}

type DrainRow = (u64, u16, u64, u8, i8);

/// `mm_page_pcpu_drain`: a CPU's list gave a free block back to its zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "DrainRow", into = "DrainRow")]
pub struct Drain {
    /// Time by the events' clock.
    pub time_ns: u64,
    /// The CPU that drained: mostly the one that has the list.
    pub cpu: u16,
    /// Frame number of the block's first page.
    pub pfn: u64,
    /// Order of the block.
    pub order: u8,
    /// Migrate type of the free list that it went to.
    pub migratetype: i8,
}

impl From<DrainRow> for Drain {
    fn from((time_ns, cpu, pfn, order, migratetype): DrainRow) -> Self {
        Self {
            time_ns,
            cpu,
            pfn,
            order,
            migratetype,
        }
    }
}

impl From<Drain> for DrainRow {
    fn from(event: Drain) -> Self {
        let Drain {
            time_ns,
            cpu,
            pfn,
            order,
            migratetype,
        } = event;
        (time_ns, cpu, pfn, order, migratetype)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_a_footer_are_short_and_whole() {
        let extfrag = Extfrag {
            time_ns: 5,
            cpu: 1,
            pid: 7,
            pfn: 1 << 34,
            alloc_order: 2,
            fallback_order: 9,
            alloc_type: 0,
            fallback_type: 1,
            fragmenting: None,
            change_ownership: Some(true),
        };
        let drain = Drain {
            time_ns: 6,
            cpu: 1,
            pfn: 512,
            order: 3,
            migratetype: 2,
        };
        let mut moves = PageMoves {
            extfrag_on: true,
            ..PageMoves::default()
        };
        moves.add_extfrag(extfrag);
        for _ in 0..=PageMoves::EVENTS_MAX {
            moves.add_drain(drain);
        }
        assert_eq!(moves.drains.len(), PageMoves::EVENTS_MAX);
        assert_eq!(moves.drain_events, PageMoves::EVENTS_MAX as u64 + 1);
        let text = serde_json::to_string(&moves).unwrap();
        let row = "[5,1,7,17179869184,[2,9],[0,1],null,true]";
        assert!(text.contains(row) && text.contains("[6,1,512,3,2]"));
        assert_eq!(serde_json::from_str::<PageMoves>(&text).unwrap(), moves);
        let part = moves.within(None, Some(6));
        assert_eq!((part.extfrag_events, part.drain_events), (1, 0));
        assert!(part.extfrag_on && !part.is_empty());
    }
}
