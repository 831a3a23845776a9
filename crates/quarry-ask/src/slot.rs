//! The places of a question that values are given to.

use std::path::Path;

use quarry_designs::{Setting, combinations};
use serde_json::{Value as Json, json};

use crate::value::{Kind, Value, read, texts, with_content};

/// A place of a question. A door that fills it knows its name and nothing of its type.
pub trait Slot {
    /// Takes values in place of those that it has; files are relative to `base`.
    ///
    /// # Errors
    ///
    /// A sentence that says what must hold, without the name of the field.
    fn give(&mut self, given: &[Json], base: &Path) -> Result<(), String>;

    /// Values as they were given, each in the one form that all its spellings have.
    fn values(&self) -> Vec<Json>;

    /// The same with the contents of files: all that an answer depends on.
    fn contents(&self) -> Vec<Json> {
        self.values()
    }

    /// Number of cells that the values make; 1 of a place without values.
    fn cells(&self) -> usize;

    /// Keeps what one of the cells has.
    fn keep(&mut self, cell: usize);

    /// The tunables, of their place.
    fn settings(&mut self) -> Option<&mut Settings> {
        None
    }
}

/// Values of an axis: each has a cell. Without any, the answer decides, which may ask its input.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis<T>(Vec<T>);

impl<T> Default for Axis<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> From<Vec<T>> for Axis<T> {
    fn from(values: Vec<T>) -> Self {
        Self(values)
    }
}

impl<T> From<T> for Axis<T> {
    fn from(value: T) -> Self {
        Self(vec![value])
    }
}

impl<T> Axis<T> {
    /// All values.
    #[must_use]
    pub fn all(&self) -> &[T] {
        &self.0
    }

    /// The first value, which is the only one of a cell.
    #[must_use]
    pub fn one(&self) -> Option<&T> {
        self.0.first()
    }

    /// True if no value is given.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T: Clone> Axis<T> {
    /// The values, or the usual ones.
    #[must_use]
    pub fn or_all(&self, usual: impl IntoIterator<Item = T>) -> Vec<T> {
        match self.0.as_slice() {
            [] => usual.into_iter().collect(),
            some => some.to_vec(),
        }
    }
}

impl<T: Copy> Axis<T> {
    /// The first value, or the usual one.
    #[must_use]
    pub fn or(&self, usual: T) -> T {
        self.one().copied().unwrap_or(usual)
    }
}

impl Axis<bool> {
    /// True if it is asked and true.
    #[must_use]
    pub fn is_true(&self) -> bool {
        self.or(false)
    }
}

impl<T: Value> Slot for Axis<T> {
    fn give(&mut self, given: &[Json], base: &Path) -> Result<(), String> {
        let mut values: Vec<T> = Vec::new();
        for given in given {
            let value = read::<T>(given, base);
            for value in value.map_err(|problem| list_of::<T>(given, base).unwrap_or(problem))? {
                if let Some(other) = values.iter().find(|other| **other == value) {
                    let [own, other] = [&value, other].map(|value| shown(&value.json()));
                    return Err(match own == other {
                        true => format!("{own} is listed twice; list each value once"),
                        false => format!("{own} has the content of {other}; list each once"),
                    });
                }
                values.push(value);
            }
        }
        self.0 = values;
        Ok(())
    }

    fn values(&self) -> Vec<Json> {
        self.0.iter().map(Value::json).collect()
    }

    fn contents(&self) -> Vec<Json> {
        self.0.iter().map(with_content).collect()
    }

    fn cells(&self) -> usize {
        self.0.len().max(1)
    }

    fn keep(&mut self, cell: usize) {
        self.0 = self.0.drain(..).skip(cell).take(1).collect();
    }
}

/// Says to write a list in place of a text whose parts between commas are values: only the command line cuts texts.
fn list_of<T: Value>(given: &Json, base: &Path) -> Option<String> {
    let text = given.as_str().filter(|text| text.contains(','))?;
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    let are_values = |part: &&str| read::<T>(&Json::from(*part), base).is_ok();
    let all = parts.iter().all(are_values);
    all.then(|| format!("{text:?} is one text; write a list, {parts:?}"))
}

/// A value as its text.
fn shown(value: &Json) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_string)
}

/// Values that hold all at once: they make one cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed<T>(pub Vec<T>);

impl<T> Default for Listed<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Value> Slot for Listed<T> {
    fn give(&mut self, given: &[Json], base: &Path) -> Result<(), String> {
        let values = given.iter().map(|given| read::<T>(given, base));
        let values: Result<Vec<Vec<T>>, String> = values.collect();
        self.0 = values?.into_iter().flatten().collect();
        Ok(())
    }

    fn values(&self) -> Vec<Json> {
        self.0.iter().map(Value::json).collect()
    }

    fn cells(&self) -> usize {
        1
    }

    fn keep(&mut self, _: usize) {}
}

/// Members of a cell's settings, which are no names of tunables.
const SETTINGS: &str = "settings ";
const VARIED: &str = "varied ";

/// Tunables. A list of values, `cpu_partial=0,6`, has a cell for each of them beside one without; several lists have one for
/// each combination.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    texts: Vec<String>,
    /// Settings that vary in this cell; `None` before cells are made.
    varied: Option<Vec<String>>,
}

impl From<Vec<String>> for Settings {
    fn from(texts: Vec<String>) -> Self {
        Self {
            texts,
            varied: None,
        }
    }
}

impl Settings {
    /// The settings as they were given: `NAME=VALUE[,...]`.
    #[must_use]
    pub fn texts(&self) -> &[String] {
        &self.texts
    }

    /// Those that vary from cell to cell: `default` without any, empty if there are no lists.
    #[must_use]
    pub fn varied(&self) -> String {
        match &self.varied {
            None => String::new(),
            Some(none) if none.is_empty() => "default".to_string(),
            Some(some) => some.join(" "),
        }
    }

    /// The same without the designs that they are for: `cpu_partial=6`.
    #[must_use]
    pub fn varied_short(&self) -> String {
        let short = |text: &String| Setting::parse(text).map(|setting| setting.short());
        let varied = self.varied.iter().flatten().map(short);
        match varied.collect::<Result<Vec<String>, _>>() {
            Ok(some) if !some.is_empty() => some.join(" "),
            _ => self.varied(),
        }
    }

    /// Leaves out the settings that `takes` refuses, and returns them.
    pub fn retain(&mut self, takes: impl Fn(&str) -> bool) -> Vec<String> {
        if let Some(varied) = &mut self.varied {
            varied.retain(|text| takes(text));
        }
        let all = self.texts.drain(..);
        let (kept, others) = all.partition(|text| takes(text));
        self.texts = kept;
        others
    }

    /// The settings of one value, and the lists; the value of `slub_debug` is a text and never a list.
    ///
    /// # Errors
    ///
    /// As [`Setting::parse_list`].
    pub fn parsed(&self) -> Result<Parsed, String> {
        let mut parsed = Parsed::default();
        for text in &self.texts {
            if let Some(value) = debugging(text) {
                parsed.debug.push(value.to_string());
                continue;
            }
            let list = Setting::parse_list(text).map_err(|error| error.to_string())?;
            match list.len() {
                1 => parsed.single.extend(list),
                _ => parsed.lists.push(list),
            }
        }
        Ok(parsed)
    }
}

/// Settings by their forms.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parsed {
    /// Values of `slub_debug`.
    pub debug: Vec<String>,
    /// Settings of one value.
    pub single: Vec<Setting>,
    /// Lists of values.
    pub lists: Vec<Vec<Setting>>,
}

/// The value of a setting that is a text.
fn debugging(setting: &str) -> Option<&str> {
    let (name, value) = setting.split_once('=')?;
    matches!(name, "slub_debug" | "slab_debug").then_some(value)
}

impl Slot for Settings {
    fn settings(&mut self) -> Option<&mut Settings> {
        Some(self)
    }

    fn give(&mut self, given: &[Json], _: &Path) -> Result<(), String> {
        // A cell's, as `contents` has them.
        if let [Json::Object(members)] = given
            && let (Some(all), Some(varied)) = (members.get(SETTINGS), members.get(VARIED))
        {
            let strings = |of: &Json| {
                let all = of.as_array().into_iter().flatten();
                all.filter_map(Json::as_str)
                    .map(str::to_string)
                    .collect::<Vec<_>>()
            };
            (self.texts, self.varied) = (strings(all), Some(strings(varied)));
            return Ok(());
        }
        let texts = given.iter().map(|given| texts(Kind::Text, given));
        let texts = texts.collect::<Result<Vec<_>, _>>()?.concat();
        let given = Self::from(texts);
        given.parsed()?;
        *self = given;
        Ok(())
    }

    fn values(&self) -> Vec<Json> {
        self.texts.iter().cloned().map(Json::from).collect()
    }

    /// The settings of a cell, and which of them vary: that is a column of its rows.
    fn contents(&self) -> Vec<Json> {
        match &self.varied {
            Some(varied) => vec![json!({SETTINGS: self.texts, VARIED: varied})],
            None => self.values(),
        }
    }

    fn cells(&self) -> usize {
        let lists = self
            .parsed()
            .map_or_else(|_| Vec::new(), |parsed| parsed.lists);
        combinations(&lists).len()
    }

    fn keep(&mut self, cell: usize) {
        let Ok(parsed) = self.parsed() else { return };
        if parsed.lists.is_empty() {
            return;
        }
        let combination = combinations(&parsed.lists).into_iter().nth(cell);
        let varied: Vec<String> = combination
            .into_iter()
            .flatten()
            .map(|of| of.to_string())
            .collect();
        // Debugging first, then single values, then those that vary: the order of the parts of a cell's id.
        let (debug, _): (Vec<String>, Vec<String>) = self
            .texts
            .drain(..)
            .partition(|text| debugging(text).is_some());
        let single = parsed.single.iter().map(ToString::to_string);
        self.texts = debug
            .into_iter()
            .chain(single)
            .chain(varied.iter().cloned())
            .collect();
        self.varied = Some(varied);
    }
}
