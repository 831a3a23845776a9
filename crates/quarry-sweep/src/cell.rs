//! Cells: one input under one value of each axis, known by a hash of all that its answer depends on.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::ask::Ask;
use crate::inputs::{Input, hex};
use crate::plan::Asked;
use crate::version::version;

/// One cell of a sweep. Cells share their inputs and settings: a fleet has a million cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Hash of the contents of the input and the machine's file, the question, the settings, the seed and the version: 32
    /// hexadecimal digits. Rows of one cell have it.
    pub id: String,
    /// The input.
    pub input: Arc<Input>,
    /// The settings.
    pub asked: Arc<Asked>,
}

/// Nominal costs in milliseconds of one CPU, by which cells are put together to chunks. Chunks must be the same on every
/// machine, so these are constants; what a cell really takes is measured.
const SNAPSHOT_MS: u64 = 40;
const WHAT_IF_MS: u64 = 4;
const REPLAY_MS: u64 = 30;
const EVENTS_A_MS: u64 = 2000;
const TIMED_EVENTS_A_MS: u64 = 800;
const LOAD_MS: u64 = 1000;
const MICRO_MS: u64 = 100;

impl Cell {
    /// The cell of an input.
    #[must_use]
    pub fn new(ask: Ask, input: &Arc<Input>, asked: &Arc<Asked>) -> Self {
        let mut hash = Sha256::new();
        // Lengths keep texts apart.
        let mut add = |text: &str| {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        };
        add(version());
        add(ask.name());
        add(&input.digest);
        add(&asked.varied);
        for (key, value) in &asked.axes {
            add(key);
            add(match &asked.machine {
                Some(text) if key == "machine" => text,
                _ => value,
            });
        }
        for (kind, texts) in [("set", &asked.set), ("config", &asked.config)] {
            for text in texts {
                add(kind);
                add(text);
            }
        }
        Self {
            id: hex(hash.finalize()),
            input: Arc::clone(input),
            asked: Arc::clone(asked),
        }
    }

    /// Copies of the load that run at once.
    fn copies(&self) -> u64 {
        let copies = self.asked.axes.get("copies");
        copies.and_then(|text| text.parse().ok()).unwrap_or(1)
    }

    /// Nominal cost; `is_first` if the input has to be read.
    pub(crate) fn weight_ms(&self, ask: Ask, is_first: bool) -> u64 {
        let events = self.input.events.saturating_mul(self.copies());
        match ask {
            Ask::WhatIf if is_first => SNAPSHOT_MS + WHAT_IF_MS,
            Ask::WhatIf => WHAT_IF_MS,
            Ask::Replay => REPLAY_MS + events / EVENTS_A_MS,
            Ask::ReplayTime => REPLAY_MS + events / TIMED_EVENTS_A_MS,
            Ask::Hackbench | Ask::Tbench | Ask::TcpRr => LOAD_MS,
            Ask::Micro => MICRO_MS,
        }
    }

    /// Bytes that the cell may need at once, beside the program: an estimate from above.
    pub(crate) fn memory_bytes(&self, ask: Ask) -> u64 {
        match ask {
            Ask::WhatIf => WHAT_IF_BYTES,
            Ask::Replay | Ask::ReplayTime => {
                let slots = self.input.slots.saturating_mul(self.copies());
                REPLAY_BYTES.saturating_add(slots.saturating_mul(SLOT_BYTES))
            }
            Ask::Hackbench | Ask::Tbench | Ask::TcpRr | Ask::Micro => LOAD_BYTES,
        }
    }
}

/// A snapshot of some thousand caches with its baseline.
const WHAT_IF_BYTES: u64 = 32 << 20;
/// A virtual machine with the decoded chunk of a trace.
const REPLAY_BYTES: u64 = 96 << 20;
/// Tasks, sockets and messages of a load on some hundred CPUs.
const LOAD_BYTES: u64 = 512 << 20;
/// An object that can be alive: its place in the table, and the slab that it may keep alone, in the records of the virtual
/// machine.
const SLOT_BYTES: u64 = 128;

/// Cells that one thread or one task of a cluster runs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "Text", into = "Text")]
pub struct Chunk {
    /// The question.
    pub ask: Ask,
    /// Write a row for each cache, too.
    pub caches: bool,
    /// Version of Quarry that planned it; another one refuses it.
    pub version: String,
    /// The cells; those of one input follow each other.
    pub cells: Vec<Cell>,
}

/// A chunk as it travels: each input, setting and machine is there once, so that a scheduler moves few bytes.
#[derive(Deserialize, Serialize)]
struct Text {
    ask: Ask,
    caches: bool,
    version: String,
    inputs: Vec<Input>,
    asked: Vec<Asked>,
    /// Texts of machines' files by name.
    machines: BTreeMap<String, String>,
    /// Places of each cell's input and settings.
    cells: Vec<(usize, usize)>,
}

impl From<Chunk> for Text {
    fn from(chunk: Chunk) -> Self {
        let mut text = Self {
            ask: chunk.ask,
            caches: chunk.caches,
            version: chunk.version,
            inputs: Vec::new(),
            asked: Vec::new(),
            machines: BTreeMap::new(),
            cells: Vec::new(),
        };
        let mut places = BTreeMap::new();
        for cell in chunk.cells {
            if text.inputs.last() != Some(&*cell.input) {
                text.inputs.push((*cell.input).clone());
            }
            let next = text.asked.len();
            let place = *places.entry(Arc::clone(&cell.asked)).or_insert(next);
            if place == next {
                text.asked.push((*cell.asked).clone());
                let machine = cell
                    .asked
                    .axes
                    .get("machine")
                    .zip(cell.asked.machine.as_ref());
                let machine = machine.map(|(name, text)| (name.clone(), text.to_string()));
                text.machines.extend(machine);
            }
            text.cells.push((text.inputs.len() - 1, place));
        }
        text
    }
}

impl TryFrom<Text> for Chunk {
    type Error = String;

    fn try_from(text: Text) -> Result<Self, String> {
        let inputs: Vec<Arc<Input>> = text.inputs.into_iter().map(Arc::new).collect();
        let machines = text.machines.into_iter();
        let machines: BTreeMap<String, Arc<str>> =
            machines.map(|(name, text)| (name, text.into())).collect();
        let asked = text.asked.into_iter().map(|mut asked| {
            let machine = asked.axes.get("machine");
            asked.machine = machine.and_then(|name| machines.get(name)).cloned();
            Arc::new(asked)
        });
        let asked: Vec<Arc<Asked>> = asked.collect();
        let cell = |(input, of): &(usize, usize)| {
            let (input, asked) = (inputs.get(*input)?, asked.get(*of)?);
            Some(Cell::new(text.ask, input, asked))
        };
        let cells: Option<Vec<Cell>> = text.cells.iter().map(cell).collect();
        Ok(Self {
            ask: text.ask,
            caches: text.caches,
            cells: cells.ok_or("a cell names an input or settings that are not there")?,
            version: text.version,
        })
    }
}

/// Chunks that a sweep has at least if its cells allow it, so that all CPUs of a machine have work to its end.
const CHUNKS: u64 = 64;
/// Nominal milliseconds of a chunk, from the least, lest a small sweep be mostly files, to the most, lest a run that is killed
/// lose much. A cell that takes longer is a chunk of its own.
const CHUNK_MS: std::ops::RangeInclusive<u64> = 50..=2000;

impl Chunk {
    /// Puts cells together to chunks, in their order. The sizes of chunks depend on the cells alone.
    #[must_use]
    pub fn all(ask: Ask, caches: bool, cells: &[Cell]) -> Vec<Self> {
        let target = weight_ms(ask, cells) / CHUNKS;
        let target = target.clamp(*CHUNK_MS.start(), *CHUNK_MS.end());
        let mut chunks: Vec<Self> = Vec::new();
        let mut spent = 0;
        for cell in cells {
            let last = chunks.last().and_then(|chunk| chunk.cells.last());
            let is_first = last.is_none_or(|last| last.input != cell.input);
            let weight = cell.weight_ms(ask, is_first);
            match chunks.last_mut() {
                Some(chunk) if spent + weight <= target => {
                    spent += weight;
                    chunk.cells.push(cell.clone());
                }
                _ => {
                    spent = cell.weight_ms(ask, true);
                    chunks.push(Self {
                        ask,
                        caches,
                        version: version().to_string(),
                        cells: vec![cell.clone()],
                    });
                }
            }
        }
        chunks
    }

    /// Hash of its cells, which its files are named by: 16 hexadecimal digits.
    #[must_use]
    pub fn id(&self) -> String {
        let mut hash = Sha256::new();
        for cell in &self.cells {
            hash.update(&cell.id);
        }
        let mut id = hex(hash.finalize());
        id.truncate(16);
        id
    }

    /// Nominal cost in milliseconds of one CPU.
    pub(crate) fn weight_ms(&self) -> u64 {
        weight_ms(self.ask, &self.cells)
    }

    /// Bytes that the chunk may need at once, beside the program: an estimate from above.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let each = self.cells.iter().map(|cell| cell.memory_bytes(self.ask));
        each.max().unwrap_or(0)
    }
}

/// Nominal cost in milliseconds of cells that follow each other.
fn weight_ms(ask: Ask, cells: &[Cell]) -> u64 {
    let mut before: Option<&Cell> = None;
    cells.iter().fold(0, |sum, cell| {
        let is_first = before.is_none_or(|before| before.input != cell.input);
        before = Some(cell);
        sum.saturating_add(cell.weight_ms(ask, is_first))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(digest: &str, events: u64) -> Arc<Input> {
        Arc::new(Input {
            name: format!("{digest}.json"),
            digest: digest.to_string(),
            events,
            slots: events / 2,
        })
    }

    fn asked(key: &str, value: &str) -> Arc<Asked> {
        let axes = [(key.to_string(), value.to_string())];
        Arc::new(Asked {
            axes: axes.into_iter().collect(),
            ..Asked::default()
        })
    }

    #[test]
    fn an_id_has_all_that_an_answer_depends_on() {
        let base = Cell::new(Ask::WhatIf, &input("a", 0), &asked("cpus", "2"));
        assert_eq!(base.id.len(), 32);
        let set = Arc::new(Asked {
            set: vec!["min_partial=1".to_string()],
            ..(*asked("cpus", "2")).clone()
        });
        let others = [
            Cell::new(Ask::Replay, &input("a", 0), &asked("cpus", "2")),
            Cell::new(Ask::WhatIf, &input("b", 0), &asked("cpus", "2")),
            Cell::new(Ask::WhatIf, &input("a", 0), &asked("cpus", "22")),
            Cell::new(Ask::WhatIf, &input("a", 0), &asked("possible-cpus", "2")),
            Cell::new(Ask::WhatIf, &input("a", 0), &set),
        ];
        for other in others {
            assert_ne!(other.id, base.id);
        }
        // The name of a file is no part of its content.
        let renamed = Arc::new(Input {
            name: "other".to_string(),
            ..(*input("a", 0)).clone()
        });
        assert_eq!(
            Cell::new(Ask::WhatIf, &renamed, &asked("cpus", "2")).id,
            base.id
        );
    }

    #[test]
    fn chunks_have_a_cost_and_keep_the_order() {
        let cells = |n: u64, events: u64| {
            let cell = |at: u64| {
                let seed = (at % 4).to_string();
                let input = input(&(at / 4).to_string(), events);
                Cell::new(Ask::Replay, &input, &asked("seed", &seed))
            };
            (0..n).map(cell).collect::<Vec<_>>()
        };
        let small = cells(100, 1000);
        let chunks = Chunk::all(Ask::Replay, false, &small);
        assert!((50..=100).contains(&chunks.len()), "{}", chunks.len());
        let joined: Vec<Cell> = chunks
            .iter()
            .flat_map(|chunk| chunk.cells.clone())
            .collect();
        assert_eq!(joined, small);
        let many = Chunk::all(Ask::Replay, false, &cells(20_000, 1000));
        assert!((200..600).contains(&many.len()), "{}", many.len());
        let large = Chunk::all(Ask::Replay, false, &cells(10, 100_000_000));
        assert_eq!(large.len(), 10);
        // Cells of one input and one setting share their texts on the way.
        let text = serde_json::to_string(&many[0]).unwrap();
        assert_eq!(text.matches("\"seed\"").count(), 4);
        let again: Chunk = serde_json::from_str(&text).unwrap();
        assert_eq!(again, many[0]);
        let wrong = text.replace("[0,0]", "[0,4]");
        let error = serde_json::from_str::<Chunk>(&wrong).unwrap_err();
        assert!(error.to_string().contains("not there"), "{error}");
        let ids: std::collections::BTreeSet<String> = large.iter().map(Chunk::id).collect();
        assert_eq!(ids.len(), 10);
    }
}
