//! Recognises the form of a file by its content.

use std::io::Read;
use std::path::Path;

use serde_json::{Deserializer, Value};

use crate::file::ReportError;
use crate::paste::{self, coded, columns};
use crate::slabinfo::Slabinfo;
use crate::unpack::{self, Content};

use super::files::{self, Tree};
use super::{Form, Moment, TEXTS, VALUES, arrow, bugreport};

/// The moments that a file, a folder or an archive has, the oldest first.
pub(crate) fn path(path: &Path) -> Result<Vec<Moment>, ReportError> {
    let file = path.display().to_string();
    if path.is_dir() {
        let tree = Tree::Folder(path.to_path_buf());
        return Ok(vec![files::moment(&file, &tree)?]);
    }
    if arrow::is(path) {
        return arrow::read(&file, path);
    }
    content(&file, unpack::open(path, files::wanted)?)
}

/// The moments of what a reader has.
pub(crate) fn reader(file: &str, reader: impl Read) -> Result<Vec<Moment>, ReportError> {
    let found = unpack::from_reader(file, reader, files::wanted, unpack::LIMITS)?;
    content(file, found)
}

/// The moments of an unpacked file.
pub(crate) fn content(file: &str, content: Content) -> Result<Vec<Moment>, ReportError> {
    match content {
        Content::Text(found) => text(file, &found),
        Content::Files(files) => {
            let mut texts = files.texts.iter();
            if let Some((path, found)) =
                texts.find(|(path, found)| files::is_bugreport(path) && bugreport::is(found))
            {
                return text(&format!("{file}/{path}"), found);
            }
            Ok(vec![files::moment(file, &Tree::Archive(files))?])
        }
    }
}

/// The moments of a text.
pub(crate) fn text(file: &str, text: &str) -> Result<Vec<Moment>, ReportError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if is_json(text) {
        return of_json(file, text);
    }
    // Ansible prints JSON behind the host, and searches of logs export cells of several lines.
    if let Some(lines) = coded::embedded(text).or_else(|| coded::uncsv(text))
        && let Ok(moments @ [_, ..]) = paste::read(file, &lines).as_deref()
    {
        return Ok(moments.to_vec());
    }
    let is_plain = !text.contains(coded::OF_HOST);
    if let Some((_, read)) = TEXTS.iter().find(|(is, _)| is_plain && is(text)) {
        return read(file, text);
    }
    let moments = paste::read(file, text)?;
    if !moments.is_empty() {
        return Ok(moments);
    }
    let what = paste::unknown(text);
    Err(ReportError::bad(file, "first line", what))
}

/// True for a JSON object, or a list of objects: lines of logs begin with a bracket, too.
fn is_json(text: &str) -> bool {
    let text = text.trim_start();
    let list = text.strip_prefix('[').map(str::trim_start);
    let object = text.strip_prefix('{').map(str::trim_start);
    object.is_some_and(|object| object.is_empty() || object.starts_with(['"', '}']))
        || list.is_some_and(|list| list.starts_with(['{', ']']))
}

/// True for JSON of Quarry's own, or a list of slabinfo's rows.
fn is_moment(value: &Value) -> bool {
    let keys = ["slabinfo", "slabinfo_text", "stages", "form", "cache_bytes"];
    let has_key = keys.iter().any(|key| !value[key].is_null());
    // The member is a list in the answer of `look`.
    has_key || value["blocks"].is_string() || !value[0]["num_objs"].is_null()
}

fn of_json(file: &str, text: &str) -> Result<Vec<Moment>, ReportError> {
    let parsed: Result<Value, _> = serde_json::from_str(text);
    // Loki answers as Prometheus does, with lines.
    let is_loki = |value: &Value| !value["data"]["result"][0]["stream"].is_null();
    let is_form = |value: &Value| !is_loki(value) && VALUES.iter().any(|(is, _)| is(value));
    let is_read = |value: &Value| match value {
        Value::Array(_) => Slabinfo::parse_json(file, value).is_ok(),
        value => is_form(value) || is_moment(value),
    };
    // An object in each line is a list of them.
    let several = || {
        let values = Deserializer::from_str(text).into_iter::<Value>();
        Value::Array(values.map_while(Result::ok).collect())
    };
    let rows = match &parsed {
        Ok(value) if is_read(value) => None,
        Ok(value) => columns::of_objects(value),
        Err(_) => columns::of_objects(&several()),
    };
    if let Some(rows) = rows {
        return self::text(file, &rows);
    }
    if !parsed
        .as_ref()
        .is_ok_and(|value| is_form(value) || is_moment(value))
        && let Some(lines) = coded::unjson(text)
    {
        return self::text(file, &lines);
    }
    let value = parsed.map_err(|error| {
        let what = format!("{error}; a snapshot is a JSON file, as quarry snapshot makes one");
        ReportError::bad(file, format!("line {}", error.line()), what)
    })?;
    if let (Some("error"), Some(error)) = (value["status"].as_str(), value["error"].as_str()) {
        let what = format!("Prometheus refused the query: {error}");
        return Err(ReportError::bad(file, "status", what));
    }
    if let Some((_, read)) = VALUES.iter().find(|(is, _)| is(&value)) {
        return read(file, &value);
    }
    match value {
        Value::Object(moment) => Ok(vec![moment]),
        rows @ Value::Array(_) => {
            let rows = Slabinfo::parse_json(file, &rows)?;
            Ok(vec![Form::Slabinfo.moment(&rows)])
        }
        _ => Err(ReportError::bad(file, "line 1", "it is not a JSON object")),
    }
}
