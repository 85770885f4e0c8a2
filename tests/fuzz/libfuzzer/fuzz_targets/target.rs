//! The program of every target; its name says which target it runs.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    assert!(fuzz::run(env!("CARGO_BIN_NAME"), data).is_some(), "no target of this name");
});
