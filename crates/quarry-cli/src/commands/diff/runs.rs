//! The runs of an output: what is compared, and which runs of two outputs belong together.

use std::collections::BTreeMap;

use quarry_view::IDENTITY;
use serde_json::{Map, Value, json};

use crate::units;

/// True if a member says which run it is. The bytes of objects are given to a benchmark, and a result of a replay.
fn identifies(run: &Value, name: &str) -> bool {
    IDENTITY.contains(&name) && (name != "object_bytes" || run["pattern"].is_string())
}

/// Runs of an output: its list `runs`, else its list of things with names, else itself. Callers are to one run what
/// caches are to a replay.
pub(crate) fn of_document(document: &Value) -> Vec<Value> {
    if let Some(runs) = document["runs"].as_array() {
        return runs.clone();
    }
    let Some(members) = document.as_object() else {
        return Vec::new();
    };
    if let Some(callers) = document["callers"].as_array() {
        let mut run = document["totals"].clone();
        let caches = callers.iter().map(|caller| {
            json!({
                "name": caller["name"], "slab_bytes": caller["peak_live_bytes"], "waste_bytes": caller["waste_bytes"]
            })
        });
        run["caches"] = caches.collect();
        run["name"] = format!("callers by {}", document["by"].as_str().unwrap_or("site")).into();
        return vec![run];
    }
    let named = |list: &Value| -> Option<Vec<Value>> {
        let list = list.as_array().filter(|list| !list.is_empty())?;
        list.iter()
            .all(|item| item["name"].is_string())
            .then(|| list.clone())
    };
    if let Some(threads) = document["threads"].as_array() {
        let runs = threads.iter().flat_map(|thread| {
            let runs = thread["runs"].as_array().into_iter().flatten().cloned();
            runs.map(|mut run| {
                run["thread"] = thread["thread"].clone();
                run
            })
        });
        return runs.collect();
    }
    let lists = ["machines", "tunables"];
    if let Some(runs) = lists.iter().find_map(|name| named(&document[*name])) {
        return runs;
    }
    let head = ["schema", "quarry", "command", "name", "output"];
    let own = members
        .iter()
        .filter(|(name, _)| !head.contains(&name.as_str()));
    let mut run: Map<String, Value> = own
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    run.insert("name".to_string(), document["command"].clone());
    vec![Value::Object(run)]
}

/// True if two runs are partners.
type Rule<'a> = &'a dyn Fn(&Value, &Value) -> bool;
type Partners = (Vec<(Value, Value)>, Vec<String>, Vec<String>);

/// Runs that belong together, in the order of A, and the names of those that are left.
pub(crate) fn partners(a: &[Value], b: &[Value]) -> Partners {
    let mut left: Vec<&Value> = b.iter().collect();
    let mut found: Vec<Option<&Value>> = vec![None; a.len()];
    let same_design = |a: &Value, b: &Value| titled(a, false) == titled(b, false);
    let same_label = |a: &Value, b: &Value| label(a) == label(b);
    let rules: [Rule<'_>; 2] = [&same_label, &same_design];
    for rule in rules {
        for (run, partner) in a.iter().zip(&mut found) {
            if partner.is_none()
                && let Some(at) = left.iter().position(|other| rule(run, other))
            {
                *partner = Some(left.remove(at));
            }
        }
    }
    let alone = found.iter().filter(|partner| partner.is_none()).count();
    if (alone, left.len()) == (1, 1) {
        let partner = found.iter_mut().find(|partner| partner.is_none());
        if let Some(partner) = partner {
            *partner = left.pop();
        }
    }
    let both = a.iter().zip(&found);
    let pairs = both
        .clone()
        .filter_map(|(a, b)| Some((a.clone(), (*b)?.clone())));
    let only_in_a = both
        .clone()
        .filter(|(_, b)| b.is_none())
        .map(|(a, _)| label(a));
    (
        pairs.collect(),
        only_in_a.collect(),
        left.into_iter().map(label).collect(),
    )
}

/// Name of a run: what it is of, and the axes that it is on.
pub(crate) fn label(run: &Value) -> String {
    titled(run, true)
}

/// Name of a run, with or without its era.
fn titled(run: &Value, with_era: bool) -> String {
    let text = |name: &str| run[name].as_str().filter(|text| !text.is_empty());
    let mut parts = Vec::new();
    if let Some(design) = text("design") {
        let design = match with_era {
            true => design,
            false => design.split('@').next().unwrap_or(design),
        };
        let era = text("era").filter(|_| with_era);
        let era = era.map_or_else(String::new, |era| format!("@{era}"));
        let set = text("set").map_or_else(String::new, |set| format!(" ({set})"));
        parts.push(format!("{design}{era}{set}"));
    }
    for name in IDENTITY.iter().filter(|name| identifies(run, name)) {
        match (*name, &run[*name]) {
            ("design" | "set", _) => {}
            ("era", _) if !with_era || !parts.is_empty() => {}
            ("page_size", Value::Number(size)) => {
                parts.push(format!(
                    "{} pages",
                    units::bytes(size.as_u64().unwrap_or(0))
                ));
            }
            ("cpus", Value::Number(cpus)) => parts.push(format!("{cpus} CPUs")),
            ("name" | "thread" | "driver" | "load", Value::String(text)) => {
                parts.push(text.clone())
            }
            (name, Value::String(text)) => parts.push(format!("{name} {text}")),
            (name, Value::Number(number)) => parts.push(format!("{name} {number}")),
            (name, Value::Bool(true)) => parts.push(name.to_string()),
            _ => {}
        }
    }
    match parts.is_empty() {
        true => "a run without a name".to_string(),
        false => parts.join(", "),
    }
}

/// All numbers of a run by their paths, but those that say which run it is, and those of its caches. Items of lists
/// count by their names.
pub(crate) fn numbers(run: &Value) -> BTreeMap<String, f64> {
    fn walk(path: &str, value: &Value, into: &mut BTreeMap<String, f64>) {
        let below = |name: &str| match path {
            "" => name.to_string(),
            _ => format!("{path}.{name}"),
        };
        match value {
            Value::Object(members) => {
                let own = members.iter().filter(|(name, _)| {
                    !(path.is_empty() && (identifies(value, name) || *name == "caches"))
                });
                own.for_each(|(name, member)| walk(&below(name), member, into));
            }
            Value::Array(items) => {
                for item in items {
                    if let Some(name) = item["name"].as_str() {
                        walk(&below(name), item, into);
                    }
                }
            }
            Value::Number(number) => {
                into.extend(number.as_f64().map(|number| (path.to_string(), number)));
            }
            _ => {}
        }
    }
    let mut found = BTreeMap::new();
    walk("", run, &mut found);
    found
}
