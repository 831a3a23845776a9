//! A sweep's folder: files of rows that appear when they are whole, and what they tell together.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use quarry_trace::{Existing, OutFile, TraceError};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::answer::Part;
use crate::cell::{Cell, Chunk};
use crate::error::SweepError;
use crate::inputs::Input;
use crate::plan::Plan;
use crate::rows::{self, VERSION_KEY};
use crate::sweep::Sweep;
use crate::table::{Column, Field, Table, TableError};
use crate::version::version;

/// File that says that a folder is a sweep's.
const MARK: &str = "quarry-sweep.json";

/// Kinds of files that a chunk leaves. The rows come last: with them the chunk is done.
const KINDS: [&str; 3] = ["caches", "costs", "part"];

/// A folder of results.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
    mark: Mark,
}

/// The sweep that ran last in a folder.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Mark {
    /// Version of Quarry.
    pub quarry: String,
    /// The plan.
    pub plan: Map<String, Value>,
    /// Its cells.
    pub cells: usize,
    /// Its inputs, each content once.
    #[serde(default)]
    pub inputs: Vec<Input>,
}

/// Rows in a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Ids of the cells that have rows.
    pub ok: BTreeSet<String>,
    /// Those whose rows have errors, with the error.
    pub failed: BTreeMap<String, String>,
    /// Number of files by version, without this one's.
    pub others: BTreeMap<String, usize>,
    /// Files that are damaged. Their cells have no rows.
    pub damaged: Vec<PathBuf>,
}

/// Result of a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    /// Files that were written, with their rows.
    pub files: Vec<(PathBuf, usize)>,
    /// Cells that have rows.
    pub done: Done,
}

impl Folder {
    /// Makes a folder for a sweep, or goes on in one.
    ///
    /// # Errors
    ///
    /// [`SweepError::Foreign`] if it has files of something else, [`SweepError::OtherAsk`] of another question,
    /// [`SweepError::OtherPlan`] of a plan with other settings,
    /// [`SweepError::File`], [`SweepError::Place`] or [`SweepError::Output`] if it cannot be written.
    pub fn create(path: &Path, sweep: &Sweep) -> Result<Self, SweepError> {
        let failed = |source| SweepError::File {
            path: path.to_path_buf(),
            source,
        };
        let mark = path.join(MARK);
        if !mark.exists() {
            fs::create_dir_all(path).map_err(|source| SweepError::Place {
                path: path.to_path_buf(),
                source,
            })?;
            let mut entries = fs::read_dir(path).map_err(failed)?;
            let has_files =
                entries.any(|entry| entry.is_ok_and(|entry| !is_unfinished(&entry.file_name())));
            // Another part of the same sweep may have begun meanwhile.
            if has_files && !mark.exists() {
                return Err(SweepError::Foreign {
                    path: path.to_path_buf(),
                });
            }
        }
        if mark.exists() {
            let before = Self::open(path)?.mark;
            let there = before.plan.get("ask").and_then(Value::as_str);
            let here = sweep.plan.ask.name();
            if let Some(there) = there.filter(|there| *there != here) {
                return Err(SweepError::OtherAsk {
                    path: path.to_path_buf(),
                    there: there.to_string(),
                    here: here.to_string(),
                });
            }
            // Rows of other versions stay apart by themselves; inputs and values of the same settings may be added.
            let [there, here] = [&before.plan, &sweep.plan.to_object()].map(settings);
            if before.quarry == version() && there != here {
                return Err(SweepError::OtherPlan {
                    path: path.to_path_buf(),
                    there,
                    here,
                });
            }
        }
        let folder = Self {
            path: path.to_path_buf(),
            mark: Mark {
                quarry: version().to_string(),
                plan: sweep.plan.to_object(),
                cells: sweep.cells.len(),
                inputs: sweep.inputs.all.iter().map(|of| (**of).clone()).collect(),
            },
        };
        let text = serde_json::to_string_pretty(&folder.mark).map_err(TableError::Report)?;
        let mut out = OutFile::create(&path.join(MARK), Existing::Replace)?;
        out.file().write_all(text.as_bytes()).map_err(failed)?;
        out.commit()?;
        Ok(folder)
    }

    /// Opens a sweep's folder.
    ///
    /// # Errors
    ///
    /// [`SweepError::NoSweep`] if it is none.
    pub fn open(path: &Path) -> Result<Self, SweepError> {
        let failed = |problem: String| SweepError::NoSweep {
            path: path.to_path_buf(),
            problem,
        };
        let mark = fs::read_to_string(path.join(MARK)).map_err(|error| {
            failed(match error.kind() {
                io::ErrorKind::NotFound => {
                    format!("it has no {MARK}: it is no folder that quarry sweep -o wrote")
                }
                _ => format!("{MARK}: {error}"),
            })
        })?;
        let mark = serde_json::from_str(&mark);
        Ok(Self {
            path: path.to_path_buf(),
            mark: mark.map_err(|error| failed(format!("{MARK}: {error}")))?,
        })
    }

    /// The sweep that ran last here.
    #[must_use]
    pub fn mark(&self) -> &Mark {
        &self.mark
    }

    /// The cells of the sweep that ran last here. No file is read: the plan has contents.
    pub(crate) fn cells(&self) -> Result<Vec<Cell>, SweepError> {
        let plan = Plan::of_object(&self.mark.plan)?;
        Ok(Sweep::with_inputs(&plan, false, self.mark.inputs.clone())?.cells)
    }

    /// The name of a chunk's file of a kind: `part`, `caches` or `costs`.
    #[must_use]
    pub fn file_name(kind: &str, chunk: &str) -> String {
        format!("{kind}-{chunk}.parquet")
    }

    /// Writes a chunk's files. Each appears when it is whole.
    ///
    /// # Errors
    ///
    /// [`SweepError::Output`] or [`SweepError::Table`] if the disk is full or the folder has gone.
    pub fn write(&self, chunk: &Chunk, part: &Part) -> Result<(), SweepError> {
        for (name, table) in chunk.files(part) {
            self.put(&name, table)?;
        }
        Ok(())
    }

    fn put(&self, name: &str, table: &Table) -> Result<PathBuf, SweepError> {
        let path = self.path.join(name);
        let bytes = table.to_parquet()?;
        let mut out = OutFile::create_among(&path, Existing::Replace)?;
        let written = out.file().write_all(&bytes);
        written.map_err(|source| TraceError::Write {
            path: path.clone(),
            source,
        })?;
        out.commit()?;
        Ok(path)
    }

    /// The files whose names are such, sorted.
    fn named(&self, is_such: impl Fn(&OsStr) -> bool) -> Result<Vec<PathBuf>, SweepError> {
        let failed = |source| SweepError::File {
            path: self.path.clone(),
            source,
        };
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            if is_such(&name) {
                files.push(self.path.join(name));
            }
        }
        files.sort();
        Ok(files)
    }

    /// The files of a kind, sorted.
    fn files(&self, kind: &str) -> Result<Vec<PathBuf>, SweepError> {
        self.named(|name| {
            let name = name.to_string_lossy();
            let id = name.strip_prefix(kind).and_then(|it| it.strip_prefix('-'));
            let id = id.and_then(|it| it.strip_suffix(".parquet"));
            id.is_some_and(|id| id.bytes().all(|byte| byte.is_ascii_hexdigit()))
        })
    }

    /// The cells that have rows.
    ///
    /// # Errors
    ///
    /// [`SweepError::File`] if the folder cannot be read.
    pub fn done(&self) -> Result<Done, SweepError> {
        let mut done = Done::default();
        for path in self.files("part")? {
            let is_read = |name: &str| matches!(name, "cell" | "status" | "error");
            let Ok(table) = read(&path, is_read) else {
                done.damaged.push(path);
                continue;
            };
            let of = table.notes.get(VERSION_KEY).cloned().unwrap_or_default();
            if of != version() {
                *done.others.entry(of).or_default() += 1;
                continue;
            }
            let (Some(Column::Text(cells)), Some(Column::Text(status))) =
                (table.column("cell"), table.column("status"))
            else {
                done.damaged.push(path);
                continue;
            };
            let error = |row: usize| match table.column("error") {
                Some(Column::Text(errors)) => errors.get(row).cloned().flatten(),
                _ => None,
            };
            for (row, (cell, status)) in cells.iter().zip(status).enumerate() {
                let Some(cell) = cell.clone() else { continue };
                if status.as_deref() == Some("ok") {
                    done.ok.insert(cell);
                } else {
                    done.failed.insert(cell, error(row).unwrap_or_default());
                }
            }
        }
        // Without cells that were run again.
        let ok = &done.ok;
        done.failed.retain(|cell, _| !ok.contains(cell));
        Ok(done)
    }

    /// Files that are not whole: a process still writes them, or left them behind.
    pub(crate) fn unfinished(&self) -> Result<Vec<PathBuf>, SweepError> {
        self.named(is_unfinished)
    }

    /// Writes all rows of this version to one file of each kind, `results.parquet`, `caches.parquet` and `costs.parquet`.
    /// Rows are ordered by input and settings, so that the same cells give the same bytes.
    ///
    /// # Errors
    ///
    /// [`SweepError::Damaged`] if a file cannot be read, [`SweepError::Output`] if none can be written.
    pub fn merge(&self) -> Result<Merged, SweepError> {
        let done = self.done()?;
        let mut files = Vec::new();
        for (kind, name) in [
            ("part", "results"),
            ("caches", "caches"),
            ("costs", "costs"),
        ] {
            if let Some(table) = self.rows(kind, &done, |_| true)? {
                let path = self.put(&format!("{name}.parquet"), &table)?;
                files.push((path, table.rows()));
            }
        }
        Ok(Merged { files, done })
    }

    /// All rows of a kind in their order, with these columns; `None` without any.
    fn rows(
        &self,
        kind: &str,
        done: &Done,
        is_read: impl Fn(&str) -> bool,
    ) -> Result<Option<Table>, SweepError> {
        let is_read = |name: &str| is_key(name) || name == "status" || is_read(name);
        let mut all: Option<Table> = None;
        let mut seen: BTreeSet<String> = BTreeSet::new();
        for path in self.files(kind)? {
            if done.damaged.contains(&path) {
                continue;
            }
            let table = read(&path, is_read).map_err(|source| SweepError::Damaged {
                path: path.clone(),
                source,
            })?;
            if table.notes.get(VERSION_KEY).map(String::as_str) != Some(version()) {
                continue;
            }
            let table = unseen(&table, done, &mut seen);
            match &mut all {
                Some(all) => all.append(table),
                None => all = Some(table),
            }
        }
        // A folder may be of an older version, whose plan means nothing here.
        let last: BTreeSet<String> = match self.cells() {
            Ok(cells) => cells.into_iter().map(|cell| cell.id).collect(),
            Err(_) => BTreeSet::new(),
        };
        Ok(all.map(|table| ordered(table, &last)))
    }

    /// All rows in their order, without writing them; `None` as long as there are none of this version. They have the
    /// columns that are the cells' keys, and those whose names `is_read` takes.
    ///
    /// # Errors
    ///
    /// As [`Self::merge`].
    pub fn results(&self, is_read: impl Fn(&str) -> bool) -> Result<Option<Table>, SweepError> {
        self.rows("part", &self.done()?, is_read)
    }
}

impl Chunk {
    /// Files of its answers by name, in the order in which they are written: with the last the chunk is done.
    pub fn files<'a>(&self, part: &'a Part) -> impl Iterator<Item = (String, &'a Table)> {
        let id = self.id();
        let tables = [part.caches.as_ref(), Some(&part.costs), Some(&part.rows)];
        let kinds = KINDS.into_iter().zip(tables);
        kinds.filter_map(move |(kind, table)| Some((Folder::file_name(kind, &id), table?)))
    }
}

/// Names of the settings of a plan, in a text.
fn settings(plan: &Map<String, Value>) -> String {
    let names = plan.keys().map(String::as_str);
    let names: BTreeSet<&str> = names
        .filter(|name| !["ask", "input"].contains(name))
        .collect();
    match names.is_empty() {
        true => "nothing".to_string(),
        false => names.into_iter().collect::<Vec<_>>().join(", "),
    }
}

/// True for the name of an output that is not finished.
fn is_unfinished(name: &OsStr) -> bool {
    name.as_encoded_bytes().ends_with(b".part")
}

fn read(path: &Path, is_read: impl Fn(&str) -> bool) -> Result<Table, TableError> {
    let file = File::open(path).map_err(|error| TableError::Parquet(error.into()))?;
    Table::of_parquet(file, is_read)
}

/// True for the columns that rows are ordered by.
fn is_key(name: &str) -> bool {
    name == "input" || name == "cell" || name.starts_with("asked.") || name.starts_with("set.")
}

/// Rows of cells that no file before has, without errors that a later run mended.
fn unseen(table: &Table, done: &Done, seen: &mut BTreeSet<String>) -> Table {
    let Some(Column::Text(cells)) = table.column("cell") else {
        return table.select(&[]);
    };
    let status = table.column("status");
    let is_kept = |row: &usize| {
        let Some(Some(cell)) = cells.get(*row) else {
            return false;
        };
        let failed = status.is_some_and(|of| of.value(*row) == "failed");
        !(seen.contains(cell) || failed && done.ok.contains(cell))
    };
    let rows: Vec<usize> = (0..table.rows()).filter(is_kept).collect();
    seen.extend(rows.iter().filter_map(|row| cells.get(*row)?.clone()));
    table.select(&rows)
}

/// Columns in an order that the order of the files does not change, and rows by input and settings. Rows of the cells `last`
/// take the place of others of the same input and settings: a file has changed between two sweeps.
fn ordered(mut table: Table, last: &BTreeSet<String>) -> Table {
    rows::arrange(&mut table);
    let fields = table.fields().iter().zip(table.columns());
    let (cells, keys): (Vec<_>, Vec<_>) = fields
        .filter(|(field, _)| is_key(&field.name))
        .partition(|(field, _)| field.name == "cell");
    let by = |columns: &[(&Field, &Column)], a: usize, b: usize| {
        let mut each = columns.iter().map(|(_, column)| column.compare(a, b));
        each.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    };
    let mut rows: Vec<usize> = (0..table.rows()).collect();
    // Stable: rows of one cell stay as its chunk has them.
    rows.sort_by(|a, b| by(&keys, *a, *b).then_with(|| by(&cells, *a, *b)));
    let is_last = |row: &&usize| match cells.as_slice() {
        [(_, Column::Text(ids)), ..] => ids[**row].as_ref().is_some_and(|id| last.contains(id)),
        _ => false,
    };
    let groups = rows.chunk_by(|a, b| !keys.is_empty() && by(&keys, *a, *b).is_eq());
    let kept = groups.flat_map(|group| {
        let has_last = group.iter().any(|row| is_last(&row));
        group.iter().filter(move |row| !has_last || is_last(row))
    });
    table.select(&kept.copied().collect::<Vec<_>>())
}
