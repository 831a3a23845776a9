#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| quarry_fuzz::settings::run(data));
