//! The recordings that come with the library (`data/README.md`) and the tests (`tests/data/README.md`): each kernel
//! with both loads.
//!
//! `README.md` and `docs/fidelity.md` have the table of what comes out, and this test compares them.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::{Recording, recording, verdict};

/// A kernel with a recording of each load: sockets that fill and drain, and a short hackbench.
struct Kernel {
    name: &'static str,
    /// Folder of the files.
    folder: &'static str,
    fill: Option<Recording>,
    burst: Recording,
}

const TESTS: &str = "tests/data/recordings";

/// A guest with both loads.
const fn guest(
    name: &'static str,
    file: &'static str,
    design: &'static str,
    release: &'static str,
) -> Kernel {
    Kernel {
        name,
        folder: TESTS,
        fill: Some(recording(file, "trfill", design, release)),
        burst: recording(file, "trhb", design, release),
    }
}

const KERNELS: [Kernel; 9] = [
    guest("6.1, SLAB", "6.1-slab", "slab@6.1", "6.1.192"),
    guest("6.1, SLOB", "6.1-slob", "slob@6.1", "6.1.192"),
    guest("6.1, SLUB", "6.1-slub", "slub@6.1", "6.1.192"),
    Kernel {
        name: "6.1, SLUB, 64 KiB pages",
        folder: "data/recordings",
        fill: Some(recording("6.1-slub-64k", "trfill", "slub@6.1", "6.1.176").ppc64()),
        burst: recording("6.1-slub-64k", "trhb", "slub@6.1", "6.1.176").ppc64(),
    },
    guest("6.17, SLUB", "6.17-slub", "slub@6.17", "6.17.13"),
    Kernel {
        name: "6.18, SLUB",
        folder: TESTS,
        fill: None,
        burst: recording("6.18-slub", "", "sheaf@6.18", "6.18"),
    },
    guest("7.0, sheaves", "7.0-sheaf", "sheaf@7.0", "7.0.13"),
    guest("7.2, sheaves", "7.2-sheaf", "sheaf@7.2", "7.2.13"),
    guest("7.3, sheaves", "7.3-sheaf", "sheaf@7.3", "7.3.4"),
];

/// The pages with the table.
const PAGES: [&str; 2] = ["README.md", "docs/fidelity.md"];

/// Two cells: the errors of growth and end. Fails if they are out of the tolerances.
fn cells(folder: &Path, recording: &Recording) -> String {
    let verdict = verdict(folder, recording);
    let (growth, end) = verdict.errors();
    assert!(
        verdict.holds(recording.growth_percent()),
        "{} {}: growth {growth:+.1} %, end {end:+.1} %",
        recording.file,
        recording.run
    );
    format!(" {growth:+.1} % | {end:+.1} % |")
}

#[test]
fn the_pages_tell_how_close_replays_come() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut table = String::new();
    for kernel in &KERNELS {
        let folder = tests.join(kernel.folder);
        let fill = kernel.fill.as_ref();
        let fill = fill.map_or_else(|| " | |".to_owned(), |one| cells(&folder, one));
        let burst = cells(&folder, &kernel.burst);
        writeln!(table, "| {} |{fill}{burst}", kernel.name).unwrap();
    }
    println!("{table}");
    for page in PAGES {
        let text = fs::read_to_string(tests.join("../..").join(page)).unwrap();
        let missing = table.lines().find(|row| !text.contains(row));
        assert_eq!(missing, None, "{page} has to have this table:\n{table}");
    }
}
