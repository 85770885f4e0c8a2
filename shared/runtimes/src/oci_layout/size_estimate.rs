//! What an image consists of, asked of its registry without fetching it: one request for the manifest, and one more for each
//! list of manifests on the way.

use image::{Digest, Platform};

use super::failure::{Reach, StepFailure, of_pull};
use super::manifest::{self, Manifest};
use super::probe::Prober;
use super::pull::{LISTS_MAX, fetch_manifest, lists_of_lists, unsuitable};
use super::registry::Session;
use super::route::{self, Endpoint, RouteOptions};
use crate::port::{PullFailure, PullRequest, Weight};

impl Prober {
    /// Asks each endpoint of a route in turn until one says what the image consists of.
    pub(crate) async fn weigh(&self, route: &RouteOptions, request: &PullRequest) -> Result<Weight, PullFailure> {
        // As whom is nobody's question here.
        let failed = |failures| of_pull(failures, String::new());
        let by_digest = request.reference.digest().is_some();
        let able = |endpoint: &Endpoint| if by_digest { endpoint.pull } else { endpoint.resolve };
        let endpoints = route::endpoints(&request.reference, route).map_err(|failure| failed(vec![failure]))?;
        let mut failures = Vec::new();
        for endpoint in endpoints.into_iter().filter(able) {
            match self.weigh_at(endpoint, request).await {
                Ok(weight) => return Ok(weight),
                Err(failure) => {
                    let over = failure.reach == Reach::Pull;
                    failures.push(failure);
                    if over {
                        break;
                    }
                }
            }
        }
        Err(failed(failures))
    }

    /// What is listed is asked of the endpoint that gave the list: its digest says whether it is the right one.
    async fn weigh_at(&self, endpoint: Endpoint, request: &PullRequest) -> Result<Weight, StepFailure> {
        let reference = &request.reference;
        let session = Session::open(&self.registries, &self.keyring, endpoint, reference, request.into()).await?;
        let name = reference.digest().map_or_else(|| reference.tag().unwrap_or_default(), Digest::as_str);
        let mut fetched = fetch_manifest(&session, name, reference.digest()).await?;
        let digest = fetched.digest.clone();
        let wanted = request.platform.clone().unwrap_or_else(Platform::host);
        for _ in 0..=LISTS_MAX {
            match fetched.manifest {
                Manifest::Image(image) => return Ok(Weight { digest, blobs: image.blobs() }),
                Manifest::List(entries) => {
                    let entry = manifest::choose(&entries, &wanted).map_err(|what| unsuitable(reference, &what))?;
                    let listed = &entry.descriptor.digest;
                    fetched = fetch_manifest(&session, listed.as_str(), Some(listed)).await?;
                }
            }
        }
        Err(lists_of_lists())
    }
}
