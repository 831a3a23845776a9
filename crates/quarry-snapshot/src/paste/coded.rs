//! Packings of a whole text: quoted-printable of mails, and JSON of logs and tools around its lines.

use serde_json::{Deserializer, Value};

/// Keys under which loggers and tools have lines of text: docker, journald and others, Ansible, clouds.
const KEYS: [&str; 10] = [
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

/// The lines that JSON has around it: a log with an object in each line, a list of such, or the output of a tool. `None` if it
/// has none.
pub(crate) fn unjson(text: &str) -> Option<String> {
    let mut plain = String::new();
    let mut is_found = false;
    let values = Deserializer::from_str(text).into_iter::<Value>();
    for value in values.map_while(Result::ok) {
        is_found |= collect(&value, &mut plain);
    }
    if !is_found {
        // Other lines stand among the objects, or one is cut.
        plain.clear();
        for line in text.lines() {
            match serde_json::from_str::<Value>(line) {
                Ok(value @ Value::Object(_)) => is_found |= collect(&value, &mut plain),
                _ => push(line, &mut plain),
            }
        }
    }
    is_found.then_some(plain)
}

/// Adds the texts under the keys; true if there is one.
fn collect(value: &Value, plain: &mut String) -> bool {
    match value {
        Value::Array(values) => {
            let mut is_found = false;
            for value in values {
                is_found |= collect(value, plain);
            }
            is_found
        }
        Value::Object(fields) => {
            let known = KEYS.iter().find_map(|key| {
                let named = fields.iter().find(|(name, _)| {
                    // Ansible's `debug` prints the variable: `out.stdout_lines`.
                    name.rsplit('.').next() == Some(key)
                })?;
                texts(named.1).filter(|texts| !texts.is_empty())
            });
            if let Some(texts) = known {
                texts.iter().for_each(|text| push(text, plain));
                return true;
            }
            let mut is_found = false;
            for value in fields.values() {
                is_found |=
                    matches!(value, Value::Array(_) | Value::Object(_)) && collect(value, plain);
            }
            is_found
        }
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
                None => values
                    .iter()
                    .map(|value| value.as_str().map(str::to_string))
                    .collect(),
            }
        }
        _ => None,
    }
}

fn push(text: &str, plain: &mut String) {
    plain.push_str(text);
    if !text.ends_with('\n') {
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
}
