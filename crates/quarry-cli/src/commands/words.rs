//! Words of tables that are not made of columns by path yet: a field whose doc comment is the meaning, or the meaning itself.
//! `quarry explain` takes them; a test compares them with what commands print.

use quarry_view::{Column, Form, column};

/// A word and its meaning.
fn word(name: &'static str, meaning: &str) -> Column {
    Column::text(name).about(meaning)
}

/// A word, the field that it shows, and its unit.
fn of(name: &'static str, field: &'static str, unit: &str) -> Column {
    column(name, field, Form::Text).about(unit)
}

/// Words of a table: the command that prints it, contents, path of the rows, and the words.
type Words = (
    &'static str,
    &'static str,
    &'static str,
    fn() -> Vec<Column>,
);

pub(crate) const WORDS: &[Words] = &[
    ("replay", "Words of replays", "runs", || {
        vec![
            word(
                "default",
                "The run without any value of the lists that --set has.",
            ),
            word("start", "The first sample of free memory."),
            word("most in use", "The sample with most memory in use."),
            word(
                "most unusable",
                "The sample in which the largest part of the free memory is in blocks below 2 MiB.",
            ),
            word("end", "The last sample of free memory."),
        ]
    }),
    ("what-if", "Columns of what-if", "runs", || {
        vec![
            of("design", "design", ""),
            of("pages", "page_size", ""),
            of("CPUs", "cpus", ""),
        ]
    }),
    ("sweep", "Words of sweeps", "", || {
        vec![word(
            "regret",
            "What a setting needs beyond the best setting of the same case: its worst and its mean over all cases say what it \
             costs to use it for all of them.",
        )]
    }),
    ("info", "Words of recordings", "trace", || {
        vec![
            word(
                "implied frees",
                "Frees without an event that a later event proved: the importer inserted a row for each.",
            ),
            word(
                "frees of nothing",
                "Calls of kfree() without an object. They are events, and have no row.",
            ),
        ]
    }),
];
