//! The registry's images and blobs.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::json;

use crate::digest_of;
use crate::layer::Layer;
use crate::made_image::{self, MadeImage};

/// An added image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddedImage {
    /// The digest that the tag resolves to: the list's, if there is one, else the manifest's.
    pub digest: String,
    /// The manifests, one for each platform.
    pub manifests: Vec<AddedManifest>,
}

/// One manifest of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddedManifest {
    /// `os/arch[/variant]`.
    pub platform: String,
    /// The manifest's own digest.
    pub digest: String,
    /// The config.
    pub config: BlobInfo,
    /// The layers in order.
    pub layers: Vec<BlobInfo>,
}

impl AddedManifest {
    /// The bytes of config and layers.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.config.size + self.layers.iter().map(|layer| layer.size).sum::<u64>()
    }

    /// The config and the layers.
    pub fn blobs(&self) -> impl Iterator<Item = &BlobInfo> {
        std::iter::once(&self.config).chain(&self.layers)
    }
}

/// A blob.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlobInfo {
    /// Its digest.
    pub digest: String,
    /// Its bytes.
    pub size: u64,
}

/// A served manifest.
#[derive(Clone, Debug)]
pub(crate) struct Manifest {
    pub(crate) media_type: String,
    pub(crate) content: Bytes,
}

/// A served blob.
#[derive(Clone, Debug)]
pub(crate) enum Blob {
    Given(Bytes),
    Made(Layer),
}

impl Blob {
    pub(crate) fn size(&self) -> u64 {
        match self {
            Self::Given(content) => content.len() as u64,
            Self::Made(layer) => layer.size(),
        }
    }

    /// The next bytes from `offset` on; empty at the end.
    pub(crate) fn part_from(&self, offset: u64) -> Bytes {
        match self {
            Self::Given(content) => content.slice((offset as usize).min(content.len())..),
            Self::Made(layer) => layer.part_from(offset),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Repository {
    tags: BTreeMap<String, String>,
    manifests: BTreeMap<String, Manifest>,
    blobs: BTreeMap<String, Blob>,
}

impl Repository {
    /// The manifest that a tag or digest names, with its digest.
    pub(crate) fn manifest(&self, reference: &str) -> Option<(&str, &Manifest)> {
        let digest = self.tags.get(reference).map_or(reference, String::as_str);
        self.manifests.get_key_value(digest).map(|(digest, manifest)| (digest.as_str(), manifest))
    }

    pub(crate) fn blob(&self, digest: &str) -> Option<&Blob> {
        self.blobs.get(digest)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Catalogue(BTreeMap<String, Repository>);

impl Catalogue {
    pub(crate) fn repository(&self, name: &str) -> Option<&Repository> {
        self.0.get(name)
    }

    pub(crate) fn put_blob(&mut self, name: &str, content: Bytes) -> BlobInfo {
        let info = BlobInfo { digest: digest_of(&content), size: content.len() as u64 };
        self.0.entry(name.to_owned()).or_default().blobs.insert(info.digest.clone(), Blob::Given(content));
        info
    }

    /// Stores a manifest, also under a tag if one is given.
    pub(crate) fn put_manifest(&mut self, name: &str, tag: Option<&str>, media_type: &str, content: Bytes) -> String {
        let digest = digest_of(&content);
        let repository = self.0.entry(name.to_owned()).or_default();
        if let Some(tag) = tag {
            repository.tags.insert(tag.to_owned(), digest.clone());
        }
        repository.manifests.insert(digest.clone(), Manifest { media_type: media_type.to_owned(), content });
        digest
    }

    pub(crate) fn remove_tag(&mut self, name: &str, tag: &str) {
        if let Some(repository) = self.0.get_mut(name) {
            repository.tags.remove(tag);
        }
    }

    pub(crate) fn put_image(&mut self, name: &str, tag: &str, made: PreparedImage) -> AddedImage {
        let flavour = made.image.flavour;
        let single = made.image.platforms.is_empty();
        let mut manifests = Vec::new();
        let mut entries = Vec::new();
        for (platform, layers) in made.layers {
            let config = self.put_blob(name, Bytes::from(made_image::config(&platform, &layers).to_string()));
            let content = Bytes::from(flavour.manifest((&config.digest, config.size as usize), &layers).to_string());
            let size = content.len();
            let digest = self.put_manifest(name, single.then_some(tag), flavour.manifest_type(), content);
            entries.push(json!({
                "mediaType": flavour.manifest_type(), "digest": digest, "size": size, "platform": made_image::platform_fields(&platform),
            }));
            let infos = layers.iter().map(|layer| BlobInfo { digest: layer.digest.clone(), size: layer.size() }).collect();
            let repository = self.0.entry(name.to_owned()).or_default();
            repository.blobs.extend(layers.into_iter().map(|layer| (layer.digest.clone(), Blob::Made(layer))));
            manifests.push(AddedManifest { platform, digest, config, layers: infos });
        }
        let digest = match (single, manifests.first()) {
            (true, Some(only)) => only.digest.clone(),
            _ => {
                let list = json!({"schemaVersion": 2, "mediaType": flavour.list_type(), "manifests": entries});
                self.put_manifest(name, Some(tag), flavour.list_type(), Bytes::from(list.to_string()))
            }
        };
        AddedImage { digest, manifests }
    }
}

/// An image with hashed layers. Hashing takes long, so it is done without the catalogue's lock.
pub(crate) struct PreparedImage {
    image: MadeImage,
    layers: Vec<(String, Vec<Layer>)>,
}

impl PreparedImage {
    pub(crate) fn of(image: &MadeImage) -> Self {
        let platforms = if image.platforms.is_empty() { vec![made_image::host_platform()] } else { image.platforms.clone() };
        let layers = platforms.into_iter().enumerate().map(|(place, platform)| (platform, image.layers(place))).collect();
        Self { image: image.clone(), layers }
    }
}
