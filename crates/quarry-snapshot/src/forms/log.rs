//! Kernel logs: tables of slabs when memory was exhausted, and slabinfo that was printed to a console.

use serde_json::json;

use crate::file::ReportError;
use crate::machine;
use crate::slabinfo::Slabinfo;

use super::rows::{Cache, PAGE_BYTES, moment};
use super::{Form, Moment};

const TABLE: &str = "Unreclaimable slab info:";
const SLUB: &str = "SLUB: Unable to allocate memory on node";
const SLABINFO: &str = "slabinfo - version: 2.1";

/// True if a log has such a table.
pub(super) fn is(text: &str) -> bool {
    [TABLE, SLUB, SLABINFO]
        .iter()
        .any(|mark| text.contains(mark))
}

/// A moment for each table, and those facts that the log has.
pub(super) fn read(file: &str, text: &str) -> Result<Vec<Moment>, ReportError> {
    let mut moments = Vec::new();
    if text.contains(SLABINFO) {
        moments = slabinfo(file, text)?;
    } else if text.contains(TABLE) {
        // Each follows its mark.
        for table in text.split(TABLE).skip(1) {
            moments.push(moment(Form::Oom, file, &unreclaimable(table), None)?);
        }
    } else {
        moments.push(moment(Form::Oom, file, &failed(text), None)?);
    }
    let lines = machine::log_lines(text);
    for moment in &mut moments {
        if !lines.is_empty() {
            moment.insert("dmesg".to_string(), json!(lines));
        }
    }
    Ok(moments)
}

/// A line without what logs put before it: `[  1.2] `, `Aug 6 09:37:21 host kernel: [ 1.2] `, `host cat[123]: `.
fn bare(line: &str) -> &str {
    let line = line.split_once("kernel: ").map_or(line, |(_, rest)| rest);
    let line = line.split_once("]: ").map_or(line, |(_, rest)| rest);
    let line = line.trim_start();
    let line = match line.starts_with('<') {
        true => line.split_once('>').map_or(line, |(_, rest)| rest),
        false => line,
    };
    let in_brackets = line
        .starts_with('[')
        .then(|| line.split_once(']'))
        .flatten();
    in_brackets.map_or(line, |(_, rest)| rest.strip_prefix(' ').unwrap_or(rest))
}

/// slabinfo among other lines: a moment for each of its headers. Rows above the first one, as a sort leaves them, are of
/// that one.
pub(super) fn slabinfo(file: &str, text: &str) -> Result<Vec<Moment>, ReportError> {
    let (mut above, mut tables) = (Vec::new(), Vec::<Vec<&str>>::new());
    for line in text.lines().map(bare) {
        let table = tables.last_mut().unwrap_or(&mut above);
        if line.starts_with(SLABINFO) {
            tables.push(vec![line]);
        } else if line.contains(" : slabdata ") {
            table.push(line);
        }
    }
    if let Some(first) = tables.first_mut() {
        first.append(&mut above);
    }
    let moments = tables.iter().map(|table| {
        let rows = Slabinfo::parse_text(file, &table.join("\n"))?;
        Ok(Form::Slabinfo.moment(&rows))
    });
    moments.collect()
}

/// True if a text has several copies of slabinfo, one after the other.
pub(super) fn is_series(text: &str) -> bool {
    text.matches(SLABINFO).count() > 1
}

/// `kmalloc-2048           59164KB      59164KB`: bytes of objects in use, and of all. A unit of 1 KiB takes the place
/// of objects, so that bytes are right; slabs are not known.
fn unreclaimable(table: &str) -> Vec<Cache> {
    let mut caches = Vec::new();
    for line in table.lines().skip(1).map(bare) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words == ["Name", "Used", "Total"] {
            continue;
        }
        let [name @ .., used, total] = words.as_slice() else {
            break;
        };
        let kib = |word: &str| word.strip_suffix("KB")?.parse::<u64>().ok();
        let (Some(used), Some(total), false) = (kib(used), kib(total), name.is_empty()) else {
            break;
        };
        caches.push(Cache {
            name: name.join(" "),
            active_objs: used,
            num_objs: total,
            objsize: 1024,
            objperslab: PAGE_BYTES / 1024,
            slab_bytes: PAGE_BYTES,
            num_slabs: total.div_ceil(PAGE_BYTES / 1024),
        });
    }
    caches
}

/// Caches that SLUB could not enlarge, each by its last message:
/// `cache: kmalloc-256, object size: 256, buffer size: 256, default order: 0, min order: 0`, and for each node
/// `node 0: slabs: 113, objs: 1808, free: 0`.
fn failed(text: &str) -> Vec<Cache> {
    let mut caches: Vec<Cache> = Vec::new();
    for line in text.lines().map(|line| bare(line).trim()) {
        let number = |mark: &str| -> Option<u64> {
            let (_, rest) = line.split_once(mark)?;
            let end = rest
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(rest.len());
            rest[..end].parse().ok()
        };
        if let Some(rest) = line.strip_prefix("cache: ") {
            let name = rest.split([',', '(']).next().unwrap_or_default();
            let (size, order) = (number("buffer size: "), number("default order: "));
            let (Some(objsize), Some(order)) = (size, order) else {
                continue;
            };
            let slab_bytes = u32::try_from(order).ok();
            let slab_bytes = slab_bytes.and_then(|order| PAGE_BYTES.checked_shl(order));
            let slab_bytes = slab_bytes.filter(|_| order < 20).unwrap_or(PAGE_BYTES);
            caches.retain(|cache| cache.name != name);
            caches.push(Cache {
                name: name.to_string(),
                objsize,
                objperslab: slab_bytes.checked_div(objsize).unwrap_or(0),
                slab_bytes,
                ..Cache::default()
            });
        } else if line.starts_with("node ")
            && let Some(cache) = caches.last_mut()
            && let (Some(slabs), Some(objects)) = (number("slabs: "), number("objs: "))
        {
            cache.num_slabs = cache.num_slabs.saturating_add(slabs);
            cache.num_objs = cache.num_objs.saturating_add(objects);
            let used = objects.saturating_sub(number("free: ").unwrap_or(0));
            cache.active_objs = cache.active_objs.saturating_add(used);
        }
    }
    caches
}
