//! Pages from before the recording on which objects lie, and their ids.

use std::collections::HashMap;

use crate::event::PAGE_GROUP_ORDER;

const GROUP_PAGES: u32 = 1 << PAGE_GROUP_ORDER;

/// A naturally aligned group of pages: their ids follow each other.
#[derive(Debug, Default)]
struct Group {
    first_id: u32,
    /// A bit for each page on which an object was seen.
    seen: u8,
    /// A bit for each page that was freed: it is not old any more.
    freed: u8,
}

const _: () = assert!(GROUP_PAGES == u8::BITS);

/// Ids in the order in which their groups were seen first.
#[derive(Debug, Default)]
pub(super) struct OldPages {
    groups: HashMap<u64, Group>,
    ids: u32,
}

impl OldPages {
    /// All ids are below.
    pub(super) fn ids(&self) -> u32 {
        self.ids
    }

    /// The id of a page on which an object lies; `None` if it was freed since.
    pub(super) fn id(&mut self, page: u64) -> Option<u32> {
        // Pages of real machines are numbered with 52 bits, ids of a file with 31.
        let next = self.ids;
        let room = next.checked_add(GROUP_PAGES).filter(|ids| *ids < 1 << 31);
        let group = match self.groups.entry(page >> PAGE_GROUP_ORDER) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => {
                self.ids = room?;
                entry.insert(Group {
                    first_id: next,
                    ..Group::default()
                })
            }
        };
        let at = page as u32 % GROUP_PAGES;
        group.seen |= 1 << at;
        (group.freed >> at & 1 == 0).then_some(group.first_id + at)
    }

    /// A block is freed, or is proved to have been. True if an object was seen on a page of it that was
    /// old until now.
    pub(super) fn freed(&mut self, start: u64, order: u8) -> bool {
        let pages = 1_u64 << order;
        let mut slab = false;
        let mut page = start;
        while page < start.saturating_add(pages) {
            let at = page as u32 % GROUP_PAGES;
            let count = u64::from(GROUP_PAGES - at).min(start + pages - page);
            let mask = ((1_u32 << count) - 1) << at;
            if let Some(group) = self.groups.get_mut(&(page >> PAGE_GROUP_ORDER)) {
                slab |= u32::from(group.seen & !group.freed) & mask != 0;
                group.freed |= mask as u8;
            }
            page += count;
        }
        slab
    }
}
