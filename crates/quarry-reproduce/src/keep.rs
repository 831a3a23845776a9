//! Results that are kept in a file, so that an interrupted run goes on where it was.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::ReproduceError;
use crate::results::Figures;

/// One result: a line of the file.
#[derive(Serialize, Deserialize)]
struct Line {
    /// Build of the program that found it.
    quarry: String,
    /// Mode, thread, experiment and arm.
    run: String,
    figures: Figures,
}

/// Beginning of each line.
const BEGIN: &str = "{\"quarry\":";

/// Results of a file, and the file for more.
#[derive(Debug)]
pub struct Kept {
    known: BTreeMap<String, Figures>,
    build: String,
    file: Option<(PathBuf, File)>,
}

impl Kept {
    /// Keeps nothing.
    #[must_use]
    pub fn nothing() -> Self {
        Self {
            known: BTreeMap::new(),
            build: String::new(),
            file: None,
        }
    }

    /// Reads what a file has, if it exists, and adds what is found from now on. `build` names the program: another one may
    /// find other results under the same name. A last line that an interrupt left
    /// unfinished is taken off. The file is locked until this is dropped.
    ///
    /// # Errors
    ///
    /// [`ReproduceError::InUse`] if another run has it open.
    /// [`ReproduceError::Keep`] if the file cannot be read or written, or is not of this build of the program.
    pub fn open(path: &Path, build: &str) -> Result<Self, ReproduceError> {
        let wrong = |problem: String| ReproduceError::Keep {
            path: path.to_path_buf(),
            problem,
        };
        let mut options = OpenOptions::new();
        let file = options.create(true).read(true).append(true).open(path);
        let file = file.map_err(|error| wrong(error.to_string()))?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => ReproduceError::InUse {
                path: path.to_path_buf(),
            },
            TryLockError::Error(error) => wrong(error.to_string()),
        })?;
        let mut known = BTreeMap::new();
        let mut whole_bytes = 0;
        let mut reader = BufReader::new(&file);
        let mut text = String::new();
        loop {
            let bytes = reader.read_line(&mut text);
            let bytes = bytes.map_err(|error| wrong(error.to_string()))?;
            if !text.ends_with('\n') {
                // Nothing is taken off a file of another program.
                if !text.starts_with(BEGIN) && !BEGIN.starts_with(&text) {
                    return Err(wrong("it has no results of reproduce".to_string()));
                }
                break;
            }
            let line: Line = serde_json::from_str(&text)
                .map_err(|error| wrong(format!("it has no results of reproduce ({error})")))?;
            if line.quarry != build {
                let problem = format!(
                    "its results are of quarry {}, and this is {build}",
                    line.quarry
                );
                return Err(wrong(problem));
            }
            known.insert(line.run, line.figures);
            whole_bytes += bytes as u64;
            text.clear();
        }
        file.set_len(whole_bytes)
            .map_err(|error| wrong(error.to_string()))?;
        Ok(Self {
            known,
            build: build.to_string(),
            file: Some((path.to_path_buf(), file)),
        })
    }

    /// Results that the file had.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// True if it had none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    pub(crate) fn get(&self, run: &str) -> Option<&Figures> {
        self.known.get(run)
    }

    pub(crate) fn add(&mut self, run: &str, figures: &Figures) -> Result<(), ReproduceError> {
        let Some((path, file)) = &mut self.file else {
            return Ok(());
        };
        let line = Line {
            quarry: self.build.clone(),
            run: run.to_string(),
            figures: figures.clone(),
        };
        let written = serde_json::to_string(&line)
            .map_err(std::io::Error::other)
            .and_then(|text| writeln!(file, "{text}"));
        written.map_err(|error| ReproduceError::Keep {
            path: path.clone(),
            problem: error.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_comes_back_but_for_an_unfinished_line() {
        let folder = std::env::temp_dir().join(format!("quarry-keep-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("kept");
        let figures = vec![("mb".to_string(), 1.5)];
        let mut kept = Kept::open(&path, "1 a").unwrap();
        assert!(kept.is_empty());
        kept.add("a", &figures).unwrap();
        kept.add("b", &figures).unwrap();
        drop(kept);
        let whole = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{whole}{{\"quarry\":")).unwrap();
        let mut kept = Kept::open(&path, "1 a").unwrap();
        let second = Kept::open(&path, "1 a").unwrap_err().to_string();
        assert!(second.contains("another run"), "{second}");
        assert_eq!((kept.len(), kept.get("b")), (2, Some(&figures)));
        kept.add("c", &figures).unwrap();
        drop(kept);
        assert_eq!(Kept::open(&path, "1 a").unwrap().len(), 3);
        let other = Kept::open(&path, "1 b").unwrap_err().to_string();
        assert!(other.contains("of quarry 1 a, and this is 1 b"), "{other}");
        let others: [&[u8]; 4] = [b"other\n", b"other", b"{\"a\": 1}", b"PAR1\xff\xfe"];
        for other in others {
            std::fs::write(&path, other).unwrap();
            let error = Kept::open(&path, "1 a").unwrap_err().to_string();
            assert!(error.contains("name another file"), "{error}");
            assert_eq!(std::fs::read(&path).unwrap(), other);
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
