//! Snapshots of kernels, and slabinfo.

use quarry_designs::Setting;
use quarry_snapshot::{Slabinfo, Snapshot};
use quarry_state::{Question, predict};

/// Packings of a text; the last byte of an input chooses two.
const PACKINGS: [fn(&str) -> String; 12] = [
    |text| text.to_string(),
    |text| each(text, |at, line| format!("{at:6}\t{line}")),
    |text| each(text, |_, line| format!("> {line}")),
    |text| each(text, |_, line| format!("[  1.5] {line}")),
    |text| each(text, |_, line| format!("{{\"log\":{line:?}}}")),
    |text| each(text, |_, line| format!("<div>{line}</div>")),
    |text| {
        each(text, |_, line| {
            line.split_whitespace().collect::<Vec<_>>().join(";")
        })
    },
    |text| each(text, |_, line| cut(line, 60, "\n")),
    |text| each(text, |_, line| cut(line, 80, "\n")),
    |text| each(text, |_, line| cut(line, 70, "=\n")),
    |text| text.split_whitespace().collect::<Vec<_>>().join(" "),
    |text| text.lines().rev().flat_map(|line| [line, "\n"]).collect(),
];

fn each(text: &str, packed: impl Fn(usize, &str) -> String) -> String {
    let lines = (1..).zip(text.lines());
    lines.map(|(at, line)| packed(at, line) + "\n").collect()
}

/// A line in parts of a width.
fn cut(line: &str, width: usize, between: &str) -> String {
    let chars: Vec<char> = line.chars().collect();
    let parts = chars.chunks(width).map(|part| part.iter().collect());
    parts.collect::<Vec<String>>().join(between)
}

/// Reads the bytes as a file of any form, and their text in packings; parses the text; asks of a snapshot what other settings and another release would change.
pub fn run(data: &[u8]) {
    let _ = Snapshot::of_bytes("fuzz", data);
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let of = |choice: usize| PACKINGS[choice % PACKINGS.len()];
    let choice = usize::from(data.last().copied().unwrap_or_default());
    let packed = of(choice / PACKINGS.len())(&of(choice)(text));
    let _ = Snapshot::of_bytes("fuzz", packed.as_bytes());
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
