//! `asm/aarch64.s` is the block of `src/rseq/aarch64.rs`; `cargo xtask aarch64` assembles it.

const BLOCK: &str = include_str!("../src/rseq/aarch64.rs");
const LISTING: &str = include_str!("../asm/aarch64.s");

/// The block's operands, and the listing's registers and numbers in their place.
const OPERANDS: &[(&str, &str)] = &[
    ("$arm", "str {offset}, [{thread}, #8]"),
    ("\\\"", "\""),
    ("{shift}", "22"),
    ("{aborts}", "quarry_aborts"),
    ("{area}", "x0"),
    ("{cpus:w}", "w1"),
    ("{slot0}", "x2"),
    ("{offset}", "x3"),
    ("{offset:w}", "w3"),
    ("{thread}", "x4"),
    ("{slot}", "x5"),
    ("{word:w}", "w6"),
];

/// The part between the first `from` and the next `to`, without either.
fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let (_, rest) = text.split_once(from).expect(from);
    rest.split_once(to).expect(to).0
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("//"))
}

#[test]
fn the_listing_is_the_block() {
    let block: Vec<String> = lines(between(BLOCK, "asm!(", "area = in(reg)"))
        .map(|line| {
            let line = line.trim_end_matches(',');
            let line = line
                .strip_prefix('"')
                .and_then(|l| l.strip_suffix('"'))
                .unwrap_or(line);
            OPERANDS
                .iter()
                .fold(line.to_owned(), |line, (from, to)| line.replace(from, to))
        })
        .collect();
    let listing: Vec<&str> = lines(between(LISTING, "// begin", "// end")).collect();
    assert_eq!(block, listing);
    assert!(block.len() > 30);
}
