//! Packings of a whole text: quoted-printable of mails, and JSON of logs and tools around its lines.

use serde_json::{Deserializer, Map, Value};

use super::{label, tail};
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
    for value in values.map_while(Result::ok) {
        is_found |= collect(&value, "", None, &mut plain);
    }
    if is_found {
        return Some(plain);
    }
    // Other lines stand among the objects, or one is cut.
    plain.clear();
    for line in text.lines() {
        match serde_json::from_str::<Value>(line) {
            Ok(value @ Value::Object(_)) => is_found |= collect(&value, "", None, &mut plain),
            _ => push(line, None, &mut plain),
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
        push(above, None, &mut plain);
        let Some(value) = value else {
            push(&rest[at - header.len()..at + MARK.len()], None, &mut plain);
            rest = &rest[at + MARK.len()..];
            continue;
        };
        let name = name.filter(|name| label::is_name(name));
        is_found |= collect(&value, "", name, &mut plain);
        rest = &json[values.byte_offset()..];
    }
    push(rest, None, &mut plain);
    is_found.then_some(plain)
}

/// Adds the texts under the keys, or those with tables under others; true if there is one. Keys above the texts of several
/// machines are their names.
fn collect(value: &Value, parent: &str, host: Option<&str>, plain: &mut String) -> bool {
    match value {
        Value::Array(values) => {
            let found = values
                .iter()
                .filter(|value| collect(value, parent, host, plain));
            found.count() > 0
        }
        Value::Object(fields) => {
            let own = of_fields(fields, 2);
            let host = own.as_deref().or(host);
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
                texts.iter().for_each(|text| push(text, host, plain));
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
                match value {
                    Value::String(text)
                        if with_tables > 0 && (text.contains('\n') || is_table(text)) =>
                    {
                        push(text, host, plain);
                        is_found = true;
                    }
                    Value::Array(_) | Value::Object(_) => {
                        is_found |= collect(value, name, host, plain)
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

fn push(text: &str, host: Option<&str>, plain: &mut String) {
    for line in text.lines() {
        if let Some(host) = host {
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
