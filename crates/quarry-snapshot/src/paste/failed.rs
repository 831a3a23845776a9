//! Machines whose command failed, as tools say that ask several.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::forms::Moment;

use super::label;

/// The machine that a line says to have failed: `web2 | FAILED | rc=1 >>`, `web2 | UNREACHABLE! => {`,
/// `fatal: [web2]: UNREACHABLE! => {`, `[2] 10:02:41 [FAILURE] web2 Timed out`, `clush: web2: exited with exit code 1`,
/// `pdsh@admin: web2: ssh exited with exit code 255`, `ssh: connect to host web2 port 22: Connection refused`.
fn machine(line: &str) -> Option<&str> {
    let line = line.trim();
    let first = |text: &'_ str| text.find([' ', ':', ']']).unwrap_or(text.len());
    let named = |text| -> &str { &str::trim_start(text)[..first(str::trim_start(text))] };
    let name = if let Some((name, what)) = line.split_once(" | ") {
        let is_failed = ["FAILED", "UNREACHABLE!"]
            .iter()
            .any(|mark| what.starts_with(mark));
        is_failed.then_some(name)?
    } else if let Some((_, rest)) = line.split_once("[FAILURE] ") {
        named(rest)
    } else if let Some(rest) = line.strip_prefix("fatal: [") {
        named(rest)
    } else if let Some(rest) = line.strip_prefix("ssh: connect to host ") {
        named(rest)
    } else {
        let (tool, rest) = line.split_once(": ")?;
        let is_tool = tool == "clush" || tool.starts_with("pdsh@");
        let (name, what) = rest.split_once(": ").filter(|_| is_tool)?;
        what.contains("exited with exit code").then_some(name)?
    };
    label::is_name(name).then_some(name)
}

/// Notes in the last of some moments the machines that failed, and have no moment.
pub(super) fn note(text: &str, moments: &mut [Moment]) {
    let mut failed: BTreeSet<&str> = text.lines().filter_map(machine).collect();
    failed.retain(|name| {
        let is_of = |moment: &Moment| moment.get("host").and_then(Value::as_str) == Some(name);
        !moments.iter().any(is_of)
    });
    let Some(last) = moments.last_mut().filter(|_| !failed.is_empty()) else {
        return;
    };
    let failed: Vec<&str> = failed.into_iter().collect();
    let note = format!(
        "the command failed on {}, whose caches are not told",
        failed.join(", ")
    );
    let notes = last.entry("notes").or_insert_with(|| json!([]));
    if let Some(notes) = notes.as_array_mut() {
        notes.push(json!(note));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_that_failed_are_named() {
        for (line, expected) in [
            ("web2 | FAILED | rc=1 >>", Some("web2")),
            ("web2 | UNREACHABLE! => {", Some("web2")),
            (
                "fatal: [web2]: UNREACHABLE! => {\"msg\": \"x\"}",
                Some("web2"),
            ),
            (
                "[2] 10:02:41 [FAILURE] web2 Timed out, Killed by signal 9",
                Some("web2"),
            ),
            ("clush: web2: exited with exit code 1", Some("web2")),
            (
                "pdsh@admin: web2: ssh exited with exit code 255",
                Some("web2"),
            ),
            (
                "ssh: connect to host web2 port 22: Connection refused",
                Some("web2"),
            ),
            ("web1 | CHANGED | rc=0 >>", None),
            ("[1] 10:02:11 [SUCCESS] web1", None),
            ("dentry: 1: exited", None),
        ] {
            assert_eq!(machine(line), expected, "{line}");
        }
        let text = "web1 | CHANGED | rc=0 >>\nslabinfo - version: 2.1\n\
            dentry 21 21 192 21 1 : tunables 0 0 0 : slabdata 1 1 0\n\nweb2 | FAILED | rc=1 >>\nno\n";
        let found = crate::Snapshot::parse("t", text, None).unwrap();
        let is_said = |note: &String| note.contains("failed on web2");
        assert!(found.notes.iter().any(is_said), "{:?}", found.notes);
    }
}
