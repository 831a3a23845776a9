//! Kinds of questions, and the keys of a plan that each takes.

use std::fmt;

use quarry_designs::units;

use crate::error::SweepError;

/// A question that cells are asked.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize, serde::Serialize,
)]
pub enum Ask {
    /// Slab memory of a kernel under other settings, from its snapshot.
    #[serde(rename = "what-if")]
    WhatIf,
    /// A recording on a design.
    #[serde(rename = "replay")]
    Replay,
    /// The same in simulated time.
    #[serde(rename = "replay --time")]
    ReplayTime,
    /// hackbench in simulated time.
    #[serde(rename = "run hackbench")]
    Hackbench,
    /// tbench in simulated time.
    #[serde(rename = "run tbench")]
    Tbench,
    /// netperf's TCP_RR in simulated time.
    #[serde(rename = "run tcp_rr")]
    TcpRr,
    /// Micro-benchmarks in simulated time.
    #[serde(rename = "run micro")]
    Micro,
}

impl Ask {
    /// All of them, by name.
    pub const ALL: [(Self, &'static str); 7] = [
        (Self::WhatIf, "what-if"),
        (Self::Replay, "replay"),
        (Self::ReplayTime, "replay --time"),
        (Self::Hackbench, "run hackbench"),
        (Self::Tbench, "run tbench"),
        (Self::TcpRr, "run tcp_rr"),
        (Self::Micro, "run micro"),
    ];

    /// The command that asks it.
    #[must_use]
    pub fn name(self) -> &'static str {
        let found = Self::ALL.iter().find(|(ask, _)| *ask == self);
        found.map_or("", |(_, name)| name)
    }

    /// True for a load, which has no input.
    #[must_use]
    pub fn is_load(self) -> bool {
        LOADS.contains(&self) || self == Self::Micro
    }

    /// The question of this name.
    ///
    /// # Errors
    ///
    /// [`SweepError::Usage`] with all names.
    pub fn parse(text: &str) -> Result<Self, SweepError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let found = Self::ALL.iter().find(|(_, name)| *name == words.join(" "));
        found.map(|(ask, _)| *ask).ok_or_else(|| {
            let names = Self::ALL.map(|(_, name)| format!("{name:?}"));
            SweepError::Usage(format!("ask = {text:?}: there are {}", names.join(", ")))
        })
    }
}

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

impl Ask {
    /// The figure that settings are judged by.
    #[must_use]
    pub fn figure(self) -> Figure {
        let exact = |column| Figure {
            column,
            bounds: None,
            now: None,
        };
        match self {
            Self::WhatIf => Figure {
                column: "predicted_bytes",
                bounds: Some(["low_bytes", "high_bytes"]),
                now: Some("observed_bytes"),
            },
            Self::Replay => exact("peak_slab_bytes"),
            Self::ReplayTime => exact("operation_ns"),
            Self::Hackbench | Self::Tbench | Self::TcpRr => exact("cpu_us"),
            Self::Micro => exact("object_ns"),
        }
    }
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Form of a key's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As it is.
    Text,
    /// A number from 0 on; `1..8` are all from 1 to 8.
    Count,
    /// Bytes, `16G`.
    Bytes,
    /// Bytes of a page.
    PageBytes,
    /// `true` or `false`.
    Flag,
}

/// A key of a plan.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Name, as the commands' option has it.
    pub name: &'static str,
    /// Form of its values.
    pub form: Form,
    /// Questions that take it.
    pub asks: &'static [Ask],
    /// Meaning.
    pub about: &'static str,
}

const ANY: &[Ask] = &[
    Ask::WhatIf,
    Ask::Replay,
    Ask::ReplayTime,
    Ask::Hackbench,
    Ask::Tbench,
    Ask::TcpRr,
    Ask::Micro,
];
const WHAT_IF: &[Ask] = &[Ask::WhatIf];
const REPLAYS: &[Ask] = &[Ask::Replay, Ask::ReplayTime];
const TIMED: &[Ask] = &[
    Ask::ReplayTime,
    Ask::Hackbench,
    Ask::Tbench,
    Ask::TcpRr,
    Ask::Micro,
];
const RUNS: &[Ask] = &[
    Ask::Replay,
    Ask::ReplayTime,
    Ask::Hackbench,
    Ask::Tbench,
    Ask::TcpRr,
    Ask::Micro,
];
const LOADS: &[Ask] = &[Ask::Hackbench, Ask::Tbench, Ask::TcpRr];
const BOOTED: &[Ask] = &[
    Ask::Replay,
    Ask::ReplayTime,
    Ask::Hackbench,
    Ask::Tbench,
    Ask::TcpRr,
];
const HACKBENCH: &[Ask] = &[Ask::Hackbench];
const MICRO: &[Ask] = &[Ask::Micro];

const fn key(name: &'static str, form: Form, asks: &'static [Ask], about: &'static str) -> Key {
    Key {
        name,
        form,
        asks,
        about,
    }
}

/// Axes of a plan, that which varies slowest first. Beside them a plan has `ask`, `input`, `set` and `config`.
pub const KEYS: [Key; 42] = [
    key(
        "stage",
        Form::Text,
        WHAT_IF,
        "Stage of a recorded boot; the first by default",
    ),
    key(
        "at",
        Form::Text,
        WHAT_IF,
        "Snapshot of a recording: begin or end; begin by default",
    ),
    key(
        "kernel",
        Form::Text,
        WHAT_IF,
        "Release of the inputs' kernels, where their files do not have it",
    ),
    key(
        "had-cpus",
        Form::Count,
        WHAT_IF,
        "CPUs of the inputs' machines, where their files do not have them",
    ),
    key(
        "had-page-size",
        Form::PageBytes,
        WHAT_IF,
        "Page size of the inputs' machines, where their files do not have it",
    ),
    key(
        "force",
        Form::Flag,
        WHAT_IF,
        "true answers also where the formulas explain few caches",
    ),
    key(
        "machine",
        Form::Text,
        TIMED,
        "Machine whose time is simulated: a name of quarry machines, or a file; haswell-ep-2x12 by default",
    ),
    key(
        "pace",
        Form::Text,
        &[Ask::ReplayTime],
        "recorded or full; recorded by default",
    ),
    key(
        "start",
        Form::Text,
        REPLAYS,
        "usual, empty, initial or check; usual starts with what the recorded kernel held if it is told",
    ),
    key(
        "pages",
        Form::Text,
        REPLAYS,
        "Page events to replay: auto, off or all; auto by default",
    ),
    key(
        "from",
        Form::Text,
        REPLAYS,
        "Replay events from this time on: seconds as recorded, or +SECONDS after the first event",
    ),
    key(
        "until",
        Form::Text,
        REPLAYS,
        "Replay events before this time",
    ),
    key(
        "booted",
        Form::Flag,
        BOOTED,
        "true begins on the heap of a kernel that has run; false, an empty one, by default",
    ),
    key(
        "memory",
        Form::Bytes,
        RUNS,
        "Memory of each virtual machine",
    ),
    key(
        "cache-line",
        Form::Bytes,
        &[Ask::Replay],
        "Bytes of a cache line; 64 by default",
    ),
    key(
        "cache-share",
        Form::Bytes,
        REPLAYS,
        "Bytes of a CPU's share of the last-level cache",
    ),
    key(
        "debug",
        Form::Text,
        &[Ask::Replay],
        "Debugging as in the kernel's slub_debug",
    ),
    key("release", Form::Text, WHAT_IF, "Releases of Linux"),
    key(
        "era",
        Form::Text,
        LOADS,
        "Release whose rules designs without one have",
    ),
    key(
        "design",
        Form::Text,
        ANY,
        "Designs with optional eras, DESIGN[@ERA]",
    ),
    key(
        "page-size",
        Form::PageBytes,
        ANY,
        "Page sizes: 4k, 16k, 64k",
    ),
    key(
        "possible-cpus",
        Form::Count,
        WHAT_IF,
        "Numbers of possible CPUs",
    ),
    key("cpus", Form::Count, ANY, "Numbers of CPUs; 1..8 is a range"),
    key(
        "pattern",
        Form::Text,
        MICRO,
        "batch, pair, cross, spread or bulk; batch by default",
    ),
    key(
        "size",
        Form::Bytes,
        MICRO,
        "Bytes of an object; 256 by default",
    ),
    key(
        "count",
        Form::Count,
        MICRO,
        "Objects that each allocating CPU allocates in a round; 10000 by default",
    ),
    key(
        "groups",
        Form::Count,
        HACKBENCH,
        "Groups of senders and receivers",
    ),
    key(
        "clients",
        Form::Count,
        &[Ask::Tbench],
        "Clients, each with a server",
    ),
    key(
        "pairs",
        Form::Count,
        &[Ask::TcpRr],
        "Pairs of a netperf and a netserver",
    ),
    key(
        "fds",
        Form::Count,
        HACKBENCH,
        "Senders of a group, and receivers",
    ),
    key(
        "loops",
        Form::Count,
        HACKBENCH,
        "Messages that a sender writes to each receiver",
    ),
    key("datasize", Form::Bytes, HACKBENCH, "Bytes of a message"),
    key(
        "transport",
        Form::Text,
        HACKBENCH,
        "unix, datagram or pipe; unix by default",
    ),
    key("request", Form::Bytes, &[Ask::TcpRr], "Bytes of a request"),
    key(
        "response",
        Form::Bytes,
        &[Ask::TcpRr],
        "Bytes of a response",
    ),
    key(
        "time",
        Form::Text,
        &[Ask::Tbench, Ask::TcpRr],
        "Simulated time that is counted; 50ms by default",
    ),
    key(
        "count-start",
        Form::Flag,
        LOADS,
        "The start is counted, too",
    ),
    key(
        "wake-order",
        Form::Text,
        LOADS,
        "Moment at which a woken task runs: immediate, queued, fair or deadline",
    ),
    key(
        "wake-place",
        Form::Text,
        LOADS,
        "CPU on which a woken task runs: previous, affine or idle",
    ),
    key(
        "copies",
        Form::Count,
        REPLAYS,
        "Numbers of copies of the recorded load",
    ),
    key(
        "draw",
        Form::Count,
        TIMED,
        "Draws of the machine's constants in their ranges; 0, the default, are their values",
    ),
    key(
        "seed",
        Form::Count,
        TIMED,
        "Seeds of what is left to chance; 1..8 is a range",
    ),
];

/// Values of a range, at most.
const RANGE_MAX: u64 = 10_000;

impl Key {
    /// The values that a text means, each in the one form that all its spellings have.
    ///
    /// # Errors
    ///
    /// [`SweepError::Usage`] if it has another form.
    pub fn values(&self, text: &str) -> Result<Vec<String>, SweepError> {
        let text = text.trim();
        let wrong = |problem: String| SweepError::Usage(format!("{}: {problem}", self.name));
        let number = |text: &str| {
            let number: Result<u32, _> = text.trim().parse();
            number.map_err(|_| wrong(format!("{text:?} is no number from 0 to {}", u32::MAX)))
        };
        match self.form {
            Form::Text => Ok(vec![text.to_string()]),
            Form::Flag => match text {
                "true" | "false" => Ok(vec![text.to_string()]),
                _ => Err(wrong(format!("{text:?} is neither true nor false"))),
            },
            Form::Bytes => {
                let bytes = units::parse_bytes(text).map_err(wrong)?;
                Ok(vec![bytes.to_string()])
            }
            Form::PageBytes => {
                let bytes = units::parse_page_bytes(text).map_err(wrong)?;
                Ok(vec![bytes.to_string()])
            }
            Form::Count => match text.split_once("..") {
                None => Ok(vec![number(text)?.to_string()]),
                Some((first, last)) => {
                    let (first, last) = (number(first)?, number(last)?);
                    if last < first || u64::from(last - first) >= RANGE_MAX {
                        return Err(wrong(format!(
                            "{text:?}: a range goes up, from the first number to the last, by at most {RANGE_MAX} values"
                        )));
                    }
                    Ok((first..=last).map(|value| value.to_string()).collect())
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(name: &str, text: &str) -> Result<Vec<String>, String> {
        let key = KEYS.iter().find(|key| key.name == name).unwrap();
        key.values(text).map_err(|error| error.to_string())
    }

    #[test]
    fn spellings_of_one_value_are_one() {
        assert_eq!(values("page-size", "64k"), values("page-size", "65536"));
        assert_eq!(values("memory", " 1G ").unwrap(), ["1073741824"]);
        assert_eq!(values("seed", "2..4").unwrap(), ["2", "3", "4"]);
        assert_eq!(values("cpus", "7").unwrap(), ["7"]);
    }

    #[test]
    fn wrong_values_name_the_key() {
        for (name, text) in [
            ("page-size", "8k"),
            ("cpus", "-1"),
            ("seed", "4..2"),
            ("seed", "0..4000000000"),
            ("force", "yes"),
        ] {
            let error = values(name, text).unwrap_err();
            assert!(error.starts_with(&format!("{name}: ")), "{error}");
        }
    }

    #[test]
    fn names_are_read_again() {
        for (ask, name) in Ask::ALL {
            assert_eq!(Ask::parse(name).unwrap(), ask);
            assert_eq!(ask.to_string(), name);
        }
        let error = Ask::parse("what if").unwrap_err().to_string();
        assert!(error.contains("\"what-if\", \"replay\""), "{error}");
    }
}
