//! Members of an answer by their paths.
//!
//! A path has names with dots between. In a list, `=NAME` takes the items that have this text; without it a number is the sum
//! over all items.

use serde_json::Value;

/// The member at a path; null if there is none. A flat row has a member of the whole name.
#[must_use]
pub fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
    match value.get(path) {
        Some(member) => member,
        None if path.is_empty() => value,
        None => path.split('.').fold(value, |value, name| &value[name]),
    }
}

/// The items of a list at a path; none if there is no list.
#[must_use]
pub fn list<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    at(value, path).as_array().map_or(&[], Vec::as_slice)
}

/// The text at a path; empty if there is none.
#[must_use]
pub fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    at(value, path).as_str().unwrap_or_default()
}

/// The number at a path, or the sum over lists on the way.
#[must_use]
pub fn number(value: &Value, path: &str) -> Option<f64> {
    if let Some(number) = value.get(path).and_then(Value::as_f64) {
        return Some(number);
    }
    let (name, rest) = path.split_once('.').unwrap_or((path, ""));
    match value {
        Value::Array(items) => {
            let name = name.strip_prefix('=');
            let is = |item: &&Value| match (name, item.as_object()) {
                (Some(name), Some(members)) => members.values().any(|member| member == name),
                (Some(_), None) => false,
                (None, _) => true,
            };
            let path = if name.is_some() { rest } else { path };
            let numbers = items.iter().filter(is).map(|item| number(item, path));
            let numbers = numbers.collect::<Option<Vec<f64>>>()?;
            (name.is_none() || !numbers.is_empty()).then(|| numbers.iter().fold(0.0, |a, b| a + b))
        }
        Value::Object(members) => number(members.get(name)?, rest),
        leaf if path.is_empty() => leaf.as_f64(),
        _ => None,
    }
}

/// Letters of a cache's name with those that it shares its slabs with.
const MERGED_LETTERS: usize = 44;

/// The `name` of a cache with its `aliases`: `signal_cache (also UNIX, UNIX-STREAM)`. Those without room are counted.
#[must_use]
pub fn merged(cache: &Value) -> String {
    let aliases = list(cache, "aliases").iter().filter_map(Value::as_str);
    also(text(cache, "name"), &aliases.collect::<Vec<_>>())
}

/// A name with others that the same cache has.
#[must_use]
pub fn also(name: &str, aliases: &[&str]) -> String {
    let label = |shown: usize| {
        let (shown, rest) = aliases.split_at(shown);
        let shown = shown.join(", ");
        match rest.len() {
            0 => format!("{name} (also {shown})"),
            more => format!("{name} (also {shown} and {more} more)"),
        }
    };
    let fits = |shown: &usize| label(*shown).len() <= MERGED_LETTERS;
    match aliases.len() {
        0 => name.to_string(),
        all => label((2..=all).rev().find(fits).unwrap_or(1)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_merged_cache_has_all_names_that_there_is_room_for() {
        let label = |name: &str, aliases: &[&str]| also(name, aliases);
        assert_eq!(label("dentry", &[]), "dentry");
        assert_eq!(
            label("signal_cache", &["UNIX", "UNIX-STREAM"]),
            "signal_cache (also UNIX, UNIX-STREAM)"
        );
        assert_eq!(
            label("signal_cache", &["UNIX", "UNIX-STREAM", "a", "b", "c"]),
            "signal_cache (also UNIX and 4 more)"
        );
        assert_eq!(
            label("pool", &["a", "b", "c", "sk_buff_of_a_very_long_name"]),
            "pool (also a, b, c and 1 more)"
        );
        let long = "a_name_that_alone_is_longer_than_the_room";
        assert_eq!(label(long, &["b"]), format!("{long} (also b)"));
        let cache = json!({"name": "pid", "aliases": ["cred"]});
        assert_eq!(merged(&cache), "pid (also cred)");
    }

    #[test]
    fn a_path_goes_through_lists() {
        let run = json!({
            "caches": [{"bytes": 3}, {"bytes": 4}],
            "zones": [{"zone": "DMA", "allocs": 7}, {"zone": "Normal", "allocs": 8}],
            "orders": [1, 2], "flat.name": 5, "none": null,
        });
        assert_eq!(number(&run, "caches.bytes"), Some(7.0));
        assert_eq!(number(&run, "zones.=DMA.allocs"), Some(7.0));
        assert_eq!(number(&run, "zones.=DMA32.allocs"), None);
        assert_eq!(number(&run, "orders"), Some(3.0));
        assert_eq!(number(&run, "flat.name"), Some(5.0));
        for absent in ["none", "none.x", "caches.x", "x"] {
            assert_eq!(number(&run, absent), None, "{absent}");
        }
        assert_eq!(list(&run, "orders").len(), 2);
    }
}
