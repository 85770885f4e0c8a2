//! The `fleetpull` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    fleetpull::run()
}
