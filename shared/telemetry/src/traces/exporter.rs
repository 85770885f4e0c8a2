//! Makes the exporter of the `opentelemetry-otlp` crate from our options.

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry_otlp::tonic_types::metadata::MetadataMap;
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig as _, WithHttpConfig as _, WithTonicConfig as _};

use super::options::{Options, Protocol};

/// OTLP's path for traces over HTTP.
const HTTP_PATH: &str = "v1/traces";

/// Why the export cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The options are not accepted by the exporter.
    #[error("traces cannot be exported as the OTEL_* variables configure: {0}")]
    Build(#[from] ExporterBuildError),
    /// A header is invalid.
    #[error("OTEL_EXPORTER_OTLP_HEADERS: {0:?} is no name and value of a header")]
    Header(String),
    /// The thread or its runtime could not be started.
    #[error("no thread for the export of traces")]
    Thread(#[source] std::io::Error),
    /// The thread ended before it was ready.
    #[error("the export of traces ended as it began; this is a bug in fleetpull")]
    Ended,
}

/// Must be called within a tokio runtime.
pub(crate) fn make(options: &Options) -> Result<SpanExporter, ExportError> {
    // TLS needs one provider per process; a second call has no effect.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match options.protocol {
        Protocol::Grpc => {
            let exporter = SpanExporter::builder().with_tonic().with_endpoint(options.endpoint.as_str());
            Ok(exporter.with_timeout(options.timeout).with_metadata(metadata(options)?).build()?)
        }
        Protocol::Http => {
            let endpoint = options.http_endpoint();
            let headers = options.headers.iter().cloned().collect();
            let exporter = SpanExporter::builder().with_http().with_protocol(opentelemetry_otlp::Protocol::HttpBinary);
            Ok(exporter.with_endpoint(endpoint).with_timeout(options.timeout).with_headers(headers).build()?)
        }
    }
}

impl Options {
    /// The URL for traces. An endpoint for traces alone is used unchanged; one for all signals gets the path appended.
    fn http_endpoint(&self) -> String {
        let endpoint = self.endpoint.as_str();
        if self.is_for_traces { endpoint.to_owned() } else { format!("{}/{HTTP_PATH}", endpoint.trim_end_matches('/')) }
    }
}

fn metadata(options: &Options) -> Result<MetadataMap, ExportError> {
    let mut headers = HeaderMap::new();
    for (name, value) in &options.headers {
        let header = || ExportError::Header(name.clone());
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| header())?;
        headers.insert(name, HeaderValue::from_str(value).map_err(|_| header())?);
    }
    Ok(MetadataMap::from_headers(headers))
}
