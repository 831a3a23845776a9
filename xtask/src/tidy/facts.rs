//! Every fact that the code cites is in `docs/kernel-facts.md`, and every fact there is cited.

use std::collections::BTreeSet;
use std::path::Path;

use super::Violation;

/// Page with the facts.
pub(super) const PAGE: &str = "docs/kernel-facts.md";

/// A fact's number, and the line that has it.
type Number<'a> = (&'a str, usize);

/// The numbers that a file cites: `facts 2.5, 2.13 and 6.4`.
///
/// A list may go on behind a line's end; what is in parentheses behind a number is skipped.
pub(super) fn cited(text: &str) -> Vec<Number<'_>> {
    let mut found = Vec::new();
    let mut listing = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start_matches([' ', '/', '!']);
        for word in line.split(' ') {
            let number = word.trim_matches(|letter: char| !letter.is_ascii_digit());
            if matches!(
                word.trim_start_matches('('),
                "facts" | "Facts" | "fact" | "Fact"
            ) {
                listing = true;
            } else if listing && is_number(number) {
                found.push((number, index + 1));
                listing = !word.ends_with([':', '.', ')', ';']);
            } else {
                listing &= matches!(word, "and" | "to" | "or");
            }
        }
    }
    found
}

/// Two numbers with a dot between them.
fn is_number(word: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    word.split_once('.')
        .is_some_and(|(section, fact)| digits(section) && digits(fact))
}

/// The numbers of the page's headings.
fn known(page: &str) -> Vec<Number<'_>> {
    let headings = page.lines().enumerate().filter_map(|(index, line)| {
        let heading = line.strip_prefix("### ")?;
        Some((heading.split(' ').next()?, index + 1))
    });
    headings.collect()
}

/// Checks the citations of one file against the page.
pub(super) fn check(file: &Path, text: &str, page: &str) -> Vec<Violation> {
    let known: BTreeSet<&str> = known(page).into_iter().map(|(number, _)| number).collect();
    let cited = cited(text).into_iter();
    cited
        .filter(|(number, _)| !known.contains(number))
        .map(|(number, line)| Violation::new(file, line, format!("no fact {number} in {PAGE}")))
        .collect()
}

/// Checks that the page has each number once, and none that `cited` lacks.
pub(super) fn check_page(page: &str, cited: &BTreeSet<String>) -> Vec<Violation> {
    let mut seen = BTreeSet::new();
    let mut violations = Vec::new();
    for (number, line) in known(page) {
        let mut found = |rule| violations.push(Violation::new(Path::new(PAGE), line, rule));
        if !seen.insert(number) {
            found(format!("fact {number} is here twice"));
        } else if !cited.contains(number) {
            found(format!("no code cites fact {number}"));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE_TEXT: &str = "# Facts\n## 2 SLUB\n### 2.5 Free\n\n### 2.13 Bulk\ntext 7.0\n";

    fn numbers(text: &str) -> Vec<&str> {
        cited(text).into_iter().map(|(number, _)| number).collect()
    }

    #[test]
    fn citations_are_found_in_all_their_forms() {
        assert_eq!(
            numbers("/// x (facts 2.5, 2.13, 2.15)."),
            ["2.5", "2.13", "2.15"]
        );
        assert_eq!(
            numbers("/// Facts 2.3 steps 4 and 6: nothing in 7.0"),
            ["2.3"]
        );
        assert_eq!(numbers("/// Facts 3.8 and 8.17: a word"), ["3.8", "8.17"]);
        assert_eq!(
            numbers("/// makes room (f();\n    /// facts\n /// 6.4)."),
            ["6.4"]
        );
        assert_eq!(numbers("let facts = 2.5; the facts of 6.1"), [""; 0]);
    }

    #[test]
    fn a_citation_of_no_fact_is_found() {
        let rules = |text: &str| {
            let found = check(Path::new("x.rs"), text, PAGE_TEXT);
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert!(rules("/// Facts 2.5 and 2.13: x").is_empty());
        assert_eq!(
            rules("\n/// Facts 2.5 and 2.1: x"),
            ["x.rs:2: no fact 2.1 in docs/kernel-facts.md"]
        );
    }

    #[test]
    fn facts_without_a_citation_and_twice_are_found() {
        let cited = BTreeSet::from(["2.5".to_owned()]);
        let page = format!("{PAGE_TEXT}### 2.5 Again\n");
        let found = check_page(&page, &cited);
        let found: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "docs/kernel-facts.md:5: no code cites fact 2.13",
                "docs/kernel-facts.md:7: fact 2.5 is here twice",
            ]
        );
    }
}
