//! Size estimates: asks the registry which blobs an image has, with one request for the manifest and one more for each list of manifests.

use image::Platform;

use super::failure::{Reach, StepFailure, of_pull};
use super::manifest::{self, Manifest};
use super::probe::Prober;
use super::pull::{LISTS_MAX, fetch_manifest, lists_of_lists, unsuitable};
use super::registry::Session;
use super::route::{self, Endpoint, RouteOptions};
use crate::port::{PullFailure, PullRequest, SizeEstimate};

impl Prober {
    /// Asks each endpoint of a route in turn until one gives the manifest.
    pub(crate) async fn estimate_size(&self, route: &RouteOptions, request: &PullRequest) -> Result<SizeEstimate, PullFailure> {
        // The login is not reported here.
        let failed = |failures| of_pull(failures, String::new());
        let endpoints = route::endpoints_on_disk(&request.reference, route).await.map_err(|failure| failed(vec![failure]))?;
        let mut failures = Vec::new();
        for endpoint in endpoints.into_iter().filter(|endpoint| endpoint.serves(&request.reference)) {
            match self.estimate_size_at(endpoint, request).await {
                Ok(estimate) => return Ok(estimate),
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

    /// Asks one endpoint. Listed manifests are asked of the same endpoint, because their digests verify them.
    async fn estimate_size_at(&self, endpoint: Endpoint, request: &PullRequest) -> Result<SizeEstimate, StepFailure> {
        let reference = &request.reference;
        let session = Session::open(&self.registries, &self.keyring, endpoint, reference, request.into()).await?;
        let mut fetched = fetch_manifest(&session, manifest::name_of(reference), reference.digest()).await?;
        let digest = fetched.digest.clone();
        let wanted = request.platform.clone().unwrap_or_else(Platform::host);
        for _ in 0..=LISTS_MAX {
            match fetched.manifest {
                Manifest::Image(image) => return Ok(SizeEstimate { digest, blobs: image.blobs() }),
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
