//! Rows of a chunk: the columns that name a cell, and those of its report.

use std::collections::BTreeSet;
use std::fs;

use quarry_ask::{Door, Kind as Form};
use quarry_lab::ask::{Answer, Ask, Needs};
use quarry_trace::host_name;
use serde_json::Value;

use crate::answer::{Answered, Host};
use crate::cell::{Cell, Chunk};
use crate::table::{Column, Field, Kind, Table};

/// Key of the version in a table's notes.
pub const VERSION_KEY: &str = "quarry.version";
/// Key of the question.
pub const ASK_KEY: &str = "quarry.ask";

/// Members of a run that its caches' rows have, as `run.NAME`.
const OF_RUN: [(&str, Kind); 4] = [
    ("design", Kind::Text),
    ("era", Kind::Text),
    ("page_size", Kind::Int),
    ("cpus", Kind::Int),
];

/// A row for each run; of a cell that failed one with its error alone.
pub(crate) fn of_runs(chunk: &Chunk, answered: &[Answered]) -> Table {
    let mut rows: Vec<(usize, Value)> = Vec::new();
    for (at, answered) in answered.iter().enumerate() {
        match &answered.runs {
            Ok(runs) => rows.extend(runs.iter().map(|run| (at, run.run.clone()))),
            Err(_) => rows.push((at, Value::Null)),
        }
    }
    let (cells, values): (Vec<usize>, Vec<Value>) = rows.into_iter().unzip();
    let [of_run, _] = chunk.ask.reports();
    let mut table = Table::of_fields(of_run, &values);
    // A sweep has no figure that depends on the computer.
    table.remove("events_per_second");
    let status = |at: &usize| match answered.get(*at).map(|of| &of.runs) {
        Some(Err(_)) => "failed",
        _ => "ok",
    };
    let error = |at: &usize| answered.get(*at)?.runs.as_ref().err().cloned();
    let status = cells.iter().map(|at| Some(status(at).to_string()));
    let outcome = [
        text("status", "`ok`, or `failed` with an `error`.", status),
        text("error", "Cause of a failure.", cells.iter().map(error)),
    ];
    let hosts = cells.iter().map(|at| answered.get(*at).map(|of| &*of.host));
    let hosts: Vec<Option<&Host>> = hosts.collect();
    let has_hosts = chunk.ask.needs() != Needs::Nothing;
    let of_hosts = has_hosts
        .then(|| host_columns(&hosts))
        .into_iter()
        .flatten();
    for (at, (field, column)) in outcome.into_iter().chain(of_hosts).enumerate() {
        table.insert(at, field, column);
    }
    named(chunk, &cells, table)
}

/// Columns of the machines of inputs.
fn host_columns(hosts: &[Option<&Host>]) -> Vec<(Field, Column)> {
    let texts = |of: fn(&Host) -> &Option<String>| {
        let values = hosts.iter().map(move |host| of((*host)?).clone());
        Column::Text(values.collect())
    };
    let numbers = |of: fn(&Host) -> Option<u64>| {
        let values = hosts.iter().map(move |host| of((*host)?)?.try_into().ok());
        Column::Int(values.collect())
    };
    let named = |name: &str, kind: Kind, about: &str, column: Column| {
        (Field::new(&format!("input.{name}"), kind, about), column)
    };
    vec![
        named(
            "release",
            Kind::Text,
            "Kernel of the input's machine.",
            texts(|of| &of.release),
        ),
        named(
            "architecture",
            Kind::Text,
            "Its architecture.",
            texts(|of| &of.architecture),
        ),
        named(
            "page_size",
            Kind::Int,
            "Bytes of its pages.",
            numbers(|of| of.page_bytes),
        ),
        named(
            "cpus",
            Kind::Int,
            "Its CPUs.",
            numbers(|of| of.cpus.map(u64::from)),
        ),
        named(
            "memory_bytes",
            Kind::Int,
            "Bytes of its memory.",
            numbers(|of| of.memory_bytes),
        ),
    ]
}

/// A row for each cache of each run.
pub(crate) fn of_caches(chunk: &Chunk, answered: &[Answered]) -> Table {
    let mut rows: Vec<(usize, &Answer, &Value)> = Vec::new();
    for (at, answered) in answered.iter().enumerate() {
        for run in answered.runs.iter().flatten() {
            rows.extend(run.caches.iter().map(|cache| (at, run, cache)));
        }
    }
    let values: Vec<Value> = rows.iter().map(|(_, _, cache)| (*cache).clone()).collect();
    let [_, of_cache] = chunk.ask.reports();
    let mut table = Table::of_fields(of_cache, &values);
    for (at, (name, kind)) in OF_RUN.into_iter().enumerate() {
        let of_run = rows.iter().map(|(_, run, _)| run.run.get(name));
        let column = Column::of_values(kind, of_run);
        let field = Field::new(&format!("run.{name}"), kind, "As of the run.");
        table.insert(at, field, column);
    }
    let cells: Vec<usize> = rows.iter().map(|(at, _, _)| *at).collect();
    named(chunk, &cells, table)
}

/// A row for each cell with what it took on this machine.
pub(crate) fn of_costs(chunk: &Chunk, answered: &[Answered]) -> Table {
    let cells = || chunk.cells.iter().zip(answered);
    let mut table = Table::default();
    let (peak, host) = (peak_bytes(), host_name());
    let columns = [
        text("cell", CELL, cells().map(|(cell, _)| Some(cell.id.clone()))),
        (
            Field::new(
                "seconds",
                Kind::Float,
                "Seconds that the cell took; the first cell of an input has those of reading it.",
            ),
            Column::Float(cells().map(|(_, of)| Some(of.seconds)).collect()),
        ),
        (
            Field::new(
                "process_peak_bytes",
                Kind::Int,
                "Most memory that the process had so far, with all of its threads.",
            ),
            Column::Int(cells().map(|_| peak).collect()),
        ),
        text("host", "Computer.", cells().map(|_| host.clone())),
    ];
    for (at, (field, column)) in columns.into_iter().enumerate() {
        table.insert(at, field, column);
    }
    noted(chunk, table)
}

const CELL: &str = "Hash of the input's content, the settings, the seed and the version.";

/// Puts the columns that name the cell of each row around those of its report.
fn named(chunk: &Chunk, rows: &[usize], mut table: Table) -> Table {
    let cells: Vec<&Cell> = rows.iter().filter_map(|at| chunk.cells.get(*at)).collect();
    let mut lead = vec![text(
        "input",
        "File or folder, as the plan names it.",
        cells.iter().map(|cell| Some(cell.input.name.clone())),
    )];
    for field in columns(chunk.ask) {
        let is_asked = |cell: &Cell| cell.asked.values.contains_key(field.name);
        if !chunk.cells.iter().any(is_asked) {
            continue;
        }
        let kind = match field.kind {
            Form::Flag => Kind::Bool,
            Form::Count | Form::Bytes | Form::PageBytes => Kind::Int,
            Form::Text | Form::Exact | Form::Time | Form::Settings => Kind::Text,
        };
        let value = |cell: &&Cell| -> Option<Value> {
            let values = cell.asked.values.get(field.name)?.as_array()?;
            match field.together {
                // They hold at once.
                true => Some(
                    values
                        .iter()
                        .filter_map(Value::as_str)
                        .collect::<Vec<_>>()
                        .join(" ")
                        .into(),
                ),
                false => values.first().cloned(),
            }
        };
        let values: Vec<Option<Value>> = cells.iter().map(value).collect();
        let about = format!("`{}` of the plan.", field.spelled(Door::Plan));
        let name = format!("asked.{}", field.name);
        lead.push((
            Field::new(&name, kind, &about),
            Column::of_values(kind, values.iter().map(Option::as_ref)),
        ));
    }
    lead.extend(set_columns(chunk, &cells));
    for (at, (field, column)) in lead.into_iter().enumerate() {
        table.insert(at, field, column);
    }
    let last = table.fields().len();
    let id = cells.iter().map(|cell| Some(cell.id.clone()));
    let digest = cells.iter().map(|cell| Some(cell.input.digest.clone()));
    let ends = [
        text("cell", CELL, id),
        text(
            "input_digest",
            "SHA-256 of the input, its first 128 bits.",
            digest,
        ),
    ];
    for (at, (field, column)) in ends.into_iter().enumerate() {
        table.insert(last + at, field, column);
    }
    noted(chunk, table)
}

/// Fields of a question that have a column of their own; of tunables each has one.
fn columns(ask: Ask) -> impl Iterator<Item = quarry_ask::Field> {
    let fields = ask.fields().into_iter();
    fields.filter(|field| field.kind != Form::Settings)
}

/// A column for each tunable that is set, empty where it is not.
fn set_columns(chunk: &Chunk, cells: &[&Cell]) -> Vec<(Field, Column)> {
    let split = |text: &String| {
        let (name, value) = text.split_once('=')?;
        Some((name.trim().to_string(), value.trim().to_string()))
    };
    let set = |cell: &Cell| cell.asked.question.settings().texts().to_vec();
    let all: Vec<String> = chunk.cells.iter().flat_map(set).collect();
    let names = all.iter().filter_map(split).map(|(name, _)| name);
    let names: BTreeSet<String> = names.collect();
    let of_cells: Vec<Vec<String>> = cells.iter().map(|cell| set(cell)).collect();
    let of = |name: String| {
        let value = |set: &Vec<String>| {
            let mut set = set.iter().filter_map(split);
            Some(set.find(|(other, _)| *other == name)?.1)
        };
        let values: Vec<Option<String>> = of_cells.iter().map(value).collect();
        let is_text = matches!(name.as_str(), "slub_debug" | "slab_debug");
        let (kind, column) = match is_text {
            true => (Kind::Text, Column::Text(values)),
            false => {
                let number = |it: Option<String>| it.and_then(|text| text.parse().ok());
                (
                    Kind::Int,
                    Column::Int(values.into_iter().map(number).collect()),
                )
            }
        };
        let about = "Value of the tunable; empty where the default is in force.";
        (Field::new(&format!("set.{name}"), kind, about), column)
    };
    names.into_iter().map(of).collect()
}

/// Puts columns in an order that does not depend on the rows: the input, the axes, the tunables, the outcome, the report as
/// its type has it, the hashes.
pub(crate) fn arrange(table: &mut Table) {
    let ask = table.notes.get(ASK_KEY);
    let ask = ask.and_then(|name| Ask::parse(name).ok());
    let report = ask.map_or_else(Vec::new, |ask| ask.reports().concat());
    let asked: Vec<&str> = ask.map_or_else(Vec::new, |ask| {
        columns(ask).map(|field| field.name).collect()
    });
    let is = |pattern: &str, name: &str| match pattern.split_once('*') {
        None => pattern == name,
        Some((before, after)) => name.starts_with(before) && name.ends_with(after),
    };
    let place = |name: &str| -> (usize, usize) {
        if let Some(key) = name.strip_prefix("asked.") {
            let at = asked.iter().position(|name| *name == key);
            return (1, at.unwrap_or(asked.len()));
        }
        match name {
            "input" => (0, 0),
            "status" => (3, 0),
            "error" => (3, 1),
            "input.release" => (3, 2),
            "input.architecture" => (3, 3),
            "input.page_size" => (3, 4),
            "input.cpus" => (3, 5),
            "input.memory_bytes" => (3, 6),
            "cell" => (7, 0),
            "input_digest" => (7, 1),
            _ if name.starts_with("set.") => (2, 0),
            _ if name.starts_with("run.") => (
                4,
                OF_RUN
                    .iter()
                    .position(|(of, _)| name.ends_with(of))
                    .unwrap_or(0),
            ),
            _ => match report.iter().position(|field| is(&field.name, name)) {
                Some(at) => (5, at),
                None => (6, 0),
            },
        }
    };
    let mut names: Vec<&str> = table
        .fields()
        .iter()
        .map(|field| field.name.as_str())
        .collect();
    names.sort_by_key(|name| (place(name), *name));
    let names: Vec<String> = names.into_iter().map(str::to_string).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    table.lead(&names);
}

fn noted(chunk: &Chunk, mut table: Table) -> Table {
    let notes = [
        (VERSION_KEY, chunk.version.clone()),
        (ASK_KEY, chunk.ask.name().to_string()),
    ];
    table.notes = notes
        .into_iter()
        .map(|(key, value)| (key.to_string(), value))
        .collect();
    table
}

fn text(name: &str, about: &str, values: impl Iterator<Item = Option<String>>) -> (Field, Column) {
    let field = Field::new(name, Kind::Text, about);
    (field, Column::Text(values.collect()))
}

/// The most memory that this process had, in bytes.
fn peak_bytes() -> Option<i64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: i64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    kib.checked_mul(1024)
}
