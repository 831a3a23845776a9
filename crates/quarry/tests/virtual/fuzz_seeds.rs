//! The seeds of the fuzz target `script`, and the inputs in which it found something.

use crate::model::bytes;

#[test]
fn every_seed_agrees_with_the_model() {
    let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/script");
    let mut count = 0;
    for entry in std::fs::read_dir(seeds).unwrap() {
        let path = entry.unwrap().path();
        let outcome = bytes::run(&std::fs::read(&path).unwrap());
        assert_eq!(outcome, Ok(()), "{}", path.display());
        count += 1;
    }
    assert!(count >= 16, "{count} seeds");
}
