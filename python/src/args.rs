//! Arguments as Python states them: one value or several, numbers or texts with units as the command takes them.

use std::time::Duration;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyList, PyString, PyTuple};
use quarry_designs::units;

use crate::error::usage;

/// Any number of values; Python may give one that is no list.
#[derive(Clone, Debug)]
pub(crate) struct Several<T>(pub(crate) Vec<T>);

impl<T> Default for Several<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl Several<Name> {
    /// The names' texts.
    pub(crate) fn texts(self) -> Vec<String> {
        self.0.into_iter().map(|name| name.0).collect()
    }
}

impl Several<PageBytes> {
    /// The sizes in bytes.
    pub(crate) fn bytes(self) -> Vec<u64> {
        self.0.into_iter().map(|size| size.0).collect()
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

/// The text that the command would be given.
fn number_or_text(value: Borrowed<'_, '_, PyAny>) -> PyResult<String> {
    match value.is_instance_of::<PyString>() || value.is_instance_of::<PyFloat>() {
        true => Ok(value.str()?.to_string()),
        false => Ok(value.extract::<i128>()?.to_string()),
    }
}

/// Values by name: `{"slub_max_order": [0, 1]}`, or texts as the command takes them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pairs(pub(crate) Vec<String>);

impl<'a, 'py> FromPyObject<'a, 'py> for Pairs {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let Ok(pairs) = value.cast::<PyDict>() else {
            return Ok(Self(value.extract::<Several<String>>()?.0));
        };
        let pairs = pairs.iter().map(|(name, values)| {
            let values = match values.cast::<PyString>() {
                Ok(text) => text.to_string(),
                Err(_) => {
                    let values: Several<Value> = values.extract()?;
                    let values: Vec<String> = values.0.into_iter().map(|value| value.0).collect();
                    values.join(",")
                }
            };
            Ok(format!("{}={values}", name.extract::<String>()?))
        });
        Ok(Self(pairs.collect::<PyResult<_>>()?))
    }
}

/// A value of a tunable or an option.
struct Value(String);

impl<'a, 'py> FromPyObject<'a, 'py> for Value {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(yes) = value.cast::<PyBool>() {
            return Ok(Self(if yes.is_true() { "y" } else { "n" }.to_string()));
        }
        Ok(Self(number_or_text(value)?))
    }
}
