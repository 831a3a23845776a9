//! Pages of a tracing ring, as `trace_pipe_raw` gives them out.
//!
//! tracefs describes a page in `events/header_page` and the word before each event in
//! `events/header_event`: 5 bits of type or length, 27 bits of time since the event before.
//!
//! | type | meaning | words behind |
//! |---|---|---|
//! | 0 | an event | its length in bytes with this word, then its data |
//! | 1..=28 | an event of as many words | its data |
//! | 29 | padding; with no time to the end of the page | its length |
//! | 30 | adds to the time | bits of the time from 27 on |
//! | 31 | sets the time | bits of the time from 27 on; the top five are the page's |

use std::ops::Range;

use super::format::{Field, FormatProblem, field};

/// Positions of the parts of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingLayout {
    timestamp: Field,
    commit: Field,
    data: Field,
}

impl RingLayout {
    /// Parses `events/header_page`.
    ///
    /// # Errors
    ///
    /// [`FormatProblem`] if a part of a page is missing.
    pub fn parse(text: &str) -> Result<Self, FormatProblem> {
        let lines = text.lines().map(str::trim_start);
        let fields: Result<Vec<Field>, _> = lines
            .filter(|line| line.starts_with("field:"))
            .map(field)
            .collect();
        let fields = fields?;
        let find = |name: &'static str| {
            let found = fields.iter().find(|field| field.name == name);
            found.cloned().ok_or(FormatProblem::Missing(name))
        };
        Ok(Self {
            timestamp: find("timestamp")?,
            commit: find("commit")?,
            data: find("data")?,
        })
    }

    /// Bytes of a page that have no event yet; 0 if it is cut.
    #[must_use]
    pub fn room_bytes(&self, page: &[u8]) -> usize {
        let committed = number(page, &self.commit).map_or(u64::MAX, |word| word & COMMIT_BITS);
        let room = (self.data.size as u64).saturating_sub(committed);
        usize::try_from(room).unwrap_or(0)
    }

    /// Bytes of a page.
    #[must_use]
    pub fn page_bytes(&self) -> usize {
        self.data.offset.saturating_add(self.data.size)
    }
}

/// Bits of the commit word above the length: events before the page were lost, and their number follows
/// the data. The kernel's counters tell losses, so they are passed over.
const COMMIT_BITS: u64 = 0x0fff_ffff;
/// Bits of the time in the word before an event.
const DELTA_BITS: u32 = 27;
/// Bits of an absolute time: the page's own time has the top five.
const STAMP_BITS: u32 = 59;

/// A page under reading.
#[derive(Debug)]
pub struct RingPage {
    bytes: Vec<u8>,
    at: usize,
    end: usize,
    time_ns: u64,
}

impl RingPage {
    /// Begins to read a page; `None` if it is shorter than its head.
    #[must_use]
    pub fn new(layout: &RingLayout, bytes: Vec<u8>) -> Option<Self> {
        let time_ns = number(&bytes, &layout.timestamp)?;
        let commit = number(&bytes, &layout.commit)? & COMMIT_BITS;
        let length = usize::try_from(commit).ok()?;
        let at = layout.data.offset;
        Some(Self {
            end: at.checked_add(length)?.min(bytes.len()),
            bytes,
            at,
            time_ns,
        })
    }

    /// The next event: its time, and where its sample lies. `None` at the end, and where the page cannot be
    /// read on.
    pub fn next_event(&mut self) -> Option<(u64, Range<usize>)> {
        loop {
            let word = self.word()?;
            let (kind, delta) = (word & 31, u64::from(word >> 5));
            match kind {
                29 => {
                    if delta == 0 {
                        self.at = self.end;
                        return None;
                    }
                    self.time_ns = self.time_ns.wrapping_add(delta);
                    let length = self.word()? as usize;
                    self.skip(length.checked_sub(4)?)?;
                }
                30 => {
                    let high = u64::from(self.word()?) << DELTA_BITS;
                    self.time_ns = self.time_ns.wrapping_add(high | delta);
                }
                31 => {
                    let low = u64::from(self.word()?) << DELTA_BITS | delta;
                    let low_bits = (1 << STAMP_BITS) - 1;
                    self.time_ns = self.time_ns & !low_bits | low & low_bits;
                }
                _ => {
                    self.time_ns = self.time_ns.wrapping_add(delta);
                    let length = match kind {
                        0 => (self.word()? as usize).checked_sub(4)?,
                        words => words as usize * 4,
                    };
                    let begin = self.at;
                    self.skip(length)?;
                    return Some((self.time_ns, begin..begin + length));
                }
            }
        }
    }

    /// The bytes that places of samples count in.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn word(&mut self) -> Option<u32> {
        let begin = self.at;
        self.skip(4)?;
        let bytes = self.bytes.get(begin..begin + 4)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    }

    /// Moves behind some bytes. A page that has fewer is read no further.
    fn skip(&mut self, bytes: usize) -> Option<()> {
        let next = self.at.checked_add(bytes).filter(|next| *next <= self.end);
        self.at = next.unwrap_or(self.end);
        next.map(|_| ())
    }
}

fn number(bytes: &[u8], field: &Field) -> Option<u64> {
    let bytes = bytes.get(field.offset..field.offset.checked_add(field.size)?)?;
    Some(match bytes.len() {
        4 => u32::from_ne_bytes(bytes.try_into().ok()?).into(),
        8 => u64::from_ne_bytes(bytes.try_into().ok()?),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
        \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
        \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
        \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";

    fn page(time_ns: u64, commit: u64, words: &[u32]) -> Vec<u8> {
        let mut bytes = [time_ns.to_ne_bytes(), commit.to_ne_bytes()].concat();
        bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        bytes
    }

    fn events(bytes: Vec<u8>) -> Vec<(u64, Range<usize>)> {
        let layout = RingLayout::parse(HEADER).unwrap();
        let mut page = RingPage::new(&layout, bytes).unwrap();
        std::iter::from_fn(|| page.next_event()).collect()
    }

    #[test]
    fn every_type_of_word() {
        let layout = RingLayout::parse(HEADER).unwrap();
        assert_eq!(layout.page_bytes(), 4096);
        let delta = |kind: u32, delta: u32| kind | delta << 5;
        let words = [
            delta(2, 5),
            7,
            7,
            // Two words of data behind the length.
            delta(0, 1),
            12,
            7,
            7,
            delta(30, 3),
            1,
            delta(29, 1),
            8,
            0,
            delta(1, 0),
            7,
            delta(31, 9),
            2,
            delta(1, 1),
            7,
            delta(29, 0),
            delta(1, 0),
        ];
        let found = events(page(100, (words.len() as u64 * 4) | (1 << 31), &words));
        let expected = [
            (105, 20..28),
            (106, 36..44),
            (106 + 3 + (1 << 27) + 1, 68..72),
            ((2 << 27 | 9) + 1, 84..88),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_cut_page_ends() {
        let words = [2 | 5 << 5, 7, 7, 2 | 1 << 5, 7, 7];
        let whole = page(1, 24, &words);
        for length in 0..whole.len() {
            let layout = RingLayout::parse(HEADER).unwrap();
            let read = RingPage::new(&layout, whole[..length].to_vec());
            let count = read.map_or(0, |mut page| {
                std::iter::from_fn(|| page.next_event()).count()
            });
            assert_eq!(count, usize::from(length >= 28));
        }
        // A length that is no length.
        assert_eq!(events(page(1, u64::MAX, &[0, 3])), []);
        assert_eq!(events(page(1, 8, &[29 | 1 << 5, 2])), []);
    }
}
