//! `quarry geometry --from`: many caches at once.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context;
use quarry_core::geometry::{CacheFlags, CacheParams, Geometry, MachineParams};
use quarry_designs::{DesignSpec, Setting};
use serde::{Deserialize, Serialize};

use crate::error::usage;
use crate::geometry_query::{Query, settings_of};
use crate::{input, output, units};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    design: String,
    page_size: Bytes,
    cpus: u32,
    object_size: u32,
    #[serde(default)]
    align: Option<u32>,
    #[serde(default)]
    flags: Option<Flags>,
    #[serde(default)]
    set: Option<BTreeMap<String, u64>>,
    #[serde(default)]
    cache_line: Option<u32>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Bytes {
    Number(u64),
    Text(String),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Flags {
    Text(String),
    List(Vec<String>),
}

#[derive(Serialize)]
struct Answer {
    slab_size: u32,
    order: u32,
    objects_per_slab: u32,
    cpu_partial: u32,
    min_partial: u32,
}

/// Answers every row of a file; prints nothing if a row has no answer.
pub(crate) fn run(path: &Path, cache_line: u32) -> anyhow::Result<()> {
    let name = input::shown(path);
    let text = fs::read_to_string(input::report(path));
    let text = text.with_context(|| format!("cannot read {name}"))?;
    let rows: Vec<serde_json::Value> = serde_json::from_str(&text)
        .map_err(|error| usage(format!("{name}: not a JSON array of rows: {error}")))?;
    let mut answers = Vec::with_capacity(rows.len());
    for (row, number) in rows.into_iter().zip(1_u64..) {
        let answer = answer(row, cache_line)
            .map_err(|error| usage(format!("{name}: row {number}: {error:#}")))?;
        answers.push(answer);
    }
    output::print(|out| {
        for (i, answer) in answers.iter().enumerate() {
            out.write_all(if i == 0 { b"[\n" } else { b",\n" })?;
            serde_json::to_writer(&mut *out, answer)?;
        }
        out.write_all(if answers.is_empty() {
            b"[]\n"
        } else {
            b"\n]\n"
        })
    })
}

fn answer(row: serde_json::Value, cache_line: u32) -> anyhow::Result<Answer> {
    let row: Row = serde_json::from_value(row)?;
    let page_bytes = match &row.page_size {
        Bytes::Number(bytes) => units::parse_page_bytes(&bytes.to_string()),
        Bytes::Text(text) => units::parse_page_bytes(text),
    };
    let flags = match row.flags {
        None => String::new(),
        Some(Flags::Text(text)) => text,
        Some(Flags::List(list)) => list.join(","),
    };
    let design = DesignSpec::parse(&row.design)?;
    let settings: Vec<Setting> = row
        .set
        .iter()
        .flatten()
        .map(|(name, value)| Setting::of(name, *value))
        .collect();
    let query = Query {
        design,
        machine: MachineParams {
            page_shift: page_bytes
                .map_err(|error| anyhow::anyhow!("page_size: {error}"))?
                .ilog2(),
            nr_cpus: row.cpus,
            cache_line: row.cache_line.unwrap_or(cache_line),
        },
        cache: CacheParams {
            object_size: row.object_size,
            align: row.align.unwrap_or(0),
            flags: CacheFlags::parse_list(&flags).map_err(|error| anyhow::anyhow!("{error}"))?,
            sheaf_capacity: 0,
        },
        settings: settings_of(design, &settings)?,
    };
    let Geometry {
        layout,
        order,
        objects,
        cpu_partial,
        min_partial,
        ..
    } = query.answer()?;
    Ok(Answer {
        slab_size: layout.size,
        order,
        objects_per_slab: objects,
        cpu_partial,
        min_partial,
    })
}
