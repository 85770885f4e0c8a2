//! The reference file equals the table.

use std::path::Path;

#[test]
fn the_reference_file_matches_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/metrics.md");
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(&path, metrics::render_reference()).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == metrics::render_reference(),
        "config/metrics.md is out of date: run UPDATE_REFERENCE=1 cargo test -p metrics reference"
    );
}
