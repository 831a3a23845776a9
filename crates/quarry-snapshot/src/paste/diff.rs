//! Output of `diff` and `diff -u`, whose old and new lines are two readings of a part of a file.

/// Stands for lines that a diff leaves out.
const GAP: &str = "...";

/// The two sides of a diff.
#[derive(Default)]
struct Sides {
    /// Names above it, that of the old file first.
    names: [String; 2],
    lines: [Vec<String>; 2],
}

impl Sides {
    /// Adds both below their titles. Names that may be of two machines stay.
    fn push(self, plain: &mut String) {
        let machines = self.names.each_ref().map(|name| machine(name));
        let are_machines = machines.iter().all(Option::is_some) && machines[0] != machines[1];
        let dates = self
            .names
            .each_ref()
            .map(|name| name.split_once('\t').map(|(_, date)| date.trim()));
        let are_dated = dates.iter().all(Option::is_some);
        let sides = ["before", "after"]
            .into_iter()
            .zip(machines)
            .zip(dates)
            .zip(self.lines);
        for (((side, machine), date), lines) in sides.filter(|(_, lines)| !lines.is_empty()) {
            let machine = machine.filter(|_| are_machines);
            let date = date.filter(|_| are_dated).map(str::to_string);
            let title = machine.map(|name| format!("{name}:")).or(date);
            plain.push_str(&title.unwrap_or_else(|| format!("{side}:")));
            plain.push('\n');
            for line in lines {
                plain.push_str(&line);
                plain.push('\n');
            }
            plain.push('\n');
        }
    }
}

/// The machine that the name of a file seems to be of; `a1` and `s2` are names that anything has.
fn machine(name: &str) -> Option<String> {
    const LETTERS_MIN: usize = 2;
    let name = name.split(['\t', ' ']).next().unwrap_or_default();
    let machine = super::of_file(name)?;
    let letters = machine
        .chars()
        .take_while(|c| c.is_ascii_alphabetic())
        .count();
    (letters >= LETTERS_MIN || super::label::is_address(&machine)).then_some(machine)
}

/// A text with the old lines of its diffs above the new ones; `None` if it has no diff.
pub(super) fn sides(text: &str) -> Option<String> {
    let mut plain = String::with_capacity(text.len());
    let mut sides: Option<Sides> = None;
    let mut names: [String; 2] = Default::default();
    // What stands before each line, as in a quote, and true within `diff -u`.
    let mut hunk: Option<(String, bool)> = None;
    let mut is_found = false;
    for line in text.lines() {
        if let Some((before, is_unified)) = begins(line) {
            is_found = true;
            let sides = sides.get_or_insert_with(|| Sides {
                names: std::mem::take(&mut names),
                ..Sides::default()
            });
            let is_new = line.contains("@@ -0,0 ");
            sides
                .lines
                .iter_mut()
                .filter(|_| !is_new)
                .for_each(|lines| lines.push(GAP.to_string()));
            hunk = Some((before.to_string(), is_unified));
            continue;
        }
        if let (Some((before, is_unified)), Some(sides)) = (&hunk, &mut sides) {
            let own = line.strip_prefix(before.as_str()).unwrap_or(line);
            let is_name = own.starts_with("--- ") && *is_unified;
            let found = match (own.chars().next(), is_unified) {
                _ if is_name => None,
                (Some('-'), true) => Some((&own[1..], [true, false])),
                (Some('+'), true) => Some((&own[1..], [false, true])),
                (Some(' '), true) => Some((&own[1..], [true, true])),
                (Some('\\'), _) => Some(("", [false, false])),
                (Some('<'), false) => Some((&own[1..], [true, false])),
                (Some('>'), false) => Some((&own[1..], [false, true])),
                _ if own == "---" => Some(("", [false, false])),
                _ => None,
            };
            if let Some((own, of)) = found {
                for (lines, _) in sides.lines.iter_mut().zip(of).filter(|(_, of)| *of) {
                    lines.push(own.to_string());
                }
                continue;
            }
        }
        if let Some(sides) = sides.take() {
            sides.push(&mut plain);
            hunk = None;
        }
        let own = line.trim_start_matches(['>', ' ']);
        if let Some(name) = own.strip_prefix("--- ") {
            names[0] = name.to_string();
        } else if let Some(name) = own.strip_prefix("+++ ") {
            names[1] = name.to_string();
        } else {
            if let Some((_, files)) = own.split_once("diff ") {
                let mut last = files.split_whitespace().rev();
                names = [last.next(), last.next()].map(|name| name.unwrap_or_default().to_string());
                names.reverse();
            }
            plain.push_str(line);
            plain.push('\n');
        }
    }
    if let Some(sides) = sides {
        sides.push(&mut plain);
    }
    is_found.then_some(plain)
}

/// The words before the line above a change, and true for `@@ -1 +1 @@`; `117c117` is of plain `diff`.
fn begins(line: &str) -> Option<(&str, bool)> {
    let own = line.trim_start_matches(['>', ' ']);
    let before = &line[..line.len() - own.len()];
    let is_range = |text: &str| {
        text.split(',')
            .all(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
    };
    if let Some(rest) = own.strip_prefix("@@ -") {
        let (old, rest) = rest.split_once(" +")?;
        let (new, _) = rest.split_once(" @@")?;
        return (is_range(old) && is_range(new)).then_some((before, true));
    }
    let (old, new) = own.trim_end().split_once(['a', 'c', 'd'])?;
    (is_range(old) && is_range(new)).then_some((before, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_and_new_lines_are_apart() {
        let unified = "--- a\n+++ b\n@@ -1,2 +1,2 @@\n pid 1\n-dentry 1\n+dentry 2\n";
        let expected = "before:\n...\npid 1\ndentry 1\n\nafter:\n...\npid 1\ndentry 2\n\n";
        assert_eq!(sides(unified).unwrap(), expected);
        let plain = "$ diff s1 s2\n117c117\n< dentry 1\n---\n> dentry 2\n$ date";
        let expected =
            "$ diff s1 s2\nbefore:\n...\n dentry 1\n\nafter:\n...\n dentry 2\n\n$ date\n";
        assert_eq!(sides(plain).unwrap(), expected);
        let dated = unified
            .replace("- a", "- a\t2025-11-03 09:14:00")
            .replace("+ b", "+ b\t2025-11-04 09:14:00");
        assert!(
            sides(&dated)
                .unwrap()
                .starts_with("2025-11-03 09:14:00\n...\npid 1\ndentry 1\n")
        );
        let machines = plain.replace("s1 s2", "web1 web2");
        assert!(sides(&machines).unwrap().contains("web1:\n...\n dentry 1"));
        let new = "--- /dev/null\n+++ b\n@@ -0,0 +1,2 @@\n+pid 1\n+dentry 1\n";
        assert_eq!(sides(new).unwrap(), "after:\npid 1\ndentry 1\n\n");
        assert_eq!(sides("--- x ---\n> dentry 1\n1c\n"), None);
    }
}
