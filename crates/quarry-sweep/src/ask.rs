//! The questions that cells are asked.

use std::fmt;
use std::sync::Arc;

use quarry_ask::{
    Door, Field, Json, Layer, Part, Settings, canonical, cells, fields, object, read,
};
use quarry_designs::nearest;
use quarry_lab::RunReport;
use quarry_lab::ask::{Hackbench, Micro, Replay, Tbench, TcpRr, WhatIf};
use quarry_lab::replay::report::CacheReport;
use quarry_lab::replay::timed::report::{TimedCache, TimedReport};
use quarry_lab::whatif::{CachePrediction, Prediction};
use quarry_work::load::{CacheReport as LoadCache, LoadReport};
use quarry_work::micro::MicroReport;
use schemars::JsonSchema;
use serde_json::Map;

use crate::answer::{Answer, Answers, Here, OfInput, Ready};
use crate::error::SweepError;
use crate::inputs::Input;
use crate::table::{self, schema};

/// The figure of a report that settings are judged by: the less, the better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    /// Its column.
    pub column: &'static str,
    /// Columns of its bounds; none where it repeats exactly.
    pub bounds: Option<[&'static str; 2]>,
    /// Column of what the input has now, with which it is compared.
    pub now: Option<&'static str>,
}

const fn exact(column: &'static str) -> Figure {
    Figure {
        column,
        bounds: None,
        now: None,
    }
}

/// Input of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// None: a load.
    Nothing,
    /// A snapshot, or a recording with one.
    Snapshot,
    /// A recording.
    Recording,
}

/// Cost of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Nominal milliseconds of one CPU.
    pub ms: u64,
    /// Bytes that it may need at once, beside the program: an estimate from above.
    pub bytes: u64,
}

/// Makes a question of names and values.
type Reader = fn(&[Layer<'_>]) -> Result<Arc<dyn Question>, String>;

/// A kind of question, by its name.
struct Entry {
    name: &'static str,
    needs: Needs,
    figure: Figure,
    fields: fn() -> Vec<Field>,
    read: Reader,
    /// Columns of its report, and of those of its caches.
    reports: fn() -> [Vec<table::Field>; 2],
}

const fn entry<Q: Answers, Run: JsonSchema, Cache: JsonSchema>(
    name: &'static str,
    needs: Needs,
    figure: Figure,
) -> Entry {
    Entry {
        name,
        needs,
        figure,
        fields: fields::<Q>,
        read: |layers| Ok(Arc::new(read::<Q>(layers, Door::Plan)?)),
        reports: || [schema::fields::<Run>(), schema::fields::<Cache>()],
    }
}

/// A report without members: a micro-benchmark has one cache.
#[derive(JsonSchema)]
struct Nothing {}

/// All questions: a new one is a line here and what it answers ([`Answers`]).
static ENTRIES: [Entry; 7] = [
    entry::<WhatIf, Prediction, CachePrediction>(
        "what-if",
        Needs::Snapshot,
        Figure {
            column: "predicted_bytes",
            bounds: Some(["low_bytes", "high_bytes"]),
            now: Some("observed_bytes"),
        },
    ),
    entry::<Replay, RunReport, CacheReport>("replay", Needs::Recording, exact("peak_slab_bytes")),
    entry::<Replay, TimedReport, TimedCache>(
        "replay --time",
        Needs::Recording,
        exact("operation_ns"),
    ),
    entry::<Hackbench, LoadReport, LoadCache>("run hackbench", Needs::Nothing, exact("cpu_us")),
    entry::<Tbench, LoadReport, LoadCache>("run tbench", Needs::Nothing, exact("cpu_us")),
    entry::<TcpRr, LoadReport, LoadCache>("run tcp_rr", Needs::Nothing, exact("cpu_us")),
    entry::<Micro, MicroReport, Nothing>("run micro", Needs::Nothing, exact("object_ns")),
];

/// Name of a question: the command that asks it. `replay --time` is `replay` with `time`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ask(usize);

impl Ask {
    /// The question about a snapshot.
    pub const WHAT_IF: Self = Self(0);

    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..ENTRIES.len()).map(Self)
    }

    fn entry(self) -> &'static Entry {
        &ENTRIES[self.0]
    }

    /// The command that asks it.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.entry().name
    }

    /// Its input.
    #[must_use]
    pub fn needs(self) -> Needs {
        self.entry().needs
    }

    /// The figure that settings are judged by.
    #[must_use]
    pub fn figure(self) -> Figure {
        self.entry().figure
    }

    /// Columns of its report, and of those of its caches.
    pub(crate) fn reports(self) -> [Vec<table::Field>; 2] {
        (self.entry().reports)()
    }

    /// The question of this name.
    ///
    /// # Errors
    ///
    /// [`SweepError::Usage`] with all names.
    pub fn parse(text: &str) -> Result<Self, SweepError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let words = words.join(" ");
        Self::all().find(|ask| ask.name() == words).ok_or_else(|| {
            let names = Self::all().map(|ask| format!("{:?}", ask.name()));
            let names: Vec<String> = names.collect();
            SweepError::Usage(format!("ask = {text:?}: there are {}", names.join(", ")))
        })
    }

    /// The part of its name behind ` --`, which is a field of the question.
    fn mode(self) -> Option<&'static str> {
        self.name().split_once(" --").map(|(_, mode)| mode)
    }

    /// Fields of the question, in the order of the axes; not those that its name says.
    #[must_use]
    pub fn fields(self) -> Vec<Field> {
        let mut fields = (self.entry().fields)();
        fields.sort_by_key(|field| field.rank);
        // Without its mode, it has nothing that needs one.
        let mode = self.mode();
        let lacks = |name: &str| {
            fields.iter().any(|of| of.is_mode && of.name == name) && mode != Some(name)
        };
        let is_there = |field: &Field| {
            !field.is_mode
                && !field.is_local
                && !field.needs.iter().any(|name| lacks(name))
                && !mode.is_some_and(|mode| excludes(&fields, mode, field.name))
        };
        let kept = fields.iter().filter(|field| is_there(field));
        kept.copied().collect()
    }

    /// The field of a plan's key.
    ///
    /// # Errors
    ///
    /// [`SweepError::Usage`] with the questions that have the key, or the nearest key.
    pub fn field(self, key: &str, others: &[&str]) -> Result<Field, SweepError> {
        let is = |field: &Field| field.name == key.replace('-', "_");
        if let Some(field) = self.fields().into_iter().find(is) {
            return Ok(field);
        }
        let having: Vec<&str> = Self::all()
            .filter(|ask| ask.fields().iter().any(is))
            .map(Self::name)
            .collect();
        if !having.is_empty() {
            return Err(SweepError::Usage(format!(
                "{key} applies to {}, not to {self}",
                having.join(", ")
            )));
        }
        let names: Vec<String> = self
            .fields()
            .iter()
            .map(|field| field.spelled(Door::Plan))
            .chain(others.iter().map(ToString::to_string))
            .collect();
        let near = nearest(key, names.iter().map(String::as_str));
        let near = near.map_or_else(String::new, |near| format!("; the nearest is {near:?}"));
        Err(SweepError::Usage(format!(
            "a plan has no key {key:?}{near}; keys of {self} are {}",
            names.join(", ")
        )))
    }

    /// The question of names and values.
    ///
    /// # Errors
    ///
    /// [`SweepError::Usage`] if a value is wrong or keys contradict each other.
    pub fn read(self, layers: &[Layer<'_>]) -> Result<Arc<dyn Question>, SweepError> {
        let mut mode = Map::new();
        if let Some(name) = self.mode() {
            mode.insert(name.to_string(), true.into());
        }
        let mut all = vec![(&mode, std::path::Path::new(""))];
        all.extend_from_slice(layers);
        (self.entry().read)(&all).map_err(SweepError::Usage)
    }
}

/// True if a mode excludes a field.
fn excludes(fields: &[Field], mode: &str, name: &str) -> bool {
    let mode = fields.iter().find(|field| field.name == mode);
    mode.is_some_and(|mode| mode.not_with.contains(&name))
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl serde::Serialize for Ask {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

impl<'de> serde::Deserialize<'de> for Ask {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        Self::parse(&name).map_err(serde::de::Error::custom)
    }
}

/// A question of some kind, as a sweep sees it.
pub trait Question: fmt::Debug + Send + Sync {
    /// Every combination of the values of its axes and its settings, for one input.
    fn cells(&self) -> Vec<Arc<dyn Question>>;

    /// Names and values; with contents, all that the answer depends on.
    fn object(&self, contents: bool) -> Map<String, Json>;

    /// The text whose hash names a cell.
    fn canonical(&self, name: &str) -> String;

    /// Its tunables.
    fn settings(&self) -> Settings;

    /// The one design of a cell, as it is named; `None` if it is not asked.
    fn design(&self) -> Option<String>;

    /// The same with other tunables.
    fn with_settings(&self, settings: Settings) -> Arc<dyn Question>;

    /// Facts that decide how an input is read.
    fn of_input(&self) -> OfInput;

    /// Refuses what no cell can ask, whatever its input.
    ///
    /// # Errors
    ///
    /// A sentence that names the setting.
    fn check(&self) -> Result<(), String>;

    /// Cost of a cell; `is_first` if the input has to be read.
    fn cost(&self, input: &Input, is_first: bool) -> Cost;

    /// Answers a cell.
    #[doc(hidden)]
    fn answer(
        &self,
        ready: &Ready<'_>,
        here: &Here<'_>,
        caches: bool,
    ) -> Result<Vec<Answer>, String>;
}

impl<Q: Answers + Part> Question for Q {
    fn cells(&self) -> Vec<Arc<dyn Question>> {
        let all = cells(self, |_| true).into_iter();
        all.map(|cell| Arc::new(cell) as Arc<dyn Question>)
            .collect()
    }

    fn object(&self, contents: bool) -> Map<String, Json> {
        object(self, contents)
    }

    fn canonical(&self, name: &str) -> String {
        canonical(name, self)
    }

    fn settings(&self) -> Settings {
        self.set().clone()
    }

    fn design(&self) -> Option<String> {
        let values = object(self, false);
        let design = values.get("design")?.get(0)?.as_str()?;
        Some(design.to_string())
    }

    fn with_settings(&self, settings: Settings) -> Arc<dyn Question> {
        let mut other = self.clone();
        *other.set_mut() = settings;
        Arc::new(other)
    }

    fn of_input(&self) -> OfInput {
        Answers::of_input(self)
    }

    fn check(&self) -> Result<(), String> {
        Answers::check(self)
    }

    fn cost(&self, input: &Input, is_first: bool) -> Cost {
        Answers::cost(self, input, is_first)
    }

    fn answer(
        &self,
        ready: &Ready<'_>,
        here: &Here<'_>,
        caches: bool,
    ) -> Result<Vec<Answer>, String> {
        let mut answers = Answers::answer(self, ready, here, caches)?;
        let varied = self.set().varied();
        for answer in &mut answers {
            if let Some(members) = answer.run.as_object_mut() {
                members.insert("set".to_string(), varied.clone().into());
            }
        }
        Ok(answers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_again() {
        for ask in Ask::all() {
            assert_eq!(Ask::parse(ask.name()).unwrap(), ask);
        }
        let error = Ask::parse("what if").unwrap_err().to_string();
        assert!(error.contains("\"what-if\", \"replay\""), "{error}");
    }

    /// Rows are ordered by cells, and cells by axes: a new field changes the order of nothing that was there.
    #[test]
    fn axes_keep_their_order() {
        let order = |ask: &str| {
            let fields = Ask::parse(ask).unwrap().fields();
            let names = fields.iter().map(|field| field.name);
            names.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            order("what-if"),
            "stage at kernel had_cpus had_page_size force release design page_size possible_cpus cpus config set"
        );
        assert_eq!(
            order("replay"),
            "start pages from until booted memory cache_line cache_share debug design page_size cpus copies set"
        );
        assert_eq!(
            order("replay --time"),
            "machine pace start pages from until booted memory cache_share design page_size cpus copies draw seed set"
        );
        assert_eq!(
            order("run hackbench"),
            "machine booted memory era design page_size cpus groups fds loops datasize transport count_start \
             wake_order wake_place skb_sizes at draw seed set"
        );
        assert_eq!(
            order("run tcp_rr"),
            "machine booted memory era design page_size cpus pairs request response remote time count_start \
             wake_order wake_place skb_sizes at draw seed set"
        );
        assert_eq!(
            order("run micro"),
            "machine memory design page_size cpus pattern size kmalloc count bulk rounds draw seed set"
        );
    }
}
