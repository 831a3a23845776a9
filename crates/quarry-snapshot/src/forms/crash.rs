//! The text of `kmem -s` of crash.

use serde_json::json;

use crate::file::ReportError;
use crate::machine;

use super::rows::{Cache, bytes_of, moment};
use super::{Form, Moment};

fn is_header(line: &str) -> bool {
    let line = line.trim();
    line.starts_with("CACHE") && line.contains("OBJSIZE") && line.contains("SSIZE")
}

/// True if a text has the table.
pub(super) fn is(text: &str) -> bool {
    text.lines().any(is_header)
}

/// The first table. Old versions have the name first: `CACHE NAME OBJSIZE ALLOCATED TOTAL SLABS SSIZE`.
pub(super) fn read(file: &str, text: &str) -> Result<Vec<Moment>, ReportError> {
    let mut caches = Vec::new();
    let mut unknown = Vec::new();
    let lines = text.lines().skip_while(|line| !is_header(line));
    for line in lines.skip(1).filter(|line| !line.trim().is_empty()) {
        if line.trim_start().starts_with("crash>") {
            break;
        }
        // Warnings begin with "kmem:".
        match cache(line) {
            Some(cache) => caches.push(cache),
            None if line.contains('?') && !line.starts_with("kmem:") => {
                unknown.extend(line.split_whitespace().next_back());
            }
            None => {}
        }
    }
    let note = (!unknown.is_empty()).then(|| {
        let unknown = unknown.join(", ");
        format!("caches that crash could not read are left out: {unknown}")
    });
    let mut moment = moment(Form::Crash, file, &caches, note)?;
    // What crash says when it starts.
    for (name, key) in [
        ("RELEASE", "kernel_release"),
        ("MACHINE", "architecture"),
        ("CPUS", "cpu_present"),
    ] {
        let told = machine::field(text, name).and_then(|told| told.split_whitespace().next());
        if let Some(told) = told {
            moment.insert(key.to_string(), json!(told));
        }
    }
    Ok(vec![moment])
}

/// `ffff88017fc07600      192      20212     21000   1000     4k  dentry`.
fn cache(line: &str) -> Option<Cache> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (address, rest) = words.split_first()?;
    if address.len() < 8 || !address.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let numbers_first = rest.first()?.bytes().all(|b| b.is_ascii_digit()) && rest.len() >= 6;
    let (name, numbers) = match numbers_first {
        true => (rest.get(5..)?.join(" "), rest.get(..5)?),
        false => (rest.first()?.to_string(), rest.get(1..6)?),
    };
    let number = |index: usize| numbers.get(index)?.parse::<u64>().ok();
    let (objsize, active_objs) = (number(0)?, number(1)?);
    let (num_objs, num_slabs) = (number(2)?, number(3)?);
    let slab_bytes = bytes_of(numbers.get(4)?)?;
    let in_slab = |size: u64| slab_bytes.checked_div(size).unwrap_or(0);
    let aligned = objsize.checked_next_multiple_of(8)?;
    let objperslab = match num_objs.checked_div(num_slabs) {
        Some(objects) if num_objs.is_multiple_of(num_slabs) => objects,
        // Slabs of lower orders are among them.
        _ => in_slab(aligned),
    };
    let objsize = match in_slab(aligned) == objperslab {
        true => aligned,
        false => in_slab(objperslab) / 8 * 8,
    };
    Some(Cache {
        name,
        active_objs,
        num_objs,
        objsize,
        objperslab,
        slab_bytes,
        num_slabs,
    })
}
