//! Cells: one input under one value of each axis, known by a hash of all that its answer depends on.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use quarry_ask::Door;
use quarry_lab::ask::{Ask, Cost, InputSize, OfInput, Question};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::inputs::{Input, hex};
use crate::version::version;

/// One cell of a sweep. Cells share their inputs and settings: a fleet has a million cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Hash of the contents of the input and of files that the settings name, the question, the settings, the seed and the
    /// version: 32 hexadecimal digits. Rows of one cell have it.
    pub id: String,
    /// The input.
    pub input: Arc<Input>,
    /// The settings.
    pub asked: Arc<Asked>,
}

/// The settings of a cell.
#[derive(Debug)]
pub struct Asked {
    /// The question with one value of each axis.
    pub question: Arc<dyn Question>,
    /// Its names and values.
    pub(crate) values: Map<String, Value>,
    /// Facts that decide how the input is read.
    pub(crate) of_input: OfInput,
    /// All that the answer depends on beside the input and the version.
    canonical: String,
}

impl Asked {
    /// The settings of a question whose axes have one value each.
    #[must_use]
    pub fn new(ask: Ask, question: Arc<dyn Question>) -> Self {
        Self {
            values: question.object(false),
            of_input: question.of_input(),
            canonical: question.canonical(ask.name()),
            question,
        }
    }

    /// All that the answer depends on beside the input and the version.
    pub(crate) fn canonical(&self) -> &str {
        &self.canonical
    }
}

impl PartialEq for Asked {
    fn eq(&self, other: &Self) -> bool {
        self.canonical == other.canonical
    }
}

impl Eq for Asked {}

impl Cell {
    /// The cell of an input.
    #[must_use]
    pub fn new(input: &Arc<Input>, asked: &Arc<Asked>) -> Self {
        let mut hash = Sha256::new();
        // Lengths keep texts apart.
        for text in [version(), &asked.canonical, &input.digest] {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        }
        Self {
            id: hex(hash.finalize()),
            input: Arc::clone(input),
            asked: Arc::clone(asked),
        }
    }

    /// Nominal cost; `is_first` if the input has to be read.
    pub(crate) fn cost(&self, is_first: bool) -> Cost {
        let size = InputSize {
            events: self.input.events,
            slots: self.input.slots,
        };
        let cost = self.asked.question.cost(size);
        let reading = if is_first { cost.reading_ms } else { 0 };
        Cost {
            ms: cost.ms + reading,
            ..cost
        }
    }
}

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

/// A chunk as it travels: each input and each setting is there once, so that a scheduler moves few bytes.
#[derive(Deserialize, Serialize)]
struct Text {
    ask: Ask,
    caches: bool,
    version: String,
    inputs: Vec<Input>,
    /// Names and values, of files with their contents.
    asked: Vec<Map<String, Value>>,
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
            cells: Vec::new(),
        };
        let mut places = BTreeMap::new();
        for cell in chunk.cells {
            if text.inputs.last() != Some(&*cell.input) {
                text.inputs.push((*cell.input).clone());
            }
            let next = text.asked.len();
            let canonical = cell.asked.canonical.clone();
            let place = *places.entry(canonical).or_insert(next);
            if place == next {
                text.asked.push(cell.asked.question.object(true));
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
        let asked = text.asked.iter().map(|values| {
            let question = text.ask.read(&[(values, Path::new(""))], Door::Plan);
            let question = question.map_err(|error| error.to_string())?;
            Ok(Arc::new(Asked::new(text.ask, question)))
        });
        let asked: Vec<Arc<Asked>> = asked.collect::<Result<_, String>>()?;
        let cell = |(input, of): &(usize, usize)| {
            let (input, asked) = (inputs.get(*input)?, asked.get(*of)?);
            Some(Cell::new(input, asked))
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
        let target = weight_ms(cells) / CHUNKS;
        let target = target.clamp(*CHUNK_MS.start(), *CHUNK_MS.end());
        let mut chunks: Vec<Self> = Vec::new();
        let mut spent = 0;
        for cell in cells {
            let last = chunks.last().and_then(|chunk| chunk.cells.last());
            let is_first = last.is_none_or(|last| last.input != cell.input);
            let weight = cell.cost(is_first).ms;
            match chunks.last_mut() {
                Some(chunk) if spent + weight <= target => {
                    spent += weight;
                    chunk.cells.push(cell.clone());
                }
                _ => {
                    spent = cell.cost(true).ms;
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
        weight_ms(&self.cells)
    }

    /// Bytes that the chunk may need at once, beside the program: an estimate from above.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let each = self.cells.iter().map(|cell| cell.cost(false).bytes);
        each.max().unwrap_or(0)
    }
}

/// Nominal cost in milliseconds of cells that follow each other.
fn weight_ms(cells: &[Cell]) -> u64 {
    let mut before: Option<&Cell> = None;
    cells.iter().fold(0, |sum, cell| {
        let is_first = before.is_none_or(|before| before.input != cell.input);
        before = Some(cell);
        sum.saturating_add(cell.cost(is_first).ms)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn input(digest: &str, events: u64) -> Arc<Input> {
        Arc::new(Input {
            name: format!("{digest}.json"),
            digest: digest.to_string(),
            events,
            slots: events / 2,
        })
    }

    fn asked(ask: &str, values: Value) -> Arc<Asked> {
        let ask = Ask::parse(ask).unwrap();
        let values = values.as_object().unwrap();
        let question = ask.read(&[(values, Path::new(""))], Door::Plan).unwrap();
        Arc::new(Asked::new(ask, question))
    }

    #[test]
    fn an_id_has_all_that_an_answer_depends_on() {
        let two = |ask, key: &str| asked(ask, json!({key: 2}));
        let base = Cell::new(&input("a", 0), &two("what-if", "cpus"));
        assert_eq!(base.id.len(), 32);
        let others = [
            Cell::new(&input("a", 0), &two("replay", "cpus")),
            Cell::new(&input("b", 0), &two("what-if", "cpus")),
            Cell::new(&input("a", 0), &asked("what-if", json!({"cpus": 22}))),
            Cell::new(&input("a", 0), &two("what-if", "possible_cpus")),
            Cell::new(
                &input("a", 0),
                &asked("what-if", json!({"cpus": 2, "set": "min_partial=1"})),
            ),
        ];
        for other in others {
            assert_ne!(other.id, base.id);
        }
        // The name of a file is no part of its content, nor is the spelling of a value.
        let renamed = Arc::new(Input {
            name: "other".to_string(),
            ..(*input("a", 0)).clone()
        });
        let spelled = asked("what-if", json!({"cpus": "2"}));
        assert_eq!(Cell::new(&renamed, &spelled).id, base.id);
    }

    #[test]
    fn chunks_have_a_cost_and_keep_the_order() {
        let cells = |n: u64, events: u64| {
            let cell = |at: u64| {
                let copies = 1 + at % 4;
                let input = input(&(at / 4).to_string(), events / copies);
                Cell::new(&input, &asked("replay", json!({"copies": copies})))
            };
            (0..n).map(cell).collect::<Vec<_>>()
        };
        let replay = Ask::parse("replay").unwrap();
        let small = cells(100, 1000);
        let chunks = Chunk::all(replay, false, &small);
        assert!((50..=100).contains(&chunks.len()), "{}", chunks.len());
        let joined: Vec<Cell> = chunks
            .iter()
            .flat_map(|chunk| chunk.cells.clone())
            .collect();
        assert_eq!(joined, small);
        let many = Chunk::all(replay, false, &cells(20_000, 1000));
        assert!((200..600).contains(&many.len()), "{}", many.len());
        let large = Chunk::all(replay, false, &cells(10, 100_000_000));
        assert_eq!(large.len(), 10);
        // Cells of one input and one setting share their texts on the way.
        let text = serde_json::to_string(&many[0]).unwrap();
        assert_eq!(text.matches("\"copies\"").count(), 4);
        let again: Chunk = serde_json::from_str(&text).unwrap();
        assert_eq!(again, many[0]);
        let wrong = text.replace("[0,0]", "[0,4]");
        let error = serde_json::from_str::<Chunk>(&wrong).unwrap_err();
        assert!(error.to_string().contains("not there"), "{error}");
        let ids: std::collections::BTreeSet<String> = large.iter().map(Chunk::id).collect();
        assert_eq!(ids.len(), 10);
    }
}
