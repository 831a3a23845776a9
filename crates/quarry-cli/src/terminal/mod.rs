//! A view as text: sentences at the output's width, tables in groups of columns, no charts.

mod grid;
mod streams;
mod text;

use std::iter::once;

use quarry_view::{Column, Level, Part, Section, Table, View};

pub(crate) use streams::{beside, note, on_terminal, print, print_text, progress_bar};
pub(crate) use text::{known_width, shortened, visible, wrap};

/// Letters of the longest bar.
const BAR_CHARS: f64 = 16.0;
/// Letters of a row's name.
const NAME_CHARS: usize = 40;

/// Parts of a view that are printed.
#[derive(Clone, Copy, Default)]
pub(crate) struct Show<'a> {
    /// Columns that are for those who ask for all.
    pub(crate) all: bool,
    /// Rows of long tables; as many as the tables have at first without it.
    pub(crate) rows: Option<usize>,
    /// Last line; empty for none.
    pub(crate) hint: &'a str,
}

pub(crate) fn print_view(view: &View, show: Show<'_>) -> anyhow::Result<()> {
    print_text(&text(view, show))
}

/// The text of a view.
pub(crate) fn text(view: &View, show: Show<'_>) -> String {
    let warnings = view.warnings.iter().map(|text| format!("warning: {text}"));
    let told = view.findings.iter().cloned().chain(warnings);
    let told: Vec<String> = told.map(|text| wrap(&text)).collect();
    let sections = view.sections.iter().map(|of| section(of, show));
    let blocks = once(told.join("\n"))
        .chain(sections)
        .chain(once(wrap(show.hint)));
    let blocks: Vec<String> = blocks.filter(|block| !block.trim().is_empty()).collect();
    blocks.join("\n\n")
}

/// The heading and what is below it; empty of charts alone.
fn section(section: &Section, show: Show<'_>) -> String {
    let mut lines = Vec::new();
    let mut heading = section.heading.clone();
    // Of charts there is no heading.
    let mut below = None;
    for part in &section.parts {
        if !matches!(part, Part::Heading(_) | Part::Chart(_) | Part::Charts(_)) {
            lines.extend(below.take().map(|text| format!("\n{}", wrap(text))));
        }
        match part {
            Part::Heading(text) => below = Some(text),
            Part::Text(text) | Part::Note(text) => lines.extend(text.lines().map(wrap)),
            Part::Command(words, command) => lines.push(format!("{}\n  {command}", wrap(words))),
            Part::Table(of) => {
                // A command is no part of the table's header.
                if lines
                    .last()
                    .is_some_and(|line| line.contains("\n  quarry "))
                {
                    lines.push(String::new());
                }
                let rows = shown(of, show);
                if rows.is_empty() && !of.rows.is_empty() {
                    continue;
                }
                if rows.len() < of.rows.len() {
                    heading += &format!(": {} of {}", rows.len(), of.rows.len());
                }
                lines.push(cells(of, &rows, show));
                lines.extend(
                    Some(&of.note)
                        .filter(|note| !note.is_empty())
                        .map(|note| wrap(note)),
                );
            }
            Part::Chart(_) | Part::Charts(_) => below = None,
        }
    }
    match lines.is_empty() {
        true => String::new(),
        false => format!("{}\n{}", wrap(&heading), lines.join("\n"))
            .trim_start_matches('\n')
            .to_string(),
    }
}

/// Numbers of the rows that are shown: of a series the first, the last and others at equal distances.
fn shown(table: &Table, show: Show<'_>) -> Vec<usize> {
    let all = table.rows.len();
    let count = table
        .shown
        .map_or(all, |first| show.rows.unwrap_or(first))
        .min(all);
    let place = |at: usize| match table.is_series {
        true => at * (all - 1) / (count - 1).max(1),
        false => at,
    };
    (0..count).map(place).collect()
}

fn cells(table: &Table, rows: &[usize], show: Show<'_>) -> String {
    let lead = table.turned.unwrap_or(0);
    let columns = table.columns.iter().enumerate();
    let columns = columns.filter(|(_, column)| show.all || column.level == Level::First);
    let columns: Vec<(usize, &Column)> = columns.collect();
    let most = |at: usize| {
        let values = table.rows.iter().filter_map(|row| row.cells.get(at)?.value);
        values.fold(0.0, f64::max)
    };
    let cell = |row: usize, at: usize, column: &Column| -> String {
        let Some(cell) = table.rows[row].cells.get(at) else {
            return String::new();
        };
        match (cell.part, column.is_bar()) {
            (Some(part), true) => bar(part, cell.value.unwrap_or(0.0), most(at)),
            _ if at == 0 && table.turned.is_none() && !table.blocks => {
                shortened(&cell.text, NAME_CHARS)
            }
            _ => cell.text.clone(),
        }
    };
    if table.turned == Some(0) {
        let mut card = grid::card();
        for (at, column) in &columns {
            let cells = rows.iter().map(|row| cell(*row, *at, column));
            card.add_row(once(column.name.to_string()).chain(cells));
        }
        return card.trim_fmt();
    }
    if lead > 0 {
        let name = |row: usize| {
            let parts = columns.iter().take(lead).map(|(at, column)| {
                let text = cell(row, *at, column);
                match column.is_number() {
                    true if text == "1" => format!("1 {}", singular(&column.plain())),
                    true => format!("{text} {}", column.plain()),
                    false => grid::column(&text),
                }
            });
            let parts: Vec<String> = parts.filter(|part| !part.is_empty()).collect();
            parts.join("\n")
        };
        let header: Vec<String> = once(String::new())
            .chain(rows.iter().map(|row| name(*row)))
            .collect();
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        let mut grid = grid::grid(&header, &[]);
        for (at, column) in columns.iter().skip(lead) {
            let cells = rows.iter().map(|row| cell(*row, *at, column));
            grid.add_row(once(column.name.to_string()).chain(cells));
        }
        return grid.to_string();
    }
    let header = columns.iter();
    let header = header.map(|(_, column)| grid::column(&column.name.replace(", ", "\n")));
    let header: Vec<String> = header.collect();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let is_text = |(_, (_, column)): &(usize, &(usize, &Column))| !column.is_number();
    let texts: Vec<usize> = columns
        .iter()
        .enumerate()
        .filter(is_text)
        .map(|(at, _)| at)
        .collect();
    if table.blocks {
        let mut wrapped = grid::table(&header, &texts);
        wrapped.add_rows(
            rows.iter()
                .map(|row| columns.iter().map(|(at, column)| cell(*row, *at, column))),
        );
        return wrapped.trim_fmt();
    }
    let mut grid = grid::grid(&header, &texts);
    for row in rows {
        grid.add_row(columns.iter().map(|(at, column)| cell(*row, *at, column)));
    }
    grid.to_string()
}

/// The name of one of many: `CPU` of `CPUs`, `process` of `processes`.
fn singular(name: &str) -> &str {
    let one = name.strip_suffix("es").filter(|one| one.ends_with("ss"));
    one.or_else(|| name.strip_suffix('s')).unwrap_or(name)
}

/// A bar of `whole` with `part` of it full. That of `most` has [`BAR_CHARS`].
fn bar(part: f64, whole: f64, most: f64) -> String {
    let chars = |value: f64| (value / most.max(1.0) * BAR_CHARS).round() as usize;
    let full = chars(part);
    format!(
        "{}{}",
        "█".repeat(full),
        "░".repeat(chars(whole).saturating_sub(full))
    )
}
