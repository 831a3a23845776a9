//! The text of `slabtop -o`.

use serde_json::{Map, Value};

use crate::file::ReportError;

use super::Form;
use super::rows::{Cache, bytes_of, moment};

/// True for the line of the columns' names.
fn is_header(line: &str) -> bool {
    let line = line.trim();
    line.starts_with("OBJS ACTIVE") && line.ends_with("NAME")
}

/// True if a text has slabtop's table.
pub(super) fn is(text: &str) -> bool {
    text.lines().take(40).any(is_header)
}

/// The first table of a text.
pub(crate) fn read(file: &str, text: &str) -> Result<Map<String, Value>, ReportError> {
    let lines = (1..)
        .zip(text.lines())
        .skip_while(|(_, line)| !is_header(line));
    let mut caches = Vec::new();
    for (number, line) in lines.skip(1) {
        if line.trim().is_empty() {
            break;
        }
        let cache = cache(line).ok_or_else(|| {
            let what = "OBJS ACTIVE USE OBJ-SIZE SLABS OBJ/SLAB CACHE-SIZE NAME is expected";
            ReportError::bad(file, format!("line {number}"), what)
        })?;
        caches.push(cache);
    }
    moment(Form::Slabtop, file, &caches)
}

/// `208530 201942  79%    0.19K   9930       21     39720K dentry`.
fn cache(line: &str) -> Option<Cache> {
    let mut words = line.split_whitespace();
    let mut number = || words.next()?.parse::<u64>().ok();
    let (num_objs, active_objs) = (number()?, number()?);
    words.next()?.strip_suffix('%')?;
    let kib: f64 = words.next()?.strip_suffix('K')?.parse().ok()?;
    let mut number = || words.next()?.parse::<u64>().ok();
    let (num_slabs, objperslab) = (number()?, number()?);
    // Some versions leave the unit out.
    let cache_size = words.next()?;
    let cache_bytes = match cache_size.ends_with('K') {
        true => bytes_of(cache_size)?,
        false => cache_size.parse::<u64>().ok()?.checked_mul(1024)?,
    };
    let name = words.collect::<Vec<_>>().join(" ");
    let slab_bytes = match num_slabs {
        0 => super::rows::slab_bytes_of((kib * 1024.0) as u64, objperslab),
        slabs => cache_bytes / slabs,
    };
    (!name.is_empty() && (0.0..1e9).contains(&kib)).then(|| Cache {
        name,
        active_objs,
        num_objs,
        objsize: size_of(kib, objperslab, slab_bytes),
        objperslab,
        slab_bytes,
        num_slabs,
    })
}

/// The size that rounds to a number of KiB with two digits, and that fits `objperslab` times into a slab. Sizes are
/// multiples of 8.
fn size_of(kib: f64, objperslab: u64, slab_bytes: u64) -> u64 {
    let low = ((kib - 0.005) * 1024.0).max(0.0) as u64;
    let high = ((kib + 0.005) * 1024.0) as u64;
    let sizes = (low.div_ceil(8)..=high / 8).map(|eighth| eighth * 8);
    let fits = |size: &u64| *size > 0 && slab_bytes / size == objperslab;
    // Of several, the largest: rounding is to the nearest, and slabs are full.
    sizes.rev().find(fits).unwrap_or_else(|| {
        let most = slab_bytes.checked_div(objperslab).unwrap_or(u64::MAX);
        ((kib * 1024.0) as u64).min(most)
    })
}
