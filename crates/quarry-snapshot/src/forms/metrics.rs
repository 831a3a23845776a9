//! Numbers of slabs as series by metric and cache: node_exporter's text, Prometheus' JSON, pmrep's CSV.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::file::ReportError;

use super::rows::{Cache, PAGE_BYTES, moment};
use super::{Form, Moment};

/// Numbers of a cache by the metric.
#[derive(Default)]
pub(super) struct Metrics(BTreeMap<String, [Option<u64>; 6]>);

/// Places in a cache's numbers.
const ACTIVE: usize = 0;
const OBJECTS: usize = 1;
const SIZE: usize = 2;
const PER_SLAB: usize = 3;
const PAGES: usize = 4;
const SLABS: usize = 5;

impl Metrics {
    pub(super) fn set(&mut self, cache: &str, place: usize, value: u64) {
        self.0.entry(cache.to_string()).or_default()[place] = Some(value);
    }

    pub(super) fn moment(&self, form: Form, file: &str) -> Result<Moment, ReportError> {
        let caches = self.0.iter().filter_map(|(name, numbers)| {
            let per_slab = numbers[PER_SLAB]?;
            let objects = numbers[OBJECTS]?;
            Some(Cache {
                name: name.clone(),
                active_objs: numbers[ACTIVE]?,
                num_objs: objects,
                objsize: numbers[SIZE]?,
                objperslab: per_slab,
                slab_bytes: numbers[PAGES]?.checked_mul(PAGE_BYTES)?,
                num_slabs: numbers[SLABS]
                    .unwrap_or_else(|| objects.checked_div(per_slab).unwrap_or(0)),
            })
        });
        let caches: Vec<Cache> = caches.collect();
        if caches.is_empty() && !self.0.is_empty() {
            let what =
                "objects, their size, objects per slab and pages per slab are needed of each cache";
            return Err(ReportError::bad(file, "caches", what));
        }
        let mut moment = moment(form, file, &caches, None)?;
        // The pages are counted, their size is not known.
        for row in moment["slabinfo"].as_array_mut().into_iter().flatten() {
            let pages = row["name"]
                .as_str()
                .and_then(|name| self.0.get(name)?[PAGES]);
            row["pagesperslab"] = json!(pages);
        }
        Ok(moment)
    }
}

/// Metrics of node_exporter's collector `slabinfo`.
const NODE: [(&str, usize); 5] = [
    ("node_slabinfo_active_objects", ACTIVE),
    ("node_slabinfo_objects", OBJECTS),
    ("node_slabinfo_object_size_bytes", SIZE),
    ("node_slabinfo_objects_per_slab", PER_SLAB),
    ("node_slabinfo_pages_per_slab", PAGES),
];

/// True for node_exporter's text with its collector `slabinfo`.
pub(super) fn is_node(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("node_slabinfo_"))
}

/// The value of a label in `{slab="dentry",...}`.
fn label<'t>(labels: &'t str, name: &str) -> Option<&'t str> {
    let mut parts = labels.split("\",");
    let is_named = |part: &&str| {
        part.trim_start()
            .split_once("=\"")
            .is_some_and(|(key, _)| key == name)
    };
    let part = parts.find(is_named)?;
    Some(part.split_once("=\"")?.1.trim_end_matches('"'))
}

/// A whole number, as Prometheus prints it: `308382`, `1.941919e+06`.
fn whole(word: &str) -> Option<u64> {
    word.parse::<u64>().ok().or_else(|| {
        let number: f64 = word.parse().ok()?;
        (0.0..1e18).contains(&number).then_some(number as u64)
    })
}

/// node_exporter's text.
pub(super) fn node(file: &str, text: &str) -> Result<Vec<Moment>, ReportError> {
    let mut metrics = Metrics::default();
    let mut facts = Moment::new();
    let mut meminfo = String::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.starts_with('#') || line.trim().is_empty() {
            continue;
        }
        let bad = || {
            let what = "a metric, labels in braces and a number are expected";
            ReportError::bad(file, format!("line {number}"), what)
        };
        let (metric, rest) = line.split_at(line.find(['{', ' ']).ok_or_else(bad)?);
        let (labels, value) = match rest.strip_prefix('{') {
            Some(rest) => rest.rsplit_once('}').ok_or_else(bad)?,
            None => ("", rest),
        };
        let value = value.split_whitespace().next().unwrap_or_default();
        if let Some((_, place)) = NODE.iter().find(|(name, _)| *name == metric) {
            let cache = label(labels, "slab").ok_or_else(bad)?;
            metrics.set(cache, *place, whole(value).ok_or_else(bad)?);
        } else if metric == "node_uname_info" {
            for (key, name) in [("kernel_release", "release"), ("architecture", "machine")] {
                if let Some(text) = label(labels, name) {
                    facts.insert(key.to_string(), json!(text));
                }
            }
        } else if let Some(name) = metric.strip_prefix("node_memory_")
            && let (Some(name), Some(bytes)) = (name.strip_suffix("_bytes"), whole(value))
        {
            meminfo.push_str(&format!("{name}: {} kB\n", bytes / 1024));
        }
    }
    if !meminfo.is_empty() {
        facts.insert("meminfo".to_string(), json!(meminfo));
    }
    let sources = facts.keys().map(|key| match key.as_str() {
        "meminfo" => (key.clone(), json!("node_memory")),
        _ => (key.clone(), json!("node_uname_info")),
    });
    let sources: Moment = sources.collect();
    facts.insert("sources".to_string(), Value::Object(sources));
    facts.extend(metrics.moment(Form::NodeExporter, file)?);
    Ok(vec![facts])
}

/// True for the answer of Prometheus.
pub(super) fn is_prometheus(value: &Value) -> bool {
    value["data"]["result"].is_array()
}

/// A moment for each time with all metrics.
pub(super) fn prometheus(file: &str, value: &Value) -> Result<Vec<Moment>, ReportError> {
    let bad = |what: &str| ReportError::bad(file, "data.result", what);
    let results = value["data"]["result"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let mut times: BTreeMap<u64, Metrics> = BTreeMap::new();
    let mut instance = None;
    for result in results {
        let metric = &result["metric"];
        let name = metric["__name__"].as_str().unwrap_or_default();
        let Some((_, place)) = NODE.iter().find(|(known, _)| *known == name) else {
            continue;
        };
        let cache = metric["slab"]
            .as_str()
            .ok_or_else(|| bad("a series has no label slab"))?;
        let of = metric["instance"].as_str();
        if *instance.get_or_insert(of) != of {
            return Err(bad(
                "series of several machines: choose one in the query, {instance=\"HOST:9100\"}",
            ));
        }
        let many = result["values"].as_array().map_or(&[][..], Vec::as_slice);
        let one = result.get("value");
        for sample in many.iter().chain(one) {
            let time = sample[0].as_f64().filter(|time| (0.0..1e12).contains(time));
            let value = sample[1].as_str().and_then(whole);
            let (Some(time), Some(value)) = (time, value) else {
                return Err(bad("a sample [time, \"value\"] is expected"));
            };
            times
                .entry(time as u64)
                .or_default()
                .set(cache, *place, value);
        }
    }
    if times.is_empty() {
        return Err(bad(
            "no series node_slabinfo_*; ask for {__name__=~\"node_slabinfo_.*\"}",
        ));
    }
    // At the edges some metrics may be missing.
    let mut moments = Vec::new();
    let mut missing = None;
    for (time, metrics) in times {
        match metrics.moment(Form::Prometheus, file) {
            Ok(mut moment) => {
                moment.insert("unix_time_s".to_string(), json!(time));
                moments.push(moment);
            }
            Err(error) => missing = Some(error),
        }
    }
    match missing {
        Some(error) if moments.is_empty() => Err(error),
        _ => Ok(moments),
    }
}

/// Beginning of the names of PCP's metrics of slabs.
pub(super) const PCP_PREFIX: &str = "mem.slabinfo.";
/// Metrics of PCP.
pub(super) const PCP: [(&str, usize); 6] = [
    ("objects.active", ACTIVE),
    ("objects.total", OBJECTS),
    ("objects.size", SIZE),
    ("slabs.objects_per_slab", PER_SLAB),
    ("slabs.pages_per_slab", PAGES),
    ("slabs.total", SLABS),
];

/// True for `pmrep -o csv mem.slabinfo`.
pub(super) fn is_pmrep(text: &str) -> bool {
    let first = text.lines().next().unwrap_or_default();
    first.starts_with("Time") && first.contains(PCP_PREFIX)
}

/// A moment for each line of `pmrep`.
pub(super) fn pmrep(file: &str, text: &str) -> Result<Vec<Moment>, ReportError> {
    let mut lines = (1..).zip(text.lines());
    let header = lines.next().map_or("", |(_, line)| line);
    let separator = match header.contains("\",\"") || header.contains(",mem.") {
        true => ',',
        false => ';',
    };
    let columns: Vec<Option<(usize, &str)>> = header
        .split(separator)
        .map(|column| {
            let column = column.trim_matches('"').strip_prefix(PCP_PREFIX)?;
            PCP.iter().find_map(|(name, place)| {
                Some((*place, column.strip_prefix(name)?.strip_prefix('-')?))
            })
        })
        .collect();
    let mut moments = Vec::new();
    for (number, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let mut metrics = Metrics::default();
        let values: Vec<&str> = line.split(separator).collect();
        if values.len() != columns.len() {
            let what = format!("{} values for {} columns", values.len(), columns.len());
            return Err(ReportError::bad(file, format!("line {number}"), what));
        }
        for (column, value) in columns.iter().zip(values) {
            let value = whole(value.trim_matches('"'));
            if let (Some((place, cache)), Some(value)) = (column, value) {
                metrics.set(cache, *place, value);
            }
        }
        moments.push(metrics.moment(Form::Pmrep, file)?);
    }
    if moments.is_empty() {
        return Err(ReportError::bad(
            file,
            "line 2",
            "no values follow the names",
        ));
    }
    Ok(moments)
}
