//! Rows of slabinfo under names of columns, in any order: CSV, TSV, what awk prints, and JSON.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::slabinfo::SlabinfoRow;

/// Columns that are read, by their names without case and marks.
const KNOWN: [(&str, &[&str]); 12] = [
    (
        "name",
        &[
            "name",
            "cache",
            "cachename",
            "slab",
            "slabname",
            "slabcache",
        ],
    ),
    (
        "active_objs",
        &["activeobjs", "active", "activeobjects", "objsactive"],
    ),
    (
        "num_objs",
        &[
            "numobjs",
            "total",
            "totalobjs",
            "objs",
            "objects",
            "totalobjects",
            "numobjects",
        ],
    ),
    ("objsize", &["objsize", "objectsize", "size"]),
    (
        "objperslab",
        &["objperslab", "objectsperslab", "objsperslab", "objslab"],
    ),
    ("pagesperslab", &["pagesperslab", "pageperslab"]),
    ("active_slabs", &["activeslabs"]),
    ("num_slabs", &["numslabs", "slabs", "totalslabs"]),
    ("limit", &["limit"]),
    ("batchcount", &["batchcount"]),
    ("sharedfactor", &["sharedfactor"]),
    ("sharedavail", &["sharedavail"]),
];
/// Columns that a row needs; slabs are as many as the objects fill.
const NEEDED: [&str; 6] = [
    "name",
    "active_objs",
    "num_objs",
    "objsize",
    "objperslab",
    "pagesperslab",
];

/// The column of a name.
fn column(name: &str) -> Option<&'static str> {
    let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let name = name.to_ascii_lowercase();
    let mut known = KNOWN.iter();
    known.find_map(|(column, names)| names.contains(&name.as_str()).then_some(*column))
}

/// The names of the columns that a line has, with what stands between them.
struct Head<'t> {
    columns: Vec<Option<&'static str>>,
    mark: Option<char>,
    /// Place of the column that has a machine.
    host: Option<usize>,
    /// Place of the column that has a time.
    time: Option<usize>,
    names: Vec<&'t str>,
}

fn cells(line: &str, mark: Option<char>) -> Vec<&str> {
    match mark {
        Some(mark) => line
            .split(mark)
            .map(|cell| cell.trim().trim_matches('"'))
            .collect(),
        None => line.split_whitespace().collect(),
    }
}

impl<'t> Head<'t> {
    /// The head that a line is: it has a name, and two counts of slabinfo. slabinfo's own has other marks.
    fn of(line: &'t str) -> Option<Self> {
        const COUNTS: [&str; 3] = ["active_objs", "num_objs", "objperslab"];
        const COUNTS_MIN: usize = 2;
        if !line.contains("bj") && !line.contains("BJ") {
            return None;
        }
        let lower = line.to_ascii_lowercase();
        let mark = ['\t', ';', ',', '|']
            .into_iter()
            .find(|mark| line.contains(*mark));
        // slabinfo's own head has blanks between its names.
        if mark.is_none() && lower.contains("<active_objs>") {
            return None;
        }
        let names = cells(line, mark);
        let columns: Vec<_> = names.iter().map(|name| column(name)).collect();
        let has = |of: &str| columns.contains(&Some(of));
        let counts = COUNTS.iter().filter(|of| has(of)).count();
        let is_spaced = mark.is_none() && !lower.contains("_obj");
        let host = names.iter().position(|name| {
            ["host", "hostname", "node", "machine", "server"]
                .contains(&name.to_ascii_lowercase().as_str())
        });
        let time = names.iter().position(|name| {
            ["time", "timestamp", "date", "datetime", "ts"].contains(
                &name
                    .trim_start_matches(['@', '_'])
                    .to_ascii_lowercase()
                    .as_str(),
            )
        });
        (has("name") && counts >= COUNTS_MIN && !is_spaced).then_some(Self {
            columns,
            mark,
            host,
            time,
            names,
        })
    }

    /// Needed columns that it lacks.
    fn lacks(&self) -> Vec<&'static str> {
        let lacks = |of: &&&str| !self.columns.contains(&Some(**of));
        NEEDED.iter().filter(lacks).copied().collect()
    }

    /// The time that a line below it has.
    fn timed<'l>(&self, line: &'l str) -> Option<&'l str> {
        cells(line, self.mark).get(self.time?).copied()
    }

    /// The row that a line is below it, and the words for its machine to put before it.
    fn row(&self, line: &str) -> Option<(String, SlabinfoRow)> {
        let cells = cells(line, self.mark);
        if cells.len() != self.columns.len() {
            return None;
        }
        let of = |name: &str| {
            let place = self
                .columns
                .iter()
                .position(|column| *column == Some(name))?;
            cells.get(place).copied().filter(|cell| !cell.is_empty())
        };
        let row = of_values(of("name")?, |name| of(name)?.parse().ok())?;
        let host = self.host.and_then(|place| cells.get(place));
        let host = host.map_or_else(String::new, |host| format!("{host}: "));
        Some((host, row))
    }
}

/// A row of the numbers of its columns.
fn of_values(name: &str, number: impl Fn(&str) -> Option<u64>) -> Option<SlabinfoRow> {
    let or_none = |name: &str| number(name).unwrap_or(0);
    let (num_objs, objperslab) = (number("num_objs")?, number("objperslab")?);
    let num_slabs = number("num_slabs").unwrap_or_else(|| num_objs.div_ceil(objperslab.max(1)));
    Some(SlabinfoRow {
        name: name.to_string(),
        active_objs: number("active_objs")?,
        num_objs,
        objsize: number("objsize")?,
        objperslab,
        pagesperslab: number("pagesperslab")?,
        limit: or_none("limit"),
        batchcount: or_none("batchcount"),
        sharedfactor: or_none("sharedfactor"),
        active_slabs: number("active_slabs").unwrap_or(num_slabs),
        num_slabs,
        sharedavail: or_none("sharedavail"),
    })
}

/// A row as slabinfo prints it.
fn printed(row: &SlabinfoRow) -> String {
    format!(
        "{} {} {} {} {} {} : tunables {} {} {} : slabdata {} {} {}",
        row.name,
        row.active_objs,
        row.num_objs,
        row.objsize,
        row.objperslab,
        row.pagesperslab,
        row.limit,
        row.batchcount,
        row.sharedfactor,
        row.active_slabs,
        row.num_slabs,
        row.sharedavail
    )
}

/// Begin of slabinfo's own head.
const HEAD: &str = "# name <active_objs>";

/// The text with the rows below such heads as slabinfo prints them; `None` if it has none.
pub(super) fn printed_rows(text: &str) -> Option<String> {
    let mut head: Option<Head<'_>> = None;
    let (mut is_found, mut seen, mut timed) = (false, BTreeSet::new(), BTreeSet::new());
    let mut plain = String::with_capacity(text.len());
    for line in text.lines() {
        let row = head.as_ref().and_then(|head| head.row(line));
        if let Some((host, row)) = row {
            is_found = true;
            // A cache that comes again is of another time.
            let time = head.as_ref().and_then(|head| head.timed(line));
            let name = format!("{host}{}", row.name);
            if let Some(time) = time
                && (timed.is_empty() || timed.contains(&name))
            {
                timed.clear();
                plain.push_str(&format!("{time}\n"));
            }
            timed.insert(name);
            // Each machine's rows have a head.
            if seen.insert(host.clone()) {
                plain.push_str(&format!("{host}{HEAD}\n"));
            }
            plain.push_str(&host);
            plain.push_str(&printed(&row));
        } else if let Some(found) = Head::of(line).filter(|head| head.lacks().is_empty()) {
            seen.clear();
            timed.clear();
            if found.host.is_none() {
                seen.insert(String::new());
                plain.push_str(HEAD);
            }
            head = Some(found);
        } else {
            plain.push_str(line);
        }
        plain.push('\n');
    }
    is_found.then_some(plain)
}

/// The columns of a head below which no row can be read, and those that it lacks.
pub(super) fn lacking(text: &str) -> Option<(String, String)> {
    let head = text.lines().find_map(Head::of)?;
    let lacks = head.lacks();
    (!lacks.is_empty()).then(|| (head.names.join(", "), lacks.join(", ")))
}

/// The text of rows that JSON has as objects with the columns as keys: a list of them, one under any key, or an object of
/// each cache under its name. `None` for other values.
pub(crate) fn of_objects(value: &Value) -> Option<String> {
    let rows: Option<Vec<String>> = match value {
        Value::Array(entries) => entries.iter().map(|entry| of_object(None, entry)).collect(),
        Value::Object(fields) => {
            let lists = || fields.values().filter(|value| value.is_array());
            if let Some(rows) = lists().find_map(of_objects) {
                return Some(rows);
            }
            let named = fields.iter();
            named
                .map(|(name, entry)| of_object(Some(name), entry))
                .collect()
        }
        _ => None,
    };
    let rows = rows.filter(|rows| !rows.is_empty())?;
    Some(format!("{HEAD}\n{}\n", rows.join("\n")))
}

/// The row of an object, which has its name unless the key above it is that.
fn of_object(name: Option<&str>, entry: &Value) -> Option<String> {
    let fields = entry.as_object()?;
    let of = |name: &str| {
        let (_, value) = fields.iter().find(|(key, _)| column(key) == Some(name))?;
        Some(value)
    };
    let number = |name: &str| match of(name)? {
        Value::String(text) => text.trim().parse().ok(),
        value => value.as_u64(),
    };
    let name = of("name").and_then(Value::as_str).or(name)?;
    Some(printed(&of_values(name, number)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str = "dentry 7 21 192 21 1 : tunables 0 0 0 : slabdata 1 1 0";

    #[test]
    fn columns_have_any_order() {
        for text in [
            "name,active_objs,num_objs,objsize,objperslab,pagesperslab,active_slabs,num_slabs\ndentry,7,21,192,21,1,1,1",
            "num_objs;objsize;name;active_objs;objperslab;pagesperslab\n21;192;\"dentry\";7;21;1",
            "Cache\tActive Objs\tNum Objs\tObj Size\tObj/Slab\tPages per slab\ndentry\t7\t21\t192\t21\t1",
            "name active_objs num_objs objsize objperslab pagesperslab\ndentry 7 21 192 21 1",
        ] {
            let plain = printed_rows(text).unwrap();
            assert_eq!(plain.lines().nth(1), Some(ROW), "{text}");
        }
        let hosts = "host,name,active_objs,num_objs,objsize,objperslab,pagesperslab\nweb1,dentry,7,21,192,21,1";
        assert!(printed_rows(hosts).unwrap().contains("web1: dentry 7"));
        let timed = "time,name,active_objs,num_objs,objsize,objperslab,pagesperslab\n2026-11-24,dentry,7,21,192,21,1\n2026-11-23,dentry,7,21,192,21,1";
        let plain = printed_rows(timed).unwrap();
        let lines: Vec<&str> = plain.lines().collect();
        assert_eq!(lines[1..], ["2026-11-24", ROW, "2026-11-23", ROW]);
        let lacks = "name,active_objs,num_objs\ndentry,7,21";
        assert_eq!(printed_rows(lacks), None);
        assert_eq!(
            lacking(lacks).unwrap().1,
            "objsize, objperslab, pagesperslab"
        );
        for other in [
            "# name <active_objs> <num_objs>\ndentry 7 21 192 21 1",
            "OBJS ACTIVE  USE OBJ SIZE  SLABS OBJ/SLAB CACHE SIZE NAME\n1 2 3",
            "Cache Num Total Size Pages\ndentry 7 21 192 21",
        ] {
            assert_eq!(printed_rows(other), None, "{other}");
        }
    }

    #[test]
    fn objects_have_columns_as_keys() {
        let rows = serde_json::json!([
            {"name": "dentry", "active_objs": "7", "num_objs": 21, "objsize": 192, "objperslab": 21, "pagesperslab": 1}
        ]);
        assert!(of_objects(&rows).unwrap().contains(ROW));
        assert_eq!(
            of_objects(&serde_json::json!([{"message": "dentry"}])),
            None
        );
    }
}
