//! Images generated from a seed.

use serde_json::{Value, json};

use crate::layer::Layer;

/// The family of an image's media types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flavour {
    /// OCI image manifests and indexes.
    #[default]
    Oci,
    /// Docker manifests of schema 2 and manifest lists.
    Docker,
}

/// The specification of an image.
#[derive(Clone, Debug)]
pub struct MadeImage {
    /// The approximate served bytes of each layer, at least 1.5 KiB.
    pub layer_bytes: Vec<u64>,
    /// `os/arch[/variant]` of each image of a list; empty: one manifest for this host, without a list.
    pub platforms: Vec<String>,
    /// The family of media types.
    pub flavour: Flavour,
    /// The seed; another one gives other layers of the same sizes.
    pub seed: u64,
}

impl MadeImage {
    /// An OCI image of this host's platform, without a list.
    pub fn of_layers(layer_bytes: impl IntoIterator<Item = u64>) -> Self {
        Self { layer_bytes: layer_bytes.into_iter().collect(), platforms: Vec::new(), flavour: Flavour::Oci, seed: 1 }
    }

    /// The image as a list of these platforms.
    #[must_use]
    pub fn for_platforms<const N: usize>(self, platforms: [&str; N]) -> Self {
        Self { platforms: platforms.map(str::to_owned).to_vec(), ..self }
    }

    /// The image with these media types.
    #[must_use]
    pub fn of_flavour(self, flavour: Flavour) -> Self {
        Self { flavour, ..self }
    }

    /// The image with other content.
    #[must_use]
    pub fn seeded(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// The layers of the image for the platform at `place`.
    pub(crate) fn layers(&self, place: usize) -> Vec<Layer> {
        let seed = |index: usize| self.seed << 32 | (place as u64) << 16 | index as u64;
        self.layer_bytes.iter().enumerate().map(|(index, bytes)| Layer::make(seed(index), *bytes)).collect()
    }
}

impl Flavour {
    pub(crate) fn manifest_type(self) -> &'static str {
        match self {
            Self::Oci => "application/vnd.oci.image.manifest.v1+json",
            Self::Docker => "application/vnd.docker.distribution.manifest.v2+json",
        }
    }

    pub(crate) fn list_type(self) -> &'static str {
        match self {
            Self::Oci => "application/vnd.oci.image.index.v1+json",
            Self::Docker => "application/vnd.docker.distribution.manifest.list.v2+json",
        }
    }

    fn config_type(self) -> &'static str {
        match self {
            Self::Oci => "application/vnd.oci.image.config.v1+json",
            Self::Docker => "application/vnd.docker.container.image.v1+json",
        }
    }

    fn layer_type(self) -> &'static str {
        match self {
            Self::Oci => "application/vnd.oci.image.layer.v1.tar+gzip",
            Self::Docker => "application/vnd.docker.image.rootfs.diff.tar.gzip",
        }
    }

    pub(crate) fn manifest(self, config: (&str, usize), layers: &[Layer]) -> Value {
        let layers: Vec<Value> =
            layers.iter().map(|layer| json!({"mediaType": self.layer_type(), "digest": layer.digest, "size": layer.size()})).collect();
        json!({
            "schemaVersion": 2,
            "mediaType": self.manifest_type(),
            "config": {"mediaType": self.config_type(), "digest": config.0, "size": config.1},
            "layers": layers,
        })
    }
}

/// The config of an image of `platform` (`os/arch[/variant]`).
pub(crate) fn config(platform: &str, layers: &[Layer]) -> Value {
    let mut config = platform_fields(platform);
    let diff_ids: Vec<&str> = layers.iter().map(|layer| layer.diff_id.as_str()).collect();
    let history: Vec<Value> = layers.iter().map(|_| json!({"created": "2026-01-01T00:00:00Z", "created_by": "memory-registry"})).collect();
    config["created"] = json!("2026-01-01T00:00:00Z");
    config["config"] = json!({"Cmd": ["/data"]});
    config["rootfs"] = json!({"type": "layers", "diff_ids": diff_ids});
    config["history"] = json!(history);
    config
}

/// `{"os", "architecture"[, "variant"]}` of `os/arch[/variant]`.
pub(crate) fn platform_fields(platform: &str) -> Value {
    let mut parts = platform.splitn(3, '/');
    let mut fields = json!({"os": parts.next().unwrap_or_default(), "architecture": parts.next().unwrap_or_default()});
    if let Some(variant) = parts.next() {
        fields["variant"] = json!(variant);
    }
    fields
}

/// This host's platform in the names that images use.
pub(crate) fn host_platform() -> String {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64le",
        other => other,
    };
    format!("{}/{architecture}", std::env::consts::OS)
}
