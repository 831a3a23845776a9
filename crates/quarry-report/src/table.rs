//! Tables whose rows a click on a column sorts.

use maud::{Markup, html};

use crate::spec::rounded;

/// A table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Title above the table; empty for none.
    pub title: String,
    /// Columns.
    pub columns: Vec<Column>,
    /// Rows, in the order in which they are shown first.
    pub rows: Vec<Row>,
    /// Rows that are shown at first; a button shows the others. `None` shows all.
    pub shown: Option<usize>,
    /// A sentence below the table; empty for none.
    pub note: String,
    /// True if a narrow screen shows each row as a block with the names of its columns, for columns of long texts.
    pub blocks: bool,
}

/// A column of a table.
#[derive(Clone, Debug, Default)]
pub struct Column {
    /// Name.
    pub name: String,
    /// Meaning, which the header shows under the pointer; empty for none.
    pub about: String,
    /// True for numbers, which are aligned at their end and sorted by value, the largest first.
    pub is_number: bool,
    /// True if the column is shown only after a tick at "all columns".
    pub is_extra: bool,
}

impl Column {
    /// A column of texts.
    pub fn text(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    /// A column of numbers.
    pub fn number(name: impl Into<String>) -> Self {
        Self {
            is_number: true,
            ..Self::text(name)
        }
    }

    /// The column with its meaning.
    #[must_use]
    pub fn about(mut self, about: impl Into<String>) -> Self {
        self.about = about.into();
        self
    }

    /// The column, hidden at first.
    #[must_use]
    pub fn extra(mut self) -> Self {
        self.is_extra = true;
        self
    }
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

impl Tone {
    fn class(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Good => Some("good"),
            Self::Bad => Some("bad"),
            Self::Dim => Some("dim"),
        }
    }
}

/// A cell of a table.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    text: String,
    value: Option<f64>,
    link: Option<String>,
    more: Option<(String, String)>,
    tone: Tone,
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
        self.link = Some(format!("#{id}"));
        self
    }

    /// The cell with a text that a click on a word opens.
    #[must_use]
    pub fn more(mut self, word: impl Into<String>, text: impl Into<String>) -> Self {
        self.more = Some((word.into(), text.into()));
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

    pub(crate) fn markup(&self) -> Markup {
        let has_extra = self.columns.iter().any(|column| column.is_extra);
        let limit = self.shown.filter(|shown| *shown < self.rows.len());
        html! {
            figure.table.blocks[self.blocks] {
                @if !self.title.is_empty() || has_extra {
                    figcaption {
                        (self.title)
                        @if has_extra {
                            label.columns { input type="checkbox"; " all columns" }
                        }
                    }
                }
                div.scroll {
                    table data-shown=[limit] {
                        thead { tr { @for column in &self.columns { (header(column)) } } }
                        tbody { @for row in &self.rows { (self.row_markup(row)) } }
                    }
                }
                @if !self.note.is_empty() { p.note { (self.note) } }
            }
        }
    }

    fn row_markup(&self, row: &Row) -> Markup {
        html! {
            tr {
                @for (column, cell) in self.columns.iter().zip(&row.cells) {
                    td.n[column.is_number].extra[column.is_extra] data-column=[self.blocks.then_some(&column.name)] data-value=[cell.value.map(rounded)] {
                        (content(cell))
                    }
                }
            }
        }
    }
}

fn header(column: &Column) -> Markup {
    let about = Some(&column.about).filter(|about| !about.is_empty());
    html! {
        th.n[column.is_number].extra[column.is_extra] scope="col" title=[about] {
            button type="button" { (column.name) }
        }
    }
}

fn content(cell: &Cell) -> Markup {
    let text = html! {
        @match &cell.link {
            Some(link) => a href=(link) { (cell.text) },
            None => (cell.text),
        }
    };
    html! {
        @match cell.tone.class() {
            Some(class) => span class=(class) { (text) },
            None => (text),
        }
        @if let Some((word, more)) = &cell.more {
            details { summary { (word) } (more) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_have_values_and_texts_are_escaped() {
        let mut table = Table::new([
            Column::text("a<b"),
            Column::number("n").about("bytes").extra(),
        ])
        .shown(1);
        table.row([Cell::text("<script>"), Cell::number("1 KiB", 1024.0)]);
        table.row([Cell::text("x").more("why", "y & z"), Cell::maybe(None)]);
        let text = table.markup().into_string();
        for part in [
            "<button type=\"button\">a&lt;b</button>",
            "&lt;script&gt;",
            "data-value=\"1024\"",
            "data-shown=\"1\"",
            "title=\"bytes\"",
            "all columns",
            "<details><summary>why</summary>y &amp; z</details>",
            "<span class=\"dim\">-</span>",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        table.shown = Some(2);
        assert!(!table.markup().into_string().contains("data-shown"));
    }
}
