//! Columns of tables: name, members that they show, form and meaning.

use std::borrow::Cow;

use serde_json::Value;

use crate::{Cell, Table, units, value};

/// A column of a table, or a line of one whose runs are side by side.
#[derive(Clone, Debug)]
pub struct Column {
    /// Name; indented if it is a part of the column before it.
    pub name: Cow<'static, str>,
    /// Paths of the members that it shows, below the row, with spaces between. Their doc comments are its meaning.
    pub fields: Cow<'static, str>,
    /// Facts that are not about a member: a unit, a ratio, a condition. [`crate::View::explain`] puts the meaning before it.
    pub about: String,
    /// Form of the cells.
    pub form: Form,
    /// Readers that see it.
    pub level: Level,
    /// True if it is left out where it has nothing but 0, or no text.
    is_rare: bool,
    own: Own,
}

/// Readers that see a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// All.
    #[default]
    First,
    /// Those who ask for all columns. Without a value in any row it is left out.
    More,
}

/// Form of a column's cells: of the sum of its members. A row that lacks one of them has `-`; so has a part of nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Form {
    /// A text.
    Text,
    /// Bytes with a unit.
    Bytes,
    /// Bytes with a sign.
    Change,
    /// A count.
    Count,
    /// A count with a sign.
    More,
    /// Numbers by order, from order 0 on; a line for each that is not 0.
    Orders,
    /// Part of the sum of these members, in per cent.
    Of(&'static str),
    /// A share of 1, in per cent.
    Share,
    /// A change by a share of 1, in per cent with a sign.
    Ratio,
    /// Events per second.
    Rate,
    /// Nanoseconds; `-` if the member's struct has the `count` 0.
    Ns,
    /// Nanoseconds in milliseconds.
    Ms,
    /// Seconds as a time for people.
    Seconds,
    /// Cache lines per operation.
    Lines,
    /// A number with three digits or more.
    Number,
    /// Number for each 1000 of these members.
    Per1000(&'static str),
    /// A bar as long as this part of the largest, with the column's own member as the full part of it. Pages have charts.
    Bar(&'static str),
}

/// A value that code makes of a row.
#[derive(Clone, Copy, Debug)]
enum Own {
    None,
    Number(fn(&Value) -> Option<f64>),
    Text(fn(&Value) -> String),
}

/// A column of members below a row.
pub fn column(name: impl Into<Cow<'static, str>>, fields: &'static str, form: Form) -> Column {
    Column {
        name: name.into(),
        fields: fields.into(),
        about: String::new(),
        form,
        level: Level::First,
        is_rare: false,
        own: Own::None,
    }
}

impl Column {
    /// A column of texts.
    pub fn text(name: impl Into<Cow<'static, str>>) -> Self {
        column(name, "", Form::Text)
    }

    /// A column of numbers.
    pub fn number(name: impl Into<Cow<'static, str>>) -> Self {
        column(name, "", Form::Count)
    }

    /// The column with facts about it.
    #[must_use]
    pub fn about(mut self, about: impl Into<String>) -> Self {
        self.about = about.into();
        self
    }

    /// The column for readers who ask for all.
    #[must_use]
    pub fn more(mut self) -> Self {
        self.level = Level::More;
        self
    }

    /// The column, left out where it has nothing but 0, or no text.
    #[must_use]
    pub fn rare(mut self) -> Self {
        self.is_rare = true;
        self
    }

    /// The column with numbers that a function makes of rows.
    #[must_use]
    pub fn computed(mut self, number: fn(&Value) -> Option<f64>) -> Self {
        self.own = Own::Number(number);
        self
    }

    /// The column with texts that a function makes of rows; numbers are sorted by their value still.
    #[must_use]
    pub fn worded(mut self, text: fn(&Value) -> String) -> Self {
        self.own = Own::Text(text);
        self
    }

    /// The column with members at these paths.
    #[must_use]
    pub fn of(mut self, fields: String) -> Self {
        self.fields = fields.into();
        self
    }

    /// The name in one line.
    #[must_use]
    pub fn plain(&self) -> String {
        self.name.trim().replace('\n', " ")
    }

    /// Paths of the members below the rows at `of`, without names of items.
    pub fn paths<'a>(&'a self, of: &'a str) -> impl Iterator<Item = String> + 'a {
        self.fields.split_whitespace().map(move |field| {
            let names = of.split('.').chain(field.split('.'));
            let names = names.filter(|name| !name.is_empty() && !name.starts_with('='));
            names.collect::<Vec<_>>().join(".")
        })
    }

    /// True for numbers, which are aligned at their end and sorted by value.
    #[must_use]
    pub fn is_number(&self) -> bool {
        !matches!(self.form, Form::Text | Form::Bar(_))
    }

    /// True for bars of a terminal.
    #[must_use]
    pub fn is_bar(&self) -> bool {
        matches!(self.form, Form::Bar(_))
    }

    /// The number of a row; `None` if it has none, or lists several.
    #[must_use]
    pub fn value(&self, row: &Value) -> Option<f64> {
        if let Own::Number(number) = self.own {
            return number(row);
        }
        let fields = self.fields.as_ref();
        match self.form {
            Form::Text | Form::Orders => None,
            Form::Of(whole) | Form::Per1000(whole) => {
                let (part, whole) = (sum(row, fields)?, sum(row, whole)?);
                let all = if matches!(self.form, Form::Of(_)) {
                    1.0
                } else {
                    1000.0
                };
                (whole > 0.0).then(|| part * all / whole)
            }
            Form::Ns => {
                let of = fields.rsplit_once('.').map_or("", |(of, _)| of);
                let is_empty = value::at(row, of)["count"] == 0;
                sum(row, fields).filter(|_| !is_empty)
            }
            Form::Bar(whole) => sum(row, whole),
            _ => sum(row, fields),
        }
    }

    /// The cell of a row.
    #[must_use]
    pub fn cell(&self, row: &Value) -> Cell {
        let number = self.value(row);
        let fields = self.fields.as_ref();
        let text = match (self.own, self.form, number) {
            (Own::Text(text), ..) => text(row),
            (_, Form::Orders, _) => orders(value::at(row, fields)),
            (_, Form::Text, _) => match value::at(row, fields) {
                Value::String(text) => text.clone(),
                Value::Null => "-".to_string(),
                other => other.to_string(),
            },
            (.., Some(number)) => self.form.print(number),
            (.., None) => return Cell::maybe(None),
        };
        Cell {
            part: sum(row, fields).filter(|_| self.is_bar()),
            value: number,
            ..Cell::text(text)
        }
    }
}

impl Form {
    /// A number in this form.
    #[must_use]
    pub fn print(self, number: f64) -> String {
        match self {
            Self::Bytes => units::bytes(number as u64),
            Self::Change => units::signed(number as i128),
            Self::Count => units::count(number as u64),
            Self::More => {
                let sign = if number < 0.0 { '-' } else { '+' };
                format!("{sign}{}", units::count(number.abs() as u64))
            }
            Self::Of(_) | Self::Share => format!("{:.1} %", number * 100.0),
            // Not "-0.0".
            // A small loss keeps its sign.
            Self::Ratio if number == 0.0 => "+0.0 %".to_string(),
            Self::Ratio => format!("{:+.1} %", (number * 1000.0).round() / 10.0),
            Self::Rate => units::rate(number),
            Self::Ns => format!("{number:.1}"),
            Self::Ms => format!("{:.3}", number / 1e6),
            Self::Seconds => units::duration(number),
            Self::Lines => format!("{number:.3}"),
            Self::Per1000(_) if number > 0.0 && number < 0.005 => "<0.01".to_string(),
            Self::Number | Self::Per1000(_) => units::number(number),
            Self::Text | Self::Orders | Self::Bar(_) => String::new(),
        }
    }
}

/// The sum of the numbers at paths with spaces between; `None` if the row lacks one of them.
fn sum(row: &Value, fields: &str) -> Option<f64> {
    let mut fields = fields.split_whitespace();
    let first = value::number(row, fields.next()?)?;
    fields.try_fold(first, |sum, path| Some(sum + value::number(row, path)?))
}

/// A line for each order that has some.
fn orders(list: &Value) -> String {
    let counts = list.as_array().into_iter().flatten();
    let counts = counts.filter_map(Value::as_u64).enumerate();
    let lines = counts.filter(|(_, count)| *count > 0);
    let lines = lines.map(|(order, count)| format!("{order}: {:>5}", units::count(count)));
    lines.collect::<Vec<_>>().join("\n")
}

/// A table's columns, and the place of its rows in an answer.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Contents, as a heading.
    pub title: &'static str,
    /// Path of the rows.
    pub rows: &'static str,
    /// Rows that are shown at first; 0 for all.
    pub first: usize,
    /// The columns.
    pub columns: fn() -> Vec<Column>,
}

impl Spec {
    /// The table of the rows of an answer.
    #[must_use]
    pub fn of(&self, answer: &Value) -> Table {
        match value::at(answer, self.rows) {
            Value::Array(rows) => self.table(rows),
            one => self.table([one]),
        }
    }

    /// The table of rows.
    #[must_use]
    pub fn table<'a>(&self, rows: impl IntoIterator<Item = &'a Value>) -> Table {
        self.led(Vec::new(), rows.into_iter().map(|row| (Vec::new(), row)))
    }

    /// The table of rows that begin with columns of their own.
    #[must_use]
    pub fn led<'a>(
        &self,
        lead: Vec<Column>,
        rows: impl IntoIterator<Item = (Vec<Cell>, &'a Value)>,
    ) -> Table {
        let own = (self.columns)();
        let (mut heads, mut own_cells) = (Vec::new(), Vec::new());
        for (head, row) in rows {
            heads.push(head);
            own_cells.push(
                own.iter()
                    .map(|column| column.cell(row))
                    .collect::<Vec<_>>(),
            );
        }
        let is_text = |cell: &Cell| !["", "-"].contains(&cell.text.as_str());
        let is_told = |(at, column): &(usize, &Column)| {
            let mut cells = own_cells.iter().map(|cells: &Vec<Cell>| &cells[*at]);
            match column.level {
                _ if column.is_rare => {
                    cells.any(|cell| cell.value.map_or_else(|| is_text(cell), |of| of != 0.0))
                }
                Level::More => cells.any(is_text),
                Level::First => true,
            }
        };
        let told: Vec<usize> = own
            .iter()
            .enumerate()
            .filter(is_told)
            .map(|(at, _)| at)
            .collect();
        let columns = told.iter().map(|at| own[*at].clone());
        let mut table = Table::new(lead.into_iter().chain(columns));
        table.of = self.rows;
        table.shown = Some(self.first).filter(|first| *first > 0);
        for (head, cells) in heads.into_iter().zip(&own_cells) {
            table.row(
                head.into_iter()
                    .chain(told.iter().map(|at| cells[*at].clone())),
            );
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cells_have_their_forms() {
        let row = json!({"a": 2048, "b": 2048, "t": {"count": 0, "mean": 1.0}, "o": [0, 1200]});
        let text = |fields, form| column("x", fields, form).cell(&row).text;
        assert_eq!(text("a b", Form::Bytes), "4 KiB");
        assert_eq!(text("a", Form::Of("a b")), "50.0 %");
        assert_eq!(text("a", Form::More), "+2 048");
        assert_eq!(text("t.mean", Form::Ns), "-");
        assert_eq!(text("o", Form::Orders), "1: 1 200");
        assert_eq!(text("absent", Form::Count), "-");
        assert_eq!(Form::Ratio.print(-0.0001), "-0.0 %");
        assert_eq!(Form::Ratio.print(0.0), "+0.0 %");
    }

    #[test]
    fn columns_that_say_nothing_are_left_out() {
        const SPEC: Spec = Spec {
            title: "Rows",
            rows: "rows",
            first: 0,
            columns: || {
                vec![
                    column("a", "a", Form::Count),
                    column("b", "b", Form::Count).more(),
                    column("c", "c", Form::Count).rare(),
                ]
            },
        };
        let names = |answer: &Value| -> Vec<String> {
            let columns = SPEC.of(answer).columns;
            columns.iter().map(Column::plain).collect()
        };
        assert_eq!(names(&json!({"rows": [{"a": 1, "c": 0}]})), ["a"]);
        let all = json!({"rows": [{"a": 1, "c": 0}, {"b": 0, "c": 2}]});
        assert_eq!(names(&all), ["a", "b", "c"]);
        assert_eq!(
            column("x", "=A.b c", Form::Count)
                .paths("runs")
                .collect::<Vec<_>>(),
            ["runs.b", "runs.c"]
        );
    }
}
