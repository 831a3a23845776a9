//! Tables: columns with their meanings, and cells that are texts, most of them with a value.

use crate::Column;

/// A table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Title above the table; empty for none.
    pub title: String,
    /// Path of the rows in the answer, below which the columns' members are; empty if it has no such rows.
    pub of: &'static str,
    /// Columns.
    pub columns: Vec<Column>,
    /// Rows, in the order in which they are shown first.
    pub rows: Vec<Row>,
    /// Rows that are shown at first. `None` shows all.
    pub shown: Option<usize>,
    /// True if the rows are moments: those that are shown first are at equal distances.
    pub is_series: bool,
    /// Columns that say which run a row is. A terminal shows these runs side by side, with a line for each other column;
    /// with 0, the names and values of the only row.
    pub turned: Option<usize>,
    /// A sentence about the table; empty for none.
    pub note: String,
    /// True for columns of long texts: a terminal breaks them, a narrow page shows a block for each row.
    pub blocks: bool,
}

/// A row of a table.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// A cell for each column.
    pub cells: Vec<Cell>,
}

/// Colour of a cell's text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// As the text around it.
    #[default]
    Plain,
    /// Good.
    Good,
    /// Bad.
    Bad,
    /// Paler: of less interest.
    Dim,
}

/// A cell of a table.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    /// Text that people read.
    pub text: String,
    /// Value for sorting.
    pub value: Option<f64>,
    /// A part of the value, which the bar of a terminal has full.
    pub part: Option<f64>,
    /// Id of the section of this page that a link goes to.
    pub link: Option<String>,
    /// Colour.
    pub tone: Tone,
}

impl Cell {
    /// A text.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }

    /// A number as people read it, and its value for sorting.
    pub fn number(text: impl Into<String>, value: f64) -> Self {
        Self {
            value: Some(value),
            ..Self::text(text)
        }
    }

    /// A number that may be absent: then the cell has a dash, and is sorted last.
    pub fn maybe(number: Option<(String, f64)>) -> Self {
        match number {
            Some((text, value)) => Self::number(text, value),
            None => Self::text("-").tone(Tone::Dim),
        }
    }

    /// The cell with a colour.
    #[must_use]
    pub fn tone(mut self, tone: Tone) -> Self {
        self.tone = tone;
        self
    }

    /// The cell as a link to the section of this page with an id.
    #[must_use]
    pub fn link(mut self, id: &str) -> Self {
        self.link = Some(id.to_string());
        self
    }
}

impl Table {
    /// A table without rows.
    pub fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        Self {
            columns: columns.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Adds a row with a cell for each column.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(Row {
            cells: cells.into_iter().collect(),
        });
    }

    /// The table with a title.
    #[must_use]
    pub fn titled(mut self, title: impl Into<String>) -> Self {
        self.title = title.into();
        self
    }

    /// The table with a sentence below it.
    #[must_use]
    pub fn noted(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// The table, with this number of rows shown at first.
    #[must_use]
    pub fn shown(mut self, rows: usize) -> Self {
        self.shown = Some(rows);
        self
    }

    /// The table with its runs side by side in a terminal; this many columns say which run it is.
    #[must_use]
    pub fn turned(mut self, columns: usize) -> Self {
        self.turned = Some(columns);
        self
    }
}
