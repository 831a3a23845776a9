//! Recorded text, or a recorder's file, to a trace; the trace is read and replayed.

use std::path::Path;

use quarry_trace::{ImportOptions, import};

use super::parquet;

/// Imports the bytes, strictly and with bad lines passed over. What the import accepts, the replay replays.
pub fn run(data: &[u8]) {
    super::allow_guarded_panics();
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
