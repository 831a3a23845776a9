//! A plan: which inputs are asked what, as users write it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use quarry_designs::{Setting, nearest};
use quarry_lab::bundled::Bundled;
use quarry_lab::plan::combinations;
use quarry_machines::Machine;
use serde_json::{Map, Value};

use crate::ask::{Ask, KEYS, Key};
use crate::error::SweepError;

/// Keys of a plan beside its axes.
const OTHERS: [&str; 4] = ["ask", "input", "set", "config"];

/// A cross product: every input with every value of every axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The question.
    pub ask: Ask,
    /// Files, folders and patterns, relative to the working folder.
    pub inputs: Vec<String>,
    /// Values of the axes by key; an axis without values is not asked.
    pub axes: BTreeMap<&'static str, Vec<String>>,
    /// Tunables, `NAME=VALUE`, with lists and ranges of values. A list has a cell without it, too.
    pub set: Vec<String>,
    /// Options of the configuration, all at once.
    pub config: Vec<String>,
    /// Texts of the files that the axis `machine` names, as they were read.
    pub machines: BTreeMap<String, Arc<str>>,
}

/// Values of all axes in one cell.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize, serde::Serialize,
)]
pub struct Asked {
    /// Value of each axis that is asked.
    pub axes: BTreeMap<String, String>,
    /// Tunables, each with one value.
    pub set: Vec<String>,
    /// Those of them that have other values in other cells; `default` without any, empty if there are no lists.
    pub varied: String,
    /// Options of the configuration.
    pub config: Vec<String>,
    /// Text of the machine's file: the answer depends on it, and not on the file's name. A chunk has each once.
    #[serde(skip)]
    pub machine: Option<Arc<str>>,
}

impl Plan {
    /// A plan without inputs and axes.
    #[must_use]
    pub fn new(ask: Ask) -> Self {
        Self {
            ask,
            inputs: Vec::new(),
            axes: BTreeMap::new(),
            set: Vec::new(),
            config: Vec::new(),
            machines: BTreeMap::new(),
        }
    }

    /// Reads a plan of TOML. Relative paths in it are relative to the folder of its file.
    ///
    /// # Errors
    ///
    /// [`SweepError::Plan`] if it cannot be read or is no TOML; else as [`Self::of_object`].
    pub fn read(path: &Path) -> Result<Self, SweepError> {
        let failed = |problem: String| SweepError::Plan {
            path: path.to_path_buf(),
            problem,
        };
        let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        let object: Map<String, Value> =
            toml::from_str(&text).map_err(|error| failed(error.to_string()))?;
        let mut plan = Self::of_object(&object).map_err(|error| failed(error.to_string()))?;
        let base = path.parent().unwrap_or(Path::new(""));
        for input in &mut plan.inputs {
            let path = base.join(&*input);
            let is_bundled = Bundled::find(input).is_some() && !path.exists();
            if !is_bundled && !input.contains("://") {
                *input = path.display().to_string();
            }
        }
        for machine in plan.axes.get_mut("machine").into_iter().flatten() {
            if let Some(path) = Machine::file(machine) {
                *machine = base.join(path).display().to_string();
            }
        }
        Ok(plan)
    }

    /// Reads the files that the axis `machine` names, but for those whose texts are there.
    ///
    /// # Errors
    ///
    /// [`SweepError::Usage`] if one cannot be read, or has the content of another one.
    pub(crate) fn read_machines(&mut self) -> Result<(), SweepError> {
        for name in self.axes.get("machine").into_iter().flatten() {
            let Some(path) = Machine::file(name).filter(|_| !self.machines.contains_key(name))
            else {
                continue;
            };
            let text = Machine::read(path).map_err(|error| SweepError::Usage(error.to_string()))?;
            let mut others = self.machines.iter();
            if let Some((other, _)) = others.find(|(_, other)| ***other == text) {
                return Err(SweepError::Usage(format!(
                    "machine: {name} has the content of {other}; list each machine once"
                )));
            }
            self.machines.insert(name.clone(), text.into());
        }
        Ok(())
    }

    /// A plan of keys and values, which are texts, numbers, or lists of both. `set` is a list of `NAME=VALUES` or an object.
    /// `_` in a key is `-`.
    ///
    /// # Errors
    ///
    /// [`SweepError::Usage`] if a key does not exist or does not belong to the question, or a value has another form.
    pub fn of_object(object: &Map<String, Value>) -> Result<Self, SweepError> {
        let keys = || {
            object
                .iter()
                .map(|(key, value)| (key.replace('_', "-"), value))
        };
        let ask = match keys().find(|(key, _)| key == "ask") {
            Some((_, value)) => Ask::parse(&one("ask", value)?)?,
            None => Ask::WhatIf,
        };
        let mut plan = Self::new(ask);
        for (key, value) in keys() {
            match key.as_str() {
                "ask" => {}
                "input" => plan.inputs = texts(&key, value)?,
                "config" => plan.config = texts(&key, value)?,
                "set" => plan.set = settings(value)?,
                // A key that does not exist is said before its value is looked at.
                _ => {
                    plan.key(&key)?;
                    plan.add(&key, &texts(&key, value)?)?;
                }
            }
        }
        Ok(plan)
    }

    /// Gives an axis its values, in place of those it has; none take it out.
    ///
    /// # Errors
    ///
    /// As [`Self::of_object`].
    pub fn add(&mut self, name: &str, texts: &[String]) -> Result<(), SweepError> {
        let key = self.key(name)?;
        let mut values: Vec<String> = Vec::new();
        for text in texts {
            for value in key.values(text)? {
                if values.contains(&value) {
                    return Err(SweepError::Usage(format!(
                        "{name}: {value} is listed twice; list each value once"
                    )));
                }
                values.push(value);
            }
        }
        match values.is_empty() {
            true => self.axes.remove(key.name),
            false => self.axes.insert(key.name, values),
        };
        Ok(())
    }

    /// Checks that the question has all axes: it may have been changed after them.
    ///
    /// # Errors
    ///
    /// [`SweepError::Usage`] with the key and the questions that have it.
    pub fn check(&self) -> Result<(), SweepError> {
        self.axes
            .keys()
            .try_for_each(|name| self.key(name).map(|_| ()))?;
        if ["release", "design"]
            .iter()
            .all(|name| self.axes.contains_key(*name))
        {
            return Err(SweepError::Usage(
                "release and design: a release has its design; give one of them, as in design = \"slub@6.1\"".to_string(),
            ));
        }
        Ok(())
    }

    /// The axis of this name, if the question has it.
    fn key(&self, name: &str) -> Result<&'static Key, SweepError> {
        let Some(key) = KEYS.iter().find(|key| key.name == name) else {
            let known = || KEYS.iter().filter(|key| key.asks.contains(&self.ask));
            let names = known().map(|key| key.name).chain(OTHERS);
            let near = match nearest(name, names.clone()) {
                Some(near) => format!("; the nearest is {near:?}"),
                None => String::new(),
            };
            return Err(SweepError::Usage(format!(
                "a plan has no key {name:?}{near}; keys of {} are {}",
                self.ask,
                names.collect::<Vec<_>>().join(", ")
            )));
        };
        if !key.asks.contains(&self.ask) {
            let asks: Vec<&str> = key.asks.iter().map(|ask| ask.name()).collect();
            return Err(SweepError::Usage(format!(
                "{name} is no axis of {}, but of {}",
                self.ask,
                asks.join(", ")
            )));
        }
        Ok(key)
    }

    /// Every combination of the axes' values, for one input.
    ///
    /// # Errors
    ///
    /// [`SweepError::Usage`] if a tunable has no such form, or no release has it.
    pub fn asked(&self) -> Result<Vec<Asked>, SweepError> {
        let (debug, numbers): (Vec<_>, Vec<_>) =
            self.set.iter().cloned().partition(|text| is_text(text));
        let lists = numbers.iter().map(|text| Setting::parse_list(text));
        let lists = lists.collect::<Result<Vec<_>, _>>();
        let lists = lists.map_err(|error| SweepError::Usage(error.to_string()))?;
        let check = |setting: &Setting| setting.check_exists();
        let checked = lists.iter().flatten().try_for_each(check);
        checked.map_err(|error| SweepError::Usage(error.to_string()))?;
        let (single, lists): (Vec<_>, Vec<_>) = lists.into_iter().partition(|list| list.len() == 1);
        let single: Vec<String> = single.concat().iter().map(ToString::to_string).collect();
        let mut all = vec![Asked {
            config: self.config.clone(),
            ..Asked::default()
        }];
        for key in &KEYS {
            let Some(values) = self.axes.get(key.name) else {
                continue;
            };
            let with = |asked: &Asked, value: &String| {
                let mut asked = asked.clone();
                asked.axes.insert(key.name.to_string(), value.clone());
                if key.name == "machine" {
                    asked.machine = self.machines.get(value).cloned();
                }
                asked
            };
            all = all
                .iter()
                .flat_map(|asked| values.iter().map(|value| with(asked, value)))
                .collect();
        }
        let mut cells = Vec::new();
        for asked in all {
            for varied in combinations(&lists) {
                let names: Vec<String> = varied.iter().map(ToString::to_string).collect();
                cells.push(Asked {
                    set: [debug.as_slice(), &single, &names].concat(),
                    varied: match names.is_empty() {
                        true if lists.is_empty() => String::new(),
                        true => "default".to_string(),
                        false => names.join(" "),
                    },
                    ..asked.clone()
                });
            }
        }
        Ok(cells)
    }

    /// The plan as an object, from which [`Self::of_object`] makes the same.
    #[must_use]
    pub fn to_object(&self) -> Map<String, Value> {
        let mut object = Map::new();
        object.insert("ask".to_string(), self.ask.name().into());
        let lists = [
            ("input", &self.inputs),
            ("set", &self.set),
            ("config", &self.config),
        ];
        let axes = self.axes.iter().map(|(key, values)| (*key, values));
        for (key, values) in lists.into_iter().chain(axes) {
            if !values.is_empty() {
                object.insert(key.to_string(), values.clone().into());
            }
        }
        object
    }
}

/// True for a setting whose value is no number.
fn is_text(setting: &str) -> bool {
    let name = setting.split_once('=').map_or("", |(name, _)| name);
    matches!(name, "slub_debug" | "slab_debug")
}

/// The text of a value that is none of a list.
fn text(key: &str, value: &Value) -> Result<String, SweepError> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) if number.is_f64() && matches!(key, "release" | "kernel") => {
            Err(SweepError::Usage(format!(
                "{key} = {number}: a release is a text, as 6.1 and 6.10 are one number; write \"{number}\", or what was meant"
            )))
        }
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(flag) => Ok(flag.to_string()),
        _ => Err(SweepError::Usage(format!(
            "{key}: {value} is no text, number, or list of both"
        ))),
    }
}

fn one(key: &str, value: &Value) -> Result<String, SweepError> {
    match texts(key, value)?.as_slice() {
        [one] => Ok(one.clone()),
        _ => Err(SweepError::Usage(format!("{key} has one value"))),
    }
}

fn texts(key: &str, value: &Value) -> Result<Vec<String>, SweepError> {
    match value {
        Value::Array(values) => values.iter().map(|value| text(key, value)).collect(),
        Value::Null => Ok(Vec::new()),
        value => Ok(vec![text(key, value)?]),
    }
}

/// Settings, from a list or from an object of names and values.
fn settings(value: &Value) -> Result<Vec<String>, SweepError> {
    let Value::Object(members) = value else {
        return texts("set", value);
    };
    let setting = |(name, value): (&String, &Value)| {
        let values = texts(&format!("set.{name}"), value)?;
        Ok(format!("{name}={}", values.join(",")))
    };
    members.iter().map(setting).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Result<Plan, String> {
        let object: Map<String, Value> = toml::from_str(text).unwrap();
        Plan::of_object(&object).map_err(|error| error.to_string())
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let wrong = plan("release = [6.10, \"7.3\"]").unwrap_err();
        assert!(
            wrong.starts_with("release = 6.1: a release is a text"),
            "{wrong}"
        );
        let both = plan("release = \"7.0\"\ndesign = \"slub\"").unwrap();
        let both = both.check().unwrap_err().to_string();
        assert!(both.contains("give one of them"), "{both}");
    }

    #[test]
    fn a_plan_is_a_cross_product() {
        let plan = plan(
            r#"
            input = "*.json"
            release = ["6.12", "7.3"]
            page_size = ["4k", 65536]
            [set]
            cpu_partial = [0, 6]
            slub_max_order = "0..1"
            min_partial = 5
            "#,
        )
        .unwrap();
        let cells = plan.asked().unwrap();
        assert_eq!(cells.len(), 2 * 2 * (2 * 2 + 1));
        let all: std::collections::BTreeSet<&Asked> = cells.iter().collect();
        assert_eq!(all.len(), cells.len());
        assert_eq!(cells[0].varied, "default");
        assert_eq!(cells[0].set, ["min_partial=5"]);
        assert_eq!(cells[1].varied, "cpu_partial=0 slub_max_order=0");
        assert_eq!(cells[1].axes["release"], "6.12");
        assert_eq!(cells[5].axes["page-size"], "65536");
    }

    #[test]
    fn a_plan_is_written_and_read() {
        let plan =
            plan("ask = 'replay --time'\ninput = ['a', 'b']\nseed = '1..3'\nset = ['x=1,2']");
        let plan = plan.unwrap();
        assert_eq!(plan.axes["seed"], ["1", "2", "3"]);
        assert_eq!(Plan::of_object(&plan.to_object()).unwrap(), plan);
    }

    #[test]
    fn an_empty_plan_has_one_cell() {
        let cells = Plan::new(Ask::WhatIf).asked().unwrap();
        assert_eq!(cells, [Asked::default()]);
    }

    #[test]
    fn wrong_plans_say_what_is_wrong() {
        for (text, part) in [
            (
                "relase = '6.12'",
                "no key \"relase\"; the nearest is \"release\"",
            ),
            (
                "ask = 'replay'\nrelease = '6.12'",
                "release is no axis of replay, but of what-if",
            ),
            ("ask = 'lok'", "there are \"what-if\", \"replay\""),
            ("page-size = '8k'", "page-size: valid page sizes"),
            (
                "page-size = ['4k', 4096]",
                "page-size: 4096 is listed twice",
            ),
            ("release = [['6.12']]", "release: [\"6.12\"] is no text"),
        ] {
            let error = plan(text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        let bad = plan("set = ['cpu_partial']").unwrap().asked().unwrap_err();
        assert!(bad.to_string().contains("there is no \"=\""), "{bad}");
    }
}
