//! Questions from the command line.

use quarry_ask::{Asked, Axis, Part};
use quarry_lab::ask::HeapFile;

use crate::error::usage;
use crate::terminal;

/// The question of options.
pub(crate) fn of<Q: Part, const LISTS: bool>(asked: &Asked<Q, LISTS>) -> anyhow::Result<Q> {
    asked.question().map_err(usage)
}

/// `FILE#STAGE`, as questions have it.
pub(crate) fn heap(file: &str, stage: Option<&str>) -> String {
    stage.map_or_else(|| file.to_string(), |stage| format!("{file}#{stage}"))
}

/// Notes what the report of a heap does not say.
pub(crate) fn note_heap(heap: &Axis<HeapFile>) {
    for file in heap.all() {
        for guess in file.booted.guessed() {
            terminal::note(&format!("{}: {guess}", file.name()));
        }
    }
}
