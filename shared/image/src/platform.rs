//! Platforms of images: `os/arch[/variant]`.

mod distance;
mod spelling;

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use self::spelling::{go_architecture, is_component, normal_architecture, normal_os};
use crate::go;

/// The platform of an image in containerd's normal form, so that equal platforms are equal values:
/// lower case, Go's names (`amd64`, `arm64`, `386`), no variant for `amd64/v1` and `arm64/v8`, `arm` without variant is `arm/v7`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Platform {
    os: String,
    architecture: String,
    variant: Option<String>,
}

impl Platform {
    /// A platform of the three fields of a manifest list's entry; an empty variant is none.
    ///
    /// # Errors
    /// A field has other characters than letters, digits, `_`, `.` and `-`; such an entry matches no platform.
    pub fn new(os: &str, architecture: &str, variant: Option<&str>) -> Result<Self, PlatformError> {
        let variant = variant.filter(|variant| !variant.is_empty());
        if ![Some(os), Some(architecture), variant].into_iter().flatten().all(is_component) {
            let text = [os, architecture].into_iter().chain(variant).collect::<Vec<_>>().join("/");
            return Err(PlatformError { text });
        }
        let (architecture, variant) =
            normal_architecture(&architecture.to_ascii_lowercase(), variant.map(str::to_ascii_lowercase).as_deref());
        Ok(Self { os: normal_os(&os.to_ascii_lowercase()), architecture, variant })
    }

    /// Parses `os/arch[/variant]` in any spelling that containerd knows (`linux/aarch64`, `Linux/x86_64`).
    ///
    /// # Errors
    /// It has not two or three parts, or a part has other characters than letters, digits, `_`, `.` and `-`.
    pub fn parse(text: &str) -> Result<Self, PlatformError> {
        let mut parts = text.split('/');
        let platform = match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(os), Some(architecture), None, None) => Self::new(os, architecture, None).ok(),
            (Some(os), Some(architecture), Some(variant), None) if !variant.is_empty() => Self::new(os, architecture, Some(variant)).ok(),
            _ => None,
        };
        platform.ok_or_else(|| PlatformError { text: text.to_owned() })
    }

    /// The platform that this program was built for. A 32-bit ARM host counts as `arm/v7`; name the platform if it is older.
    #[must_use]
    pub fn host() -> Self {
        let (architecture, variant) = normal_architecture(go_architecture(std::env::consts::ARCH), None);
        Self { os: normal_os(std::env::consts::OS), architecture, variant }
    }

    /// `linux`, `windows`, ...
    #[must_use]
    pub fn os(&self) -> &str {
        &self.os
    }

    /// `amd64`, `arm64`, ...
    #[must_use]
    pub fn architecture(&self) -> &str {
        &self.architecture
    }

    /// `v7`, ...; none if the normal form omits it.
    #[must_use]
    pub fn variant(&self) -> Option<&str> {
        self.variant.as_deref()
    }

    /// Whether an image of `offered` runs here, by containerd's rule: the same platform or a compatible one (amd64 runs lower levels and
    /// 386; arm64 lower versions and 32-bit arm; arm lower versions down to v5).
    #[must_use]
    pub fn matches(&self, offered: &Self) -> bool {
        distance::between(self, offered).is_some()
    }

    /// The index of the best matching platform, the first of equal ones; none if none runs here.
    pub fn best_of<'a>(&self, offered: impl IntoIterator<Item = &'a Self>) -> Option<usize> {
        let suitable = offered.into_iter().enumerate().filter_map(|(index, offered)| Some((distance::between(self, offered)?, index)));
        suitable.min().map(|(_, index)| index)
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.os, self.architecture)?;
        match &self.variant {
            Some(variant) => write!(formatter, "/{variant}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Platform {
    type Err = PlatformError;

    fn from_str(text: &str) -> Result<Self, PlatformError> {
        Self::parse(text)
    }
}

impl Serialize for Platform {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Platform {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(D::Error::custom)
    }
}

/// A text that is no platform.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("platform {} is not of the form os/arch[/variant]: write it like linux/amd64 or linux/arm/v7", go::quote(.text))]
pub struct PlatformError {
    text: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn platform(text: &str) -> Platform {
        Platform::parse(text).unwrap()
    }

    #[test]
    fn malformed_platform_is_refused_with_the_expected_form() {
        for bad in [
            "",
            "linux",
            "/",
            "linux/",
            "/amd64",
            "linux/amd64/",
            "linux//v2",
            "linux/arm/v7/x",
            "linux/*",
            "li nux/amd64",
            "linux/ä",
            "linux/amd64\n",
        ] {
            let error = Platform::parse(bad).unwrap_err();
            let expected =
                format!("platform {} is not of the form os/arch[/variant]: write it like linux/amd64 or linux/arm/v7", go::quote(bad));
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn platform_is_made_from_the_fields_of_a_manifest_list() {
        assert_eq!(Platform::new("linux", "arm64", Some("")), Ok(platform("linux/arm64/v8")));
        assert_eq!(Platform::new("linux", "arm", None), Ok(platform("linux/arm/v7")));
        for (os, architecture, variant) in [("", "amd64", None), ("linux", "", None), ("linux", "a/b", None), ("linux", "arm", Some("v 7"))]
        {
            assert!(Platform::new(os, architecture, variant).is_err(), "{os} {architecture} {variant:?}");
        }
    }

    #[test]
    fn host_platform_is_in_normal_form() {
        let host = Platform::host();
        assert_eq!(platform(&host.to_string()), host);
        if cfg!(all(target_os = "linux", target_arch = "x86_64")) {
            assert_eq!(host.to_string(), "linux/amd64");
        }
    }

    #[test]
    fn best_platform_of_a_list_is_chosen_and_the_first_of_equals() {
        let pick = |wanted: &str, offered: &[&str]| {
            let offered: Vec<Platform> = offered.iter().map(|text| platform(text)).collect();
            platform(wanted).best_of(&offered)
        };
        let cases: [(&str, &[&str], Option<usize>); 9] = [
            ("linux/amd64", &["linux/arm64", "linux/386", "linux/amd64"], Some(2)),
            ("linux/amd64", &["linux/amd64/v3", "linux/386"], Some(1)),
            ("linux/amd64/v3", &["linux/amd64", "linux/amd64/v2", "linux/amd64/v4"], Some(1)),
            ("linux/amd64", &["linux/amd64", "linux/amd64"], Some(0)),
            ("linux/arm64", &["linux/arm/v7", "linux/arm64/v8"], Some(1)),
            ("linux/arm64", &["linux/arm/v6", "linux/arm/v7"], Some(1)),
            ("linux/arm/v6", &["linux/arm/v7"], None),
            ("linux/amd64", &["windows/amd64", "unknown/unknown"], None),
            ("linux/amd64", &[], None),
        ];
        for (wanted, offered, expected) in cases {
            assert_eq!(pick(wanted, offered), expected, "{wanted} of {offered:?}");
        }
    }

    #[test]
    fn platform_is_a_string_in_json() {
        let json = serde_json::to_string(&platform("linux/aarch64")).unwrap();
        assert_eq!(json, "\"linux/arm64\"");
        assert_eq!(serde_json::from_str::<Platform>(&json).unwrap(), platform("linux/arm64"));
        assert!(serde_json::from_str::<Platform>("\"linux\"").is_err());
    }
}
