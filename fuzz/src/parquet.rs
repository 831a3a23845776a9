//! Trace files, whole and damaged.

use quarry_designs::DesignSpec;
use quarry_lab::plan::Axes;
use quarry_lab::replay::input::Input;
use quarry_lab::{LabError, Plan};
use quarry_trace::TraceFile;

/// Events that a replay is worth: an input beyond only costs time.
const ROWS_MAX: u64 = 4096;

/// Reads the bytes as a trace, and replays it if all of it can be read.
pub fn run(data: &[u8]) {
    super::allow_guarded_panics();
    if read_all(data.to_vec()) {
        // A file that no import wrote may contradict itself.
        let _ = replay(data.to_vec());
    }
}

/// Reads every row in every way that there is; whether all could be read.
pub fn read_all(bytes: Vec<u8>) -> bool {
    let Ok(file) = TraceFile::from_bytes(bytes) else {
        return false;
    };
    let mut rows = Vec::new();
    let mut reader = file.rows();
    let whole = loop {
        match reader.next_chunk(&mut rows) {
            Ok(true) => rows.clear(),
            Ok(false) => break true,
            Err(_) => break false,
        }
    };
    let mut events = Vec::new();
    for mut reader in [file.events(), file.page_events()] {
        while let Ok(true) = reader.next_chunk(&mut events) {
            events.clear();
        }
    }
    whole
}

/// Replays a trace on a kernel with sheaves, unless it is long.
///
/// # Errors
///
/// Those of the plan and of the replay.
pub fn replay(bytes: Vec<u8>) -> Result<(), LabError> {
    let file = TraceFile::from_bytes(bytes)?;
    let page_bytes = u64::from(file.meta().page_size);
    let input = Input::new(file, "fuzz");
    if input.file.meta().rows > ROWS_MAX || input.load_cpus() > 64 {
        return Ok(());
    }
    let axes = Axes {
        designs: vec![DesignSpec::parse("sheaf@7.0").expect("a design")],
        page_bytes: vec![page_bytes],
        cpus: vec![2],
        memory_bytes: 64 << 20,
        ..Axes::default()
    };
    Plan::new(&axes)?.execute(&input, 1, &|_| ())?;
    Ok(())
}
