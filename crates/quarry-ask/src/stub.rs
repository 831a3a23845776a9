//! Keywords of Python, as type checkers and editors read them.

use std::fmt::Write;

use crate::field::{Door, Field, Part, fields};
use crate::value::Kind;

/// A question as a dictionary of typed keywords, with their meanings; `Several[T]` is `T` or an iterable of it.
#[must_use]
pub fn stub<Q: Part>(name: &str, about: &str) -> String {
    let mut text = format!("class {name}(TypedDict, total=False):\n    \"\"\"{about}\"\"\"\n\n");
    for field in fields::<Q>() {
        for line in wrapped(&field.about()) {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "    #: {line}");
        }
        let _ = writeln!(text, "    {}: {}", field.spelled(Door::Python), of(&field));
    }
    text
}

/// The type of a keyword.
fn of(field: &Field) -> String {
    let names = (field.names)();
    let one = match field.kind {
        Kind::Flag => "bool".to_string(),
        Kind::Count => "int".to_string(),
        Kind::Bytes | Kind::PageBytes => "int | str".to_string(),
        Kind::Time => "float | str".to_string(),
        Kind::Settings => return "Settings | None".to_string(),
        Kind::Text | Kind::Exact if names.is_empty() => "str".to_string(),
        Kind::Text | Kind::Exact => {
            let names = names.iter().map(|name| format!("\"{name}\""));
            format!("Literal[{}]", names.collect::<Vec<_>>().join(", "))
        }
    };
    match field.kind {
        Kind::Flag => format!("{one} | None"),
        _ => format!("Several[{one}] | None"),
    }
}

/// Lines of at most 94 letters, so that they fit behind a mark.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + word.chars().count() < 92 => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines
}
