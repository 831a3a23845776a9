//! Questions from the command line.

use quarry_ask::{Asked, Axis, Door, Part, fields, outer};
use quarry_lab::ask::HeapFile;

use crate::error::usage;
use crate::terminal;

/// The question of options, which may have lists of what no plan runs at once.
pub(crate) fn lists<Q: Part>(asked: &Asked<Q>) -> anyhow::Result<Q> {
    asked.question().map_err(usage)
}

/// The question of options of a command that answers once.
pub(crate) fn of<Q: Part>(asked: &Asked<Q>) -> anyhow::Result<Q> {
    let question = lists(asked)?;
    match outer(&question).as_slice() {
        [(_, asked), _, ..] => {
            let fields = fields::<Q>();
            let several = fields.iter().find(|field| asked.contains_key(field.name));
            let option = several.map_or_else(String::new, |field| field.spelled(Door::Command));
            Err(usage(format!("{option} takes one value")))
        }
        _ => Ok(question),
    }
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
