//! JSON of `below dump system -O json` with its slabs.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::file::ReportError;

use super::rows::{Cache, moment, slab_bytes_of};
use super::{Form, Moment};

/// The samples of a dump: one object, or a list.
fn samples(value: &Value) -> &[Value] {
    match value {
        Value::Array(samples) => samples,
        one => std::slice::from_ref(one),
    }
}

/// True if a sample has slabs.
pub(super) fn is(value: &Value) -> bool {
    samples(value).iter().any(|sample| {
        let Some(sample) = sample.as_object() else {
            return false;
        };
        sample.get("slab").is_some_and(Value::is_array)
            || sample.keys().any(|key| key.starts_with("slab."))
    })
}

/// A moment for each sample with slabs: a list `slab`, or keys such as `slab.3.num_objs`.
pub(super) fn read(file: &str, value: &Value) -> Result<Vec<Moment>, ReportError> {
    let mut moments = Vec::new();
    for sample in samples(value).iter().filter_map(Value::as_object) {
        let listed = sample.get("slab").and_then(Value::as_array);
        let mut caches: Vec<Cache> = listed
            .into_iter()
            .flatten()
            .filter_map(|cache| of(|key| cache.get(key)))
            .collect();
        let mut flat: BTreeMap<&str, Moment> = BTreeMap::new();
        for (key, value) in sample {
            let parts = key
                .strip_prefix("slab.")
                .and_then(|key| key.rsplit_once('.'));
            if let Some((cache, field)) = parts {
                let cache = flat.entry(cache).or_default();
                cache.insert(field.to_string(), value.clone());
            }
        }
        caches.extend(flat.values().filter_map(|cache| of(|key| cache.get(key))));
        if caches.is_empty() {
            continue;
        }
        let mut moment = moment(Form::Below, file, &caches, None)?;
        let time = ["timestamp", "Timestamp"]
            .iter()
            .find_map(|key| sample.get(*key)?.as_u64());
        if let Some(time) = time {
            moment.insert("unix_time_s".to_string(), json!(time));
        }
        moments.push(moment);
    }
    match moments.is_empty() {
        true => Err(ReportError::bad(
            file,
            "slab",
            "no sample has a cache with all of its numbers",
        )),
        false => Ok(moments),
    }
}

/// A cache by below's names of fields.
fn of<'v>(field: impl Fn(&str) -> Option<&'v Value>) -> Option<Cache> {
    let number = |key: &str| {
        let value = field(key)?;
        value
            .as_u64()
            .or_else(|| value.as_str()?.trim().parse().ok())
    };
    let (objsize, objperslab) = (number("obj_size")?, number("obj_per_slab")?);
    Some(Cache {
        name: field("name")?.as_str()?.to_string(),
        active_objs: number("active_objs")?,
        num_objs: number("num_objs")?,
        objsize,
        objperslab,
        slab_bytes: slab_bytes_of(objsize, objperslab),
        num_slabs: number("num_slabs")?,
    })
}
