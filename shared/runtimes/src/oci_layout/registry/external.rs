//! Fetches blobs from external addresses that a manifest names (`urls`), for content that registries may not serve.

use http::{HeaderMap, HeaderValue, StatusCode};
use image::Digest;
use url::Url;

use super::exchange::{Body, Exchange, OtherOrigin};
use super::{Answer, Registries};
use crate::oci_layout::failure::StepFailure;
use crate::oci_layout::route::host_label;
use contract::FailureClass;

impl Registries {
    /// Asks an external address for a blob from byte `from` on, without logins, headers of a `hosts.toml` and trace; its certificate is
    /// checked. Returns a successful answer, or 416 if a range was asked for.
    ///
    /// # Errors
    /// It does not answer, or refuses. Its limits and refusals are not the registry's.
    pub(in crate::oci_layout) async fn ask_external(&self, url: &Url, digest: &Digest, from: u64) -> Result<Answer, StepFailure> {
        let permit = self.permits.acquire(&host_label(url)).await;
        let mut headers = HeaderMap::new();
        if let (true, Ok(range)) = (from > 0, HeaderValue::from_str(&format!("bytes={from}-"))) {
            headers.insert(http::header::RANGE, range);
        }
        let (url, own_headers) = (url.clone(), HeaderMap::new());
        let (body, elsewhere) = (Body::Wanted, OtherOrigin::Followed);
        let exchange =
            Exchange { registries: self, url, headers, own_headers, endpoint: None, body, elsewhere, trace: None, secrets: None };
        let answer = exchange.run().await?;
        let status = answer.status();
        if status.is_success() || from > 0 && status == StatusCode::RANGE_NOT_SATISFIABLE {
            return Ok(answer.holding(permit));
        }
        let class = match status {
            StatusCode::NOT_FOUND | StatusCode::GONE => FailureClass::NotFound,
            // Not rate limiting by the registry.
            status if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() => FailureClass::RegistryUnavailable,
            _ => FailureClass::Unknown,
        };
        // The body is not quoted: the manifest's author may have named any host that this node reaches.
        let what = format!("{status} for blob {digest}, asked for outside the registry because the manifest names this address");
        let failure = StepFailure::at(&answer.host(), class, what);
        Err(failure.advising("ask who published the image, or push its nondistributable layers to the registry too"))
    }
}
