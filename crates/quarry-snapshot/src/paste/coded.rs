//! Packings of a whole text: quoted-printable of mails, and JSON of logs and tools around its lines.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Deserializer, Map, Value};

use super::{head, label, tail, time};
use crate::machine;

/// Stands between the machine that JSON names and a line of its text: an invisible separator, which no form prints.
pub(crate) const OF_HOST: char = '\u{2063}';

/// Keys under which loggers and tools have lines of text: docker, journald and others, Ansible, clouds.
const KEYS: [&str; 11] = [
    "log",
    "message",
    "MESSAGE",
    "msg",
    "line",
    "content",
    "body",
    "textPayload",
    "stdout",
    "stdout_lines",
    "values",
];
/// Facts that JSON says of a text.
#[derive(Clone, Copy, Default)]
struct Of<'v> {
    host: Option<&'v str>,
    time: Option<&'v str>,
}

/// Lines that a mailer broke or padded, before a text is one of quoted-printable.
const BROKEN_MIN: usize = 2;

/// The text of quoted-printable; `None` for others.
pub(super) fn printable(text: &str) -> Option<String> {
    // A mailer breaks lines at 76 characters. `====` below a title is no break.
    let is_broken = |line: &&str| match line.trim_end_matches('\r') {
        line if line.ends_with("=20") => true,
        line => {
            let before = line.strip_suffix('=');
            before.is_some_and(|before| (30..76).contains(&before.len()) && !before.ends_with('='))
        }
    };
    let is_coded = text.contains("=\n") || text.contains("=\r\n") || text.contains("=20");
    if !is_coded || text.lines().filter(is_broken).take(BROKEN_MIN).count() < BROKEN_MIN {
        return None;
    }
    let digit = |byte: Option<&u8>| {
        let digit = char::from(*byte?).to_digit(16)?;
        u8::try_from(digit).ok()
    };
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let rest = &bytes[at + 1..];
        let code = digit(rest.first()).zip(digit(rest.get(1)));
        match (*byte, code) {
            (b'=', _) if rest.starts_with(b"\r\n") => at += 3,
            (b'=', _) if rest.starts_with(b"\n") => at += 2,
            (b'=', Some((high, low))) => {
                plain.push(high << 4 | low);
                at += 3;
            }
            (byte, _) => {
                plain.push(byte);
                at += 1;
            }
        }
    }
    Some(String::from_utf8_lossy(&plain).into_owned())
}

/// The machine that JSON names for a line, and the line.
pub(super) fn host_of(line: &str) -> Option<(&str, &str)> {
    line.split_once(OF_HOST)
}

/// The lines that JSON has around it: a log with an object in each line, a list of such, texts by machine, or the output of
/// a tool. Before each is the machine that the JSON names, if it does. `None` if it has none.
pub(crate) fn unjson(text: &str) -> Option<String> {
    let mut plain = String::new();
    let mut is_found = false;
    let values = Deserializer::from_str(text).into_iter::<Value>();
    let mut values: Vec<Value> = values.map_while(Result::ok).collect();
    place(&mut values);
    for value in values {
        is_found |= collect(&value, "", Of::default(), &mut plain);
    }
    if is_found {
        return Some(plain);
    }
    // Other lines stand among the objects, or one is cut.
    plain.clear();
    for line in text.lines() {
        match serde_json::from_str::<Value>(line) {
            Ok(value @ Value::Object(_)) => {
                is_found |= collect(&value, "", Of::default(), &mut plain)
            }
            _ => push(line, Of::default(), &mut plain),
        }
    }
    is_found.then_some(plain)
}

/// Lines of a text in which JSON stands behind the machine that it is of, as Ansible prints it: `web1 | SUCCESS => {`,
/// `ok: [web1] => {`. `None` if there is none.
pub(crate) fn embedded(text: &str) -> Option<String> {
    const MARK: &str = "=> {";
    let mut plain = String::new();
    let (mut rest, mut is_found) = (text, false);
    while let Some(at) = rest.find(MARK) {
        let (before, json) = (&rest[..at], &rest[at + MARK.len() - 1..]);
        let (above, header) = before.rsplit_once('\n').unwrap_or(("", before));
        let mut values = Deserializer::from_str(json).into_iter::<Value>();
        let value = values.next().and_then(Result::ok);
        let name = match header.split_once('[') {
            Some((_, inside)) => inside.split([' ', ']']).next(),
            None => header.split_whitespace().next(),
        };
        push(above, Of::default(), &mut plain);
        let Some(value) = value else {
            let cut = &rest[at - header.len()..at + MARK.len()];
            push(cut, Of::default(), &mut plain);
            rest = &rest[at + MARK.len()..];
            continue;
        };
        let name = name.filter(|name| label::is_name(name));
        let of = Of {
            host: name,
            time: None,
        };
        is_found |= collect(&value, "", of, &mut plain);
        rest = &json[values.byte_offset()..];
    }
    push(rest, Of::default(), &mut plain);
    is_found.then_some(plain)
}

/// Adds the texts under the keys, or those with tables under others; true if there is one. Keys above the texts of several
/// machines are their names.
fn collect(value: &Value, parent: &str, of: Of<'_>, plain: &mut String) -> bool {
    match value {
        Value::Array(values) => {
            let found = values
                .iter()
                .filter(|value| collect(value, parent, of, plain));
            found.count() > 0
        }
        Value::Object(fields) => {
            let own = of_fields(fields, 2);
            let host = own.as_deref().or(of.host);
            let time = time_of(fields);
            let time = time.as_deref().or(of.time);
            let known = KEYS.iter().filter_map(|key| {
                let named = fields.iter().find(|(name, _)| {
                    // Ansible's `debug` prints the variable: `out.stdout_lines`.
                    name.rsplit('.').next() == Some(key)
                })?;
                texts(named.1).filter(|texts| !texts.is_empty())
            });
            let known: Vec<Vec<String>> = known.collect();
            let best = known
                .iter()
                .find(|texts| texts.iter().any(|text| is_table(text)));
            if let Some(texts) = best.or(known.first()) {
                let of = Of { host, time };
                let is_list = texts.len() > 1;
                push_time(texts.first().map_or("", String::as_str), is_list, of, plain);
                texts.iter().for_each(|text| push(text, of, plain));
                return true;
            }
            let with_tables = fields
                .values()
                .filter(|value| has_table(value))
                .take(2)
                .count();
            // One key alone is a name if the text is right below it.
            let is_alone = |value: &Value| {
                let inner = value.as_object().into_iter().flat_map(Map::values);
                fields.len() == 1
                    && inner
                        .chain([value])
                        .any(|value| !value.is_object() && has_table(value))
            };
            let is_named = |value: &Value| {
                parent == "hosts" || host.is_none() && (with_tables > 1 || is_alone(value))
            };
            let mut is_found = false;
            for (name, value) in fields {
                let told = label::told(name);
                let is_name =
                    label::is_name(name) && (!told.words.is_empty() || !told.times.is_empty());
                let host = Some(name.as_str())
                    .filter(|_| is_name && is_named(value) && has_table(value))
                    .or(host);
                let of = Of { host, time };
                match value {
                    Value::String(text)
                        if with_tables > 0 && (text.contains('\n') || is_table(text)) =>
                    {
                        push_time(text, false, of, plain);
                        push(text, of, plain);
                        is_found = true;
                    }
                    Value::Array(_) | Value::Object(_) => {
                        is_found |= collect(value, name, of, plain)
                    }
                    _ => {}
                }
            }
            is_found
        }
        _ => false,
    }
}

/// The machine, or else the pod, that an object names: `host`, `_HOSTNAME`, `kubernetes.host`.
fn of_fields(fields: &Map<String, Value>, depth: usize) -> Option<String> {
    let is_pod = |name: &str| matches!(name, "pod" | "pod_name" | "podname");
    let named = |is: &dyn Fn(&str) -> bool| {
        let mut of_key = fields
            .iter()
            .filter(|(name, _)| is(name.rsplit('.').next().unwrap_or_default()));
        of_key.find_map(|(_, value)| {
            let value = match value {
                Value::Object(inner) => inner.get("name").or_else(|| inner.get("hostname"))?,
                value => value,
            };
            let name = value.as_str()?.split(':').next()?;
            machine::host(name)
                .filter(|name| label::is_name(name))
                .map(str::to_string)
        })
    };
    let nested = || {
        let inner = fields
            .values()
            .filter_map(Value::as_object)
            .filter(|_| depth > 0);
        inner
            .into_iter()
            .find_map(|inner| of_fields(inner, depth - 1))
    };
    // `host.name` of a key with a dot.
    let dotted = || {
        let value = fields.get("host.name")?.as_str()?;
        machine::host(value).map(str::to_string)
    };
    let has_text = KEYS.iter().any(|key| fields.keys().any(|name| name == key));
    named(&label::is_machine)
        .or_else(dotted)
        .or_else(|| named(&is_pod))
        .or_else(|| {
            if has_text || depth < 2 {
                nested()
            } else {
                None
            }
        })
}

/// True for a text with a row or a head.
pub(super) fn is_table(text: &str) -> bool {
    const LINES_MAX: usize = 64;
    text.lines().take(LINES_MAX).any(tail::is_sure)
}

/// True for JSON with such a text.
fn has_table(value: &Value) -> bool {
    match value {
        Value::String(text) => is_table(text),
        Value::Array(values) => values.iter().any(has_table),
        Value::Object(fields) => fields.values().any(has_table),
        _ => false,
    }
}

/// A text, a list of texts, or of bytes: journald has those of messages that are not UTF-8.
fn texts(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::String(text) => Some(vec![text.clone()]),
        Value::Array(values) => {
            let bytes: Option<Vec<u8>> = values
                .iter()
                .map(|value| u8::try_from(value.as_u64()?).ok())
                .collect();
            match bytes {
                Some(bytes) => Some(vec![String::from_utf8_lossy(&bytes).into_owned()]),
                // Loki has the time before each line.
                None => values
                    .iter()
                    .map(|value| {
                        value
                            .as_str()
                            .or_else(|| value.get(1)?.as_str())
                            .map(str::to_string)
                    })
                    .collect(),
            }
        }
        _ => None,
    }
}

/// Adds the time of a text above it; of lines that each have one, above a table.
fn push_time(text: &str, is_list: bool, of: Of<'_>, plain: &mut String) {
    let is_head = |line: &str| head::of(line.trim()).is_some();
    let last = plain.trim_end().rsplit(['\n', OF_HOST]).next();
    let is_begin = || is_head(text) && !last.is_some_and(is_head);
    if let Some(time) = of
        .time
        .filter(|_| is_list || text.trim_end().contains('\n') || is_begin())
    {
        push(time, of, plain);
    }
}

/// The time that an object has under any key; the shortest key counts, as others are of what is beside.
fn time_of(fields: &Map<String, Value>) -> Option<String> {
    const LONGEST: usize = 40;
    let times = fields.iter().filter_map(|(key, value)| {
        let text = scalar(value).filter(|text| text.len() <= LONGEST)?;
        time::of_line(&text).map(|_| (key.len(), text))
    });
    times.min().map(|(_, text)| text)
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Names places under `host` where no key says the machine: values beside tables that differ from table to table, and are no
/// times, are those of places.
fn place(values: &mut [Value]) {
    let mut seen = Seen::default();
    values.iter().for_each(|value| seen.look(value));
    let tables = seen.rows.values().copied().max().unwrap_or(0);
    let mut keys = seen.values.iter();
    let key = keys.find(|(_, (count, values))| {
        *count == seen.records && (2..=tables).contains(&values.len())
    });
    if let Some((key, _)) = key.filter(|_| !seen.has_host) {
        values.iter_mut().for_each(|value| name(value, key));
    }
}

/// Objects with texts of tables, and what they have beside these.
#[derive(Default)]
struct Seen {
    records: usize,
    has_host: bool,
    /// Number of rows by the cache.
    rows: BTreeMap<String, usize>,
    /// Objects that have a key, and its values.
    values: BTreeMap<String, (usize, BTreeSet<String>)>,
}

impl Seen {
    fn look(&mut self, value: &Value) {
        match value {
            Value::Array(values) => values.iter().for_each(|value| self.look(value)),
            Value::Object(fields) if is_record(fields) => {
                self.records += 1;
                self.has_host |= of_fields(fields, 2).is_some();
                let texts = fields.values().filter_map(Value::as_str);
                for line in texts.flat_map(str::lines) {
                    let row = tail::tail(line).filter(|tail| tail.is_sure);
                    if let Some(row) = row.and_then(|tail| tail.name) {
                        *self.rows.entry(row.to_string()).or_default() += 1;
                    }
                }
                for (key, value) in beside(fields) {
                    let (count, values) = self.values.entry(key).or_default();
                    *count += 1;
                    values.insert(value);
                }
            }
            Value::Object(fields) => fields.values().for_each(|value| self.look(value)),
            _ => {}
        }
    }
}

fn is_record(fields: &Map<String, Value>) -> bool {
    let mut texts = fields.iter().filter(|(_, value)| value.is_string());
    texts.any(|(key, value)| KEYS.contains(&key.as_str()) || has_table(value))
}

/// Values beside a text that may name a place, by their keys. Other keys of identity are those of a message.
fn beside(fields: &Map<String, Value>) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (key, value) in fields {
        let is_id = key.to_ascii_lowercase().ends_with("id") && !label::is_machine(key);
        match value {
            Value::Object(inner) => found.extend(beside(inner)),
            Value::String(text)
                if !is_id
                    && !KEYS.contains(&key.as_str())
                    && text.len() <= 64
                    && (label::is_machine(key) || text.contains(char::is_alphabetic))
                    && time::of_line(text).is_none()
                    && !has_table(value) =>
            {
                found.push((key.clone(), text.clone()));
            }
            _ => {}
        }
    }
    found
}

/// Names the place of each text by the value of a key.
fn name(value: &mut Value, key: &str) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(|value| name(value, key)),
        Value::Object(fields) if is_record(fields) => {
            let own = beside(fields).into_iter().find(|(own, _)| own == key);
            if let Some((_, own)) = own {
                let mark = if label::is_machine(key) { '-' } else { '/' };
                let is_of_name =
                    |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
                let own = format!("{key}{mark}{}", own.replace(|c| !is_of_name(c), "-"));
                fields.insert("host".to_string(), Value::String(own));
            }
        }
        Value::Object(fields) => fields.values_mut().for_each(|value| name(value, key)),
        _ => {}
    }
}

/// The lines of a CSV whose cells have lines of text, as a search of logs exports it.
pub(crate) fn uncsv(text: &str) -> Option<String> {
    text.starts_with(['"', '_', 't', 'h', '@']).then_some(())?;
    let mut records = csv(text).into_iter();
    let keys = records.next().filter(|keys| keys.len() > 1)?;
    let mut values = Vec::new();
    for cells in records.filter(|cells| cells.len() == keys.len()) {
        let fields = keys.iter().zip(cells);
        let fields =
            fields.map(|(key, cell)| (key.trim_start_matches('_').to_string(), cell.into()));
        values.push(Value::Object(fields.collect()));
    }
    values.iter().any(has_table).then_some(())?;
    place(&mut values);
    let mut plain = String::new();
    collect(&Value::Array(values), "", Of::default(), &mut plain).then_some(plain)
}

/// The cells of each record; those in quotes may have lines.
fn csv(text: &str) -> Vec<Vec<String>> {
    let (mut records, mut cells, mut cell) = (Vec::new(), Vec::new(), String::new());
    let mut is_quoted = false;
    for c in text.chars().filter(|c| *c != '\r') {
        match c {
            // Two quotes are one of the cell; no table has any.
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => cells.push(std::mem::take(&mut cell)),
            '\n' if !is_quoted => {
                cells.push(std::mem::take(&mut cell));
                records.push(std::mem::take(&mut cells));
            }
            c => cell.push(c),
        }
    }
    cells.push(cell);
    records.push(cells);
    records
}

fn push(text: &str, of: Of<'_>, plain: &mut String) {
    for line in text.lines() {
        if let Some(host) = of.host {
            plain.push_str(host);
            plain.push(OF_HOST);
        }
        plain.push_str(line);
        plain.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_printable_has_its_text() {
        let long = "a".repeat(60);
        let text = format!("{long}=\r\nb=20\r\nc=3Dd =C3=A4=20\r\n{long}=\nx=zz");
        let plain = printable(&text).unwrap();
        assert_eq!(plain, format!("{long}b \r\nc=d ä \r\n{long}x=zz"));
        for other in ["a=20b=20", "=====\n====\n", "x=\ny=\n", "dentry 1 2\n"] {
            assert_eq!(printable(other), None, "{other}");
        }
    }

    #[test]
    fn logs_and_tools_have_lines() {
        for text in [
            "{\"log\":\"a 1\\n\",\"stream\":\"stdout\"}\n{\"log\":\"b 2\\n\"}\n",
            "{\"MESSAGE\":\"a 1\",\"PRIORITY\":\"6\"}\n{\"MESSAGE\":[98,32,50]}",
            "[{\"message\":\"a 1\"},{\"message\":\"b 2\"}]",
            "{\"hits\":[{\"_source\":{\"message\":\"a 1\"}},{\"_source\":{\"message\":\"b 2\"}}]}",
            "{\"out.stdout_lines\": [\"a 1\", \"b 2\"]}",
            "{\"stdout\":\"a 1\\nb 2\",\"rc\":0}",
            "cut\"}\n{\"log\":\"b 2\\n\"}",
        ] {
            let plain = unjson(text).unwrap();
            assert!(plain.ends_with("b 2\n"), "{plain}");
            assert_eq!(plain.lines().count(), 2, "{plain}");
        }
        assert_eq!(unjson("{\"form\":\"slabinfo\",\"slabinfo\":[]}"), None);
        assert_eq!(unjson("[{\"name\":\"dentry\",\"num_objs\":1}]"), None);
    }

    /// Fields that differ from table to table, and are no times, name places; times stand above their texts.
    #[test]
    fn fields_beside_tables_name_places_and_times() {
        let row = "dentry 1 1 192 21 1 : tunables 0 0 0 : slabdata 1 1 0";
        let found = |text: &str| -> String {
            let text = text.replace("ROW", row);
            let plain = unjson(&text).or_else(|| uncsv(&text)).unwrap();
            plain
                .replace(row, "ROW")
                .replace(OF_HOST, " ")
                .replace('\n', ";")
        };
        for (text, expected) in [
            (
                r#"[{"logStreamName":"a","id":"x","message":"ROW"},{"logStreamName":"b","id":"y","message":"ROW"}]"#,
                "logStreamName/a ROW;logStreamName/b ROW;",
            ),
            (
                r#"{"r":{"l":{"instance_id":"1"}},"textPayload":"ROW"} {"r":{"l":{"instance_id":"2"}},"textPayload":"ROW"}"#,
                "instance_id-1 ROW;instance_id-2 ROW;",
            ),
            // Each line has another, and one table is of one place.
            (
                r#"[{"tag":"a","message":"ROW"},{"tag":"b","message":"x 1"}]"#,
                "ROW;x 1;",
            ),
            (
                r#"[{"ts":"1795510800.1","thread_ts":"1795510700.0","text":"ROW\nROW"}]"#,
                "1795510800.1;ROW;ROW;",
            ),
            (
                "\"_time\",\"host\",\"_raw\"\n\"2026-11-24T09:00:00\",\"a\",\"ROW\nROW\"\n",
                "a 2026-11-24T09:00:00;a ROW;a ROW;",
            ),
        ] {
            assert_eq!(found(text), expected, "{text}");
        }
        assert_eq!(uncsv("name,active_objs\ndentry,1\n"), None);
    }

    /// Each line has the machine that the JSON names.
    #[test]
    fn machines_that_json_names_are_kept() {
        let row = "dentry 1 1 192 21 1 : tunables 0 0 0 : slabdata 1 1 0";
        for text in [
            r#"{"host":"a","message":"ROW"} {"host":"b","message":"ROW"}"#,
            r#"{"_HOSTNAME":"a","MESSAGE":"ROW"} {"_HOSTNAME":"b","MESSAGE":"ROW"}"#,
            r#"{"kubernetes":{"host":"a"},"log":"ROW"} {"kubernetes.host":"b","log":"ROW"}"#,
            r#"{"host":{"name":"a"},"message":"ROW"} {"agent":{"hostname":"b"},"message":"ROW"}"#,
            r#"{"a":"ROW","b":"ROW"}"#,
            r#"{"a":"ROW"} {"b":"ROW"}"#,
            r#"{"a":{"ret":"ROW"},"b":{"ret":"ROW"}}"#,
            r#"[{"InstanceId":"a","Output":"ROW"},{"InstanceId":"b","Output":"ROW"}]"#,
            r#"{"plays":[{"tasks":[{"hosts":{"a":{"msg":"","stdout":"ROW"},"b":{"stdout":"ROW"}}}]}]}"#,
            r#"[{"stream":{"host":"a"},"values":[["1","ROW"]]},{"stream":{"host":"b"},"values":[["1","ROW"]]}]"#,
        ] {
            let plain = unjson(&text.replace("ROW", row)).unwrap();
            let found: Vec<_> = plain.lines().filter_map(host_of).collect();
            assert_eq!(found, [("a", row), ("b", row)], "{text}");
        }
        // Kinds of files are no machines.
        let kinds = format!("{{\"slabinfo\":\"{row}\",\"meminfo.txt\":\"Slab: 1 kB\"}}");
        assert!(!unjson(&kinds).unwrap().contains(OF_HOST));
        let text = format!(
            "x\nok: [a] => {{\n\"out\": \"{row}\"}}\nb | CHANGED => {{\"stdout\": \"{row}\"}}\nfatal: [c] => {{\ny"
        );
        let plain = embedded(&text).unwrap();
        let lines: Vec<&str> = plain.lines().collect();
        assert_eq!(lines[0], "x");
        assert_eq!(host_of(lines[1]), Some(("a", row)));
        let mut found = lines.iter().filter_map(|line| host_of(line));
        assert_eq!(found.next_back(), Some(("b", row)));
        assert_eq!(lines.last(), Some(&"y"));
        assert_eq!(embedded("a => b"), None);
    }
}
