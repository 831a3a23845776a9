//! Questions from names and values, and the cells that they make.

use std::collections::BTreeSet;
use std::path::Path;

use quarry_designs::{list, nearest};
use serde_json::{Map, Value as Json};
use sha2::{Digest, Sha256};

use crate::field::{Door, Field, Part, fields};
use crate::slot::{Settings, Slot};

/// Names and values, and the folder that their files are relative to.
pub type Layer<'a> = (&'a Map<String, Json>, &'a Path);

/// Fills in a question from names and values, which are texts, numbers, truth values, or lists of them; null is not asked.
/// Names may have `-` or `_`. A later layer replaces what an earlier one says of a field.
///
/// # Errors
///
/// A sentence that names the field as the door spells it: there is no such field, a value is wrong, or fields contradict
/// each other.
pub fn read<Q: Part>(layers: &[Layer<'_>], door: Door) -> Result<Q, String> {
    let fields = fields::<Q>();
    let mut asked = Q::default();
    let mut found = BTreeSet::new();
    let mut slots = asked.slots();
    for (given, base) in layers {
        for (name, value) in *given {
            let at = position(&fields, name, door)?;
            let one = [value.clone()];
            let values = match value {
                Json::Null => continue,
                Json::Array(values) => values.as_slice(),
                _ => one.as_slice(),
            };
            slots[at]
                .give(values, base)
                .map_err(|problem| named(&fields[at], door, &problem))?;
            // What is given as false contradicts nothing.
            match values.is_empty() || values == [Json::Bool(false)] {
                true => found.remove(fields[at].name),
                false => found.insert(fields[at].name),
            };
        }
    }
    drop(slots);
    check(&fields, &found, door)?;
    Ok(asked)
}

/// A question of an object, `json!({"page_size": [4096, "64k"]})`: for programs. Files are relative to the working folder.
///
/// # Errors
///
/// As [`read`].
pub fn of<Q: Part>(given: &Json) -> Result<Q, String> {
    let members = given.as_object();
    let members = members.ok_or_else(|| format!("{given} is no object"))?;
    read(&[(members, Path::new(""))], Door::Python)
}

/// A problem of a field, whose name goes in front: the doors' form of every message about a value.
fn named(field: &Field, door: Door, problem: &str) -> String {
    format!("{}: {problem}", field.spelled(door))
}

/// A name as fields have it: with `_`, and without the one behind a word that Python keeps for itself (`from_`).
#[must_use]
pub fn plain(name: &str) -> String {
    name.replace('-', "_").trim_end_matches('_').to_string()
}

/// The field of a name.
fn position(fields: &[Field], name: &str, door: Door) -> Result<usize, String> {
    let plain = plain(name);
    let found = fields.iter().position(|field| field.name == plain);
    found.ok_or_else(|| {
        let names: Vec<String> = fields.iter().map(|field| field.spelled(door)).collect();
        let near = nearest(name, names.iter().map(String::as_str));
        let near = near.map_or_else(String::new, |near| format!("; the nearest is {near:?}"));
        format!("there is no {name:?}{near}; there are {}", list(&names))
    })
}

/// Checks what fields need and what contradicts them.
fn check(fields: &[Field], found: &BTreeSet<&str>, door: Door) -> Result<(), String> {
    let spelled = |name: &str| {
        let field = fields.iter().find(|field| field.name == name);
        field.map_or_else(|| name.to_string(), |field| field.spelled(door))
    };
    for field in fields.iter().filter(|field| found.contains(field.name)) {
        let own = field.spelled(door);
        if let Some(missing) = field.needs.iter().find(|name| !found.contains(*name)) {
            return Err(format!("{own} needs {}", spelled(missing)));
        }
        if let Some(other) = field.not_with.iter().find(|name| found.contains(*name)) {
            return Err(format!("{own} cannot be used with {}", spelled(other)));
        }
    }
    Ok(())
}

/// Fields in the order of the axes, that which varies slowest first, with their places.
#[must_use]
pub fn axes<Q: Part>() -> Vec<(usize, Field)> {
    let mut axes: Vec<(usize, Field)> = fields::<Q>().into_iter().enumerate().collect();
    axes.sort_by_key(|(_, field)| field.rank);
    axes
}

/// The cells of the axes that `varies` names: every combination of their values, which are one each then.
#[must_use]
pub fn cells<Q: Part>(asked: &Q, varies: impl Fn(&Field) -> bool) -> Vec<Q> {
    let mut cells = vec![asked.clone()];
    for (at, field) in axes::<Q>() {
        if !varies(&field) {
            continue;
        }
        let with = |cell: Q| {
            let count = cell.clone().slots()[at].cells();
            (0..count).map(move |value| {
                let mut cell = cell.clone();
                cell.slots()[at].keep(value);
                cell
            })
        };
        cells = cells.into_iter().flat_map(with).collect();
    }
    cells
}

/// The cells of what no plan runs at once, each with the names and values that differ from cell to cell.
#[must_use]
pub fn outer<Q: Part>(asked: &Q) -> Vec<(Q, Map<String, Json>)> {
    let several = object(asked, false);
    let several = |name: &str| several.get(name)?.as_array().map(|values| values.len() > 1);
    let fields = fields::<Q>();
    let varies = fields.iter().filter(|field| !field.takes_several());
    let varies: Vec<&str> = varies
        .map(|field| field.name)
        .filter(|name| several(name) == Some(true))
        .collect();
    let cells = cells(asked, |field| varies.contains(&field.name)).into_iter();
    let named = |cell: Q| {
        let values = object(&cell, false);
        let value = |name: &&str| Some(((*name).to_string(), values.get(*name)?.get(0)?.clone()));
        let of_cell = varies.iter().filter_map(value).collect();
        (cell, of_cell)
    };
    cells.map(named).collect()
}

/// The tunables of a question, to change them; none if it has none.
pub fn settings<Q: Part>(asked: &mut Q) -> Option<&mut Settings> {
    asked.slots().into_iter().find_map(Slot::settings)
}

/// The question as an object from which [`read`] makes the same: its names with `_`, values as lists. With `contents`, files
/// have their content, so that the object is all that an answer depends on.
#[must_use]
pub fn object<Q: Part>(asked: &Q, contents: bool) -> Map<String, Json> {
    let mut asked = asked.clone();
    let slots = asked.slots();
    let fields = fields::<Q>();
    let members = fields.iter().zip(slots).filter_map(|(field, slot)| {
        let values = match contents {
            true => slot.contents(),
            false => slot.values(),
        };
        (!values.is_empty()).then(|| (field.name.to_string(), Json::from(values)))
    });
    members.collect()
}

/// The canonical text of a cell: its question's name and all that decides its answer beside the input, with keys sorted. Of
/// files it has the digest alone.
#[must_use]
pub fn canonical<Q: Part>(name: &str, cell: &Q) -> String {
    let mut object = object(cell, true);
    for value in object.values_mut().filter_map(Json::as_array_mut).flatten() {
        if let Some(Json::String(content)) = value.get("content") {
            *value = hex(Sha256::digest(content.as_bytes())).into();
        }
    }
    // Members are sorted: serde_json keeps maps in order of their keys.
    Json::from(vec![Json::from(name), Json::Object(object)]).to_string()
}

/// A hash in hexadecimal digits.
fn hex(hash: impl AsRef<[u8]>) -> String {
    let digits = hash.as_ref().iter().map(|byte| format!("{byte:02x}"));
    digits.collect()
}
