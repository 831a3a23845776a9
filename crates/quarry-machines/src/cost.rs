//! A cost with its range and its source.

use schemars::JsonSchema;
use serde::Serialize;

/// Unit of a cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Cycles of the core.
    Cycles,
    /// Nanoseconds.
    Ns,
    /// Lines of memory.
    Lines,
    /// Bytes a cycle of the core.
    BytesPerCycle,
    /// Queues of a card.
    Queues,
}

impl Unit {
    /// Its name in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cycles => "cycles",
            Self::Ns => "ns",
            Self::Lines => "lines",
            Self::BytesPerCycle => "bytes_per_cycle",
            Self::Queues => "queues",
        }
    }
}

/// A cost.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct Cost {
    /// Most likely value.
    pub value: f64,
    /// Least value that the source allows.
    pub low: f64,
    /// Largest value that the source allows.
    pub high: f64,
    /// Unit of the three values.
    pub unit: Unit,
    /// Source of the values.
    pub source: String,
    /// True if no stored measurement backs the values.
    pub unverified: bool,
}

impl Cost {
    /// The value at a place of its range: -1 is low, 0 the value, 1 high.
    pub(crate) fn at(&self, place: f64) -> f64 {
        let end = if place < 0.0 { self.low } else { self.high };
        self.value + (end - self.value) * place.abs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_between_the_value_and_an_end() {
        let cost = Cost {
            value: 10.0,
            low: 6.0,
            high: 30.0,
            unit: Unit::Ns,
            source: String::new(),
            unverified: false,
        };
        let at = [-1.0, -0.5, 0.0, 0.5, 1.0].map(|place| cost.at(place));
        assert_eq!(at, [6.0, 8.0, 10.0, 20.0, 30.0]);
    }
}
