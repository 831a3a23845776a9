//! The heap of another machine, by the file of its report.

use std::path::Path;

use quarry_ask::{Json, Kind, Value};

use super::Source;
use crate::booted::Booted;

/// A file with the report of a machine that has run: a snapshot, `FILE#STAGE` for a stage of one, or a recording with one.
#[derive(Clone, Debug)]
pub struct HeapFile {
    given: String,
    /// The state that it reports.
    pub booted: Booted,
}

impl PartialEq for HeapFile {
    fn eq(&self, other: &Self) -> bool {
        self.given == other.given
    }
}

impl HeapFile {
    /// A state that was read from a file of this name.
    #[must_use]
    pub fn of(name: &str, booted: Booted) -> Self {
        let given = name.to_string();
        Self { given, booted }
    }

    /// The file, as it was given.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.given
    }
}

impl Value for HeapFile {
    const KIND: Kind = Kind::Text;
    const IS_FILE: bool = true;

    fn parse(text: &str, base: &Path) -> Result<Self, String> {
        // A file of this very name comes first: `#` may be a part of it.
        let (file, stage) = match text.rsplit_once('#') {
            Some((file, stage)) if !base.join(text).exists() => (file, Some(stage)),
            _ => (text, None),
        };
        let read = Source::open(base.join(file).as_os_str(), stage);
        let booted = read.and_then(|source| Booted::of(source.into_snapshot(None)?));
        let booted = booted.map_err(|error| error.to_string())?;
        Ok(Self::of(text, booted))
    }

    fn json(&self) -> Json {
        self.given.clone().into()
    }
}
