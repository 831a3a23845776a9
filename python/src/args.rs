//! Arguments as Python states them: one value or several, numbers or texts with units as the command takes them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use quarry_ask::{Door, Field, Json, Kind, Layer, plain};
use quarry_designs::{named, nearest, units};
use serde_json::Map;

use crate::error::{UsageError, usage};

/// Any number of values; Python may give one that is no list.
#[derive(Clone, Debug)]
pub(crate) struct Several<T>(pub(crate) Vec<T>);

impl<T> Default for Several<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'a, 'py, T: for<'b> FromPyObject<'b, 'py, Error = PyErr>> FromPyObject<'a, 'py>
    for Several<T>
{
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let has_several = value.cast::<PyList>().is_ok()
            || value.cast::<PyTuple>().is_ok()
            || (!value.is_instance_of::<PyString>() && value.hasattr("__iter__")?);
        if !has_several {
            return Ok(Self(vec![value.extract()?]));
        }
        let all = value.try_iter()?;
        let all = all.map(|value| value?.extract::<T>());
        Ok(Self(all.collect::<PyResult<_>>()?))
    }
}

/// Name of a release or a design. A number is refused: 6.10 would be 6.1.
#[derive(Clone, Debug)]
pub(crate) struct Name(pub(crate) String);

impl<'a, 'py> FromPyObject<'a, 'py> for Name {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if value.is_instance_of::<PyFloat>() {
            return Err(PyTypeError::new_err(format!(
                "{} is a number, in which 6.1 and 6.10 are the same; write a text, such as \"6.12\"",
                value.str()?
            )));
        }
        Ok(Self(value.extract()?))
    }
}

/// Bytes: a number, or a text such as `64M`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes(pub(crate) u64);

impl<'a, 'py> FromPyObject<'a, 'py> for Bytes {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let bytes = units::parse_bytes(&number_or_text(value)?);
        Ok(Self(bytes.map_err(usage)?))
    }
}

/// Bytes of a page: a number, or a text such as `64k`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageBytes(pub(crate) u64);

impl<'a, 'py> FromPyObject<'a, 'py> for PageBytes {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let bytes = units::parse_page_bytes(&number_or_text(value)?);
        Ok(Self(bytes.map_err(usage)?))
    }
}

/// A time: a number of seconds, or a text such as `20ms`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seconds(pub(crate) Duration);

impl<'a, 'py> FromPyObject<'a, 'py> for Seconds {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let time = units::parse_duration(&number_or_text(value)?);
        Ok(Self(time.map_err(usage)?))
    }
}

/// The value of an argument, if it is given. What is wrong with it names it.
pub(crate) fn argument<'py, T>(name: &str, value: Option<&Bound<'py, PyAny>>) -> PyResult<Option<T>>
where
    T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
{
    let value = value.map(|value| value.extract().map_err(|of| problem_of(name, value, &of)));
    value.transpose()
}

/// The value of an argument with this name among those that there are.
pub(crate) fn choice<T: Copy>(argument: &str, all: &[(T, &str)], name: &str) -> PyResult<T> {
    let found = named("such", all, name);
    found.map_err(|problem| usage(format!("{argument}: {problem}")))
}

/// The text that the command would be given.
fn number_or_text(value: Borrowed<'_, '_, PyAny>) -> PyResult<String> {
    match value.is_instance_of::<PyString>() || value.is_instance_of::<PyFloat>() {
        true => Ok(value.str()?.to_string()),
        false => Ok(value.extract::<i128>()?.to_string()),
    }
}

/// Keywords of a call: those of its question, and its own.
pub(crate) struct Keywords {
    given: Map<String, Json>,
}

impl Keywords {
    /// Keywords as Python gave them.
    pub(crate) fn of(given: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut all = Map::new();
        for (name, value) in given.into_iter().flatten() {
            let name: String = name.extract()?;
            let value = json(&value).map_err(|problem| problem_of(&name, &value, &problem))?;
            all.insert(name, value);
        }
        Ok(Self { given: all })
    }

    /// Takes out a keyword of the call's own; false if it is not given.
    pub(crate) fn flag(&mut self, name: &str) -> PyResult<bool> {
        match self.given.remove(name) {
            None | Some(Json::Null) => Ok(false),
            Some(Json::Bool(flag)) => Ok(flag),
            Some(other) => Err(PyTypeError::new_err(format!(
                "{name}: {other} is neither True nor False"
            ))),
        }
    }

    /// Takes out the number of jobs.
    pub(crate) fn jobs(&mut self) -> PyResult<Option<usize>> {
        match self.given.remove("jobs") {
            None | Some(Json::Null) => Ok(None),
            Some(number) => {
                let jobs = number.as_u64().and_then(|jobs| usize::try_from(jobs).ok());
                let wrong = || usage(format!("jobs: {number} is no number of threads"));
                jobs.map(Some).ok_or_else(wrong)
            }
        }
    }

    /// Gives a field a value.
    pub(crate) fn give(&mut self, name: &str, value: impl Into<Json>) {
        self.given.insert(name.to_string(), value.into());
    }

    /// True if a keyword is given as True.
    pub(crate) fn is_true(&self, name: &str) -> bool {
        self.given.get(name) == Some(&Json::Bool(true))
    }

    /// The first of these keywords that is given.
    pub(crate) fn any_of<'a>(&self, names: &[&'a str]) -> Option<&'a str> {
        let is_given = |name: &&str| self.given.get(*name).is_some_and(|value| !value.is_null());
        names.iter().copied().find(|name| is_given(name))
    }

    /// Takes out a keyword that means a field.
    pub(crate) fn take(&mut self, name: &str) -> Option<Json> {
        self.given.remove(name).filter(|value| !value.is_null())
    }

    /// Gives a field a value of Python, in the place of its keyword.
    pub(crate) fn set_once(&mut self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let of = json(value).map_err(|problem| problem_of(name, value, &problem))?;
        if self.given.insert(name.to_string(), of).is_some() {
            return Err(PyTypeError::new_err(format!(
                "{name}: it is given twice; the first argument means it"
            )));
        }
        Ok(())
    }

    /// Refuses keywords that a question does not have, and numbers where digits matter.
    pub(crate) fn check(&self, fields: &[Field], function: &str) -> PyResult<()> {
        for (name, value) in &self.given {
            let field = fields.iter().find(|field| field.name == plain(name));
            let Some(field) = field else {
                let names: Vec<String> = fields
                    .iter()
                    .map(|field| field.spelled(Door::Python))
                    .collect();
                let near = nearest(name, names.iter().map(String::as_str));
                let near =
                    near.map_or_else(String::new, |near| format!(". Did you mean '{near}'?"));
                return Err(PyTypeError::new_err(format!(
                    "{function}() got an unexpected keyword argument '{name}'{near}"
                )));
            };
            if field.kind == Kind::Exact && has_float(value) {
                return Err(PyTypeError::new_err(format!(
                    "{name}: {value} is a number, in which 6.1 and 6.10 are the same; write a text, such as \"6.12\""
                )));
            }
        }
        Ok(())
    }

    /// Names and values, as questions take them.
    pub(crate) fn layer(&self) -> Layer<'_> {
        (&self.given, Path::new(""))
    }
}

/// The problem of an argument's value: a number without a place in any type is wrong usage, too.
fn problem_of(name: &str, value: &Bound<'_, PyAny>, problem: &PyErr) -> PyErr {
    let py = value.py();
    if problem.is_instance_of::<PyOverflowError>(py) {
        return usage(format!("{name}: {value} is out of range"));
    }
    let text = format!("{name}: {}", problem.value(py));
    match problem.is_instance_of::<UsageError>(py) {
        true => usage(text),
        false => PyTypeError::new_err(text),
    }
}

fn has_float(value: &Json) -> bool {
    match value {
        Json::Array(values) => values.iter().any(has_float),
        value => value.is_f64(),
    }
}

/// A value of Python as JSON: texts, paths, numbers, truth values, and whatever has several of them.
fn json(value: &Bound<'_, PyAny>) -> PyResult<Json> {
    if value.is_none() {
        return Ok(Json::Null);
    }
    // numpy's truth values, too.
    if let Ok(flag) = value.extract::<bool>() {
        return Ok(flag.into());
    }
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(text.to_string().into());
    }
    if value.is_instance_of::<PyFloat>() {
        return Ok(value.extract::<f64>()?.into());
    }
    if let Ok(members) = value.cast::<PyDict>() {
        let members = members
            .iter()
            .map(|(name, value)| Ok((name.extract::<String>()?, json(&value)?)));
        return Ok(Json::Object(members.collect::<PyResult<_>>()?));
    }
    if let Ok(number) = value.extract::<u64>() {
        return Ok(number.into());
    }
    if let Ok(number) = value.extract::<i64>() {
        return Ok(number.into());
    }
    if value.is_instance_of::<PyInt>() {
        return Err(PyOverflowError::new_err("out of range"));
    }
    if let Ok(path) = value.extract::<PathBuf>() {
        return Ok(path.display().to_string().into());
    }
    let all = value.try_iter().map_err(|_| {
        PyTypeError::new_err(format!("{value} is no text, number, or list of both"))
    })?;
    all.map(|value| json(&value?)).collect()
}
