//! Bug reports of Android: a text with a section for each file.

use serde_json::json;

use crate::file::ReportError;
use crate::machine;
use crate::slabinfo::Slabinfo;

use super::{Form, Moment};

/// True if a text has a section with slabinfo.
pub(super) fn is(text: &str) -> bool {
    section(text, "SLAB INFO (/proc/slabinfo").is_some()
}

/// The lines of a section that a line `------ TITLE ... ------` begins.
fn section<'t>(text: &'t str, title: &str) -> Option<&'t str> {
    let start = format!("------ {title}");
    let at = match text.starts_with(&start) {
        true => 0,
        false => text.find(&format!("\n{start}"))? + 1,
    };
    let (_, body) = text[at..].split_once('\n')?;
    let end = body.find("\n------ ").map_or(body.len(), |end| end + 1);
    Some(&body[..end])
}

/// slabinfo, and what the sections beside it say about the machine.
pub(super) fn read(file: &str, text: &str) -> Result<Vec<Moment>, ReportError> {
    let slabinfo = section(text, "SLAB INFO (/proc/slabinfo").unwrap_or_default();
    // The line that ends the section says how long it took.
    let rows: Vec<&str> = slabinfo
        .lines()
        .filter(|line| !line.starts_with("------ "))
        .collect();
    if rows.iter().all(|line| line.trim().is_empty()) || slabinfo.starts_with("***") {
        let what = "its section SLAB INFO is empty: the report was taken without root (adb root; adb bugreport)";
        return Err(ReportError::bad(file, "SLAB INFO", what));
    }
    let rows = Slabinfo::parse_text(file, rows.join("\n").trim_start())?;
    let mut moment = Form::Bugreport.moment(&rows);
    let mut add = |key: &str, text: &str| {
        moment.insert(key.to_string(), json!(text));
    };
    let version = text.lines().find_map(|line| line.strip_prefix("Kernel: "));
    match version {
        Some(version) => add("version", version),
        None => {
            if let Some(log) = section(text, "KERNEL LOG (dmesg") {
                add("dmesg", &machine::log_lines(log));
            }
        }
    }
    if let Some(meminfo) = section(text, "MEMORY INFO (/proc/meminfo") {
        add("meminfo", meminfo);
    }
    if let Some(cmdline) = text
        .lines()
        .find_map(|line| line.strip_prefix("Command line: "))
    {
        add("cmdline", cmdline);
    }
    if let Some(pages) = section(text, "ZONEINFO (/proc/zoneinfo").and_then(machine::managed_pages)
    {
        moment.insert("managed_pages".to_string(), json!(pages));
    }
    Ok(vec![moment])
}
