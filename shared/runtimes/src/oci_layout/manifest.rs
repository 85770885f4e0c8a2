//! Parses manifests and lists, and chooses a list's entry for a platform.

use image::{Digest, Platform, Reference};
use serde::Deserialize;
use url::Url;

use super::layout::PlatformFields;

/// The largest manifest or list, in bytes; registries accept no larger one.
pub(super) const MANIFEST_MAX_BYTES: u64 = 4 * 1024 * 1024;
/// The most layers of an image; runtimes support 127.
const LAYERS_MAX: usize = 1_000;
/// The most external addresses that are tried for a layer; published images name one or two.
const URLS_MAX: usize = 4;

const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
/// The prefix of schema 1, with and without signature, which is obsolete.
const SCHEMA_1: &str = "application/vnd.docker.distribution.manifest.v1+";

/// The accepted media types, newer ones first.
pub(super) const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json, */*;q=0.1";

/// A manifest of either kind.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Manifest {
    Image(ImageManifest),
    List(Vec<ListEntry>),
}

/// An image.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ImageManifest {
    pub(super) media_type: String,
    pub(super) config: Descriptor,
    pub(super) layers: Vec<Descriptor>,
}

/// Content by digest and size.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Descriptor {
    pub(super) digest: Digest,
    pub(super) size: u64,
    /// External addresses of a nondistributable layer, which a registry may not serve.
    #[serde(default)]
    urls: Option<Vec<String>>,
}

impl Descriptor {
    /// The external http and https addresses, without logins: the manifest's author chose them.
    pub(super) fn external_urls(&self) -> Vec<Url> {
        let urls = self.urls.iter().flatten().filter_map(|url| Url::parse(url).ok());
        let mut urls: Vec<_> = urls.filter(|url| matches!(url.scheme(), "http" | "https")).take(URLS_MAX).collect();
        for url in &mut urls {
            // Fails only for addresses without a host, which these schemes do not allow.
            let _ = url.set_username("");
            let _ = url.set_password(None);
            url.set_fragment(None);
        }
        urls
    }
}

/// One image of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListEntry {
    pub(super) descriptor: Descriptor,
    /// None if the list does not name it.
    pub(super) platform: Option<Platform>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    schema_version: Option<u32>,
    #[serde(default)]
    media_type: String,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
    manifests: Option<Vec<RawEntry>>,
}

#[derive(Deserialize)]
struct RawEntry {
    #[serde(flatten)]
    descriptor: Descriptor,
    platform: Option<PlatformFields>,
}

impl Manifest {
    /// Parses a manifest that came as `content_type`.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub(super) fn parse(text: &[u8], content_type: &str) -> Result<Self, String> {
        let header = content_type.split(';').next().unwrap_or_default().trim();
        let document: Document = serde_json::from_slice(text).map_err(|error| format!("the manifest cannot be read: {error}"))?;
        if header.starts_with(SCHEMA_1) || document.schema_version == Some(1) {
            return Err("the image has a manifest of the old schema 1, which only old tools write".to_owned());
        }
        let body = document.media_type.as_str();
        let known = |name: &str| [OCI_MANIFEST, OCI_INDEX, DOCKER_MANIFEST, DOCKER_LIST].contains(&name);
        if !body.is_empty() && known(header) && body != header {
            return Err(format!("the manifest came as {header} but states that it is {}", super::failure::bounded(body, 100)));
        }
        // Its meaning would depend on the header, which the store does not keep, and on the program that reads it (CVE-2021-41190).
        if document.manifests.is_some() && (document.config.is_some() || document.layers.is_some()) {
            return Err("the manifest is an image and a list in one".to_owned());
        }
        let name = if body.is_empty() { header } else { body };
        match (name, document.manifests) {
            (OCI_INDEX | DOCKER_LIST, None) => Err("the list of manifests has no manifests field".to_owned()),
            (OCI_MANIFEST | DOCKER_MANIFEST, _) | (_, None) => image(name, document.config, document.layers).map(Self::Image),
            (_, Some(entries)) => Ok(Self::List(entries.into_iter().map(RawEntry::read).collect())),
        }
    }
}

impl RawEntry {
    fn read(self) -> ListEntry {
        ListEntry { descriptor: self.descriptor, platform: self.platform.and_then(|fields| fields.platform()) }
    }
}

fn image(name: &str, config: Option<Descriptor>, layers: Option<Vec<Descriptor>>) -> Result<ImageManifest, String> {
    let config = config.ok_or("the manifest names no config")?;
    let layers = layers.ok_or("the manifest names no layers")?;
    if layers.len() > LAYERS_MAX {
        return Err(format!("the manifest names {} layers; at most {LAYERS_MAX} are taken", layers.len()));
    }
    let media_type = if name == DOCKER_MANIFEST { DOCKER_MANIFEST } else { OCI_MANIFEST }.to_owned();
    Ok(ImageManifest { media_type, config, layers })
}

impl ImageManifest {
    /// Reads an image's manifest from the store.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        match Manifest::parse(text, "")? {
            Manifest::Image(image) => Ok(image),
            Manifest::List(_) => Err("a list where a manifest should be".to_owned()),
        }
    }

    /// The external addresses of a layer.
    pub(super) fn external_urls(&self, digest: &Digest) -> Vec<Url> {
        self.layers.iter().find(|layer| layer.digest == *digest).map(Descriptor::external_urls).unwrap_or_default()
    }

    /// Config and layers in the manifest's order, each once.
    pub(super) fn blobs(&self) -> Vec<(Digest, u64)> {
        let mut blobs: Vec<(Digest, u64)> = Vec::with_capacity(self.layers.len() + 1);
        for blob in std::iter::once(&self.config).chain(&self.layers) {
            if !blobs.iter().any(|(digest, _)| *digest == blob.digest) {
                blobs.push((blob.digest.clone(), blob.size));
            }
        }
        blobs
    }

    /// Bytes of config and layers.
    pub(super) fn size_bytes(&self) -> u64 {
        self.layers.iter().fold(self.config.size, |sum, layer| sum.saturating_add(layer.size))
    }
}

/// The name of the manifest that a reference asks for: its digest, else its tag.
pub(super) fn name_of(reference: &Reference) -> &str {
    reference.digest().map_or_else(|| reference.tag().unwrap_or_default(), Digest::as_str)
}

/// The entry of a list for a platform.
///
/// # Errors
/// The platforms that the list has, for people.
pub(super) fn choose<'a>(entries: &'a [ListEntry], wanted: &Platform) -> Result<&'a ListEntry, String> {
    let (known, nameless): (Vec<_>, Vec<_>) = entries.iter().partition(|entry| entry.platform.is_some());
    if let Some(place) = wanted.best_of(known.iter().filter_map(|entry| entry.platform.as_ref())) {
        return Ok(known[place]);
    }
    if let ([], [only]) = (known.as_slice(), nameless.as_slice()) {
        return Ok(only);
    }
    let offered: Vec<String> = known
        .iter()
        .filter_map(|entry| entry.platform.as_ref())
        .map(ToString::to_string)
        .filter(|name| name != "unknown/unknown")
        .collect();
    Err(format!("no match for platform {wanted} in the manifest list; it has {}", super::failure::bounded(&offered.join(", "), 300)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(letter: char) -> String {
        format!("sha256:{}", letter.to_string().repeat(64))
    }

    fn image_text(media_type: &str) -> String {
        let (a, b) = (digest('a'), digest('b'));
        format!(
            r#"{{"schemaVersion":2,{media_type}"config":{{"digest":"{a}","size":3}},"layers":[{{"digest":"{b}","size":5}},{{"digest":"{b}","size":5}}]}}"#
        )
    }

    #[test]
    fn images_of_docker_and_oci_are_parsed() {
        for (media_type, header, expected) in [
            (r#""mediaType":"application/vnd.oci.image.manifest.v1+json","#, OCI_MANIFEST, OCI_MANIFEST),
            ("", OCI_MANIFEST, OCI_MANIFEST),
            ("", "application/vnd.docker.distribution.manifest.v2+json; charset=utf-8", DOCKER_MANIFEST),
            (r#""mediaType":"application/vnd.docker.distribution.manifest.v2+json","#, "application/json", DOCKER_MANIFEST),
            ("", "", OCI_MANIFEST),
        ] {
            let Ok(Manifest::Image(image)) = Manifest::parse(image_text(media_type).as_bytes(), header) else { panic!("{header}") };
            assert_eq!(image.media_type, expected, "{media_type} {header}");
            assert_eq!(image.size_bytes(), 13);
            assert_eq!(image.blobs().len(), 2, "a layer that is named twice is fetched once");
        }
    }

    #[test]
    fn bad_manifests_are_refused_with_a_reason() {
        let list_as_image = r#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}"#;
        let traversal = image_text("").replace(&digest('b'), "sha256:../../../etc/passwd");
        let negative = image_text("").replace("\"size\":5", "\"size\":-5");
        let both = image_text("\"manifests\":[],");
        for (text, header, part) in [
            ("", OCI_MANIFEST, "cannot be read"),
            ("{}", OCI_MANIFEST, "no config"),
            ("[]", OCI_MANIFEST, "cannot be read"),
            (list_as_image, OCI_MANIFEST, "states that it is"),
            (traversal.as_str(), OCI_MANIFEST, "cannot be read"),
            (negative.as_str(), OCI_MANIFEST, "cannot be read"),
            (both.as_str(), OCI_MANIFEST, "an image and a list in one"),
            (both.as_str(), OCI_INDEX, "an image and a list in one"),
            (r#"{"schemaVersion":1}"#, "application/json", "schema 1"),
            ("{}", "application/vnd.docker.distribution.manifest.v1+prettyjws", "schema 1"),
            ("{}", DOCKER_LIST, "no manifests field"),
        ] {
            let problem = Manifest::parse(text.as_bytes(), header).unwrap_err();
            assert!(problem.contains(part), "{text}: {problem}");
        }
    }

    #[test]
    fn external_urls_keep_http_addresses_alone() {
        for (urls, expected) in [
            ("null", vec![]),
            ("[]", vec![]),
            (r#"["ftp://a.example/x", "file:///etc/passwd", "nonsense"]"#, vec![]),
            (r#"["https://a.example/x?y=1", "http://b.example:8080/z#part"]"#, vec!["https://a.example/x?y=1", "http://b.example:8080/z"]),
            (r#"["https://user:word@a.example/x"]"#, vec!["https://a.example/x"]),
            (
                r#"["http://a/1","http://a/2","http://a/3","http://a/4","http://a/5"]"#,
                vec!["http://a/1", "http://a/2", "http://a/3", "http://a/4"],
            ),
        ] {
            let text = image_text("").replace("\"size\":5", &format!("\"size\":5,\"urls\":{urls}"));
            let Ok(Manifest::Image(image)) = Manifest::parse(text.as_bytes(), OCI_MANIFEST) else { panic!("{text}") };
            let found: Vec<_> = image.external_urls(&image.layers[0].digest).iter().map(ToString::to_string).collect();
            assert_eq!(found, expected, "{urls}");
            assert_eq!(image.external_urls(&image.config.digest), [], "{urls}: a config is the registry's");
        }
    }

    #[test]
    fn best_matching_entry_is_chosen() {
        let entry = |letter: char, platform: Option<&str>| ListEntry {
            descriptor: Descriptor { digest: Digest::parse(&digest(letter)).unwrap(), size: 1, urls: None },
            platform: platform.map(|text| Platform::parse(text).unwrap()),
        };
        let list =
            [entry('a', Some("linux/arm64")), entry('b', Some("linux/amd64")), entry('c', Some("unknown/unknown")), entry('d', None)];
        let chosen = |list: &[ListEntry], wanted: &str| {
            choose(list, &Platform::parse(wanted).unwrap()).map(|entry| entry.descriptor.digest.hex()[..1].to_owned())
        };
        assert_eq!(chosen(&list, "linux/amd64").unwrap(), "b");
        assert_eq!(chosen(&list[3..], "linux/amd64").unwrap(), "d", "the only entry, without a platform");
        assert_eq!(
            chosen(&list, "linux/s390x").unwrap_err(),
            "no match for platform linux/s390x in the manifest list; it has linux/arm64, linux/amd64"
        );
    }
}
