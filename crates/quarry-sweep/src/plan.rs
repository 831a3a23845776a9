//! A plan: which inputs are asked what, as users write it.

use std::path::Path;
use std::sync::Arc;

use quarry_ask::{Door, plain};
use quarry_designs::Setting;
use quarry_lab::ask::{Ask, Question};
use quarry_lab::bundled::Bundled;
use serde_json::{Map, Value};

use crate::error::SweepError;

/// Keys of a plan beside the fields of its question.
const OTHERS: [&str; 2] = ["ask", "input"];

/// A cross product: every input with every value of every axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The question.
    pub ask: Ask,
    /// Files, folders and patterns, relative to the working folder.
    pub inputs: Vec<String>,
    /// Fields of the question with their values; of files with their contents.
    given: Map<String, Value>,
}

impl Plan {
    /// A plan without inputs and axes.
    #[must_use]
    pub fn new(ask: Ask) -> Self {
        Self {
            ask,
            inputs: Vec::new(),
            given: Map::new(),
        }
    }

    /// Reads a plan of TOML. Relative paths in it are relative to the folder of its file.
    ///
    /// # Errors
    ///
    /// [`SweepError::Plan`] if it cannot be read or is no TOML; else as [`Self::add`].
    pub fn read(path: &Path) -> Result<Self, SweepError> {
        let failed = |problem: String| SweepError::Plan {
            path: path.to_path_buf(),
            problem,
        };
        let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        let object: Map<String, Value> =
            toml::from_str(&text).map_err(|error| failed(error.to_string()))?;
        let mut plan = Self::new(Ask::WHAT_IF);
        let base = path.parent().unwrap_or(Path::new(""));
        plan.add(object, base)
            .map_err(|error| failed(error.to_string()))?;
        Ok(plan)
    }

    /// A plan of keys and values, which are texts, numbers, or lists of both. `set` is a list of `NAME=VALUES` or an object.
    /// `_` in a key is `-`. Files are read, relative to the working folder.
    ///
    /// # Errors
    ///
    /// As [`Self::add`].
    pub fn of_object(object: &Map<String, Value>) -> Result<Self, SweepError> {
        let mut plan = Self::new(Ask::WHAT_IF);
        plan.add(object.clone(), Path::new(""))?;
        Ok(plan)
    }

    /// Adds keys and values in place of those that the plan has; relative files are in `base`, and are read.
    ///
    /// # Errors
    ///
    /// [`SweepError::Usage`] if a key does not exist or does not belong to the question, a value has another form, or keys
    /// contradict each other.
    pub fn add(&mut self, object: Map<String, Value>, base: &Path) -> Result<(), SweepError> {
        let mut own = Map::new();
        for (key, value) in object {
            match key.as_str() {
                "ask" => {
                    let name = value.as_str();
                    let name = name.ok_or_else(|| {
                        SweepError::Usage(format!("ask = {value}: it is one text"))
                    })?;
                    self.ask = Ask::parse(name)?;
                }
                "input" => {
                    let inputs = inputs(&value)?.into_iter();
                    self.inputs = inputs.map(|input| placed(input, base)).collect();
                }
                _ => {
                    own.insert(plain(&key), value);
                }
            }
        }
        // A key that does not exist is said before any value is looked at.
        for key in self.given.keys().chain(own.keys()) {
            self.ask.field(&key.replace('_', "-"), &OTHERS)?;
        }
        let question = self
            .ask
            .read(&[(&self.given, Path::new("")), (&own, base)], Door::Plan)?;
        let set = question.settings().parsed().map_err(SweepError::Usage)?;
        let mut all = set.single.iter().chain(set.lists.iter().flatten());
        let checked = all.try_for_each(Setting::check_exists);
        checked.map_err(|error| SweepError::Usage(error.to_string()))?;
        self.given = question.object(true);
        // The question's name says it.
        self.given
            .retain(|key, _| self.ask.field(key, &OTHERS).is_ok());
        Ok(())
    }

    /// Every combination of the axes' values, for one input.
    ///
    /// # Errors
    ///
    /// As [`Self::add`].
    pub fn asked(&self) -> Result<Vec<Arc<dyn Question>>, SweepError> {
        Ok(self
            .ask
            .read(&[(&self.given, Path::new(""))], Door::Plan)?
            .cells())
    }

    /// The plan as an object, from which [`Self::of_object`] makes the same without reading a file.
    #[must_use]
    pub fn to_object(&self) -> Map<String, Value> {
        let mut object = Map::new();
        object.insert("ask".to_string(), self.ask.name().into());
        if !self.inputs.is_empty() {
            object.insert("input".to_string(), self.inputs.clone().into());
        }
        let members = self.given.iter();
        object.extend(members.map(|(key, value)| (key.replace('_', "-"), value.clone())));
        object
    }
}

/// An input of a plan in a folder, relative to the working folder.
fn placed(input: String, base: &Path) -> String {
    let path = base.join(&input);
    let is_bundled = Bundled::find(&input).is_some() && !path.exists();
    match is_bundled || input.contains("://") {
        true => input,
        false => path.display().to_string(),
    }
}

/// One input or several.
fn inputs(value: &Value) -> Result<Vec<String>, SweepError> {
    let text = |value: &Value| {
        let text = value.as_str().map(str::to_string);
        text.ok_or_else(|| SweepError::Usage(format!("input: {value} is no text")))
    };
    match value {
        Value::Array(values) => values.iter().map(text).collect(),
        Value::Null => Ok(Vec::new()),
        one => Ok(vec![text(one)?]),
    }
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
            wrong.starts_with("release: 6.1 is a number, in which"),
            "{wrong}"
        );
        let both = plan("release = \"7.0\"\ndesign = \"slub\"").unwrap_err();
        assert_eq!(both, "release cannot be used with design");
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
        let all = cells.iter().map(|cell| cell.canonical("what-if"));
        let all: std::collections::BTreeSet<String> = all.collect();
        assert_eq!(all.len(), cells.len());
        assert_eq!(cells[0].settings().varied(), "default");
        assert_eq!(cells[0].settings().texts(), ["min_partial=5"]);
        assert_eq!(
            cells[1].settings().varied(),
            "cpu_partial=0 slub_max_order=0"
        );
        assert_eq!(cells[1].object(false)["release"][0], "6.12");
        assert_eq!(cells[5].object(false)["page_size"][0], 65_536);
    }

    #[test]
    fn a_plan_is_written_and_read() {
        let plan = plan(
            "ask = 'replay --time'\ninput = ['a', 'b']\nseed = '1..3'\nset = ['slub_max_order=1,2']",
        );
        let plan = plan.unwrap();
        assert_eq!(plan.asked().unwrap().len(), 9);
        assert_eq!(Plan::of_object(&plan.to_object()).unwrap(), plan);
    }

    #[test]
    fn an_empty_plan_has_one_cell() {
        let cells = Plan::new(Ask::WHAT_IF).asked().unwrap();
        assert_eq!(cells.len(), 1);
        assert!(cells[0].object(true).is_empty());
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
                "release applies to what-if, not to replay",
            ),
            (
                "ask = 'replay'\nseed = 1",
                "seed applies to replay --time, run hackbench",
            ),
            ("ask = 'lok'", "there are \"what-if\", \"replay\""),
            ("page-size = '8k'", "page-size: valid page sizes"),
            (
                "page-size = ['4k', 4096]",
                "page-size: 4096 is listed twice",
            ),
            ("release = [['6.12']]", "release: [\"6.12\"] is no text"),
            ("set = ['cpu_partial']", "there is no \"=\""),
            ("cpus = '4..2'", "cpus: \"4..2\" must go up"),
            ("force = 'yes'", "force: \"yes\" is neither"),
        ] {
            let error = plan(text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
