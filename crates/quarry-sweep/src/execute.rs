//! A sweep on this machine: threads that take chunks, within a bound of memory.

use std::collections::BTreeSet;
use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

use crate::answer::Here;
use crate::cell::{Cell, Chunk};
use crate::error::SweepError;
use crate::folder::{Done, Folder};
use crate::shard::Shard;
use crate::sweep::Sweep;

/// The way in which a sweep runs here.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Threads; as many as CPUs by default.
    pub jobs: Option<NonZeroUsize>,
    /// A part alone.
    pub shard: Option<Shard>,
    /// Bytes that all running chunks may need together; three quarters of what the machine has free by default.
    pub memory_bytes: Option<u64>,
    /// Run cells again whose rows have errors.
    pub retry: bool,
}

/// End of a sweep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Cells of this run.
    pub cells: usize,
    /// Those that had rows before.
    pub present: usize,
    /// Those that were run and failed.
    pub failed: usize,
    /// True if it was stopped before the end.
    pub stopped: bool,
}

/// The part of a sweep that has no rows yet.
#[derive(Clone, Debug, Default)]
pub struct Left {
    /// Chunks of the cells without rows.
    pub chunks: Vec<Chunk>,
    /// Cells of this process, those with rows too.
    pub cells: usize,
    /// All rows of the folder.
    pub done: Done,
}

fn cells_of(chunks: &[Chunk]) -> usize {
    chunks.iter().map(|chunk| chunk.cells.len()).sum()
}

impl Sweep {
    /// The chunks that this process has to run in a folder.
    ///
    /// # Errors
    ///
    /// As [`Folder::done`].
    pub fn left(&self, folder: &Folder, options: &Options) -> Result<Left, SweepError> {
        let done = folder.done()?;
        let has_rows = |cell: &Cell| {
            done.ok.contains(&cell.id) || !options.retry && done.failed.contains_key(&cell.id)
        };
        // Chunks are of all cells, so that a run which goes on writes the files that one without a break writes.
        let mut chunks = self.chunks(options.shard);
        let cells = cells_of(&chunks);
        for chunk in &mut chunks {
            chunk.cells.retain(|cell| !has_rows(cell));
        }
        chunks.retain(|chunk| !chunk.cells.is_empty());
        Ok(Left {
            cells,
            chunks,
            done,
        })
    }

    /// Runs what is left, and keeps rows in the folder. `done` is called after each cell, by any thread; `stop` ends the run,
    /// within cells, too.
    ///
    /// # Errors
    ///
    /// [`SweepError::Incomplete`] if rows cannot be written: those that are in the folder stay.
    pub fn execute(
        &self,
        folder: &Folder,
        options: &Options,
        stop: &AtomicBool,
        done: &(dyn Fn(&Cell) + Sync),
    ) -> Result<Outcome, SweepError> {
        self.left(folder, options)?
            .execute(folder, options, stop, done)
    }
}

impl Left {
    /// Cells of this process that have rows.
    #[must_use]
    pub fn present(&self) -> usize {
        self.cells - cells_of(&self.chunks)
    }

    /// Runs it, as [`Sweep::execute`] does.
    ///
    /// # Errors
    ///
    /// As [`Sweep::execute`].
    pub fn execute(
        &self,
        folder: &Folder,
        options: &Options,
        stop: &AtomicBool,
        done: &(dyn Fn(&Cell) + Sync),
    ) -> Result<Outcome, SweepError> {
        let chunks = &self.chunks;
        let bound = options.memory_bytes.unwrap_or_else(free_bytes);
        let memory = Memory::new(bound);
        let next = AtomicUsize::new(0);
        let failed = AtomicUsize::new(0);
        let written: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());
        let error: Mutex<Option<SweepError>> = Mutex::new(None);
        let here = Here {
            stop: Some(stop),
            done: Some(done),
            ..Here::default()
        };
        let is_over = || stop.load(Ordering::Relaxed) || lock(&error).is_some();
        let work = || {
            while !is_over() {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(chunk) = chunks.get(at) else {
                    return;
                };
                let _taken = memory.take(chunk.memory_bytes());
                let result = chunk.run(&here).and_then(|part| match part {
                    None => Ok(()),
                    Some(part) => {
                        folder.write(chunk, &part)?;
                        failed.fetch_add(part.failed, Ordering::Relaxed);
                        lock(&written).insert(at);
                        Ok(())
                    }
                });
                if let Err(cause) = result {
                    lock(&error).get_or_insert(cause);
                }
            }
        };
        let all = thread::available_parallelism().ok();
        let jobs = options.jobs.or(all).map_or(1, NonZeroUsize::get);
        thread::scope(|scope| {
            for _ in 1..jobs.min(chunks.len()) {
                scope.spawn(work);
            }
            work();
        });
        let written = lock(&written);
        let left = chunks.iter().enumerate();
        let left = left.filter(|(at, _)| !written.contains(at));
        let missing: Vec<&Cell> = left.flat_map(|(_, chunk)| &chunk.cells).collect();
        if let Some(source) = lock(&error).take() {
            return Err(SweepError::Incomplete {
                missing: missing.len(),
                cells: self.cells,
                inputs: inputs_of(&missing),
                source: Box::new(source),
            });
        }
        Ok(Outcome {
            cells: self.cells,
            present: self.present(),
            failed: failed.into_inner(),
            stopped: !missing.is_empty(),
        })
    }
}

/// Names of inputs in an error at most.
const NAMES: usize = 3;

/// Names of the inputs of cells, the first of many.
fn inputs_of(cells: &[&Cell]) -> String {
    let mut names: Vec<&str> = cells.iter().map(|cell| cell.input.name.as_str()).collect();
    names.dedup();
    let shown = names[..names.len().min(NAMES)].join(", ");
    match names.len().saturating_sub(NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// A poisoned lock's value is whole: nothing panics while one is held.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes that chunks share. A chunk that needs more than all runs alone.
struct Memory {
    all: u64,
    free: Mutex<u64>,
    given_back: Condvar,
}

struct Taken<'a> {
    memory: &'a Memory,
    bytes: u64,
}

impl Memory {
    fn new(all: u64) -> Self {
        // Chunks that take nothing would all run at once.
        let all = all.max(1);
        Self {
            all,
            free: Mutex::new(all),
            given_back: Condvar::new(),
        }
    }

    /// Waits until so much is free.
    fn take(&self, bytes: u64) -> Taken<'_> {
        let bytes = bytes.min(self.all);
        let mut free = lock(&self.free);
        while *free < bytes {
            free = self
                .given_back
                .wait(free)
                .unwrap_or_else(PoisonError::into_inner);
        }
        *free -= bytes;
        Taken {
            memory: self,
            bytes,
        }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *lock(&self.memory.free) += self.bytes;
        self.memory.given_back.notify_all();
    }
}

/// Three quarters of the memory that this machine and the control groups of this process have free.
#[must_use]
pub fn free_bytes() -> u64 {
    let of_machine = || {
        let text = fs::read_to_string("/proc/meminfo").ok()?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("MemAvailable:"))?;
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
        Some(kib.saturating_mul(1024))
    };
    // Without /proc nothing is known: as little as one small machine has.
    let free = of_machine().unwrap_or(1 << 30);
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let of_groups = groups_free_bytes(&groups, Path::new("/sys/fs/cgroup"));
    free.min(of_groups.unwrap_or(u64::MAX)) / 4 * 3
}

/// The least that a process's control groups have free, by the text of its `cgroup` file: its own, and those above. `None`
/// without a limit. A page of a file that was used once counts as free, as in `MemAvailable`.
fn groups_free_bytes(groups: &str, root: &Path) -> Option<u64> {
    let of_group = |folder: &Path, [limit, used, cache]: [&str; 3]| {
        let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
        let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
        let stat = read("memory.stat").unwrap_or_default();
        let cache = stat.lines().find_map(|line| line.strip_prefix(cache));
        let cache: u64 = cache.and_then(|it| it.trim().parse().ok()).unwrap_or(0);
        let used = number(used)?.saturating_sub(cache);
        Some(number(limit)?.saturating_sub(used))
    };
    let of_line = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let (root, names) = match controllers.split(',').any(|name| name == "memory") {
            true => (root.join("memory"), V1),
            false if controllers.is_empty() => (root.to_path_buf(), V2),
            false => return None,
        };
        let own = Path::new(path.trim_start_matches('/')).ancestors();
        own.filter_map(|path| of_group(&root.join(path), names))
            .min()
    };
    groups.lines().filter_map(of_line).min()
}

/// Files of a control group with its limit and what it uses, and the key of the file cache in its `memory.stat`.
const V1: [&str; 3] = [
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    "total_inactive_file ",
];
const V2: [&str; 3] = ["memory.max", "memory.current", "inactive_file "];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_group_above_a_process_bounds_it() {
        let root = tempfile::tempdir().unwrap();
        let group = |path: &str, files: [&str; 3], values: [&str; 2], cache: &str| {
            let folder = root.path().join(path);
            fs::create_dir_all(&folder).unwrap();
            for (name, text) in files.iter().zip([values[0], values[1]]) {
                fs::write(folder.join(name), text).unwrap();
            }
            fs::write(folder.join("memory.stat"), format!("{}{cache}\n", files[2])).unwrap();
        };
        let free = |text: &str| groups_free_bytes(text, root.path());
        group("slurm/job/step", V2, ["max\n", "500\n"], "0");
        assert_eq!(free("0::/slurm/job/step\n"), None);
        group("slurm/job", V2, ["1000\n", "700\n"], "100");
        group("slurm", V2, ["9000\n", "1000\n"], "0");
        assert_eq!(free("0::/slurm/job/step\n"), Some(400));
        // A container may have the group as its root.
        assert_eq!(free("0::/slurm\n"), Some(8000));
        assert_eq!(free("0::/\n"), None);
        group("memory/batch", V1, ["600\n", "500\n"], "50");
        let both = "4:cpu,cpuacct:/a\n3:memory:/batch/none\n0::/slurm/job\n";
        assert_eq!(free(both), Some(150));
    }

    #[test]
    fn a_chunk_runs_alone_where_nothing_is_free() {
        let memory = Memory::new(0);
        let taken = memory.take(1 << 20);
        assert_eq!(*lock(&memory.free), 0);
        assert_eq!(taken.bytes, memory.all);
        assert!(taken.bytes > 0);
    }
}
