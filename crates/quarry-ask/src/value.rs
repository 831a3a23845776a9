//! Types of the values that are asked: each has one parser and one printer.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use quarry_core::era::Era;
use quarry_designs::{DesignEntry, DesignError, DesignSpec, PagePolicy, parse_era, units};
use quarry_machines::{Machine, MachineError};
use quarry_sim::sched::{WakeOrder, WakePlace};
use serde_json::{Value as Json, json};

/// Form of a value in JSON, Parquet and Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A text.
    Text,
    /// A text that a number cannot stand for: 6.1 and 6.10 are one number.
    Exact,
    /// A number from 0 on; `1..8` means all from 1 to 8.
    Count,
    /// Bytes: a number, or a text such as `16G`.
    Bytes,
    /// Bytes of a page.
    PageBytes,
    /// A time: seconds, or a text such as `20ms`.
    Time,
    /// True or false.
    Flag,
    /// Tunables: `NAME=VALUE`, or an object of names and values.
    Settings,
}

/// A value that is asked. Messages say what must hold; the door that shows them puts the field's name in front.
pub trait Value: Clone + fmt::Debug + PartialEq {
    /// Its form.
    const KIND: Kind;

    /// True if the text may name a file.
    const IS_FILE: bool = false;

    /// The value that a text means; files are relative to `base`.
    ///
    /// # Errors
    ///
    /// A sentence that says what must hold.
    fn parse(text: &str, base: &Path) -> Result<Self, String>;

    /// The value as JSON shows it.
    fn json(&self) -> Json;

    /// Names of a choice; none of anything else.
    fn names() -> Vec<&'static str> {
        Vec::new()
    }

    /// The text of the file that decides the answer; `None` if no file does.
    fn content(&self) -> Option<String> {
        None
    }

    /// The value by the name and the text of its file.
    ///
    /// # Errors
    ///
    /// As [`Self::parse`].
    fn of_content(name: &str, _content: &str) -> Result<Self, String> {
        Self::parse(name, Path::new(""))
    }
}

/// Implements [`Value`] for a choice by its list of values with names.
#[macro_export]
macro_rules! choice {
    ($of:ty, $all:expr) => {
        impl $crate::Value for $of {
            const KIND: $crate::Kind = $crate::Kind::Text;

            fn parse(text: &str, _: &::std::path::Path) -> Result<Self, String> {
                let found = $all.iter().find(|(_, name)| *name == text);
                found.map(|(value, _)| *value).ok_or_else(|| {
                    format!(
                        "there is no {text:?}; there are {}",
                        Self::names().join(", ")
                    )
                })
            }

            fn json(&self) -> $crate::Json {
                let found = $all.iter().find(|(value, _)| value == self);
                found.map_or("", |(_, name)| *name).into()
            }

            fn names() -> Vec<&'static str> {
                $all.iter().map(|(_, name)| *name).collect()
            }
        }
    };
}

choice!(WakeOrder, WakeOrder::ALL);
choice!(WakePlace, WakePlace::ALL);

impl Value for bool {
    const KIND: Kind = Kind::Flag;

    fn parse(text: &str, _: &Path) -> Result<Self, String> {
        text.parse()
            .map_err(|_| format!("{text:?} is neither true nor false"))
    }

    fn json(&self) -> Json {
        (*self).into()
    }
}

/// Implements [`Value`] for a type of whole numbers from 0 on.
macro_rules! count {
    ($($of:ty),*) => {$(
        impl Value for $of {
            const KIND: Kind = Kind::Count;

            fn parse(text: &str, _: &Path) -> Result<Self, String> {
                let number = text.trim().parse();
                number.map_err(|_| format!("{text:?} is no number from 0 to {}", Self::MAX))
            }

            fn json(&self) -> Json {
                (*self).into()
            }
        }
    )*};
}

count!(u32, u64);

/// Any text.
impl Value for String {
    const KIND: Kind = Kind::Text;

    fn parse(text: &str, _: &Path) -> Result<Self, String> {
        Ok(text.to_string())
    }

    fn json(&self) -> Json {
        self.clone().into()
    }
}

/// Bytes of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl Value for Bytes {
    const KIND: Kind = Kind::Bytes;

    fn parse(text: &str, _: &Path) -> Result<Self, String> {
        units::parse_bytes(text.trim()).map(Self)
    }

    fn json(&self) -> Json {
        self.0.into()
    }
}

/// Bytes of an object, a message or a line: below 4 GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u32);

impl Value for Size {
    const KIND: Kind = Kind::Bytes;

    fn parse(text: &str, _: &Path) -> Result<Self, String> {
        let bytes = units::parse_bytes(text.trim())?;
        let size = u32::try_from(bytes).map_err(|_| format!("{text:?} must be below 4G"))?;
        Ok(Self(size))
    }

    fn json(&self) -> Json {
        self.0.into()
    }
}

/// Bytes of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageBytes(pub u64);

impl Value for PageBytes {
    const KIND: Kind = Kind::PageBytes;

    fn parse(text: &str, _: &Path) -> Result<Self, String> {
        units::parse_page_bytes(text.trim()).map(Self)
    }

    fn json(&self) -> Json {
        self.0.into()
    }
}

/// A time, with the text that it was given by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Time {
    text: String,
    /// The time.
    pub time: Duration,
}

impl Value for Time {
    const KIND: Kind = Kind::Time;

    fn parse(text: &str, _: &Path) -> Result<Self, String> {
        let time = units::parse_duration(text)?;
        let text = text.to_string();
        Ok(Self { text, time })
    }

    fn json(&self) -> Json {
        self.text.clone().into()
    }
}

/// A release of Linux, with the text that it was given by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    text: String,
    /// The release.
    pub era: Era,
}

impl Release {
    /// The text that it was given by.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl From<Era> for Release {
    fn from(era: Era) -> Self {
        let text = era.to_string();
        Self { text, era }
    }
}

impl Value for Release {
    const KIND: Kind = Kind::Exact;

    fn parse(text: &str, _: &Path) -> Result<Self, String> {
        let era = parse_era(text).map_err(|error| error.to_string())?;
        let text = text.to_string();
        Ok(Self { text, era })
    }

    fn json(&self) -> Json {
        self.text.clone().into()
    }
}

/// A design with an optional release: `slub`, `slub@6.17`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesignName(String);

impl DesignName {
    /// The design, in this release if its name has none.
    ///
    /// # Errors
    ///
    /// [`DesignError`] if the release does not have it.
    pub fn in_era(&self, era: Option<Era>) -> Result<DesignSpec, DesignError> {
        match era.filter(|_| !self.0.contains('@')) {
            Some(era) => DesignSpec::parse(&format!("{}@{era}", self.0)),
            None => DesignSpec::parse(&self.0),
        }
    }
}

impl From<DesignSpec> for DesignName {
    fn from(design: DesignSpec) -> Self {
        Self(design.to_string())
    }
}

impl Value for DesignName {
    const KIND: Kind = Kind::Exact;

    fn parse(text: &str, _: &Path) -> Result<Self, String> {
        // A release of another option may make a name without one right.
        let name = text.split_once('@').map_or(text, |(name, _)| name);
        match text.contains('@') || DesignEntry::find(name).is_none() {
            true => DesignSpec::parse(text).map(drop),
            false => Ok(()),
        }
        .map_err(|error| error.to_string())?;
        Ok(Self(text.to_string()))
    }

    fn json(&self) -> Json {
        self.0.clone().into()
    }
}

impl Value for PagePolicy {
    const KIND: Kind = Kind::Exact;

    fn parse(text: &str, _: &Path) -> Result<Self, String> {
        Self::parse(text).map_err(|error| error.to_string())
    }

    fn json(&self) -> Json {
        self.to_string().into()
    }
}

/// A machine whose time is simulated: a bundled one by its name, or a file.
#[derive(Clone, Debug)]
pub struct MachineFile {
    name: String,
    /// Text of its file; `None` of a bundled one.
    text: Option<String>,
    /// The machine.
    pub machine: Machine,
}

/// The content of a file counts, not its name.
impl PartialEq for MachineFile {
    fn eq(&self, other: &Self) -> bool {
        match (&self.text, &other.text) {
            (None, None) => self.name == other.name,
            (own, others) => own == others,
        }
    }
}

impl Value for MachineFile {
    const KIND: Kind = Kind::Text;
    const IS_FILE: bool = true;

    fn parse(text: &str, base: &Path) -> Result<Self, String> {
        let failed = |error: MachineError| error.to_string();
        match Machine::file(text) {
            Some(file) => {
                let path = base.join(file);
                let text = Machine::read(&path).map_err(failed)?;
                Self::of_content(&path.display().to_string(), &text)
            }
            None => Ok(Self {
                name: text.to_string(),
                text: None,
                machine: Machine::bundled(text).map_err(failed)?,
            }),
        }
    }

    fn json(&self) -> Json {
        self.name.clone().into()
    }

    fn content(&self) -> Option<String> {
        self.text.clone()
    }

    fn of_content(name: &str, content: &str) -> Result<Self, String> {
        let machine = Machine::parse_file(Path::new(name), content);
        Ok(Self {
            name: name.to_string(),
            text: Some(content.to_string()),
            machine: machine.map_err(|error| error.to_string())?,
        })
    }
}

/// Values of a range, at most.
const RANGE_MAX: u64 = 10_000;

/// The texts that JSON of this kind means: a number and a flag as their texts, each number of a range, `NAME=VALUE` of each
/// member of an object.
pub(crate) fn texts(kind: Kind, given: &Json) -> Result<Vec<String>, String> {
    let text = match given {
        Json::String(text) => text.trim().to_string(),
        Json::Number(number) if number.is_f64() && kind == Kind::Exact => {
            return Err(format!(
                "{number} is a number, in which 6.1 and 6.10 are the same; write a text, such as \"{number}\""
            ));
        }
        Json::Number(number) => number.to_string(),
        Json::Bool(flag) => flag.to_string(),
        Json::Object(members) => {
            let members = members.iter();
            let members =
                members.map(|(name, value)| Ok(format!("{name}={}", joined(name, value)?)));
            return members.collect();
        }
        _ => return Err(format!("{given} is no text, number, or list of both")),
    };
    let Some((first, last)) = text.split_once("..").filter(|_| kind == Kind::Count) else {
        return Ok(vec![text]);
    };
    let ends = [first, last].map(|end| u64::parse(end, Path::new("")));
    let [first, last] = ends;
    let (first, last) = (first?, last?);
    if last < first || last - first >= RANGE_MAX {
        return Err(format!(
            "{text:?} must go up, from the first number to the last, by less than {RANGE_MAX} values"
        ));
    }
    Ok((first..=last).map(|value| value.to_string()).collect())
}

/// The values of a setting as its text has them: `0,6`; an option of the kernel's configuration is `y` or `n`.
fn joined(name: &str, value: &Json) -> Result<String, String> {
    Ok(match value {
        Json::String(text) => text.clone(),
        Json::Bool(flag) => if *flag { "y" } else { "n" }.to_string(),
        Json::Number(number) => number.to_string(),
        Json::Array(values) => {
            let values = values.iter().map(|value| joined(name, value));
            values.collect::<Result<Vec<_>, _>>()?.join(",")
        }
        _ => return Err(format!("{name}: {value} is no value of a tunable")),
    })
}

/// All that an answer depends on: the value, and the content of its file if it has one.
pub(crate) fn with_content<T: Value>(value: &T) -> Json {
    match value.content() {
        Some(content) => json!({"file": value.json(), "content": content}),
        None => value.json(),
    }
}

/// The value of a text, or of a file with its content.
pub(crate) fn read<T: Value>(given: &Json, base: &Path) -> Result<Vec<T>, String> {
    if let (Some(Json::String(name)), Some(Json::String(content))) =
        (given.get("file"), given.get("content"))
    {
        return Ok(vec![T::of_content(name, content)?]);
    }
    let texts = texts(T::KIND, given)?;
    texts.iter().map(|text| T::parse(text, base)).collect()
}
