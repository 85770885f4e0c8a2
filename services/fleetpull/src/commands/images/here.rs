//! The images of this machine's store or runtime.

use anyhow::{Result, anyhow};
use clock::Clock;
use runtimes::StoredImage;
use settings::RuntimeKind;

use crate::cli::{ImagesArgs, OutputFormat, RegistryArgs};
use crate::commands::pull::advice;
use crate::commands::store::{self, Store};
use crate::configuration::Configuration;
use crate::exit::Exit;
use crate::node::open_runtime;
use crate::output::{self, table, units};

const HEADER: [&str; 5] = ["IMAGE", "DIGEST", "PLATFORM", "SIZE", "PULLED"];

pub(super) fn list(args: &ImagesArgs) -> Result<Exit> {
    let configuration = Configuration::load(&args.asked.question.settings, args.flags())?;
    configuration.start_log("warn");
    let (mut images, nothing) = match configuration.settings().runtime.kind {
        RuntimeKind::OciLayout => of_store(&configuration)?,
        RuntimeKind::Cri => (of_runtime(&configuration)?, "no images in the container runtime".to_owned()),
    };
    images.sort_by(|one, other| (&one.name, &one.platform).cmp(&(&other.name, &other.platform)));
    match args.asked.question.output.format {
        OutputFormat::Json => images.iter().for_each(|image| output::json(&store::row(image))),
        OutputFormat::Text if images.is_empty() => print_sentence(args, &nothing),
        OutputFormat::Text => {
            let now_ms = Clock::host().now().wall_ms();
            let rows: Vec<Vec<String>> = images.iter().map(|image| text_row(image, now_ms)).collect();
            table::columns(&HEADER, &rows).iter().for_each(|line| output::fact(line));
        }
    }
    Ok(Exit::Success)
}

fn print_sentence(args: &ImagesArgs, sentence: &str) {
    if !args.asked.question.output.quiet {
        output::remark(sentence);
    }
}

/// The images, and the sentence to print if there are none.
fn of_store(configuration: &Configuration) -> Result<(Vec<StoredImage>, String)> {
    let Store { path, upkeep } = Store::of(configuration)?;
    match upkeep {
        None => Ok((Vec::new(), store::no_store_at(&path))),
        Some(upkeep) => Ok((upkeep.images()?, format!("no images in the store {}", path.display()))),
    }
}

fn of_runtime(configuration: &Configuration) -> Result<Vec<StoredImage>> {
    actix::System::new().block_on(async {
        let runtime = open_runtime(configuration, RegistryArgs::default(), &Clock::host())?;
        runtime.images().await.map_err(|failure| match advice::of_socket(&failure.text) {
            Some(advice) => anyhow!("{failure}; {advice}"),
            None => anyhow!("the container runtime does not list its images: {failure}"),
        })
    })
}

fn text_row(image: &StoredImage, now_ms: u64) -> Vec<String> {
    let age = |pulled_at: std::time::Duration| units::age(now_ms.saturating_sub(u64::try_from(pulled_at.as_millis()).unwrap_or(u64::MAX)));
    let or_none = |cell: Option<String>| cell.unwrap_or_else(|| "-".to_owned());
    vec![
        store::name(image).to_owned(),
        store::short_digest(image),
        or_none(image.platform.clone()),
        or_none(image.size_bytes.map(units::bytes)),
        or_none(image.pulled_at.map(age)),
    ]
}
