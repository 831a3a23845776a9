//! All questions by name, for doors that ask any of them: a new one is its file, a line here, and its command.

use std::fmt;
use std::sync::Arc;

use quarry_ask::{
    Door, Field, Json, Layer, Part, Settings, canonical, cells, fields, object, outer, read,
    settings,
};
use quarry_designs::nearest;
use quarry_view::frame::{self, schema};
use quarry_view::{Doc, View, grouped};
use quarry_work::load::{CacheReport as LoadCache, LoadReport};
use quarry_work::micro::MicroReport;
use quarry_work::pages::PagesReport;
use quarry_work::rx::RxReport;
use schemars::JsonSchema;
use serde_json::{Map, json};

use super::answers::{Answers, Needs};
use super::{
    Geometry, Hackbench, HeapFile, Look, Micro, Pages, Replay, Rx, Tbench, TcpRr, WhatIf,
    WillItScale,
};
use crate::error::LabError;
use crate::geometry::{self, CacheGeometry};
use crate::look::{self, CacheLook};
use crate::replay::report::{CacheReport, RunReport};
use crate::replay::timed::report::{TimedCache, TimedReport};
use crate::{experiments, replay, whatif};
use quarry_state::{CachePrediction, Prediction};

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

/// Makes a question of names and values.
type Reader = fn(&[Layer<'_>], Door) -> Result<Arc<dyn Question>, String>;

/// A kind of question, by its name.
struct Entry {
    name: &'static str,
    needs: Needs,
    figure: Figure,
    fields: fn() -> Vec<Field>,
    read: Reader,
    /// Columns of its report, and of those of its caches.
    reports: fn() -> [Vec<frame::Field>; 2],
    view: Viewer,
}

/// Makes a view of outputs.
type Viewer = fn(&[Doc]) -> View;

const fn entry<Q: Answers + Part + 'static, Run: JsonSchema, Cache: JsonSchema>(
    name: &'static str,
    needs: Needs,
    figure: Figure,
    view: Viewer,
) -> Entry {
    Entry {
        name,
        needs,
        figure,
        fields: fields::<Q>,
        read: |layers, door| Ok(Arc::new(read::<Q>(layers, door)?)),
        reports: || [schema::fields::<Run>(), schema::fields::<Cache>()],
        view,
    }
}

/// A report without members: the caches of what has none.
#[derive(JsonSchema)]
struct Nothing {}

/// All questions.
static ENTRIES: [Entry; 12] = [
    entry::<WhatIf, Prediction, CachePrediction>(
        "what-if",
        Needs::Snapshot,
        Figure {
            column: "predicted_bytes",
            bounds: Some(["likely_low_bytes", "likely_high_bytes"]),
            now: Some("observed_bytes"),
        },
        whatif::view,
    ),
    entry::<Replay, RunReport, CacheReport>(
        "replay",
        Needs::Recording,
        exact("peak_slab_bytes"),
        replay::view,
    ),
    entry::<Replay, TimedReport, TimedCache>(
        "replay --time",
        Needs::Recording,
        exact("operation_ns"),
        replay::timed::view,
    ),
    entry::<Hackbench, LoadReport, LoadCache>(
        "run hackbench",
        Needs::Nothing,
        exact("cpu_us"),
        experiments::view,
    ),
    entry::<Tbench, LoadReport, LoadCache>(
        "run tbench",
        Needs::Nothing,
        exact("cpu_us"),
        experiments::view,
    ),
    entry::<TcpRr, LoadReport, LoadCache>(
        "run tcp_rr",
        Needs::Nothing,
        exact("cpu_us"),
        experiments::view,
    ),
    entry::<WillItScale, LoadReport, LoadCache>(
        "run will-it-scale",
        Needs::Nothing,
        exact("cpu_us"),
        experiments::view,
    ),
    entry::<Micro, MicroReport, Nothing>(
        "run micro",
        Needs::Nothing,
        exact("object_ns"),
        experiments::view,
    ),
    entry::<Pages, PagesReport, Nothing>(
        "run pages",
        Needs::Nothing,
        exact("fault.ns"),
        experiments::view,
    ),
    entry::<Rx, RxReport, Nothing>(
        "run rx",
        Needs::Nothing,
        exact("memory_ns"),
        experiments::view,
    ),
    entry::<Geometry, CacheGeometry, Nothing>(
        "geometry",
        Needs::Nothing,
        exact("slab_size"),
        geometry::view,
    ),
    entry::<Look, look::Look, CacheLook>("look", Needs::Snapshot, exact("slab_bytes"), look::view),
];

/// Name of a question: the command that asks it. `replay --time` is `replay` with `time`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ask(usize);

impl Ask {
    /// The question about a snapshot.
    pub const WHAT_IF: Self = Self(0);
    /// The question about a recording.
    pub const REPLAY: Self = Self(1);
    /// The same in simulated time.
    pub const TIMED_REPLAY: Self = Self(2);
    /// The question about caches that a user describes.
    pub const GEOMETRY: Self = Self(10);

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
    #[must_use]
    pub fn reports(self) -> [Vec<frame::Field>; 2] {
        (self.entry().reports)()
    }

    /// The answer in these runs as people read it. Runs of other values of what no plan runs at once are apart.
    #[must_use]
    pub fn view(self, runs: &[Json]) -> View {
        let workload = self.name().strip_prefix("run ");
        let docs = grouped(runs.iter().map(|run| (asked(run), run)));
        let docs = docs.into_iter().map(|(file, runs)| Doc {
            file,
            content: json!({"command": self.name(), "workload": workload, "runs": runs}),
        });
        (self.entry().view)(&docs.collect::<Vec<_>>())
    }

    /// The question of this name.
    ///
    /// # Errors
    ///
    /// [`LabError::Usage`] with all names.
    pub fn parse(text: &str) -> Result<Self, LabError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let words = words.join(" ");
        Self::all().find(|ask| ask.name() == words).ok_or_else(|| {
            let names = Self::all().map(|ask| format!("{:?}", ask.name()));
            let names: Vec<String> = names.collect();
            LabError::Usage(format!("ask = {text:?}: there are {}", names.join(", ")))
        })
    }

    /// All fields, as declared, with that which its name says and those of one door.
    #[must_use]
    pub fn declared(self) -> Vec<Field> {
        (self.entry().fields)()
    }

    /// The part of its name behind ` --`, which is a field of the question.
    fn mode(self) -> Option<&'static str> {
        self.name().split_once(" --").map(|(_, mode)| mode)
    }

    /// Fields of the question, in the order of the axes; not those that its name says.
    #[must_use]
    pub fn fields(self) -> Vec<Field> {
        let mut fields = self.declared();
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
    /// [`LabError::Usage`] with the questions that have the key, or the nearest key.
    pub fn field(self, key: &str, others: &[&str]) -> Result<Field, LabError> {
        let is = |field: &Field| field.name == key.replace('-', "_");
        if let Some(field) = self.fields().into_iter().find(is) {
            return Ok(field);
        }
        let having: Vec<&str> = Self::all()
            .filter(|ask| ask.fields().iter().any(is))
            .map(Self::name)
            .collect();
        if !having.is_empty() {
            return Err(LabError::Usage(format!(
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
        Err(LabError::Usage(format!(
            "a plan has no key {key:?}{near}; keys of {self} are {}",
            names.join(", ")
        )))
    }

    /// The question of names and values.
    ///
    /// # Errors
    ///
    /// [`LabError::Usage`] if a value is wrong or keys contradict each other.
    pub fn read(self, layers: &[Layer<'_>], door: Door) -> Result<Arc<dyn Question>, LabError> {
        let mut mode = Map::new();
        if let Some(name) = self.mode() {
            mode.insert(name.to_string(), true.into());
        }
        let mut all = vec![(&mode, std::path::Path::new(""))];
        all.extend_from_slice(layers);
        (self.entry().read)(&all, door).map_err(LabError::Usage)
    }
}

/// Names and values that a run was asked for, of those in which runs differ.
fn asked(run: &Json) -> String {
    let asked = run["asked"].as_object().into_iter().flatten();
    let asked = asked.map(|(name, value)| match value {
        Json::String(text) => format!("{name} {text}"),
        other => format!("{name} {other}"),
    });
    asked.collect::<Vec<_>>().join(" ")
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

/// A question of some kind, with what all kinds have by their fields.
pub trait Question: Answers + fmt::Debug {
    /// Every combination of the values of its axes and its settings, for one input.
    fn cells(&self) -> Vec<Arc<dyn Question>>;

    /// The cells of what no plan runs at once, each with the names and values that differ.
    fn outer(&self) -> Vec<(Arc<dyn Question>, Map<String, Json>)>;

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

    /// The same on the heap of a machine that has run.
    ///
    /// # Errors
    ///
    /// As [`Answers::begin`].
    fn begun(&self, heap: HeapFile) -> Result<Arc<dyn Question>, LabError>;
}

impl<Q: Answers + Part + 'static> Question for Q {
    fn cells(&self) -> Vec<Arc<dyn Question>> {
        let all = cells(self, |_| true).into_iter();
        all.map(|cell| Arc::new(cell) as Arc<dyn Question>)
            .collect()
    }

    fn outer(&self) -> Vec<(Arc<dyn Question>, Map<String, Json>)> {
        let all = outer(self).into_iter();
        all.map(|(cell, values)| (Arc::new(cell) as Arc<dyn Question>, values))
            .collect()
    }

    fn object(&self, contents: bool) -> Map<String, Json> {
        object(self, contents)
    }

    fn canonical(&self, name: &str) -> String {
        canonical(name, self)
    }

    fn settings(&self) -> Settings {
        let mut own = self.clone();
        settings(&mut own).cloned().unwrap_or_default()
    }

    fn design(&self) -> Option<String> {
        let values = object(self, false);
        let design = values.get("design")?.get(0)?.as_str()?;
        Some(design.to_string())
    }

    fn with_settings(&self, set: Settings) -> Arc<dyn Question> {
        let mut other = self.clone();
        if let Some(of) = settings(&mut other) {
            *of = set;
        }
        Arc::new(other)
    }

    fn begun(&self, heap: HeapFile) -> Result<Arc<dyn Question>, LabError> {
        let mut other = self.clone();
        other.begin(heap)?;
        Ok(Arc::new(other))
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
        let named = [Ask::WHAT_IF, Ask::REPLAY, Ask::TIMED_REPLAY, Ask::GEOMETRY];
        let named = named.map(Ask::name);
        assert_eq!(named, ["what-if", "replay", "replay --time", "geometry"]);
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
            "stage at kernel had_cpus had_page_size force release design page_size possible_cpus cpus config guests set"
        );
        assert_eq!(
            order("replay"),
            "start pages from until booted partial_slabs memory cache_line cache_share debug design page_size policy cpus copies set"
        );
        assert_eq!(
            order("replay --time"),
            "machine pace start pages from until booted partial_slabs memory cache_share design page_size policy cpus copies draw seed set"
        );
        assert_eq!(
            order("run hackbench"),
            "machine booted partial_slabs memory era design page_size cpus groups fds loops datasize transport count_start \
             wake_order wake_place skb_sizes at draw seed set"
        );
        assert_eq!(
            order("run tcp_rr"),
            "machine booted partial_slabs memory era design page_size cpus pairs request response remote round_trip queues interrupt_every packet time count_start \
             wake_order wake_place skb_sizes at draw seed set"
        );
        assert_eq!(
            order("run micro"),
            "machine memory design page_size cpus pattern size kmalloc count bulk rounds node node_free draw seed set"
        );
    }
}
