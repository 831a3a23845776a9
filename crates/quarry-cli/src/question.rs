//! Questions from the command line.

use quarry_ask::{Asked, Axis, Door, Part, cells, fields};
use quarry_lab::ask::HeapFile;

use crate::error::usage;
use crate::output;

/// The question of options. What an answer does not run in one plan has one value here.
pub(crate) fn of<Q: Part>(asked: &Asked<Q>) -> anyhow::Result<Q> {
    let question = asked.question().map_err(usage)?;
    for field in fields::<Q>().iter().filter(|field| !field.inner) {
        let name = field.name;
        if cells(&question, |field| field.name == name).len() > 1 {
            let option = field.spelled(Door::Command);
            return Err(usage(format!(
                "{option} takes one value; quarry sweep asks for each of several"
            )));
        }
    }
    Ok(question)
}

/// `FILE#STAGE`, as questions have it.
pub(crate) fn heap(file: &str, stage: Option<&str>) -> String {
    stage.map_or_else(|| file.to_string(), |stage| format!("{file}#{stage}"))
}

/// Notes what the report of a heap does not say.
pub(crate) fn note_heap(heap: &Axis<HeapFile>) {
    for file in heap.all() {
        for guess in file.booted.guessed() {
            output::note(&format!("{}: {guess}", file.name()));
        }
    }
}
