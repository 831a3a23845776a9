//! Ids of the pages on which objects lie, in the order in which these were seen first.

use std::collections::HashMap;

use crate::event::{NO_PAGE, PAGE_GROUP_ORDER};

const GROUP_PAGES: u32 = 1 << PAGE_GROUP_ORDER;

/// A naturally aligned group of pages from before the recording: their ids follow each other.
#[derive(Debug, Default)]
struct Group {
    first_id: u32,
    /// A bit for each page on which an object was seen.
    seen: u8,
    /// A bit for each page that was freed: it is not from before the recording any more.
    freed: u8,
}

const _: () = assert!(GROUP_PAGES == u8::BITS);

#[derive(Debug, Default)]
pub(super) struct PageIds {
    groups: HashMap<u64, Group>,
    next: u32,
}

/// The id of a page of a block, from that of its first page.
pub(super) fn of_block(first_id: u32, order: u8, offset: u32) -> u32 {
    if first_id == NO_PAGE || u32::from(order) > PAGE_GROUP_ORDER {
        first_id
    } else {
        first_id + offset
    }
}

impl PageIds {
    /// All ids are below.
    pub(super) fn count(&self) -> u32 {
        self.next
    }

    /// Ids for a block; gives the first. `None` if the file has no room for more.
    pub(super) fn block(&mut self, order: u8) -> Option<u32> {
        let order = u32::from(order).min(PAGE_GROUP_ORDER);
        let first = self.next.checked_next_multiple_of(1 << order)?;
        let next = first.checked_add(1 << order)?;
        // The file's integers have a sign, and a bit for something else.
        self.next = Some(next).filter(|next| *next < 1 << 30)?;
        Some(first)
    }

    /// The id of a page from before the recording; `None` if it was freed since.
    pub(super) fn old(&mut self, page: u64) -> Option<u32> {
        let key = page >> PAGE_GROUP_ORDER;
        if !self.groups.contains_key(&key) {
            let first_id = self.block(PAGE_GROUP_ORDER as u8)?;
            let group = Group {
                first_id,
                ..Group::default()
            };
            self.groups.insert(key, group);
        }
        let group = self.groups.get_mut(&key)?;
        let at = page as u32 % GROUP_PAGES;
        group.seen |= 1 << at;
        (group.freed >> at & 1 == 0).then_some(group.first_id + at)
    }

    /// A block is freed, or is proved to have been. Gives the id of the first page of it that was from
    /// before the recording until now and on which an object was seen.
    pub(super) fn freed(&mut self, start: u64, order: u8) -> Option<u32> {
        let end = start.saturating_add(1 << order);
        let (mut first, mut page) = (None, start);
        while page < end {
            let at = page as u32 % GROUP_PAGES;
            let count = u64::from(GROUP_PAGES - at).min(end - page);
            let mask = ((1_u32 << count) - 1) << at;
            if let Some(group) = self.groups.get_mut(&(page >> PAGE_GROUP_ORDER)) {
                let seen = u32::from(group.seen & !group.freed) & mask;
                let id = group.first_id + seen.trailing_zeros();
                first = first.or((seen != 0).then_some(id));
                group.freed |= mask as u8;
            }
            page += count;
        }
        first
    }
}
