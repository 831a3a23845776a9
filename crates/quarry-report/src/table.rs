//! Tables whose rows a click on a column sorts.

use maud::{Markup, html};
use quarry_view::{Cell, Column, Level, Row, Table, Tone};

use crate::spec::rounded;

fn class(tone: Tone) -> Option<&'static str> {
    match tone {
        Tone::Plain => None,
        Tone::Good => Some("good"),
        Tone::Bad => Some("bad"),
        Tone::Dim => Some("dim"),
    }
}

fn is_extra(column: &Column) -> bool {
    column.level == Level::More
}

/// Columns, with their places, that are no bars: charts show these.
fn columns(table: &Table) -> impl Iterator<Item = (usize, &Column)> + Clone {
    let all = table.columns.iter().enumerate();
    all.filter(|(_, column)| !column.is_bar())
}

pub(crate) fn markup(table: &Table) -> Markup {
    let has_extra = columns(table).any(|(_, column)| is_extra(column));
    let limit = table.shown.filter(|shown| *shown < table.rows.len());
    html! {
        figure.table.blocks[table.blocks] {
            @if !table.title.is_empty() || has_extra {
                figcaption {
                    (table.title)
                    @if has_extra {
                        label.columns { input type="checkbox"; " all columns" }
                    }
                }
            }
            div.scroll tabindex="0" {
                table data-shown=[limit] {
                    thead { tr { @for (_, column) in columns(table) { (header(column)) } } }
                    tbody { @for row in &table.rows { (row_markup(table, row)) } }
                }
            }
            @if !table.note.is_empty() { p.note { (table.note) } }
        }
    }
}

fn row_markup(table: &Table, row: &Row) -> Markup {
    let cells = columns(table).filter_map(|(at, column)| Some((column, row.cells.get(at)?)));
    html! {
        tr {
            @for (column, cell) in cells {
                td.n[column.is_number()].extra[is_extra(column)] data-column=[table.blocks.then(|| column.plain())] data-value=[cell.value.map(rounded)] {
                    (content(cell))
                }
            }
        }
    }
}

fn header(column: &Column) -> Markup {
    let about = Some(&column.about).filter(|about| !about.is_empty());
    html! {
        th.n[column.is_number()].extra[is_extra(column)] scope="col" title=[about] {
            button type="button" { (column.plain()) }
        }
    }
}

fn content(cell: &Cell) -> Markup {
    let text = html! {
        @match &cell.link {
            Some(id) => a href={ "#" (id) } { (cell.text) },
            None => (cell.text),
        }
    };
    html! {
        @match class(cell.tone) {
            Some(class) => span class=(class) { (text) },
            None => (text),
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
            Column::number("n").about("bytes").more(),
        ])
        .shown(1);
        table.row([Cell::text("<script>"), Cell::number("1 KiB", 1024.0)]);
        table.row([Cell::text("x"), Cell::maybe(None)]);
        let text = markup(&table).into_string();
        for part in [
            "<button type=\"button\">a&lt;b</button>",
            "&lt;script&gt;",
            "data-value=\"1024\"",
            "data-shown=\"1\"",
            "title=\"bytes\"",
            "all columns",
            "<span class=\"dim\">-</span>",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        table.shown = Some(2);
        assert!(!markup(&table).into_string().contains("data-shown"));
    }
}
