//! Tables of cells, as wide as the output.

use std::fmt;

use comfy_table::{Cell, CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};

use super::text::width;

/// A line under the header and nothing else, so that a table can be searched and cut.
const STYLE: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// A table with a header; columns after the first are numbers unless `text_columns` names them.
pub(super) fn table(header: &[&str], text_columns: &[usize]) -> Table {
    let mut table = Table::new();
    table
        .load_style(STYLE)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(width());
    table.set_header(header.iter().enumerate().map(|(column, name)| {
        let left = column == 0 || text_columns.contains(&column);
        Cell::new(name).set_alignment(alignment(left))
    }));
    for (index, column) in table.column_iter_mut().enumerate() {
        let left = index == 0 || text_columns.contains(&index);
        column.set_cell_alignment(alignment(left));
    }
    table
}

/// A table of names and values, without a header.
pub(crate) fn card() -> Table {
    let mut table = Table::new();
    table
        .load_style(STYLE)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(width());
    table
}

fn alignment(left: bool) -> CellAlignment {
    if left {
        CellAlignment::Left
    } else {
        CellAlignment::Right
    }
}

/// Lets a table grow beyond the width rather than break its cells.
fn unbroken(mut table: Table) -> Table {
    table.set_content_arrangement(ContentArrangement::Disabled);
    table
}

/// Tables of these rows, the header first, as wide as the output: columns that do not fit go to a table below it, which
/// begins with the first column again. A cell may have lines.
fn groups(rows: &[Vec<String>], text_columns: &[usize]) -> Vec<String> {
    let columns = rows.first().map_or(0, Vec::len);
    let width_of = |column: usize| {
        let lines = rows
            .iter()
            .filter_map(|row| row.get(column))
            .flat_map(|cell| cell.lines());
        // A space on both sides, and one between columns.
        lines.map(|line| line.chars().count()).max().unwrap_or(0) + 3
    };
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut taken = 0;
    for column in 1..columns {
        let wide = width_of(column);
        match groups.last_mut() {
            Some(group) if taken + wide <= usize::from(width()) + 1 => group.push(column),
            _ => {
                groups.push(vec![column]);
                taken = width_of(0);
            }
        }
        taken += wide;
    }
    let table_of = |group: &Vec<usize>| {
        let cells = |row: &Vec<String>| -> Vec<String> {
            let at = std::iter::once(0).chain(group.iter().copied());
            at.filter_map(|column| row.get(column).cloned()).collect()
        };
        let mut rows = rows.iter().map(cells);
        let header = rows.next().unwrap_or_default();
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        let text = |at: &usize| {
            group
                .get(at - 1)
                .is_some_and(|of| text_columns.contains(of))
        };
        let text: Vec<usize> = (1..=group.len()).filter(text).collect();
        let mut table = unbroken(table(&header, &text));
        table.add_rows(rows);
        table.to_string()
    };
    groups.iter().map(table_of).collect()
}

/// A run's title as the header of a column: what is in brackets has lines of its own.
pub(crate) fn column(title: &str) -> String {
    let Some((design, set)) = title.split_once(" (") else {
        return title.to_string();
    };
    let set = set.trim_end_matches(')').replace(' ', "\n");
    format!("{design}\n{set}")
}

/// A table that is never wider than the output: its columns go into tables below each other.
pub(crate) struct Grid {
    rows: Vec<Vec<String>>,
    text_columns: Vec<usize>,
}

/// A [`Grid`] with a header; columns after the first are numbers unless `text_columns` names them.
pub(crate) fn grid(header: &[&str], text_columns: &[usize]) -> Grid {
    Grid {
        rows: vec![header.iter().map(ToString::to_string).collect()],
        text_columns: text_columns.to_vec(),
    }
}

impl Grid {
    /// Adds a row with a cell for each column.
    pub(crate) fn add_row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }
}

impl fmt::Display for Grid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&groups(&self.rows, &self.text_columns).join("\n\n"))
    }
}
