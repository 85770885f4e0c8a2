//! Reads the standard variables for the export of traces.
//!
//! An invalid value is refused with a warning, and the default is used. An invalid value for the endpoint or protocol disables the export,
//! because a guess might send spans to an unknown host. Neither ends a command.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use opentelemetry_sdk::trace::Sampler;
use percent_encoding::percent_decode_str;
use url::Url;

/// The default endpoint for gRPC.
const GRPC_ENDPOINT: &str = "http://localhost:4317";
/// The default endpoint for HTTP.
const HTTP_ENDPOINT: &str = "http://localhost:4318";
/// An endpoint with this port uses gRPC if no protocol is set.
const GRPC_PORT: u16 = 4317;
/// The standard's default time limit of one export.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The standard's default queue size.
const QUEUE: usize = 2048;
/// The largest queue size that may be set; a span takes about 1 KiB.
const QUEUE_MAX: usize = 1 << 20;
/// The standard's default batch size.
const BATCH: usize = 512;
/// The standard's default delay of a batch.
const DELAY: Duration = Duration::from_secs(5);
/// The longest time that a variable may set.
const LONGEST: Duration = Duration::from_secs(3600);
/// How many characters of a refused value are shown.
const SHOWN_CHARACTERS: usize = 60;

/// The protocol of the export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// OTLP over gRPC.
    Grpc,
    /// OTLP over HTTP, as protobuf.
    Http,
}

/// The options of the export.
#[derive(Clone, Debug)]
pub struct Options {
    /// The collector.
    pub endpoint: Url,
    /// The endpoint is for traces alone, so its path is complete.
    pub is_for_traces: bool,
    /// The protocol.
    pub protocol: Protocol,
    /// The time limit of one export.
    pub timeout: Duration,
    /// Sent with each export.
    pub headers: Vec<(String, String)>,
    /// The sampler.
    pub sampler: Sampler,
    /// The most waiting spans.
    pub queue: usize,
    /// The most spans of one export.
    pub batch: usize,
    /// The longest wait for a full batch.
    pub delay: Duration,
    /// `OTEL_RESOURCE_ATTRIBUTES`.
    pub resource: BTreeMap<String, String>,
    /// `OTEL_SERVICE_NAME`.
    pub service: Option<String>,
}

/// The result of reading the variables.
#[derive(Debug, Default)]
pub struct Reading {
    /// None: nothing is exported.
    pub options: Option<Options>,
    /// The refused values, for people, without values of headers.
    pub warnings: Vec<String>,
}

impl Options {
    /// Reads the variables; `variable` returns a value. As in the standard, an empty value counts as not set.
    #[must_use]
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Reading {
        let mut reader = Reader { variable: &variable, warnings: Vec::new() };
        let options = reader.options();
        Reading { options, warnings: reader.warnings }
    }
}

struct Reader<'a> {
    variable: &'a dyn Fn(&str) -> Option<String>,
    warnings: Vec<String>,
}

impl Reader<'_> {
    fn options(&mut self) -> Option<Options> {
        if self.get("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return None;
        }
        let named = self.of_traces("ENDPOINT");
        let wanted = match self.get("OTEL_TRACES_EXPORTER") {
            None => named.is_some(),
            Some(value) => match value.as_str() {
                "otlp" => true,
                "none" => false,
                other => return self.no_export("OTEL_TRACES_EXPORTER", other, "otlp and none are known"),
            },
        };
        if !wanted {
            return None;
        }
        let protocol = match self.of_traces("PROTOCOL") {
            None => None,
            Some((name, value)) => match value.as_str() {
                "grpc" => Some(Protocol::Grpc),
                "http/protobuf" => Some(Protocol::Http),
                other => return self.no_export(&name, other, "grpc and http/protobuf are known"),
            },
        };
        let (endpoint, is_for_traces) = match named {
            None => (None, false),
            Some((name, value)) => match endpoint(&value) {
                Ok(endpoint) => (Some(self.without_login(&name, endpoint)), name.contains("TRACES")),
                Err(why) => return self.no_export(&name, "", &why),
            },
        };
        for kind in ["CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY"] {
            if let Some((name, value)) = self.of_traces(kind) {
                return self.no_export(&name, &value, "certificates of the system are used; give the collector one that they vouch for");
            }
        }
        let by_port = endpoint.as_ref().and_then(Url::port).filter(|port| *port == GRPC_PORT).map(|_| Protocol::Grpc);
        let protocol = protocol.or(by_port).unwrap_or(Protocol::Http);
        let default = if protocol == Protocol::Grpc { GRPC_ENDPOINT } else { HTTP_ENDPOINT };
        // The default is a URL.
        let endpoint = endpoint.or_else(|| Url::parse(default).ok())?;
        Some(Options {
            endpoint,
            is_for_traces,
            protocol,
            timeout: self.timeout(),
            headers: self.headers(),
            sampler: self.sampler(),
            queue: self.count("OTEL_BSP_MAX_QUEUE_SIZE", QUEUE),
            batch: self.count("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", BATCH),
            delay: self.milliseconds("OTEL_BSP_SCHEDULE_DELAY", DELAY),
            resource: self.resource(),
            service: self.get("OTEL_SERVICE_NAME"),
        })
    }

    /// The address without user and password. Over HTTP the exporter drops them, and over gRPC it sends them as part of the host's name.
    fn without_login(&mut self, name: &str, mut endpoint: Url) -> Url {
        if !endpoint.username().is_empty() || endpoint.password().is_some() {
            self.warnings.push(format!("{name}: the login in the address is not sent: give it in OTEL_EXPORTER_OTLP_HEADERS"));
            // Both succeed, because the address has a host.
            let _ = endpoint.set_username("");
            let _ = endpoint.set_password(None);
        }
        endpoint
    }

    fn get(&self, name: &str) -> Option<String> {
        (self.variable)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    /// The name and value of the variable for traces, else of the one for all signals.
    fn of_traces(&self, what: &str) -> Option<(String, String)> {
        [format!("OTEL_EXPORTER_OTLP_TRACES_{what}"), format!("OTEL_EXPORTER_OTLP_{what}")].into_iter().find_map(|name| {
            let value = self.get(&name)?;
            Some((name, value))
        })
    }

    fn no_export(&mut self, name: &str, value: &str, why: &str) -> Option<Options> {
        let shown = shown(value);
        self.warnings.push(format!("traces are not exported: {name}{shown}: {why}"));
        None
    }

    fn refuse(&mut self, name: &str, value: &str, why: &str) {
        let shown = shown(value);
        self.warnings.push(format!("{name}{shown} is ignored: {why}"));
    }

    fn parsed<T: FromStr>(&mut self, name: &str, fits: impl Fn(&T) -> bool, what: &str) -> Option<T> {
        let value = self.get(name)?;
        let parsed = value.parse().ok().filter(fits);
        if parsed.is_none() {
            self.refuse(name, &value, what);
        }
        parsed
    }

    fn count(&mut self, name: &str, default: usize) -> usize {
        let fits = |count: &usize| (1..=QUEUE_MAX).contains(count);
        self.parsed(name, fits, "a whole number from 1 to 1048576 is expected").unwrap_or(default)
    }

    fn milliseconds(&mut self, name: &str, default: Duration) -> Duration {
        let fits = |number: &u64| Duration::from_millis(*number) <= LONGEST && *number > 0;
        self.parsed(name, fits, "milliseconds from 1 to 3600000 are expected").map_or(default, Duration::from_millis)
    }

    fn timeout(&mut self) -> Duration {
        match self.of_traces("TIMEOUT") {
            Some((name, _)) => self.milliseconds(&name, TIMEOUT),
            None => TIMEOUT,
        }
    }

    fn sampler(&mut self) -> Sampler {
        let always = || Sampler::ParentBased(Box::new(Sampler::AlwaysOn));
        let Some(name) = self.get("OTEL_TRACES_SAMPLER") else { return always() };
        let of_parent = |root: Sampler| Sampler::ParentBased(Box::new(root));
        match name.as_str() {
            "always_on" => Sampler::AlwaysOn,
            "always_off" => Sampler::AlwaysOff,
            "traceidratio" => Sampler::TraceIdRatioBased(self.ratio()),
            "parentbased_always_on" => always(),
            "parentbased_always_off" => of_parent(Sampler::AlwaysOff),
            "parentbased_traceidratio" => of_parent(Sampler::TraceIdRatioBased(self.ratio())),
            other => {
                self.refuse("OTEL_TRACES_SAMPLER", other, "always_on, always_off, traceidratio, and each after parentbased_ are known");
                always()
            }
        }
    }

    fn ratio(&mut self) -> f64 {
        let fits = |ratio: &f64| (0.0..=1.0).contains(ratio);
        self.parsed("OTEL_TRACES_SAMPLER_ARG", fits, "a number from 0 to 1 is expected").unwrap_or(1.0)
    }

    /// The headers in the standard's form. An invalid pair is not shown, because it may be a secret.
    fn headers(&mut self) -> Vec<(String, String)> {
        let Some((name, value)) = self.of_traces("HEADERS") else { return Vec::new() };
        let pairs: Vec<_> = value.split(',').filter(|pair| !pair.trim().is_empty()).map(pair).collect();
        if pairs.iter().any(Option::is_none) {
            self.refuse(&name, "", "parts that are no NAME=VALUE were ignored");
        }
        pairs.into_iter().flatten().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect()
    }

    fn resource(&mut self) -> BTreeMap<String, String> {
        const NAME: &str = "OTEL_RESOURCE_ATTRIBUTES";
        let Some(value) = self.get(NAME) else { return BTreeMap::new() };
        let pairs: Option<BTreeMap<_, _>> = value.split(',').filter(|pair| !pair.trim().is_empty()).map(pair).collect();
        pairs.unwrap_or_else(|| {
            self.refuse(NAME, &value, "NAME=VALUE with commas between is expected");
            BTreeMap::new()
        })
    }
}

fn endpoint(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("no URL ({error})"))?;
    let is_http = matches!(url.scheme(), "http" | "https") && url.host().is_some();
    if is_http { Ok(url) } else { Err("a URL such as http://collector:4318 is expected".to_owned()) }
}

fn pair(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once('=')?;
    let decoded = |text: &str| percent_decode_str(text.trim()).decode_utf8().ok().map(|text| text.into_owned());
    let (name, value) = (decoded(name)?, decoded(value)?);
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
    is_name.then_some((name, value))
}

fn shown(value: &str) -> String {
    let beginning: String = value.chars().take(SHOWN_CHARACTERS).collect();
    if value.is_empty() { String::new() } else { format!("={beginning:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Reading {
        Options::read(|name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn nothing_is_exported_without_a_variable() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318");
        for (variables, exports) in [
            (&[][..], false),
            (&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")], false),
            (&[endpoint], true),
            (&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c:1/x")], true),
            (&[("OTEL_TRACES_EXPORTER", "otlp")], true),
            (&[endpoint, ("OTEL_TRACES_EXPORTER", "none")], false),
            (&[endpoint, ("OTEL_SDK_DISABLED", "TRUE")], false),
            (&[endpoint, ("OTEL_SDK_DISABLED", "1")], true),
        ] {
            let reading = read(variables);
            assert_eq!((reading.options.is_some(), reading.warnings), (exports, vec![]), "{variables:?}");
        }
    }

    #[test]
    fn endpoint_and_protocol_are_read_from_variables() {
        let of = |variables: &[(&str, &str)]| {
            let options = read(variables).options.unwrap();
            (options.endpoint.to_string(), options.protocol, options.is_for_traces)
        };
        let (http, grpc) = (Protocol::Http, Protocol::Grpc);
        let all = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4317");
        assert_eq!(of(&[("OTEL_TRACES_EXPORTER", "otlp")]), ("http://localhost:4318/".to_owned(), http, false));
        assert_eq!(of(&[all]), ("http://c:4317/".to_owned(), grpc, false));
        assert_eq!(of(&[all, ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")]), ("http://c:4317/".to_owned(), http, false));
        let traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://t/x");
        assert_eq!(of(&[all, traces, ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc")]), ("https://t/x".to_owned(), grpc, true));
    }

    #[test]
    fn login_in_the_address_is_not_sent_and_a_warning_names_the_variable_for_it() {
        for address in ["http://jane:s3cret@c:4317", "https://s3cret@c:4318/x", "http://:s3cret@c"] {
            let Reading { options, warnings } = read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", address)]);
            let options = options.unwrap();
            assert_eq!(options.endpoint.host_str(), Some("c"));
            let shown = format!("{} {options:?} {warnings:?}", options.endpoint);
            assert!(!shown.contains("s3cret") && !shown.contains("jane"), "{shown}");
            assert!(warnings.len() == 1 && warnings[0].contains("OTEL_EXPORTER_OTLP_HEADERS"), "{warnings:?}");
        }
    }

    #[test]
    fn invalid_values_are_refused_without_showing_secrets() {
        let long = "x".repeat(2 << 20);
        let on = ("OTEL_TRACES_EXPORTER", "otlp");
        for (variables, exports, expected) in [
            (&[("OTEL_TRACES_EXPORTER", "zipkin")][..], false, "OTEL_TRACES_EXPORTER=\"zipkin\""),
            (&[("OTEL_EXPORTER_OTLP_ENDPOINT", "c:4317")], false, "OTEL_EXPORTER_OTLP_ENDPOINT: a URL such as"),
            (&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://")], false, "OTEL_EXPORTER_OTLP_ENDPOINT: no URL"),
            (&[("OTEL_EXPORTER_OTLP_ENDPOINT", &long)], false, "OTEL_EXPORTER_OTLP_ENDPOINT: no URL"),
            (&[on, ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")], false, "grpc and http/protobuf are known"),
            (&[on, ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/x")], false, "OTEL_EXPORTER_OTLP_CERTIFICATE"),
            (&[on, ("OTEL_TRACES_SAMPLER", "sometimes")], true, "OTEL_TRACES_SAMPLER=\"sometimes\" is ignored"),
            (&[on, ("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "NaN")], true, "from 0 to 1"),
            (&[on, ("OTEL_EXPORTER_OTLP_TIMEOUT", "-1")], true, "OTEL_EXPORTER_OTLP_TIMEOUT"),
            (&[on, ("OTEL_BSP_MAX_QUEUE_SIZE", "0")], true, "OTEL_BSP_MAX_QUEUE_SIZE"),
            (&[on, ("OTEL_BSP_SCHEDULE_DELAY", "soon")], true, "OTEL_BSP_SCHEDULE_DELAY"),
            (&[on, ("OTEL_EXPORTER_OTLP_HEADERS", "s3cret")], true, "OTEL_EXPORTER_OTLP_HEADERS is ignored"),
            (&[on, ("OTEL_RESOURCE_ATTRIBUTES", "a")], true, "OTEL_RESOURCE_ATTRIBUTES"),
        ] {
            let Reading { options, warnings } = read(variables);
            assert_eq!((options.is_some(), warnings.len()), (exports, 1), "{expected}: {warnings:.200?}");
            assert!(warnings[0].contains(expected) && warnings[0].len() < 300, "{expected}: {:.400}", warnings[0]);
            assert!(!warnings[0].contains("s3cret"));
        }
    }

    #[test]
    fn headers_and_resource_attributes_are_decoded() {
        let variables = [
            ("OTEL_TRACES_EXPORTER", "otlp"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Basic%20YTpi, x-team = a"),
            ("OTEL_RESOURCE_ATTRIBUTES", "k8s.cluster.name=eu,a=b%2Cc"),
            ("OTEL_SERVICE_NAME", "pulls"),
        ];
        let options = read(&variables).options.unwrap();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(options.headers, [pair("authorization", "Basic YTpi"), pair("x-team", "a")]);
        assert_eq!(options.resource, [pair("a", "b,c"), pair("k8s.cluster.name", "eu")].into());
        assert_eq!(options.service.as_deref(), Some("pulls"));
    }
}
