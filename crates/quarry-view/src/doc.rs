//! Outputs of commands: of this run, or of a file that an older version wrote.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::chance::{is_chance, over_chance};
use crate::figure::shown;
use crate::{Cell, Column, IDENTITY, Section, Table, View, value};

/// An output of a command.
#[derive(Clone, Debug)]
pub struct Doc {
    /// File, as messages and tables name it; empty if it is in none.
    pub file: String,
    /// Members.
    pub content: Value,
}

impl Doc {
    /// Command that made the output.
    #[must_use]
    pub fn command(&self) -> &str {
        value::text(&self.content, "command")
    }

    /// Runs of the output.
    #[must_use]
    pub fn runs(&self) -> &[Value] {
        value::list(&self.content, "runs")
    }

    /// Sentence of the command about its result; empty in outputs of older versions.
    #[must_use]
    pub fn finding(&self) -> &str {
        value::text(&self.content, "finding")
    }
}

/// A name for each of several files, without its folder where the names differ; a single file needs none.
#[must_use]
pub fn short_names(docs: &[Doc]) -> Vec<String> {
    if docs.len() == 1 {
        return vec![String::new()];
    }
    without_folders(docs.iter().map(|doc| doc.file.as_str()))
}

/// A heading for one of several files.
#[must_use]
pub fn headed(heading: &str, file: &str) -> String {
    match file {
        "" => heading.to_string(),
        file => format!("{heading}: {file}"),
    }
}

/// The last part of a path.
#[must_use]
pub fn file_name(path: &str) -> &str {
    let path = path.trim_end_matches('/');
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// Names of files without their folders, if they differ then, too; else as they are.
#[must_use]
pub fn without_folders<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let names: Vec<&str> = names.into_iter().collect();
    let short: Vec<&str> = names.iter().map(|name| file_name(name)).collect();
    let distinct: BTreeSet<&str> = short.iter().copied().collect();
    let told = match distinct.len() == short.len() {
        true => short,
        false => names,
    };
    told.into_iter().map(str::to_string).collect()
}

/// Runs of all outputs; those of several say which they are of, and those of options with lists what was asked of each. Runs that
/// differ in chance alone are one, with the means of their numbers.
#[must_use]
pub fn runs(docs: &[Doc]) -> Vec<Value> {
    let runs = docs.iter().zip(short_names(docs)).flat_map(|(doc, name)| {
        doc.runs().iter().map(move |run| {
            let mut run = run.clone();
            match asked(&run) {
                Some(asked) if asked.is_empty() => {}
                Some(asked) => run["file"] = asked.into(),
                None if docs.len() > 1 => run["file"] = name.as_str().into(),
                None => {}
            }
            run
        })
    });
    let name = |run: &Value| {
        let members = IDENTITY.iter().chain(&["file", "asked"]);
        let values = members.map(|name| run[name].to_string());
        values.collect::<Vec<_>>().join(" ")
    };
    over_chance(runs.collect(), name)
}

/// Options of a run that have lists, as they are given; `None` of a run without. Seeds are not among them.
fn asked(run: &Value) -> Option<String> {
    let members = run["asked"].as_object()?.iter();
    let members = members.filter(|(name, _)| !is_chance(name));
    let options = members.map(|(name, value)| {
        let value = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_string);
        format!("--{} {value}", name.replace('_', "-"))
    });
    Some(options.collect::<Vec<_>>().join(" "))
}

impl View {
    /// A view with the finding of each output.
    pub fn of(title: impl Into<String>, docs: &[Doc]) -> Self {
        let mut view = Self::new(title);
        let named = docs.iter().zip(short_names(docs));
        let told = named.filter(|(doc, _)| !doc.finding().is_empty());
        view.findings = told
            .map(|(doc, name)| match name.as_str() {
                "" => doc.finding().to_string(),
                name => format!("{name}: {}", doc.finding()),
            })
            .collect();
        view
    }

    /// The view with what its outputs say of input and settings, and with the program that made them.
    #[must_use]
    pub fn with_origin(mut self, docs: &[Doc]) -> Self {
        let version = |doc: &Doc| value::text(&doc.content, "quarry.version").to_string();
        let mut versions: Vec<String> = docs.iter().map(version).collect();
        versions.dedup();
        versions.retain(|version| !version.is_empty());
        let files: Vec<&str> = docs.iter().map(|doc| doc.file.as_str()).collect();
        let of = match files.join(", ") {
            files if files.is_empty() => String::new(),
            files => format!(" of {files}"),
        };
        let command = docs.first().map_or("", Doc::command);
        self.footer = format!("quarry {} {command}{of}", versions.join(", "));
        self.with(origin(docs))
    }
}

/// The input and the settings, a column for each output.
fn origin(docs: &[Doc]) -> Section {
    let heading = Section::new("Input and settings").folded();
    let facts = docs.iter().map(|doc| {
        let mut facts = BTreeMap::new();
        for part in ["trace", "snapshot", "settings"] {
            flatten(part, &doc.content[part], &mut facts);
        }
        facts
    });
    let facts: Vec<BTreeMap<String, Value>> = facts.collect();
    let names: BTreeSet<&String> = facts.iter().flat_map(BTreeMap::keys).collect();
    if names.is_empty() {
        return heading;
    }
    let columns = match docs {
        [_] => vec!["value".to_string()],
        _ => short_names(docs),
    };
    let columns = columns.into_iter().map(Column::text);
    let mut table = Table::new(std::iter::once(Column::text("field")).chain(columns));
    for name in names {
        let cells = facts.iter().map(|facts| match facts.get(name) {
            Some(value) => Cell::text(shown(name, value)),
            None => Cell::maybe(None),
        });
        table.row(std::iter::once(Cell::text(name)).chain(cells));
    }
    heading.with(table)
}

/// Members of an object by their paths; lists of texts and numbers in one line.
fn flatten(path: &str, value: &Value, into: &mut BTreeMap<String, Value>) {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn files_of_one_name_keep_their_folders() {
        let names = |files: &[&str]| {
            let docs = files.iter().map(|file| Doc {
                file: (*file).to_string(),
                content: json!({}),
            });
            short_names(&docs.collect::<Vec<_>>())
        };
        assert_eq!(names(&["x/a.json", "y/b.json"]), ["a.json", "b.json"]);
        assert_eq!(names(&["x/a.json", "y/a.json"]), ["x/a.json", "y/a.json"]);
    }
}
