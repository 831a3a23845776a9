//! Places of objects that some event was about.

use std::collections::BTreeMap;

/// Objects lie at multiples of this many bytes in every allocator.
const GRANULE: u32 = 8;

/// A bit for each granule of the pages on which objects were seen: a sixty-fourth of their memory.
#[derive(Debug, Default)]
pub(super) struct Places {
    touched: BTreeMap<u64, Vec<u64>>,
}

impl Places {
    /// Notes an object at this offset of a page. True if none was noted there before.
    pub(super) fn touch(&mut self, page: u64, offset: u32) -> bool {
        let words = self.touched.entry(page).or_default();
        let granule = offset / GRANULE;
        let (word, bit) = ((granule / u64::BITS) as usize, granule % u64::BITS);
        if words.len() <= word {
            words.resize(word + 1, 0);
        }
        let fresh = words[word] >> bit & 1 == 0;
        words[word] |= 1 << bit;
        fresh
    }

    /// A block was freed, or allocated for something else.
    pub(super) fn forget(&mut self, start: u64, order: u8) {
        let end = start.saturating_add(1 << order);
        while let Some((page, _)) = self.touched.range(start..end).next() {
            let page = *page;
            self.touched.remove(&page);
        }
    }
}
