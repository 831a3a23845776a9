//! Map of memory: a cell for each block, by the kind of page that spoils it.

use quarry_snapshot::blocks::{BLOCK_BYTES, BlockMap, PageSums};
use quarry_view::units::{bytes, count};
use quarry_view::value::{list, number, text};
use quarry_view::{Cells, Chart, Kind};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// Cells of a row: with the smallest, a row is 1 GiB.
const CELLS: u64 = 512;
/// Rows that a map has at most: cells of larger machines are larger.
const ROWS_MAX: u64 = 1024;
/// Parts of a block's pages up to which few of them are the kernel's.
const FEW: u64 = 8;

/// Kinds of cells: letter, and meaning. Capitals have more than an eighth of their pages of that kind.
const KINDS: [(char, &str); 9] = [
    ('.', "all free"),
    ('m', "no page of the kernel"),
    ('u', "no such page, but some without a flag"),
    ('s', "slabs alone, in few pages"),
    ('S', "slabs alone"),
    ('b', "slabs and other kernel pages, few"),
    ('B', "slabs and other kernel pages"),
    ('k', "other kernel pages, few"),
    ('K', "other kernel pages"),
];

/// A map of memory.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct MemoryMap {
    /// Bytes of a cell.
    pub cell_bytes: u64,
    /// Rows of 512 cells by ascending address; those without memory are left out.
    pub rows: Vec<MapRow>,
}

/// Memory at 512 cells.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct MapRow {
    /// Address of the first cell.
    pub address: u64,
    /// A letter for each cell: `.` all free, `m` no page of the kernel, `u` the same with pages without a flag, `s` slabs as the only
    /// kernel pages, `k` other kernel pages, `b` both; capitals if these are more than an eighth. A blank is no memory.
    pub cells: String,
    /// Pages of the row by kind.
    #[serde(flatten)]
    pub pages: PageSums,
}

impl MemoryMap {
    pub(super) fn of(map: &BlockMap) -> Self {
        let end = map
            .blocks
            .last()
            .map_or(0, |block| u64::from(block.index) + 1);
        let rows = end.div_ceil(CELLS).div_ceil(ROWS_MAX).max(1);
        let cell_bytes = rows.next_power_of_two() * BLOCK_BYTES;
        let mut cells = map.by(cell_bytes).peekable();
        let rows = map.by(cell_bytes * CELLS).map(|(row, pages)| {
            let mut letters = String::new();
            while let Some((index, pages)) = cells.next_if(|(index, _)| index / CELLS == row) {
                let blank = (index % CELLS) as usize - letters.len();
                letters.extend(std::iter::repeat_n(' ', blank));
                letters.push(letter(&pages));
            }
            MapRow {
                address: row * CELLS * cell_bytes,
                cells: letters,
                pages,
            }
        });
        let rows = rows.collect();
        Self { cell_bytes, rows }
    }
}

fn letter(pages: &PageSums) -> char {
    let kernels = pages.kernels();
    let kind = match (pages.slab, kernels - pages.slab) {
        (0, 0) if pages.free == pages.all() => return '.',
        (0, 0) if pages.untold > 0 => return 'u',
        (0, 0) => return 'm',
        (_, 0) => 's',
        (0, _) => 'k',
        _ => 'b',
    };
    match kernels.saturating_mul(FEW) > pages.all() {
        true => kind.to_ascii_uppercase(),
        false => kind,
    }
}

/// The map as a chart; `None` without one.
pub(super) fn chart(look: &Value) -> Option<Chart> {
    let map = &look["map"];
    let cell_bytes = number(map, "cell_bytes")? as u64;
    let rows = list(map, "rows").iter().map(|row| {
        let of = |name: &str| number(row, name).unwrap_or(0.0) as u64;
        let pages = [
            ("free", "free"),
            ("movable", "movable"),
            ("slab", "slab"),
            ("page_tables", "page tables"),
            ("kernel", "other kernel"),
            ("untold", "without a flag"),
        ];
        let pages = pages.map(|(name, what)| format!("{} {what}", count(of(name))));
        Cells {
            name: bytes(of("address")),
            cells: text(row, "cells").to_string(),
            about: format!("pages of this row: {}", pages.join(", ")),
        }
    });
    let kinds = KINDS.map(|(letter, name)| Kind {
        letter,
        name: name.to_string(),
    });
    let cell = bytes(cell_bytes);
    let title = format!(
        "Map of memory: a cell for each {cell}, a row for each {}",
        bytes(cell_bytes * CELLS)
    );
    let note = "A page of the kernel keeps its block from being a huge page. Few pages are at most an eighth of the block.";
    Some(Chart::map(&title, &cell, kinds.to_vec(), rows.collect()).noted(note))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "quarry blocks - version: 1\npage_bytes 4096\nblock_bytes 2097152\n\
        # first blocks free movable slab page_tables kernel untold cached\n";

    fn map(rows: &str) -> MemoryMap {
        MemoryMap::of(&BlockMap::parse("blocks", &format!("{HEAD}{rows}")).unwrap())
    }

    #[test]
    fn a_cell_tells_what_spoils_its_block() {
        let rows = "0 2 512 0 0 0 0 0 0\n3 1 100 412 0 0 0 0 0\n4 1 100 411 0 0 0 1 0\n5 1 448 0 64 0 0 0 0\n6 1 447 0 65 0 0 0 0\n\
            7 1 500 0 1 1 0 0 0\n8 1 500 0 0 1 0 3 0\n1024 1 0 0 100 100 100 212 0\n";
        let map = map(rows);
        let cells: Vec<_> = map
            .rows
            .iter()
            .map(|row| (row.address >> 30, row.cells.as_str()))
            .collect();
        assert_eq!(cells, [(0, ".. musSbk"), (2, "B")]);
        assert_eq!((map.cell_bytes, map.rows[0].pages.slab), (BLOCK_BYTES, 130));
        assert!(
            KINDS
                .iter()
                .all(|(letter, _)| ".musSbBkK".contains(*letter))
        );
    }

    #[test]
    fn cells_of_large_machines_are_larger() {
        let map = map("0 1 512 0 0 0 0 0 0\n8388607 1 511 0 1 0 0 0 0\n");
        assert_eq!((map.cell_bytes, map.rows.len()), (32 << 20, 2));
        assert_eq!(map.rows[1].cells.len(), 512);
        assert!(map.rows[1].cells.ends_with('s'));
    }
}
