//! Figures of an output as tables: names, meanings, and numbers with their units.

use std::collections::BTreeMap;

use quarry_report::{Cell, Column, Section, Table};
use serde_json::Value;

use super::{Document, short_names};
use crate::fields::Outputs;
use crate::reproduce_tables::number;
use crate::units;

/// Members of an output that say what it is of.
const ABOUT: [&str; 3] = ["trace", "snapshot", "settings"];

/// The input and the settings, a column for each file.
pub(super) fn section(documents: &[Document]) -> Section {
    let heading = Section::new("Input and settings").folded();
    let mut names: Vec<String> = Vec::new();
    let facts: Vec<BTreeMap<String, Value>> = documents
        .iter()
        .map(|document| {
            let mut facts = BTreeMap::new();
            for part in ABOUT {
                flatten(part, &document.content[part], &mut facts);
            }
            names.extend(facts.keys().cloned());
            facts
        })
        .collect();
    if names.is_empty() {
        return heading;
    }
    names.sort();
    names.dedup();
    let columns = match documents {
        [_] => vec![Column::text("value")],
        _ => short_names(documents)
            .into_iter()
            .map(Column::text)
            .collect(),
    };
    let mut table = Table::new(std::iter::once(Column::text("field")).chain(columns));
    for name in &names {
        let cells = facts.iter().map(|facts| match facts.get(name) {
            Some(value) => Cell::text(shown(name, value)),
            None => Cell::maybe(None),
        });
        table.row(std::iter::once(Cell::text(name)).chain(cells));
    }
    heading.with(table)
}

/// Members of an object by their paths; lists of texts and numbers in one line.
pub(super) fn flatten(path: &str, value: &Value, into: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                flatten(&format!("{path}.{name}"), member, into);
            }
        }
        Value::Null => {}
        Value::Array(items) => {
            let texts = items.iter().map(|item| match item {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            });
            let texts: Vec<String> = texts.collect();
            if !texts.is_empty() {
                into.insert(path.to_string(), texts.join(", ").into());
            }
        }
        other => {
            into.insert(path.to_string(), other.clone());
        }
    }
}

/// A value with the unit that its field's name ends with.
pub(super) fn shown(name: &str, value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(of) => figure(name, of.as_f64().unwrap_or_default()),
        Value::Bool(true) => "yes".to_string(),
        Value::Bool(false) => "no".to_string(),
        Value::Null => "-".to_string(),
        other => other.to_string(),
    }
}

/// A number with the unit that its field's name ends with.
pub(super) fn figure(name: &str, value: f64) -> String {
    let last = name.rsplit('.').next().unwrap_or(name);
    if last.ends_with("bytes") || last == "page_size" {
        return match value < 0.0 {
            true => units::signed(value as i128),
            false => units::bytes(value as u64),
        };
    }
    if value >= 0.0 && value.fract() == 0.0 && value < 1e15 {
        return units::count(value as u64);
    }
    number(value)
}

/// The unit of a field by its name; empty for a count.
pub(super) fn unit(name: &str) -> &'static str {
    let last = name.rsplit('.').next().unwrap_or(name);
    let units = [
        ("per_second", "a second"),
        ("bytes", "MiB"),
        ("_ns", "ns"),
        ("ns", "ns"),
        ("_us", "µs"),
        ("_kib", "KiB"),
        ("percent", "%"),
    ];
    let found = units.iter().find(|(end, _)| last.ends_with(end));
    found.map_or("", |(_, unit)| unit)
}

/// A number in the unit that [`unit()`] names, for an axis.
pub(super) fn on_axis(name: &str, value: f64) -> f64 {
    match unit(name) {
        "MiB" => value / f64::from(1 << 20),
        _ => value,
    }
}

/// Name of a field with its unit, as the title of an axis.
pub(super) fn titled(name: &str) -> String {
    let plain = name.replace(['_', '.'], " ");
    match unit(name) {
        "" => plain,
        "a second" => plain,
        unit => {
            let ends = [" bytes", " ns", " us", " kib", " percent"];
            let plain = ends
                .iter()
                .find_map(|end| plain.strip_suffix(end))
                .unwrap_or(&plain);
            format!("{plain}, {unit}")
        }
    }
}

/// Meanings of the fields of a command's output, by their paths.
pub(super) fn meanings(command: &str) -> BTreeMap<String, String> {
    let all = Outputs::new().all().into_iter();
    let of_command = all.filter(|(commands, _)| {
        let mut commands = commands.split(", ");
        commands.any(|of| of == command)
    });
    of_command
        .map(|(_, field)| (field.path, field.meaning))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_their_units() {
        assert_eq!(figure("caches.free_bytes", 65_536.0), "64 KiB");
        assert_eq!(figure("objects", 12_345.0), "12 345");
        assert_eq!(figure("alloc.mean_ns", 12.345), "12.35");
        assert_eq!(titled("peak_slab_bytes"), "peak slab, MiB");
        assert_eq!(titled("alloc.mean_ns"), "alloc mean, ns");
        assert_eq!(titled("alloc.ns"), "alloc, ns");
        assert_eq!(titled("per_second"), "per second");
        assert_eq!(on_axis("peak_slab_bytes", 2_097_152.0), 2.0);
    }

    #[test]
    fn meanings_are_those_of_the_command() {
        let of = meanings("run tbench");
        assert!(!of["runs.cpu_us"].is_empty());
        assert!(meanings("replay").contains_key("runs.peak_slab_bytes"));
    }
}
