//! `e2e`: checks that take too long for `cargo xtask test`: external programs, each built once, read Fleetpull's output; many pulls with
//! faults; and many simulated fleets.

mod chaos;
mod fleets;
mod image;
mod jaeger;
mod promtool;

use std::path::Path;

use crate::tools;

/// Which program.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Program {
    /// Ten thousand pulls while agents and nats-server are killed, networks are cut and disks are full: no event is lost or doubled, and
    /// what refusals link to is in Jaeger.
    Chaos,
    /// Five hundred simulated fleets of 50 nodes and five of 1,000, of which `cargo xtask test` runs some, and a registry that 10,000 nodes
    /// overload.
    Fleets,
    /// Docker Engine: the container image is built and run, and Compose reads its file.
    Image,
    /// Jaeger: pulls are made, and its API is asked for their trees and links.
    Jaeger,
    /// Prometheus' own checker: alert rules and their tests, and the metrics of a running agent.
    Promtool,
}

/// Gets the missing program and servers, and runs the check.
pub(crate) fn run(root: &Path, program: Program) -> anyhow::Result<()> {
    match program {
        Program::Image => tools::docker()?,
        Program::Fleets => {}
        Program::Chaos | Program::Jaeger | Program::Promtool => tools::run(root)?,
    }
    match program {
        Program::Chaos => chaos::run(root),
        Program::Fleets => fleets::run(root),
        Program::Image => image::run(root),
        Program::Jaeger => jaeger::run(root),
        Program::Promtool => promtool::run(root),
    }
}
