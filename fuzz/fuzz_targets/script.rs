#![no_main]

#[allow(dead_code, unused_imports, unused_macros, reason = "the tests use all of it")]
#[path = "../../crates/quarry/tests/virtual/model/mod.rs"]
mod model;

libfuzzer_sys::fuzz_target!(|data: &[u8]| model::bytes::run(data).unwrap());
