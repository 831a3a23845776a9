//! The text of a block map, which snapshots keep.
//!
//! Rows are runs of blocks with equal counts; blocks without memory have none.

use std::fmt::{self, Display};

use super::{BLOCK_BYTES, Block, BlockMap, Pages};
use crate::file::ReportError;
use crate::words::{Lines, number, quoted};

const HEAD: &str = "quarry blocks - version: 1";
const COLUMNS: &str = "# first blocks free movable slab page_tables kernel untold cached";
/// Names above the columns.
const FIELDS: [&str; 4] = [
    "page_bytes",
    "block_bytes",
    "on_cpu_lists",
    "is_free_guessed",
];
/// Numbers of a row.
const ROW_NUMBERS: usize = 9;

/// True for the first line of a map in a text that may have others.
pub(crate) fn begins(line: &str) -> bool {
    line == HEAD
}

/// True for a line that can stand below another one of a map.
pub(crate) fn goes_on(line: &str) -> bool {
    let is_number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
    let words = line.split_ascii_whitespace();
    let is_row = words.clone().all(is_number) && words.count() == ROW_NUMBERS;
    let is_field = |(name, value)| FIELDS.contains(&name) && is_number(value);
    line == COLUMNS || is_row || line.split_once(' ').is_some_and(is_field)
}

impl Display for BlockMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEAD}")?;
        writeln!(f, "page_bytes {}", self.page_bytes)?;
        writeln!(f, "block_bytes {BLOCK_BYTES}")?;
        if let Some(pages) = self.on_cpu_lists {
            writeln!(f, "on_cpu_lists {pages}")?;
        }
        if self.is_free_guessed {
            writeln!(f, "is_free_guessed 1")?;
        }
        writeln!(f, "{COLUMNS}")?;
        let same_run = |a: &Block, b: &Block| a.pages == b.pages && a.index + 1 == b.index;
        for run in self.blocks.chunk_by(same_run) {
            write!(f, "{} {}", run[0].index, run.len())?;
            for count in run[0].pages.counts() {
                write!(f, " {count}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

impl BlockMap {
    /// Parses the text. `file` is for messages.
    ///
    /// # Errors
    ///
    /// [`ReportError::Bad`] with the line.
    pub fn parse(file: &str, text: &str) -> Result<Self, ReportError> {
        Lines::new(file, text).within(parse)
    }
}

fn parse(lines: &mut Lines<'_>) -> Result<BlockMap, String> {
    let head = lines.next().unwrap_or_default();
    if head != HEAD {
        return Err(format!("{HEAD:?} is expected, not {}", quoted(head)));
    }
    let mut map = BlockMap::default();
    while let Some(line) = lines.next() {
        if line == COLUMNS {
            break;
        }
        let (name, value) = line.split_once(' ').unwrap_or((line, ""));
        let value: u64 = number(name, value)?;
        match name {
            "page_bytes" => map.page_bytes = value,
            "block_bytes" if value == BLOCK_BYTES => {}
            "block_bytes" => return Err(format!("blocks have {BLOCK_BYTES} bytes, not {value}")),
            "on_cpu_lists" => map.on_cpu_lists = Some(value),
            "is_free_guessed" => map.is_free_guessed = value != 0,
            _ => return Err(format!("{} is not known", quoted(name))),
        }
    }
    if !map.page_bytes.is_power_of_two() || !(4096..=BLOCK_BYTES).contains(&map.page_bytes) {
        return Err(format!(
            "page_bytes: {} is not the size of a page",
            map.page_bytes
        ));
    }
    let mut next = 0_u32;
    while let Some(line) = lines.next() {
        let mut words = line.split_ascii_whitespace();
        let mut number = |name| number::<u32>(name, words.next().unwrap_or_default());
        let (first, blocks) = (number("first")?, number("blocks")?);
        let mut counts = [0; 7];
        let names = [
            "free",
            "movable",
            "slab",
            "page_tables",
            "kernel",
            "untold",
            "cached",
        ];
        for (count, name) in counts.iter_mut().zip(names) {
            *count = number(name)?;
        }
        let [kinds @ .., cached] = counts;
        let sum = kinds.iter().map(|count| u64::from(*count)).sum::<u64>();
        let fits = sum <= BLOCK_BYTES / map.page_bytes && cached <= counts[1];
        let end = first
            .checked_add(blocks)
            .filter(|end| *end > first && first >= next);
        let Some(end) = end.filter(|_| fits && words.next().is_none()) else {
            return Err(format!(
                "{} is no run of blocks behind block {next}",
                quoted(line)
            ));
        };
        // A few bytes may claim billions of blocks: more than 64 TiB are refused.
        if map.blocks.len() as u64 + u64::from(blocks) > BLOCKS_MAX {
            return Err(format!("more than {BLOCKS_MAX} blocks"));
        }
        let pages = Pages::of_counts(counts.map(|count| count as u16));
        map.blocks
            .extend((first..end).map(|index| Block { index, pages }));
        next = end;
    }
    Ok(map)
}

/// Blocks of 64 TiB.
pub(super) const BLOCKS_MAX: u64 = 1 << 25;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_gives_the_map_again() {
        let block = |index, free, slab| Block {
            index,
            pages: Pages {
                free,
                slab,
                ..Pages::default()
            },
        };
        let map = BlockMap {
            page_bytes: 4096,
            on_cpu_lists: Some(7),
            is_free_guessed: true,
            blocks: vec![
                block(0, 512, 0),
                block(1, 512, 0),
                block(3, 512, 0),
                block(4, 500, 12),
            ],
        };
        let text = map.to_string();
        assert!(
            text.ends_with("\n0 2 512 0 0 0 0 0 0\n3 1 512 0 0 0 0 0 0\n4 1 500 0 12 0 0 0 0\n"),
            "{text}"
        );
        assert_eq!(BlockMap::parse("blocks", &text).unwrap(), map);
    }

    #[test]
    fn rows_that_cannot_be_are_refused() {
        let with = |row: &str| {
            let text = format!(
                "{HEAD}\npage_bytes 4096\nblock_bytes {BLOCK_BYTES}\n{COLUMNS}\n5 1 1 0 0 0 0 0 0\n{row}\n"
            );
            BlockMap::parse("blocks", &text).map_err(|error| error.to_string())
        };
        assert!(with("6 1 500 10 2 0 0 0 5").is_ok());
        for (row, told) in [
            ("5 1 1 0 0 0 0 0 0", "behind block 6"),
            ("6 0 1 0 0 0 0 0 0", "behind block 6"),
            ("6 1 500 10 3 0 0 0 0", "behind block 6"),
            ("6 1 500 10 2 0 0 0 11", "behind block 6"),
            ("6 1 1 0 0 0 0 0 0 0", "behind block 6"),
            ("6 1 1 0 0 0 0 0", "cached"),
            ("6 4294967295 0 0 0 0 0 1 0", "behind block 6"),
            ("6 4000000000 0 0 0 0 0 1 0", "more than"),
        ] {
            let error = with(row).unwrap_err();
            assert!(error.contains(told) && error.contains("line 6"), "{error}");
        }
    }
}
