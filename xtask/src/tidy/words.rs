//! Words that the rules of style do not allow in documentation.

use std::path::Path;

use super::{Violation, text};

/// Words without a named subject or number. Written in halves, so that this file passes.
const BANNED: [&str; 6] = [
    concat!("no", "body"),
    concat!("some", "body"),
    concat!("who", "ever"),
    concat!("so ", "many"),
    concat!("is ", "told"),
    concat!("of ", "which"),
];
/// First words of a relative clause. A summary names the thing or has a verb: "Bytes per object", "Returns the number of pages".
const CLAUSE_BEGINS: [&str; 8] = [
    "What", "Whether", "How", "Where", "Why", "Which", "Of", "Whose",
];
/// Words in a sentence of a page in `docs/`.
const SENTENCE_MAX: usize = 25;

/// Checks the prose of one file: comments of Rust, and Markdown outside of code.
///
/// Sentences are counted in Markdown paragraphs below `docs/`, without tables, headings and lists' other lines.
pub(super) fn check(file: &Path, content: &str) -> Vec<Violation> {
    let is_markdown = text::has_extension(file, &["md"]);
    if !is_markdown && !text::has_extension(file, &["rs"]) {
        return Vec::new();
    }
    let mut violations = Vec::new();
    let mut is_code = false;
    for (index, line) in content.lines().enumerate() {
        let trimmed = line.trim_start();
        is_code ^= is_markdown && trimmed.starts_with("```");
        let prose = if is_markdown {
            !is_code
        } else {
            trimmed.starts_with("//")
        };
        let lower = if prose { line.to_lowercase() } else { continue };
        for word in BANNED.into_iter().filter(|word| has_word(&lower, word)) {
            let rule = format!("\"{word}\": name the subject or the number");
            violations.push(Violation::new(file, index + 1, rule));
        }
    }
    if !is_markdown {
        violations.extend(clauses(file, content));
    }
    if is_markdown && (file.starts_with("docs") || file.starts_with("README.md")) {
        violations.extend(sentences(file, content));
    }
    violations
}

/// Is it there as a word, not as part of one?
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        let after = line[start + word.len()..].chars().next();
        !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
    })
}

/// Doc comments whose first line begins with a relative clause.
fn clauses(file: &Path, content: &str) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut in_block = false;
    for (index, line) in content.lines().enumerate() {
        let line = line.trim_start();
        let doc = line
            .strip_prefix("///")
            .or_else(|| line.strip_prefix("//!"));
        let summary = doc.filter(|_| !in_block).unwrap_or_default();
        in_block = doc.is_some();
        let first = summary.split_whitespace().next().unwrap_or_default();
        if CLAUSE_BEGINS.contains(&first) {
            let rule = format!("a summary begins with \"{first}\": name the thing, or use a verb");
            violations.push(Violation::new(file, index + 1, rule));
        }
    }
    violations
}

/// The sentences that are too long, each at its paragraph's first line.
fn sentences(file: &Path, content: &str) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut paragraph = String::new();
    let mut first = 0;
    let mut is_code = false;
    for (index, line) in content.lines().chain([""]).enumerate() {
        is_code ^= line.trim_start().starts_with("```");
        let is_prose = !is_code
            && line.starts_with(|c: char| c.is_alphabetic() || c == '*' || c == '`' || c == ' ')
            && !line.starts_with("```");
        let begins_item = line.trim_start().starts_with(['*', '-']) && !line.starts_with("**");
        if !is_prose || begins_item {
            for length in lengths(&paragraph).filter(|length| *length > SENTENCE_MAX) {
                let rule = format!("a sentence of {length} words, more than {SENTENCE_MAX}");
                violations.push(Violation::new(file, first, rule));
            }
            paragraph.clear();
        }
        if is_prose {
            if paragraph.is_empty() {
                first = index + 1;
            }
            paragraph.push_str(line.trim_start_matches(['*', '-', ' ']));
            paragraph.push(' ');
        }
    }
    violations
}

/// The words of each sentence; a colon or semicolon ends one, and what is in parentheses does not count.
fn lengths(paragraph: &str) -> impl Iterator<Item = usize> {
    let mut depth = 0_usize;
    let mut plain = String::new();
    let mut is_code = false;
    for letter in paragraph.chars() {
        is_code ^= letter == '`';
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ if depth > 0 => {}
            // Code is one word, whatever it contains.
            _ if is_code && !letter.is_alphanumeric() => plain.push('_'),
            _ => plain.push(letter),
        }
    }
    let ends = |word: &str| word.ends_with(['.', ':', ';', '!', '?']);
    let mut sentences = vec![0];
    for word in plain.split_whitespace() {
        if word.chars().any(char::is_alphanumeric) {
            *sentences.last_mut().expect("never empty") += 1;
        }
        if ends(word.trim_end_matches(['*', '"', '_'])) {
            sentences.push(0);
        }
    }
    sentences.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(file: &str, content: &str) -> Vec<String> {
        let found = check(Path::new(file), content);
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn words_without_a_subject_are_found_in_prose_only() {
        let word = BANNED[0];
        let expected = format!("a.rs:2: \"{word}\": name the subject or the number");
        assert_eq!(
            rules("a.rs", &format!("let {word} = 1;\n/// {word} waits.")),
            [expected]
        );
        let fenced = format!("```sh\n{word}\n```\nother{word}");
        assert_eq!(rules("a.md", &fenced), [""; 0]);
        assert_eq!(rules("a.md", &format!("It says {word}.")).len(), 1);
        assert_eq!(rules("a.json", word), [""; 0]);
    }

    #[test]
    fn summaries_that_begin_with_a_relative_clause_are_found() {
        let word = CLAUSE_BEGINS[0];
        let found = format!("a summary begins with \"{word}\": name the thing, or use a verb");
        for (text, line) in [
            (format!("//! {word} it is."), 1),
            (format!("x\n    /// {word} it is.\n"), 2),
        ] {
            assert_eq!(rules("a.rs", &text), [format!("a.rs:{line}: {found}")]);
        }
        for fine in [
            format!("/// Bytes.\n///\n/// {word} it is."),
            format!("// {word} it is."),
            format!("/// {word}ever it is."),
        ] {
            assert_eq!(rules("a.rs", &fine), [""; 0], "{fine}");
        }
    }

    #[test]
    fn long_sentences_are_found_in_paragraphs_of_docs() {
        let long = "word ".repeat(26);
        let found = "a sentence of 26 words, more than 25";
        assert_eq!(
            rules("docs/a.md", &format!("# {long}\n\nShort. {long}.")),
            [format!("docs/a.md:3: {found}")]
        );
        let split = format!("{}\n{}", "word ".repeat(13), "word ".repeat(13));
        assert_eq!(
            rules("docs/a.md", &split),
            [format!("docs/a.md:1: {found}")]
        );
        for fine in [
            format!("| {long} |"),
            format!("```\n{long}\n```"),
            format!("{}({long})", "word ".repeat(25)),
            format!("{}; {}", "word ".repeat(20), "word ".repeat(20)),
            format!("`{long}` is code"),
        ] {
            assert_eq!(rules("docs/a.md", &fine), [""; 0]);
        }
        assert_eq!(rules("CHANGELOG.md", &long), [""; 0]);
    }
}
