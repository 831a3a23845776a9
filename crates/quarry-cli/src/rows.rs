//! Rows of tables that compare runs: each has a name and a value, and names the fields of the JSON that it shows.

/// A row of a table, one value per run.
pub(crate) struct Row<R: 'static> {
    /// Name and fields.
    pub(crate) label: Label,
    /// True if the row is printed without `--all`.
    pub(crate) first: bool,
    /// The cell of a run.
    pub(crate) value: fn(&R) -> String,
}

/// A name of a row or a column, and its meaning.
#[derive(Clone, Copy)]
pub(crate) struct Label {
    /// Name, which `quarry explain` takes; indented below the row that it is a part of.
    pub(crate) name: &'static str,
    /// Paths of the fields that it shows, below `runs`, with spaces between. Their doc comments are its meaning.
    fields: &'static str,
    /// Facts about the row that are not about a field: a unit, a ratio, a condition.
    pub(crate) note: &'static str,
}

impl Label {
    /// A name for fields.
    pub(crate) const fn new(name: &'static str, fields: &'static str) -> Self {
        Self {
            name,
            fields,
            note: "",
        }
    }

    /// Adds a note.
    pub(crate) const fn note(self, note: &'static str) -> Self {
        Self { note, ..self }
    }

    /// The name in one line.
    pub(crate) fn plain(&self) -> String {
        self.name.trim().replace('\n', " ")
    }

    /// Paths of the fields below `runs`.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &'static str> {
        self.fields.split_whitespace()
    }
}

impl<R> Row<R> {
    /// Adds a note to the label.
    pub(crate) const fn note(self, note: &'static str) -> Self {
        Self {
            label: self.label.note(note),
            ..self
        }
    }
}

/// A row that is printed without `--all`.
pub(crate) const fn first<R>(
    name: &'static str,
    fields: &'static str,
    value: fn(&R) -> String,
) -> Row<R> {
    Row {
        label: Label::new(name, fields),
        first: true,
        value,
    }
}

/// A row that `--all` prints.
pub(crate) const fn more<R>(
    name: &'static str,
    fields: &'static str,
    value: fn(&R) -> String,
) -> Row<R> {
    Row {
        first: false,
        ..first(name, fields, value)
    }
}

/// A name and the cells of all runs.
pub(crate) fn line(
    name: impl Into<String>,
    cells: impl IntoIterator<Item = String>,
) -> Vec<String> {
    std::iter::once(name.into()).chain(cells).collect()
}
