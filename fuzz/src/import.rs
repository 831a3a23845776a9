//! Recorded text, or a recorder's file, to a trace; the trace is read and replayed.

use std::path::Path;

use quarry_trace::{ImportOptions, import};

use super::parquet;

/// Imports the bytes as they are, and texts as people paste them too.
pub fn run(data: &[u8]) {
    super::allow_guarded_panics();
    import_and_replay(data);
    if let Ok(text) = std::str::from_utf8(data)
        && data.len() <= PASTED_BYTES_MAX
    {
        PASTES
            .iter()
            .for_each(|paste| import_and_replay(paste(text).as_bytes()));
    }
}

/// Longest text that is worth a copy of each paste.
const PASTED_BYTES_MAX: usize = 1 << 14;

/// Changes of a text by pasting it: quoted, coloured, with blanks of the web, cut, and twice.
const PASTES: [fn(&str) -> String; 5] = [
    |text| each(text, "> ", ""),
    |text| each(text, "\x1b[32m", "\x1b[0m"),
    |text| text.replace(' ', "\u{a0}"),
    |text| text.chars().take(text.len() / 2).collect(),
    |text| format!("{text}\n# tracer: nop\n{text}"),
];

fn each(text: &str, before: &str, behind: &str) -> String {
    let lines = text.lines();
    lines
        .map(|line| format!("{before}{line}{behind}\n"))
        .collect()
}

/// Imports the bytes, strictly and with bad lines passed over. What the import accepts, the replay replays.
fn import_and_replay(data: &[u8]) {
    for skip_bad in [false, true] {
        let options = ImportOptions {
            skip_bad,
            zstd_level: 1,
            ..ImportOptions::default()
        };
        let mut out = Vec::new();
        let name = Path::new("fuzz");
        if import(data, name, &mut out, name, &options, &mut |_| ()).is_ok() {
            assert!(parquet::read_all(out.clone()), "an imported trace is read");
            if let Err(error) = parquet::replay(out) {
                panic!("an imported trace is replayed: {error}");
            }
        }
    }
}
