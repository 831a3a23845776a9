//! Tags of caches: the lines that they have room for.

use super::directory::LineId;
use crate::memory::advise_huge;

/// A cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLevel {
    /// Its size.
    pub bytes: u64,
    /// Lines of a set.
    pub ways: u32,
    /// Cost of a hit, in picoseconds.
    pub hit: u64,
}

impl CacheLevel {
    /// True if it is one or more sets of lines.
    pub(crate) fn holds_whole_sets(&self, line_bytes: u32) -> bool {
        let set_bytes = u64::from(self.ways) * u64::from(line_bytes);
        set_bytes > 0 && self.bytes > 0 && self.bytes.is_multiple_of(set_bytes)
    }
}

/// The lines in a cache: of each set, the last used first.
pub(super) struct Tags {
    /// Index of the first set: sets of 16 lines are each in one line of the host's caches.
    begin: usize,
    ways: usize,
    sets: usize,
    choice: Choice,
    /// [`LineId::tag`] of each; 0 where there is none.
    tags: Vec<u32>,
}

/// Tags of a line of the host's caches.
const HOST_LINE: usize = 16;

/// Function that finds a line's set.
#[derive(Clone, Copy)]
enum Choice {
    /// By its lowest bits, of a power of two of sets.
    Bits,
    /// By the remainder of its number.
    Remainder,
    /// By a hash of it.
    Hash,
}

impl Tags {
    /// An empty cache, whose sets a hash of the line chooses, or its lowest bits.
    pub(super) fn new(level: CacheLevel, line_bytes: u32, hashed: bool) -> Self {
        let lines = (level.bytes / u64::from(line_bytes)) as usize;
        let ways = level.ways as usize;
        let sets = (lines / ways).max(1);
        let choice = match hashed {
            true => Choice::Hash,
            false if sets.is_power_of_two() => Choice::Bits,
            false => Choice::Remainder,
        };
        let mut tags = vec![0_u32; lines + HOST_LINE];
        advise_huge(&mut tags);
        let begin = tags.as_ptr().align_offset(HOST_LINE * size_of::<u32>());
        Self {
            begin: begin.min(HOST_LINE),
            ways,
            sets,
            choice,
            tags,
        }
    }

    #[inline(always)]
    fn first(&self, line: usize) -> usize {
        let number = match self.choice {
            Choice::Bits => line & (self.sets - 1),
            Choice::Remainder => line % self.sets,
            // The upper half of a product with 2^64 divided by the golden ratio: all bits of the line are in it.
            Choice::Hash => (line.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % self.sets,
        };
        self.begin + number * self.ways
    }

    #[inline(always)]
    fn set(&mut self, line: usize) -> &mut [u32] {
        let first = self.first(line);
        &mut self.tags[first..first + self.ways]
    }

    /// The line that has to leave when another one comes.
    pub(super) fn next_to_leave(&self, line: usize) -> Option<LineId> {
        LineId::of_tag(self.tags[self.first(line) + self.ways - 1])
    }

    /// True if a line is there; it is the last used then.
    #[inline(always)]
    pub(super) fn touch(&mut self, line: usize, id: LineId) -> bool {
        let set = self.set(line);
        let tag = id.tag();
        if set[0] == tag {
            return true;
        }
        let place = set.iter().position(|&other| other == tag);
        if let Some(place) = place {
            set[..=place].rotate_right(1);
        }
        place.is_some()
    }

    /// Brings a line in, as the last used. Returns the line that has to leave.
    #[inline]
    pub(super) fn bring(&mut self, line: usize, id: LineId) -> Option<LineId> {
        let set = self.set(line);
        let tag = id.tag();
        let place = set.iter().position(|&other| other == tag);
        if let Some(place) = place {
            set[..=place].rotate_right(1);
            return None;
        }
        set.rotate_right(1);
        LineId::of_tag(std::mem::replace(&mut set[0], tag))
    }
}

#[cfg(test)]
mod tests {
    use super::super::directory::Directory;
    use super::*;

    /// Tags that are asked by lines.
    struct Named(Tags, Directory);

    impl Named {
        fn new(level: CacheLevel, hashed: bool) -> Self {
            Self(Tags::new(level, 64, hashed), Directory::default())
        }

        fn touch(&mut self, line: usize) -> bool {
            self.0.touch(line, self.1.id(line))
        }

        fn bring(&mut self, line: usize) -> Option<usize> {
            let left = self.0.bring(line, self.1.id(line));
            left.map(|id| self.1.line(id))
        }
    }

    #[test]
    fn the_line_unused_for_longest_leaves_its_set() {
        let level = CacheLevel {
            bytes: 4 * 2 * 64,
            ways: 2,
            hit: 1,
        };
        let mut tags = Named::new(level, false);
        assert_eq!((tags.bring(1), tags.bring(5)), (None, None));
        assert!(tags.touch(1));
        assert_eq!(tags.bring(2), None, "another set");
        assert_eq!(tags.bring(9), Some(5));
        assert!(tags.touch(1) && tags.touch(9) && !tags.touch(5));
    }

    #[test]
    fn a_cache_is_whole_sets() {
        let level = |bytes, ways| CacheLevel {
            bytes,
            ways,
            hit: 1,
        };
        assert!(level(30 << 20, 20).holds_whole_sets(64));
        assert!(!level(1000, 2).holds_whole_sets(64));
        assert!(!level(0, 2).holds_whole_sets(64));
        assert!(!level(1024, 0).holds_whole_sets(64));
    }

    #[test]
    fn lines_a_page_apart_meet_in_few_sets_unless_these_are_hashed() {
        let level = CacheLevel {
            bytes: 1 << 20,
            ways: 16,
            hit: 1,
        };
        let left = |hashed| {
            let mut tags = Named::new(level, hashed);
            (0..4096).filter_map(|page| tags.bring(page * 64)).count()
        };
        assert_eq!(left(false), 4096 - 16 * 16, "16 sets of 16");
        assert!(left(true) < 50, "{}", left(true));
    }
}
