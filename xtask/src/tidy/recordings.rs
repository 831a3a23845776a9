//! What `traces/README.md` says about a recording is what was measured.

use std::path::Path;

use serde_json::Value;

use super::Violation;

/// The page about the recordings.
pub(super) const PAGE: &str = "traces/README.md";

/// Checks that every count of a recording's JSON file, and its facts, are on the page.
pub(super) fn check(file: &Path, json: &str, page: &str) -> Vec<Violation> {
    let Ok(recording) = serde_json::from_str::<Value>(json) else {
        return vec![Violation::new(file, 1, "not JSON")];
    };
    let name = recording["name"]
        .as_str()
        .unwrap_or("a recording without a name")
        .to_owned();
    let numbers = recording["events"]
        .as_object()
        .into_iter()
        .flat_map(|events| events.values());
    let numbers = numbers.chain([
        &recording["events_total"],
        &recording["duration_ms"],
        &recording["machine"]["page_size_bytes"],
    ]);
    let expected = numbers.map(Value::to_string).chain(
        [&recording["machine"]["kernel"], &recording["date"]]
            .map(|text| text.as_str().unwrap_or("null").to_owned()),
    );
    let words: Vec<&str> = page
        .split(|letter: char| letter.is_whitespace() || letter == '|' || letter == ',')
        .map(|word| word.trim_end_matches('.'))
        .collect();
    expected
        .filter(|fact| !words.contains(&fact.as_str()))
        .map(|fact| {
            Violation::new(
                Path::new(PAGE),
                1,
                format!("{name}: {fact} is not on the page"),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = r#"{"name":"x","date":"2026-01-02","machine":{"kernel":"6.18","page_size_bytes":4096},
        "events_total":12,"duration_ms":7,"events":{"kmem:kfree":12}}"#;
    const GOOD: &str = "| 12 | 7 |\nkernel 6.18, pages of 4096 bytes, 2026-01-02.\n";

    fn rules(json: &str, page: &str) -> Vec<String> {
        check(Path::new("traces/x.json"), json, page)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_page_with_every_fact_passes() {
        assert!(rules(JSON, GOOD).is_empty(), "{:?}", rules(JSON, GOOD));
    }

    #[test]
    fn a_stale_page_is_found() {
        let stale = GOOD.replace("| 7 |", "| 77 |");
        assert_eq!(
            rules(JSON, &stale),
            ["traces/README.md:1: x: 7 is not on the page"]
        );
        assert_eq!(rules("{", GOOD), ["traces/x.json:1: not JSON"]);
        assert!(!rules("{}", GOOD).is_empty());
    }
}
