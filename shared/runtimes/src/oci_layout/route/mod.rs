//! The route to an image: mirrors and the registry itself, in order.

mod hosts_file;
mod proxies;
mod summary;

use std::path::{Path, PathBuf};

use http::HeaderMap;
use image::Reference;
use url::Url;

use super::failure::StepFailure;
use crate::blocking::on_disk;
use crate::keyring::Audience;
use hosts_file::HostsFile;
pub(super) use proxies::{Proxies, Proxy};
pub(crate) use summary::{default_endpoint, route_summary};

/// The largest `hosts.toml` that is read; one with 20 mirrors has 4 KiB.
const HOSTS_FILE_MAX_BYTES: u64 = 1024 * 1024;

/// The TLS settings of an endpoint. Has a private key, so it is never printed.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TlsProfile {
    /// Trusted certificates besides the system's, as PEM.
    pub(super) roots_pem: Vec<Vec<u8>>,
    /// Client certificate and key, as one PEM.
    pub(super) identity_pem: Option<Vec<u8>>,
    /// Certificates are not checked.
    pub(super) skip_verify: bool,
}

/// A mirror, or the registry itself.
#[derive(Clone)]
pub(super) struct Endpoint {
    /// Scheme, host and path, to which `/<name>/manifests/...` is appended: `https://mirror.example/v2`.
    pub(super) base: Url,
    /// `host:port`, for errors and counters.
    pub(super) host: String,
    /// The registry that it serves, as images name it.
    pub(super) registry: String,
    /// Whether it may resolve tags.
    pub(super) resolve: bool,
    /// Whether it may serve content by digest.
    pub(super) pull: bool,
    /// A mirror's registry, sent as `ns=`. None for the registry itself.
    pub(super) stands_for: Option<String>,
    pub(super) tls: TlsProfile,
    /// The TLS settings for other hosts that it names: its token server and the targets of its redirects.
    pub(super) tls_elsewhere: TlsProfile,
    /// Sent with each request.
    pub(super) headers: HeaderMap,
}

/// The settings for all registries.
#[derive(Clone, Debug)]
pub(crate) struct RouteOptions {
    pub(crate) config_path: PathBuf,
    pub(crate) plain_http: bool,
    pub(crate) tls_verify: bool,
    /// Whether requests use the proxies of this process.
    pub(crate) own_proxies: bool,
}

/// The endpoints for `reference`, in order; the registry itself is last.
pub(super) fn endpoints(reference: &Reference, options: &RouteOptions) -> Result<Vec<Endpoint>, StepFailure> {
    let registry = reference.registry();
    let itself = registry_itself(reference, options)?;
    let mut endpoints = match folder(&options.config_path, registry)? {
        None => vec![itself],
        Some(folder) => hosts(&folder, itself)?,
    };
    for endpoint in &mut endpoints {
        endpoint.stands_for = endpoint.mirror_of(reference);
        endpoint.registry = registry.to_owned();
        if options.plain_http && endpoint.stands_for.is_none() {
            // The flag of one pull overrides the file.
            let _ = endpoint.base.set_scheme("http");
            endpoint.host = host_label(&endpoint.base);
        }
    }
    if !options.tls_verify {
        endpoints.iter_mut().for_each(|endpoint| {
            endpoint.tls.skip_verify = true;
            endpoint.tls_elsewhere.skip_verify = true;
        });
    }
    Ok(endpoints)
}

/// As [`endpoints`], for a caller whose thread must not wait for a disk.
pub(super) async fn endpoints_on_disk(reference: &Reference, options: &RouteOptions) -> Result<Vec<Endpoint>, StepFailure> {
    let (reference, options) = (reference.clone(), options.clone());
    on_disk(move || endpoints(&reference, &options)).await
}

/// The registry itself, as containerd reaches it: Docker Hub by its API host, this host without TLS.
fn registry_itself(reference: &Reference, options: &RouteOptions) -> Result<Endpoint, StepFailure> {
    let host = reference.registry_host();
    let plain = options.plain_http || (is_loopback(host) && !host.ends_with(":443"));
    let scheme = if plain { "http" } else { "https" };
    let base = Url::parse(&format!("{scheme}://{host}/v2")).map_err(|error| {
        StepFailure::here(format!("{} is no address of a registry: {error}", reference.registry()), "check the image's name")
    })?;
    Ok(Endpoint::new(base))
}

impl Endpoint {
    fn new(base: Url) -> Self {
        let (tls, tls_elsewhere, headers) = (TlsProfile::default(), TlsProfile::default(), HeaderMap::new());
        Self {
            host: host_label(&base),
            registry: String::new(),
            base,
            resolve: true,
            pull: true,
            stands_for: None,
            tls,
            tls_elsewhere,
            headers,
        }
    }

    /// Whether it may be asked for the manifest of this reference.
    pub(super) fn serves(&self, reference: &Reference) -> bool {
        if reference.digest().is_some() { self.pull } else { self.resolve }
    }

    /// The registry's name if this is another host than the registry's own.
    fn mirror_of(&self, reference: &Reference) -> Option<String> {
        let named = Url::parse(&format!("{}://{}", self.base.scheme(), reference.registry_host()));
        let same = named.is_ok_and(|named| host_label(&named) == self.host);
        (!same).then(|| reference.registry().to_owned())
    }

    /// The audience for its logins, by the registry's own name or the mirror's.
    pub(super) fn audience(&self, reference: &Reference) -> Audience {
        match &self.stands_for {
            None => Audience::endpoint(reference.repository(), &self.base),
            Some(_) => Audience::endpoint(&format!("{}/{}", self.authority(), reference.path()), &self.base),
        }
    }

    /// `host[:port]` of the address.
    fn authority(&self) -> String {
        let host = self.base.host_str().unwrap_or_default();
        self.base.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }
}

/// `host:port`; the port follows from the scheme if there is none.
pub(super) fn host_label(url: &Url) -> String {
    match (url.host_str(), url.port_or_known_default()) {
        (Some(host), Some(port)) => format!("{host}:{port}"),
        (host, _) => host.unwrap_or_default().to_owned(),
    }
}

/// Whether `host[:port]` is on this host.
pub(super) fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The folder for a registry: `host_port_`, else `host:port`, else `_default`.
fn folder(config_path: &Path, registry: &str) -> Result<Option<PathBuf>, StepFailure> {
    if config_path.as_os_str().is_empty() {
        // An empty path would be searched in the process's working directory.
        return Ok(None);
    }
    let with_port = registry.rsplit_once(':').filter(|(_, port)| !port.ends_with(']'));
    let names = [with_port.map(|(host, port)| format!("{host}_{port}_")), Some(registry.to_owned()), Some("_default".to_owned())];
    // As in containerd, several roots are separated by colons; the first with a folder for the registry counts.
    for root in std::env::split_paths(config_path).filter(|root| !root.as_os_str().is_empty()) {
        for name in names.iter().flatten() {
            let folder = root.join(name);
            match std::fs::metadata(&folder) {
                Ok(_) => return Ok(Some(folder)),
                Err(error) if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {}
                Err(error) => return Err(unreadable(&folder, &error.to_string())),
            }
        }
    }
    Ok(None)
}

fn hosts(folder: &Path, itself: Endpoint) -> Result<Vec<Endpoint>, StepFailure> {
    let path = folder.join("hosts.toml");
    match read_bounded(&path) {
        Ok(text) => HostsFile::parse(&text).and_then(|file| file.endpoints(folder, itself)).map_err(|problem| unreadable(&path, &problem)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(vec![itself]),
        Err(error) => Err(unreadable(&path, &error.to_string())),
    }
}

fn read_bounded(path: &Path) -> std::io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    std::fs::File::open(path)?.take(HOSTS_FILE_MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > HOSTS_FILE_MAX_BYTES {
        return Err(std::io::Error::other(format!("it has more than {HOSTS_FILE_MAX_BYTES} bytes")));
    }
    Ok(text)
}

fn unreadable(path: &Path, problem: &str) -> StepFailure {
    StepFailure::here(
        format!("cannot use {}: {problem}", path.display()),
        "correct the file, or name another folder with registry.config_path",
    )
}

#[cfg(feature = "fuzzing")]
pub(super) fn fuzz_hosts_file(text: &str, folder: &Path) {
    if let Ok(base) = Url::parse("https://registry.example/v2")
        && let Ok(file) = hosts_file::HostsFile::parse(text)
    {
        drop(file.endpoints(folder, Endpoint::new(base)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(config_path: &Path) -> RouteOptions {
        RouteOptions { config_path: config_path.to_owned(), plain_http: false, tls_verify: true, own_proxies: false }
    }

    fn route(config_path: &Path, image: &str) -> Vec<String> {
        let reference = Reference::parse(image).unwrap();
        endpoints(&reference, &options(config_path)).unwrap().iter().map(|endpoint| endpoint.base.to_string()).collect()
    }

    #[test]
    fn registry_itself_is_asked_without_files() {
        let nowhere = Path::new("/nonexistent");
        for (image, base) in [
            ("busybox", "https://registry-1.docker.io/v2"),
            ("quay.io/a/b", "https://quay.io/v2"),
            ("localhost/a", "http://localhost/v2"),
            ("localhost:5000/a", "http://localhost:5000/v2"),
            ("127.0.0.1:5000/a", "http://127.0.0.1:5000/v2"),
            ("127.9.9.9:5000/a", "http://127.9.9.9:5000/v2"),
            ("[::1]:5000/a", "http://[::1]:5000/v2"),
            ("localhost:443/a", "https://localhost/v2"),
            ("localhost.example/a", "https://localhost.example/v2"),
        ] {
            assert_eq!(route(nowhere, image), [base], "{image}");
        }
    }

    #[test]
    fn empty_config_path_searches_no_folder() {
        // Tests run in the crate's folder, which has a folder `src`.
        assert_eq!(folder(Path::new(""), "src").unwrap(), None);
        assert!(folder(Path::new("."), "src").unwrap().is_some());
    }

    #[test]
    fn mirrors_are_distinguished_from_the_registry_itself() {
        let root = tempfile::tempdir().unwrap();
        let stands_for = |image: &str, server: &str| {
            let reference = Reference::parse(image).unwrap();
            let folder = root.path().join(reference.registry());
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("hosts.toml"), format!("server = \"{server}\"\n")).unwrap();
            endpoints(&reference, &options(root.path())).unwrap()[0].stands_for.clone()
        };
        for (image, server, expected) in [
            ("a.example/x", "https://a.example", None),
            ("a.example/x", "https://a.example:443", None),
            ("a.example:443/x", "https://a.example", None),
            ("a.example:80/x", "http://a.example", None),
            ("a.example/x", "https://a.example:5000", Some("a.example")),
            ("a.example/x", "https://b.example", Some("a.example")),
            ("busybox", "https://registry-1.docker.io", None),
            ("busybox", "https://docker.io", None),
            ("busybox", "https://mirror.example", Some("docker.io")),
        ] {
            assert_eq!(stands_for(image, server).as_deref(), expected, "{image} {server}");
        }
    }

    #[test]
    fn plain_http_flag_overrides_the_file() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("a.example:5000");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("hosts.toml"), "server = \"https://a.example:5000\"\n[host.\"https://mirror.example\"]\n").unwrap();
        let plain = RouteOptions { plain_http: true, ..options(root.path()) };
        let endpoints = endpoints(&Reference::parse("a.example:5000/x").unwrap(), &plain).unwrap();
        let bases: Vec<_> = endpoints.iter().map(|endpoint| endpoint.base.as_str()).collect();
        assert_eq!(bases, ["https://mirror.example/v2", "http://a.example:5000/v2"]);
    }

    #[test]
    fn file_that_is_too_long_is_refused_and_not_cut() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("a.example");
        std::fs::create_dir_all(&folder).unwrap();
        let long = format!("server = \"https://mirror.example\"\n#{}\n", " ".repeat(1024 * 1024));
        std::fs::write(folder.join("hosts.toml"), long).unwrap();
        let failure = endpoints(&Reference::parse("a.example/x").unwrap(), &options(root.path())).err().unwrap();
        assert!(failure.what.contains("hosts.toml: it has more than 1048576 bytes"), "{failure}");
    }

    #[test]
    fn folders_are_named_as_in_containerd() {
        let root = tempfile::tempdir().unwrap();
        let put = |name: &str| {
            let folder = root.path().join(name);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("hosts.toml"), format!("[host.\"http://from-{}\"]\n", name.replace([':', '_'], "-"))).unwrap();
        };
        let first = |image: &str| route(root.path(), image)[0].clone();
        put("_default");
        assert_eq!(first("registry.example:5000/a"), "http://from--default/v2");
        put("registry.example:5000");
        assert_eq!(first("registry.example:5000/a"), "http://from-registry.example-5000/v2");
        put("registry.example_5000_");
        assert_eq!(first("registry.example:5000/a"), "http://from-registry.example-5000-/v2");
        put("docker.io");
        assert_eq!(route(root.path(), "busybox"), ["http://from-docker.io/v2", "https://registry-1.docker.io/v2"]);
        let roots = std::env::join_paths([Path::new("/nonexistent"), root.path(), Path::new("")]).unwrap();
        assert_eq!(route(Path::new(&roots), "busybox").len(), 2, "the first root has no folder for it");
    }
}
