//! `e2e`: other people's programs read what ours writes. Each is built once into .tools, so none of it is part of `cargo xtask test`.

mod image;
mod jaeger;
mod promtool;

use std::path::Path;

/// Which program.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Program {
    /// Docker Engine: the container image is built and run, and Compose reads its file.
    Image,
    /// Jaeger: pulls are made, and its API is asked for their trees and links.
    Jaeger,
    /// Prometheus' own checker: alert rules and their tests, and the metrics of a running agent.
    Promtool,
}

/// Builds the program if it is not there yet, and runs what it checks.
pub(crate) fn run(root: &Path, program: Program) -> anyhow::Result<()> {
    match program {
        Program::Image => image::run(root),
        Program::Jaeger => jaeger::run(root),
        Program::Promtool => promtool::run(root),
    }
}
