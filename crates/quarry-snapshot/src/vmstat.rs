//! `/proc/vmstat`: the counters of all zones together.

use std::path::Path;

use serde::Serialize;

use super::file::{ReportError, read_report};
use super::words::{Counters, Lines};

/// All counters, in the order of the report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Vmstat {
    /// The counters.
    pub counters: Counters,
}

impl Vmstat {
    /// Reads a copy of `/proc/vmstat`, which may be packed with gzip.
    ///
    /// # Errors
    ///
    /// [`ReportError`].
    pub fn read(path: &Path) -> Result<Self, ReportError> {
        Self::parse(&path.display().to_string(), &read_report(path)?)
    }

    /// Parses the text. `file` is for messages.
    ///
    /// # Errors
    ///
    /// [`ReportError::Bad`] with the line.
    pub fn parse(file: &str, text: &str) -> Result<Self, ReportError> {
        let mut lines = Lines::new(file, text);
        let counters = lines.within(|lines| {
            let mut counters = Counters::default();
            while let Some(line) = lines.next() {
                counters.add_named(line)?;
            }
            if counters.get("nr_free_pages").is_none() {
                return Err("nr_free_pages is missing: give a copy of /proc/vmstat".to_string());
            }
            Ok(counters)
        })?;
        Ok(Self { counters })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = include_str!("../tests/data/6.18-x86_64-4k/vmstat");

    #[test]
    fn counters_of_a_real_kernel() {
        let counters = Vmstat::parse("vmstat", TEXT).unwrap().counters;
        assert_eq!(counters.get("nr_free_pages"), Some(840_113));
        assert_eq!(counters.get("pgalloc_normal"), Some(2_027_713));
        assert_eq!(counters.get("nr_unstable"), Some(0));
        assert_eq!(counters.iter().count(), TEXT.lines().count());
    }

    /// As 4.14.x and 4.17 to 4.19 print `NR_INDIRECTLY_RECLAIMABLE_BYTES`.
    #[test]
    fn a_counter_without_a_name_is_passed_over() {
        let whole = Vmstat::parse("vmstat", TEXT).unwrap();
        let text = TEXT.replacen("\nnr_unstable ", "\n 537792\nnr_unstable ", 1);
        assert_ne!(text, TEXT);
        assert_eq!(Vmstat::parse("vmstat", &text).unwrap(), whole);
        let error = Vmstat::parse("vmstat", &text.replace(" 537792", " 5377x2")).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("a name and a number are expected, not \"5377x2\""),
            "{error}"
        );
    }

    #[test]
    fn errors_name_the_line() {
        for (from, to, part) in [
            (
                "pgfree ",
                "pgfree: ",
                "\"pgfree:\" is not the name of a counter",
            ),
            (
                "numa_miss 0",
                "numa_miss 0 0",
                "line 13: a name and a number are expected",
            ),
            (
                "numa_miss 0",
                "numa_hit 0",
                "line 13: numa_hit stands there twice",
            ),
            ("nr_free_pages ", "free_pages ", "nr_free_pages is missing"),
        ] {
            let error = Vmstat::parse("vmstat", &TEXT.replacen(from, to, 1)).unwrap_err();
            assert!(error.to_string().contains(part), "{error}");
        }
    }

    #[test]
    fn truncated_texts() {
        let whole = Vmstat::parse("vmstat", TEXT).unwrap();
        for cut in 0..TEXT.len() {
            if let Ok(part) = Vmstat::parse("vmstat", &TEXT[..cut]) {
                let count = part.counters.iter().count();
                let mut pairs = part.counters.iter().zip(whole.counters.iter());
                assert!(
                    pairs
                        .by_ref()
                        .take(count - 1)
                        .all(|(part, whole)| part == whole)
                );
            }
        }
    }
}
