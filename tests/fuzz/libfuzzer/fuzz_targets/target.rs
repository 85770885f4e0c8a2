//! The program of every target: which one it is, its name says.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    assert!(fuzz::run(env!("CARGO_BIN_NAME"), data).is_some(), "no target of this name");
});
