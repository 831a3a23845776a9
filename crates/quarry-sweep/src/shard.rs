//! Parts of a sweep, for several processes.

use std::str::FromStr;

use crate::cell::Chunk;
use crate::error::SweepError;

/// A part of the chunks, for one of several processes: those whose number divided by `of` leaves `index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Number of the part, from 0 on.
    pub index: usize,
    /// Number of parts.
    pub of: usize,
}

impl FromStr for Shard {
    type Err = SweepError;

    /// Parses `i/n`, parts being counted from 0.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.split_once('/');
        let numbers = parts
            .and_then(|(index, of)| Some((index.trim().parse().ok()?, of.trim().parse().ok()?)));
        match numbers {
            Some((index, of)) if index < of => Ok(Self { index, of }),
            _ => Err(SweepError::Usage(format!(
                "shard {text:?}: write I/N with I from 0 to N - 1, for example 0/8 to 7/8"
            ))),
        }
    }
}

impl Shard {
    /// The chunks of this part.
    #[must_use]
    pub fn of(self, chunks: Vec<Chunk>) -> Vec<Chunk> {
        let own = |(at, _): &(usize, Chunk)| at % self.of == self.index;
        let chunks = chunks.into_iter().enumerate().filter(own);
        chunks.map(|(_, chunk)| chunk).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_counted_from_0() {
        assert_eq!("2/3".parse::<Shard>().unwrap(), Shard { index: 2, of: 3 });
        for wrong in ["3/3", "1", "1/0", "-1/2", "a/b"] {
            let error = wrong.parse::<Shard>().unwrap_err().to_string();
            assert!(error.contains("0/8 to 7/8"), "{error}");
        }
    }
}
