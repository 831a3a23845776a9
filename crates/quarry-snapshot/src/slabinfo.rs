//! `/proc/slabinfo`, version 2.1: as its text, and as a JSON list of its rows.

use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use super::file::{ReportError, read_report};
use super::words::quoted;

/// One cache, as slabinfo shows it. The names are the columns'.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SlabinfoRow {
    /// The cache.
    pub name: String,
    /// Objects that are not known to be free. SLUB counts as active what its CPUs hold, SLAB what
    /// lies in its arrays: neither is the number of live objects.
    pub active_objs: u64,
    /// Objects that all slabs have room for.
    pub num_objs: u64,
    /// Bytes from object to object.
    pub objsize: u64,
    /// Objects in a slab of the normal order.
    pub objperslab: u64,
    /// Pages of a slab of the normal order.
    pub pagesperslab: u64,
    /// SLAB: objects that a CPU's array holds; 0 in other designs.
    pub limit: u64,
    /// SLAB: objects moved at once between an array and the slabs.
    pub batchcount: u64,
    /// SLAB: the shared array holds this many times `batchcount`.
    pub sharedfactor: u64,
    /// Slabs with objects in use; SLUB reports all.
    pub active_slabs: u64,
    /// Slabs.
    pub num_slabs: u64,
    /// SLAB: objects in the shared array.
    pub sharedavail: u64,
}

impl SlabinfoRow {
    /// Bytes of all slabs. SLUB makes a slab of a smaller order when memory is short: it has fewer objects than others, and
    /// is counted by them.
    #[must_use]
    pub fn slab_bytes(&self, page_bytes: u64) -> u64 {
        let pages = u128::from(self.num_slabs) * u128::from(self.pagesperslab);
        let full = u128::from(self.num_slabs) * u128::from(self.objperslab);
        let objects = u128::from(self.num_objs);
        let pages = match objects > 0 && objects < full {
            true => pages
                .saturating_mul(objects)
                .div_ceil(full)
                .max(u128::from(self.num_slabs)),
            false => pages,
        };
        let pages = u64::try_from(pages).unwrap_or(u64::MAX);
        pages.saturating_mul(page_bytes)
    }

    /// Bytes of all objects that the slabs have room for.
    #[must_use]
    pub fn object_bytes(&self) -> u64 {
        self.num_objs.saturating_mul(self.objsize)
    }

    /// Bytes of the objects that are not known to be free.
    #[must_use]
    pub fn active_bytes(&self) -> u64 {
        self.active_objs.saturating_mul(self.objsize)
    }
}

/// All caches, in the order of the report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Slabinfo {
    /// The caches.
    pub rows: Vec<SlabinfoRow>,
}

/// The version that is read; it is of 2.6.10 and later.
pub(crate) const VERSION: &str = "slabinfo - version: 2.1";

/// Columns before the tunables, without the name.
const COLUMNS: [&str; 5] = [
    "active_objs",
    "num_objs",
    "objsize",
    "objperslab",
    "pagesperslab",
];
const TUNABLES: [&str; 3] = ["limit", "batchcount", "sharedfactor"];
const SLABDATA: [&str; 3] = ["active_slabs", "num_slabs", "sharedavail"];

impl Slabinfo {
    /// Reads a file: slabinfo's text, or a JSON list of rows; either may be packed with gzip.
    ///
    /// # Errors
    ///
    /// [`ReportError`].
    pub fn read(path: &Path) -> Result<Self, ReportError> {
        Self::parse(&path.display().to_string(), &read_report(path)?)
    }

    /// Parses slabinfo's text or a JSON list of rows, whichever it is. `file` is for messages.
    ///
    /// # Errors
    ///
    /// [`ReportError::Bad`].
    pub fn parse(file: &str, text: &str) -> Result<Self, ReportError> {
        if !text.trim_start().starts_with(['[', '{']) {
            return Self::parse_text(file, text);
        }
        let value: Value = serde_json::from_str(text)
            .map_err(|error| ReportError::bad(file, format!("line {}", error.line()), error))?;
        Self::parse_json(file, &value)
    }

    /// Parses the text of `/proc/slabinfo`. What follows `slabdata` in a line, the statistics of a
    /// SLAB with debugging, is skipped.
    ///
    /// # Errors
    ///
    /// [`ReportError::Bad`] with the line.
    pub fn parse_text(file: &str, text: &str) -> Result<Self, ReportError> {
        let mut lines = (1..).zip(text.lines());
        let first = lines.next().map_or("", |(_, line)| line).trim();
        // SLAB with debugging adds " (statistics)".
        let version = first.strip_prefix("slabinfo - version: ");
        if version.and_then(|version| version.split_whitespace().next()) != Some("2.1") {
            let what = "\"slabinfo - version: 2.1\" is expected: give a copy of /proc/slabinfo";
            return Err(ReportError::bad(file, "line 1", what));
        }
        let mut rows = Vec::new();
        for (number, line) in lines {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let row = parse_line(line)
                .map_err(|what| ReportError::bad(file, format!("line {number}"), what))?;
            rows.push(row);
        }
        Ok(Self { rows })
    }

    /// Takes a JSON list of rows: an object for each cache, with the columns as keys. The SLAB
    /// columns may be missing, and the three tunables may be a list `tunables`.
    ///
    /// # Errors
    ///
    /// [`ReportError::Bad`] with the number of the entry.
    pub fn parse_json(file: &str, value: &Value) -> Result<Self, ReportError> {
        let Value::Array(entries) = value else {
            let what = "a list of caches is expected, with slabinfo's columns as keys";
            return Err(ReportError::bad(file, "slabinfo", what));
        };
        let rows: Result<_, _> = (1..)
            .zip(entries)
            .map(|(number, entry)| {
                parse_entry(entry)
                    .map_err(|what| ReportError::bad(file, format!("cache {number}"), what))
            })
            .collect();
        Ok(Self { rows: rows? })
    }

    /// The cache of this name.
    #[must_use]
    pub fn row(&self, name: &str) -> Option<&SlabinfoRow> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// Bytes of all slabs of all caches.
    #[must_use]
    pub fn slab_bytes(&self, page_bytes: u64) -> u64 {
        let bytes = self.rows.iter().map(|row| row.slab_bytes(page_bytes));
        bytes.fold(0, u64::saturating_add)
    }

    /// Bytes of all objects of all caches.
    #[must_use]
    pub fn object_bytes(&self) -> u64 {
        let bytes = self.rows.iter().map(SlabinfoRow::object_bytes);
        bytes.fold(0, u64::saturating_add)
    }

    /// Bytes of all objects that are not known to be free.
    #[must_use]
    pub fn active_bytes(&self) -> u64 {
        let bytes = self.rows.iter().map(SlabinfoRow::active_bytes);
        bytes.fold(0, u64::saturating_add)
    }
}

pub(crate) fn parse_line(line: &str) -> Result<SlabinfoRow, String> {
    let (columns, rest) = split_at(line, " : tunables ")?;
    let (tunables, rest) = split_at(rest, " : slabdata ")?;
    let slabdata = rest.split(" : ").next().unwrap_or_default();
    let mut words: Vec<&str> = columns.split_whitespace().collect();
    // Names may have spaces.
    let numbers = words.split_off(words.len().saturating_sub(COLUMNS.len()));
    if words.is_empty() {
        return Err("a name and five numbers are expected before \" : tunables\"".to_string());
    }
    let [active_objs, num_objs, objsize, objperslab, pagesperslab] = numbers_of(&numbers, COLUMNS)?;
    let tunables: Vec<&str> = tunables.split_whitespace().collect();
    let slabdata: Vec<&str> = slabdata.split_whitespace().collect();
    let [limit, batchcount, sharedfactor] = numbers_of(&tunables, TUNABLES)?;
    let [active_slabs, num_slabs, sharedavail] = numbers_of(&slabdata, SLABDATA)?;
    Ok(SlabinfoRow {
        name: words.join(" "),
        active_objs,
        num_objs,
        objsize,
        objperslab,
        pagesperslab,
        limit,
        batchcount,
        sharedfactor,
        active_slabs,
        num_slabs,
        sharedavail,
    })
}

/// Texts before and after a mark.
fn split_at<'t>(text: &'t str, mark: &str) -> Result<(&'t str, &'t str), String> {
    text.split_once(mark)
        .ok_or_else(|| format!("there is no {:?}", mark.trim_end()))
}

/// The numbers of these columns.
fn numbers_of<const N: usize>(words: &[&str], names: [&str; N]) -> Result<[u64; N], String> {
    let mut numbers = [0; N];
    for (i, name) in names.iter().enumerate() {
        let word = words.get(i).ok_or_else(|| format!("{name} is missing"))?;
        numbers[i] = word
            .parse()
            .map_err(|_| format!("{name}: {} is not a number", quoted(word)))?;
    }
    Ok(numbers)
}

fn parse_entry(entry: &Value) -> Result<SlabinfoRow, String> {
    let name = entry
        .get("name")
        .and_then(Value::as_str)
        .ok_or("it has no \"name\"")?;
    let in_cache = |what: String| format!("{name}: {what}");
    let optional = |key: &str| match entry.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value
            .as_u64()
            .map(Some)
            .ok_or_else(|| in_cache(format!("{key}: {value} is not a number from 0 on"))),
    };
    let number = |key: &str| {
        optional(key)?.ok_or_else(|| in_cache(format!("the number {key:?} is missing")))
    };
    let [limit, batchcount, sharedfactor] = match entry.get("tunables") {
        None | Some(Value::Null) => {
            let mut tunables = [0; 3];
            for (tunable, key) in tunables.iter_mut().zip(TUNABLES) {
                *tunable = optional(key)?.unwrap_or(0);
            }
            tunables
        }
        Some(list) => serde_json::from_value(list.clone())
            .map_err(|_| in_cache(format!("tunables: {list} is not a list of three numbers")))?,
    };
    let num_slabs = number("num_slabs")?;
    Ok(SlabinfoRow {
        name: name.to_string(),
        active_objs: number("active_objs")?,
        num_objs: number("num_objs")?,
        objsize: number("objsize")?,
        objperslab: number("objperslab")?,
        pagesperslab: number("pagesperslab")?,
        limit,
        batchcount,
        sharedfactor,
        // SLUB reports all of them.
        active_slabs: optional("active_slabs")?.unwrap_or(num_slabs),
        num_slabs,
        sharedavail: optional("sharedavail")?.unwrap_or(0),
    })
}

#[cfg(test)]
mod tests;
