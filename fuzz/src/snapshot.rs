//! Snapshots of kernels, and slabinfo.

use quarry_designs::Setting;
use quarry_snapshot::{Slabinfo, Snapshot};
use quarry_state::{Question, predict};

/// Reads the bytes as a file of any form, packed or not; parses the text; asks of a snapshot what other settings and another release would change.
pub fn run(data: &[u8]) {
    let _ = Snapshot::of_bytes("fuzz", data);
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let _ = Slabinfo::parse("fuzz", text);
    let Ok(snapshot) = Snapshot::parse("fuzz", text, None) else {
        return;
    };
    let questions = [
        Question::default(),
        Question {
            settings: vec![Setting::parse("slub_max_order=0").expect("a setting")],
            ..Question::default()
        },
        Question {
            release: Some(quarry_core::era::Era::V7_0),
            page_bytes: Some(65536),
            ..Question::default()
        },
    ];
    for question in &questions {
        let _ = predict(&snapshot, question);
    }
}
