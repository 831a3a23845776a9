//! A plan with its inputs: all cells, and the chunks that are still to be run.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;

use quarry_designs::{DesignSpec, Setting};
use quarry_lab::ask::Needs;
use quarry_work::run_all;

use crate::cell::{Asked, Cell, Chunk};
use crate::error::SweepError;
use crate::inputs::{self, Input, Inputs};
use crate::plan::Plan;
use crate::shard::Shard;

/// All cells of a plan.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The plan.
    pub plan: Plan,
    /// A row for each cache of each run, too.
    pub caches: bool,
    /// Its inputs.
    pub inputs: Inputs,
    /// Its cells, input by input.
    pub cells: Vec<Cell>,
}

/// The size of a sweep before it runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Cells that are still to be run.
    pub cells: usize,
    /// Chunks of them.
    pub chunks: usize,
    /// Seconds of one CPU, by the speed of one machine: another one may take half or twice as long.
    pub cpu_seconds: f64,
    /// Most bytes that one chunk may need, from above.
    pub chunk_bytes: u64,
}

impl Sweep {
    /// Finds and examines the inputs of a plan.
    ///
    /// # Errors
    ///
    /// [`SweepError::Usage`] if the plan has no input, or what it names does not exist.
    pub fn of(plan: &Plan, caches: bool) -> Result<Self, SweepError> {
        if plan.ask.needs() == Needs::Nothing {
            return Self::with_inputs(plan, caches, Vec::new());
        }
        let names = inputs::input_names(&plan.inputs)?;
        let jobs = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let found = run_all(&names, jobs, |name| {
            Ok::<_, SweepError>(Input::of(name.as_str()))
        })?;
        Self::with_inputs(plan, caches, found)
    }

    /// The same with inputs that were examined elsewhere.
    ///
    /// # Errors
    ///
    /// As [`Self::of`].
    pub fn with_inputs(plan: &Plan, caches: bool, found: Vec<Input>) -> Result<Self, SweepError> {
        let found = match (plan.ask.needs() == Needs::Nothing, plan.inputs.first()) {
            (true, Some(input)) => {
                return Err(SweepError::Usage(format!(
                    "input {input:?}: {} has no input",
                    plan.ask
                )));
            }
            (true, None) => vec![Input::none(plan.ask.name())],
            (false, _) => found,
        };
        if found.is_empty() {
            return Err(SweepError::Usage(
                "the plan has no input: name files, folders or patterns, for example input = \"hosts/*.json\""
                    .to_string(),
            ));
        }
        let asked: Vec<Arc<Asked>> = taken(plan)?;
        let inputs = Inputs::of(found);
        let of_input = |input: &Arc<Input>| {
            let cell = |asked: &Arc<Asked>| Cell::new(input, asked);
            asked.iter().map(cell).collect::<Vec<_>>()
        };
        let cells = inputs.all.iter().flat_map(of_input).collect();
        Ok(Self {
            plan: plan.clone(),
            caches,
            cells,
            inputs,
        })
    }

    /// The chunks of all cells, or those of a part of them. They are the same on every machine.
    #[must_use]
    pub fn chunks(&self, shard: Option<Shard>) -> Vec<Chunk> {
        let all = Chunk::all(self.plan.ask, self.caches, &self.cells);
        match shard {
            Some(shard) => shard.of(all),
            None => all,
        }
    }

    /// The size of some chunks.
    #[must_use]
    pub fn estimate(&self, chunks: &[Chunk]) -> Estimate {
        Estimate {
            cells: chunks.iter().map(|chunk| chunk.cells.len()).sum(),
            chunks: chunks.len(),
            cpu_seconds: chunks.iter().map(Chunk::weight_ms).sum::<u64>() as f64 / 1000.0,
            chunk_bytes: chunks.iter().map(Chunk::memory_bytes).max().unwrap_or(0),
        }
    }
}

/// The cells' settings. Tunables that are for other designs than the cell's are left out, and cells that others then repeat.
fn taken(plan: &Plan) -> Result<Vec<Arc<Asked>>, SweepError> {
    let usage = |error: quarry_designs::DesignError| SweepError::Usage(error.to_string());
    let mut kept: Vec<Arc<Asked>> = Vec::new();
    let mut seen = BTreeSet::new();
    let (mut untaken, mut used) = (BTreeSet::new(), BTreeSet::new());
    for question in plan.asked()? {
        let question = match question.design() {
            None => question,
            Some(design) => {
                let design = DesignSpec::parse(&design).map_err(usage)?;
                let takes = |text: &str| match Setting::parse(text) {
                    Ok(setting) => setting.is_taken_by(&design),
                    // Debugging, whose value is no number.
                    Err(_) => true,
                };
                let mut settings = question.settings();
                untaken.extend(settings.retain(takes));
                used.extend(settings.texts().iter().cloned());
                question.with_settings(settings)
            }
        };
        let asked = Asked::new(plan.ask, question);
        if seen.insert(asked.canonical().to_string()) {
            asked.question.check()?;
            kept.push(Arc::new(asked));
        }
    }
    match untaken.difference(&used).next() {
        Some(setting) => Err(SweepError::Usage(format!(
            "set {setting}: no design of the plan has it with this value; quarry tunables lists what each has"
        ))),
        None => Ok(kept),
    }
}
