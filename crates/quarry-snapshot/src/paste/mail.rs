//! Mails that have their text twice, as it is and as HTML.

use super::coded;

/// A text without the alternatives of a part of a mail that has several: the first with a table stays, or else the first.
/// `None` without alternatives.
pub(super) fn one_alternative(text: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().collect();
    let first = (0..lines.len()).find(|at| kind(&lines, *at) == Some("plain"))?;
    let mark = lines[first].trim_end();
    let is_mark = |at: &usize| {
        lines[*at]
            .trim_end()
            .strip_suffix("--")
            .unwrap_or(lines[*at].trim_end())
            == mark
    };
    let mut marks: Vec<usize> = (first..lines.len()).filter(is_mark).collect();
    if lines[*marks.last()?].trim_end() == mark {
        marks.push(lines.len());
    }
    let parts: Vec<(usize, usize)> = marks.windows(2).map(|pair| (pair[0], pair[1])).collect();
    if !parts
        .iter()
        .any(|part| kind(&lines, part.0) == Some("html"))
    {
        return None;
    }
    let has_table = |part: &&(usize, usize)| coded::is_table(&lines[part.0..part.1].join("\n"));
    let (from, to) = *parts.iter().find(has_table).or(parts.first())?;
    let (above, below) = (&lines[..first], &lines[*marks.last()?..]);
    Some([above, &lines[from..to], below].concat().join("\n"))
}

/// The kind of text that a part has which a line begins.
fn kind(lines: &[&str], at: usize) -> Option<&'static str> {
    const FIELDS_MAX: usize = 4;
    lines[at]
        .strip_prefix("--")
        .filter(|mark| !mark.trim().is_empty())?;
    let fields = lines[at + 1..].iter().take(FIELDS_MAX);
    let mut fields = fields.take_while(|line| line.contains(':') || line.starts_with([' ', '\t']));
    fields.find_map(|field| {
        let field = field.to_ascii_lowercase();
        let kind = field.strip_prefix("content-type:")?.trim_start();
        ["plain", "html"].into_iter().find(|name| {
            kind.strip_prefix("text/")
                .is_some_and(|kind| kind.starts_with(name))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str = "dentry 1 1 192 21 1 : tunables 0 0 0 : slabdata 1 1 0";

    #[test]
    fn one_of_two_alternatives_is_left() {
        let mail = |plain: &str, html: &str| {
            let part =
                |kind: &str, text: &str| format!("--xx\nContent-Type: text/{kind}\n\n{text}\n");
            format!(
                "Date: x\n\n{}{}--xx--",
                part("plain", plain),
                part("html", html)
            )
        };
        let left = one_alternative(&mail(ROW, ROW)).unwrap();
        assert!(
            left.contains("text/plain")
                && !left.contains("text/html")
                && left.starts_with("Date: x")
        );
        let left = one_alternative(&mail("HTML only", ROW)).unwrap();
        assert!(left.contains("text/html") && left.contains(ROW));
        assert_eq!(
            one_alternative(&mail(ROW, ROW).replace("text/html", "image/png")),
            None
        );
        assert_eq!(one_alternative(ROW), None);
    }
}
