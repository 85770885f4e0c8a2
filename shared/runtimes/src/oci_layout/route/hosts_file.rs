//! Parses `hosts.toml` as containerd does.

use std::collections::BTreeMap;
use std::path::Path;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use toml::Spanned;
use url::Url;

use super::{Endpoint, TlsProfile};
use crate::keyring::without_login;

/// Docker Hub's web site.
const DOCKER_HUB: &str = "docker.io";
/// Docker Hub's API host.
const DOCKER_HUB_HOST: &str = "registry-1.docker.io";
/// The capabilities that containerd knows; `push` and `referrers` do not matter for pulls.
const CAPABILITIES: [&str; 4] = ["pull", "resolve", "push", "referrers"];

/// The whole file. Unknown keys are ignored, as in containerd, and so are those for pushing.
#[derive(Deserialize)]
pub(super) struct HostsFile {
    server: Option<String>,
    #[serde(default)]
    host: BTreeMap<String, Spanned<HostTable>>,
    /// The top level describes the server.
    #[serde(flatten)]
    top: HostTable,
}

#[derive(Default, Deserialize)]
struct HostTable {
    capabilities: Option<Vec<String>>,
    ca: Option<OneOrMore>,
    client: Option<Client>,
    #[serde(default)]
    skip_verify: bool,
    #[serde(default)]
    override_path: bool,
    #[serde(default)]
    header: BTreeMap<String, OneOrMore>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl OneOrMore {
    fn all(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::More(more) => more,
        }
    }
}

/// `"both.pem"`, `["both.pem"]` or `[["cert.pem", "key.pem"]]`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Client {
    File(String),
    List(Vec<OneOrMore>),
}

impl HostsFile {
    /// Parses the file. An error names only the line: the parser's text quotes values, and a header may be a login.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error: toml::de::Error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            format!("line {} is not what a hosts.toml may hold", before.matches('\n').count() + 1)
        })
    }

    /// The mirrors in the order of the file, then the server, which is the registry `itself` if none is named. Relative paths of files
    /// start at `folder`.
    pub(super) fn endpoints(self, folder: &Path, itself: Endpoint) -> Result<Vec<Endpoint>, String> {
        let mut hosts: Vec<_> = self.host.iter().collect();
        hosts.sort_by_key(|(_, table)| table.span().start);
        let mut endpoints = Vec::new();
        for (address, table) in hosts {
            let table = table.get_ref();
            endpoints.push(table.applied_to(Endpoint::new(base_of(address, table.override_path)?), folder)?);
        }
        let server = match &self.server {
            None => itself,
            Some(address) => Endpoint::new(base_of(address, self.top.override_path)?),
        };
        endpoints.push(self.top.applied_to(server, folder)?);
        Ok(endpoints)
    }
}

impl HostTable {
    fn applied_to(&self, endpoint: Endpoint, folder: &Path) -> Result<Endpoint, String> {
        let capabilities = self.capabilities.as_deref();
        if let Some(odd) = capabilities.unwrap_or_default().iter().find(|word| !CAPABILITIES.contains(&word.as_str())) {
            return Err(format!("{} has the capability {odd:?}; allowed are {}", endpoint.host, CAPABILITIES.join(", ")));
        }
        let can = |word: &str| capabilities.is_none_or(|words| words.iter().any(|known| known == word));
        Ok(Endpoint { resolve: can("resolve"), pull: can("pull"), tls: self.tls(folder)?, headers: self.headers()?, ..endpoint })
    }

    fn tls(&self, folder: &Path) -> Result<TlsProfile, String> {
        let read = |name: &str| std::fs::read(folder.join(name)).map_err(|error| format!("{}: {error}", folder.join(name).display()));
        let roots_pem = self.ca.as_ref().map_or(&[][..], OneOrMore::all).iter().map(|name| read(name)).collect::<Result<_, _>>()?;
        let files: Vec<&str> = match &self.client {
            None => Vec::new(),
            Some(Client::File(file)) => vec![file],
            Some(Client::List(list)) => match list.as_slice() {
                [] => Vec::new(),
                [OneOrMore::One(both)] => vec![both],
                [OneOrMore::More(pair)] => pair.iter().map(String::as_str).filter(|name| !name.is_empty()).collect(),
                _ => return Err("client names more than one certificate; name one, with its key".to_owned()),
            },
        };
        let parts = files.iter().map(|name| read(name)).collect::<Result<Vec<_>, _>>()?;
        let identity_pem = (!parts.is_empty()).then(|| parts.join(&b"\n"[..]));
        Ok(TlsProfile { roots_pem, identity_pem, skip_verify: self.skip_verify })
    }

    fn headers(&self) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        for (name, values) in &self.header {
            let key = HeaderName::try_from(name.as_str()).map_err(|_| format!("{name:?} is no name of a header"))?;
            for value in values.all() {
                let mut value = HeaderValue::try_from(value.as_str())
                    .map_err(|_| format!("the value of header {name} has letters that no header may have"))?;
                value.set_sensitive(true);
                headers.append(key.clone(), value);
            }
        }
        Ok(headers)
    }
}

/// The base URL: `https://` if there is no scheme, and `/v2` at the end unless the path is overridden. A login in the address is ignored,
/// as in containerd: the base becomes part of a hash that is published.
fn base_of(address: &str, override_path: bool) -> Result<Url, String> {
    let full = if address.contains("://") { address.to_owned() } else { format!("https://{address}") };
    let shown = without_login(address);
    let mut url = Url::parse(&full).map_err(|error| format!("{shown:?} is no address: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(format!("{shown:?} is no http or https address"));
    }
    // An address with a host can have its login removed.
    let _ = url.set_username("").and_then(|()| url.set_password(None));
    let path = url.path().trim_end_matches('/').to_owned();
    let path = if override_path || path.ends_with("/v2") { path } else { format!("{path}/v2") };
    url.set_path(&path);
    if url.host_str() == Some(DOCKER_HUB) {
        // containerd's examples name it as the server.
        url.set_host(Some(DOCKER_HUB_HOST)).map_err(|error| error.to_string())?;
    }
    url.set_query(None);
    url.set_fragment(None);
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoints(text: &str, folder: &Path) -> Result<Vec<Endpoint>, String> {
        HostsFile::parse(text)?.endpoints(folder, Endpoint::new(Url::parse("https://registry.example/v2").unwrap()))
    }

    #[test]
    fn parse_error_names_the_line_and_no_content() {
        for text in
            ["server = \"x\"\n[host.\"https://m\".header]\nauthorization = \"Bearer hunter2", "[host.\"https://m\"]\nheader = \"hunter2\""]
        {
            let problem = HostsFile::parse(text).err().expect("is broken");
            assert!(problem.contains("line ") && !problem.contains("hunter2"), "{problem}");
        }
    }

    #[test]
    fn hosts_keep_the_files_order_and_the_server_is_last() {
        let text = r#"
            server = "https://registry.example"
            ca = []

            [host."https://zeta.example"]
              capabilities = ["pull"]
            [host."alpha.example:5000"]
              capabilities = ["pull", "resolve"]
              skip_verify = true
            [host."http://middle.example/team/v2"]
              override_path = true
              [host."http://middle.example/team/v2".header]
                x-tenant = ["a", "b"]
        "#;
        let endpoints = endpoints(text, Path::new("/")).unwrap();
        let bases: Vec<_> = endpoints.iter().map(|endpoint| endpoint.base.as_str()).collect();
        assert_eq!(
            bases,
            ["https://zeta.example/v2", "https://alpha.example:5000/v2", "http://middle.example/team/v2", "https://registry.example/v2"]
        );
        let resolve: Vec<_> = endpoints.iter().map(|endpoint| endpoint.resolve).collect();
        assert_eq!(resolve, [false, true, true, true]);
        assert!(endpoints[1].tls.skip_verify && !endpoints[0].tls.skip_verify);
        assert_eq!(endpoints[2].headers.get_all("x-tenant").iter().count(), 2);
    }

    #[test]
    fn top_level_describes_the_registry_without_a_server() {
        let endpoints = endpoints("skip_verify = true\n[host.\"https://a.example\"]\n", Path::new("/")).unwrap();
        assert_eq!(endpoints.len(), 2);
        assert_eq!(endpoints[1].base.as_str(), "https://registry.example/v2");
        assert!(endpoints[1].tls.skip_verify && !endpoints[0].tls.skip_verify);
    }

    #[test]
    fn base_paths_are_completed_unless_overridden() {
        for (address, override_path, expected) in [
            ("https://a.example", false, "https://a.example/v2"),
            ("https://a.example/", false, "https://a.example/v2"),
            ("https://a.example/v2/", false, "https://a.example/v2"),
            ("https://a.example/proxy", false, "https://a.example/proxy/v2"),
            ("https://a.example/proxy", true, "https://a.example/proxy"),
            ("a.example:5000", false, "https://a.example:5000/v2"),
            ("https://ann:hunter2@a.example", false, "https://a.example/v2"),
            ("ann:hunter2@a.example:5000", false, "https://a.example:5000/v2"),
        ] {
            assert_eq!(base_of(address, override_path).unwrap().as_str(), expected);
        }
        assert!(base_of("https://", false).is_err());
    }

    #[test]
    fn error_about_an_address_has_no_login() {
        for address in ["https://ann:hunter2@a.example:port", "ftp://ann:hunter2@a.example", "ann:hunter2@"] {
            let problem = base_of(address, false).unwrap_err();
            assert!(problem.contains("address") && !problem.contains("hunter2"), "{problem}");
        }
    }

    #[test]
    fn certificates_are_read_in_all_forms() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["ca.crt", "cert.pem", "key.pem"] {
            std::fs::write(folder.path().join(name), name).unwrap();
        }
        let identity = |client: &str| {
            let text = format!("[host.\"https://a.example\"]\nca = \"ca.crt\"\nclient = {client}\n");
            endpoints(&text, folder.path()).map(|endpoints| endpoints[0].tls.identity_pem.clone().unwrap())
        };
        assert_eq!(identity("\"cert.pem\"").unwrap(), b"cert.pem");
        assert_eq!(identity("[\"cert.pem\"]").unwrap(), b"cert.pem");
        assert_eq!(identity("[[\"cert.pem\", \"key.pem\"]]").unwrap(), b"cert.pem\nkey.pem");
        assert_eq!(identity("[[\"cert.pem\", \"\"]]").unwrap(), b"cert.pem");
        assert!(identity("[\"cert.pem\", \"key.pem\"]").is_err());
        assert!(identity("\"missing.pem\"").unwrap_err().contains("missing.pem"));
    }

    #[test]
    fn problems_are_named() {
        for (text, part) in [
            ("server = 3", "line 1"),
            ("[host.\"https://a.example\"]\ncapabilities = [\"fly\"]", "\"fly\""),
            ("[host.\"ftp://a.example\"]", "ftp"),
            ("[host.\"https://a.example\".header]\n\"b ad\" = \"x\"", "b ad"),
            ("not toml", "line 1"),
        ] {
            let problem = endpoints(text, Path::new("/")).err().unwrap();
            assert!(problem.contains(part), "{text}: {problem}");
        }
    }
}
