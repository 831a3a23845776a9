//! The text of `vmstat -m`.

use crate::file::ReportError;

use super::rows::{Cache, moment, slab_bytes_of};
use super::{Form, Moment};

const COLUMNS: [&str; 5] = ["Cache", "Num", "Total", "Size", "Pages"];

fn is_header(line: &str) -> bool {
    line.split_whitespace().eq(COLUMNS)
}

/// True if a text has the table.
pub(super) fn is(text: &str) -> bool {
    text.lines().take(5).any(is_header)
}

/// The table; its header is repeated. The column `Pages` has the objects of a slab.
pub(super) fn read(file: &str, text: &str) -> Result<Vec<Moment>, ReportError> {
    let mut caches = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim().is_empty() || is_header(line) || caches.is_empty() && line.contains(':') {
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let cache = cache(&words).ok_or_else(|| {
            let what = "a cache and four numbers are expected: Num Total Size Pages";
            ReportError::bad(file, format!("line {number}"), what)
        })?;
        caches.push(cache);
    }
    Ok(vec![moment(Form::Vmstat, file, &caches, None)?])
}

fn cache(words: &[&str]) -> Option<Cache> {
    let (name, numbers) = words.split_at_checked(words.len().checked_sub(4)?)?;
    let mut numbers = numbers.iter().map(|word| word.parse::<u64>().ok());
    let mut number = || numbers.next()?;
    let (active_objs, num_objs, objsize, objperslab) = (number()?, number()?, number()?, number()?);
    (!name.is_empty()).then(|| Cache {
        name: name.join(" "),
        active_objs,
        num_objs,
        objsize,
        objperslab,
        slab_bytes: slab_bytes_of(objsize, objperslab),
        num_slabs: num_objs.checked_div(objperslab).unwrap_or(0),
    })
}
