//! Who has each line.
//!
//! Little of a machine's memory is touched, and of that its caches have little. So lines are in chunks. A chunk gets a
//! number when one of its lines is first asked for; its lines' states have room while a cache has one of them.

use super::line::{Line, Packed};

/// Lines of a chunk: those of a page of 4 KiB, mostly.
const CHUNK_LINES: usize = 64;
/// Chunks of a table.
const TABLE_CHUNKS: usize = 4096;
/// Lines from here on have tables of their own: a machine puts what is outside of its ranges far behind these.
const FAR: usize = 1 << 50;
/// Most chunks: a line's number fits into a word. Chunks of the 256 GiB that are touched beyond share numbers.
const CHUNKS_MAX: usize = 1 << 26;

/// The number of a line that was asked for: the same as long as the machine lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct LineId(u32);

impl LineId {
    /// As tags have it: 0 is none.
    pub(super) fn tag(self) -> u32 {
        self.0.wrapping_add(1)
    }

    pub(super) fn of_tag(tag: u32) -> Option<Self> {
        tag.checked_sub(1).map(Self)
    }

    fn chunk(self) -> usize {
        self.0 as usize / CHUNK_LINES
    }

    fn place(self) -> usize {
        self.0 as usize % CHUNK_LINES
    }
}

/// Some lines that follow each other.
struct Chunk {
    /// The first of them.
    first: usize,
    /// The number of their block; [`NO_BLOCK`] while no cache has one of them.
    block: u32,
    /// Those of them that a cache has.
    held: u32,
}

const NO_BLOCK: u32 = u32::MAX;

/// The states of a chunk's lines.
type Block = [Packed; CHUNK_LINES];

/// Numbers of chunks, plus one; 0 of those that have none.
type Table = Box<[u32; TABLE_CHUNKS]>;

/// All lines.
#[derive(Default)]
pub(super) struct Directory {
    /// Tables of near lines, and of far ones.
    tables: [Vec<Option<Table>>; 2],
    chunks: Vec<Chunk>,
    blocks: Vec<Block>,
    free_blocks: Vec<u32>,
    /// Lines that several CPUs or clusters have.
    wide: Vec<Line>,
    free_wide: Vec<u32>,
}

impl Directory {
    /// The number of a line.
    #[inline(always)]
    pub(super) fn id(&mut self, line: usize) -> LineId {
        let (far, chunk) = (line / FAR, line % FAR / CHUNK_LINES);
        let table = self.tables[far.min(1)].get(chunk / TABLE_CHUNKS);
        let number = match table {
            Some(Some(table)) => table[chunk % TABLE_CHUNKS],
            _ => 0,
        };
        let number = match number {
            0 => self.number(line),
            number => number,
        };
        LineId(((number - 1) as usize * CHUNK_LINES + line % CHUNK_LINES) as u32)
    }

    /// Gives the chunk of a line a number. Returns it, plus one.
    #[cold]
    fn number(&mut self, line: usize) -> u32 {
        let (far, chunk) = (line / FAR, line % FAR / CHUNK_LINES);
        let tables = &mut self.tables[far.min(1)];
        if tables.len() <= chunk / TABLE_CHUNKS {
            tables.resize_with(chunk / TABLE_CHUNKS + 1, || None);
        }
        let number = match self.chunks.len() {
            CHUNKS_MAX => chunk % CHUNKS_MAX,
            next => {
                self.chunks.push(Chunk {
                    first: line - line % CHUNK_LINES,
                    block: NO_BLOCK,
                    held: 0,
                });
                next
            }
        };
        let number = number as u32 + 1;
        let table = tables[chunk / TABLE_CHUNKS].get_or_insert_with(|| Box::new([0; TABLE_CHUNKS]));
        table[chunk % TABLE_CHUNKS] = number;
        number
    }

    /// The line that has a number.
    #[inline]
    pub(super) fn line(&self, id: LineId) -> usize {
        self.chunks[id.chunk()].first + id.place()
    }

    #[inline(always)]
    fn packed(&self, id: LineId) -> Packed {
        let block = self.chunks[id.chunk()].block;
        match self.blocks.get(block as usize) {
            Some(block) => block[id.place()],
            None => Packed::NONE,
        }
    }

    #[inline]
    fn unpacked(&self, packed: Packed) -> Line {
        match packed.entry() {
            Some(entry) => self.wide[entry as usize],
            None => packed.line(),
        }
    }

    /// Who has a line.
    #[inline]
    pub(super) fn get(&self, id: LineId) -> Line {
        self.unpacked(self.packed(id))
    }

    /// True if a CPU has a line, to itself if `exclusive`.
    #[inline(always)]
    pub(super) fn has(&self, id: LineId, cpu: u32, exclusive: bool) -> bool {
        let packed = self.packed(id);
        match packed.entry() {
            None => packed.is_held_by(cpu, exclusive),
            Some(entry) => {
                let line = &self.wide[entry as usize];
                line.holders.has(cpu) && (line.exclusive || !exclusive)
            }
        }
    }

    /// Says who has a line from now on.
    #[inline]
    pub(super) fn set(&mut self, id: LineId, line: Line) {
        let was = self.packed(id);
        if let Some(entry) = was.entry() {
            self.free_wide.push(entry);
        }
        let packed = line.packed().unwrap_or_else(|| {
            let entry = self.free_wide.pop().unwrap_or_else(|| {
                self.wide.push(line);
                self.wide.len() as u32 - 1
            });
            self.wide[entry as usize] = line;
            Packed::wide(entry)
        });
        if packed == was {
            return;
        }
        let chunk = &mut self.chunks[id.chunk()];
        if chunk.held == 0 {
            chunk.block = match self.free_blocks.pop() {
                Some(block) => block,
                None => {
                    self.blocks.push([Packed::NONE; CHUNK_LINES]);
                    self.blocks.len() as u32 - 1
                }
            };
        }
        self.blocks[chunk.block as usize][id.place()] = packed;
        chunk.held += u32::from(packed != Packed::NONE);
        chunk.held -= u32::from(was != Packed::NONE);
        if chunk.held == 0 {
            // All of its lines are as those of a new one.
            self.free_blocks.push(chunk.block);
            chunk.block = NO_BLOCK;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::line::Few;
    use super::*;

    fn held_by(cpus: &[u32]) -> Line {
        Line {
            holders: cpus.iter().fold(Few::default(), |all, &cpu| all.with(cpu)),
            exclusive: cpus.len() == 1,
            ..Line::default()
        }
    }

    #[test]
    fn lines_keep_their_numbers_and_their_holders() {
        let mut directory = Directory::default();
        let lines = [0, 1, 63, 64, 1 << 20, (1 << 37) + 5, FAR, 4 * FAR + 70];
        let ids = lines.map(|line| directory.id(line));
        for (n, (&id, line)) in ids.iter().zip(lines).enumerate() {
            assert_eq!(directory.id(line), id);
            assert_eq!(directory.line(id), line);
            assert_eq!(LineId::of_tag(id.tag()), Some(id));
            assert_eq!(directory.get(id), Line::default());
            let cpus = [n as u32, 90];
            directory.set(id, held_by(&cpus[..1 + n % 2]));
        }
        for (n, &id) in ids.iter().enumerate() {
            let line = held_by(&[n as u32, 90][..1 + n % 2]);
            assert_eq!(directory.get(id), line);
            assert!(directory.has(id, n as u32, false));
            assert_eq!(directory.has(id, n as u32, true), n % 2 == 0);
            assert_eq!(directory.has(id, 90, false), n % 2 == 1);
        }
    }

    #[test]
    fn chunks_that_no_cache_has_a_line_of_take_no_room() {
        let mut directory = Directory::default();
        for page in 0..1000 {
            let ids = [page * 64, page * 64 + 9].map(|line| directory.id(line));
            for line in [held_by(&[1, 2]), Line::default()] {
                ids.iter().for_each(|&id| directory.set(id, line));
            }
        }
        let room = (directory.blocks.len(), directory.wide.len());
        assert_eq!((room, directory.chunks.len()), ((1, 2), 1000));
        // What is left of one does not show in the next one.
        let [first, second] = [0, 64].map(|line| directory.id(line));
        directory.set(second, held_by(&[1]));
        assert_eq!(directory.get(first), Line::default());
    }
}
