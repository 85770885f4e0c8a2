//! Platforms of images: `os/arch[/variant]`.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use crate::go;

/// Which system an image runs on, in containerd's normal form, so that equal platforms are equal values:
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
    /// A field is not made of letters, digits, `_`, `.` and `-`. An entry that has such a one suits nobody.
    pub fn new(os: &str, architecture: &str, variant: Option<&str>) -> Result<Self, PlatformError> {
        let variant = variant.filter(|variant| !variant.is_empty());
        if ![Some(os), Some(architecture), variant]
            .into_iter()
            .flatten()
            .all(is_component)
        {
            let text = [os, architecture]
                .into_iter()
                .chain(variant)
                .collect::<Vec<_>>()
                .join("/");
            return Err(PlatformError { text });
        }
        let (architecture, variant) = normal_architecture(
            &architecture.to_ascii_lowercase(),
            variant.map(str::to_ascii_lowercase),
        );
        Ok(Self {
            os: normal_os(&os.to_ascii_lowercase()),
            architecture,
            variant,
        })
    }

    /// Reads `os/arch[/variant]`, in any of the spellings that containerd knows (`linux/aarch64`, `Linux/x86_64`).
    ///
    /// # Errors
    /// It has not two or three parts, or a part is not made of letters, digits, `_`, `.` and `-`.
    pub fn parse(text: &str) -> Result<Self, PlatformError> {
        let mut parts = text.split('/');
        let platform = match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(os), Some(architecture), None, None) => Self::new(os, architecture, None).ok(),
            (Some(os), Some(architecture), Some(variant), None) if !variant.is_empty() => {
                Self::new(os, architecture, Some(variant)).ok()
            }
            _ => None,
        };
        platform.ok_or_else(|| PlatformError {
            text: text.to_owned(),
        })
    }

    /// What this program was built for. A 32-bit ARM host counts as `arm/v7`; name the platform where it is older.
    #[must_use]
    pub fn host() -> Self {
        let (architecture, variant) =
            normal_architecture(go_architecture(std::env::consts::ARCH), None);
        Self {
            os: normal_os(std::env::consts::OS),
            architecture,
            variant,
        }
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

    /// `v7`, ...; none where the normal form leaves it out.
    #[must_use]
    pub fn variant(&self) -> Option<&str> {
        self.variant.as_deref()
    }

    /// Whether an image of `offered` runs here: the same platform or one it can stand in for, as containerd has it
    /// (amd64 runs lower levels and 386; arm64 lower versions and 32-bit arm; arm lower versions down to v5).
    #[must_use]
    pub fn matches(&self, offered: &Self) -> bool {
        self.distance(offered).is_some()
    }

    /// The index of the offered platform that suits best; the first of equals; none if none runs here.
    pub fn best_of<'a>(&self, offered: impl IntoIterator<Item = &'a Self>) -> Option<usize> {
        let suitable = offered
            .into_iter()
            .enumerate()
            .filter_map(|(index, offered)| Some((self.distance(offered)?, index)));
        suitable.min().map(|(_, index)| index)
    }

    /// How far `offered` is from this platform: none if it does not run here, least for the same.
    fn distance(&self, offered: &Self) -> Option<Distance> {
        if self.os != offered.os {
            return None;
        }
        if self == offered {
            return Some(Distance {
                family: 0,
                steps: 0,
            });
        }
        match (self.architecture.as_str(), offered.architecture.as_str()) {
            ("amd64", "amd64") => steps(0, amd64_level(self)?, amd64_level(offered)?),
            ("amd64", "386") => offered.variant.is_none().then_some(Distance {
                family: 1,
                steps: 0,
            }),
            ("arm", "arm") => steps(0, arm_version(self)?, arm_version(offered)?),
            ("arm64", "arm64") => arm64_distance(arm64_version(self)?, arm64_version(offered)?),
            ("arm64", "arm") => {
                arm64_version(self)?;
                steps(2, ARM_OF_ARM64, arm_version(offered)?)
            }
            _ => None,
        }
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

/// Ordered: the family of instruction sets first, then versions within it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Distance {
    family: u8,
    steps: u32,
}

/// The 32-bit version that every arm64 runs.
const ARM_OF_ARM64: u32 = 8;

/// Older 32-bit ARM is not offered as a substitute.
const ARM_OLDEST: u32 = 5;

/// Minor versions of `arm64/v8` that containerd knows.
const ARM64_V8_MINORS: std::ops::RangeInclusive<u32> = 0..=9;

/// Minor versions of `arm64/v9` that containerd knows.
const ARM64_V9_MINORS: std::ops::RangeInclusive<u32> = 0..=7;

/// `v9.0` contains `v8.5`, and so on upwards.
const ARM64_V9_CONTAINS_V8: u32 = 5;

fn steps(family: u8, wanted: u32, offered: u32) -> Option<Distance> {
    Some(Distance {
        family,
        steps: wanted.checked_sub(offered)?,
    })
}

fn arm64_distance(wanted: (u32, u32), offered: (u32, u32)) -> Option<Distance> {
    let highest = match (wanted, offered.0) {
        ((major, minor), offered_major) if major == offered_major => {
            return steps(0, minor, offered.1);
        }
        ((9, minor), 8) => (minor + ARM64_V9_CONTAINS_V8).min(*ARM64_V8_MINORS.end()),
        _ => return None,
    };
    steps(1, highest, offered.1)
}

/// 1 for plain amd64, else the number of `v2` and above.
fn amd64_level(platform: &Platform) -> Option<u32> {
    platform.variant().map_or(Some(1), version)
}

fn arm_version(platform: &Platform) -> Option<u32> {
    version(platform.variant()?).filter(|version| *version >= ARM_OLDEST)
}

/// Major and minor version; (8, 0) for plain arm64.
fn arm64_version(platform: &Platform) -> Option<(u32, u32)> {
    let variant = platform.variant().unwrap_or("v8");
    let (major, minor) = match variant.split_once('.') {
        Some((major, minor)) => (version(major)?, number(minor)?),
        None => (version(variant)?, 0),
    };
    let known = match major {
        8 => ARM64_V8_MINORS,
        9 => ARM64_V9_MINORS,
        _ => return None,
    };
    known.contains(&minor).then_some((major, minor))
}

fn version(variant: &str) -> Option<u32> {
    number(variant.strip_prefix('v')?)
}

/// A number as a program would write it, so that one version has one spelling.
fn number(text: &str) -> Option<u32> {
    let canonical = text == "0" || text.starts_with(|first: char| matches!(first, '1'..='9'));
    canonical.then(|| text.parse().ok()).flatten()
}

fn is_component(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}

/// `os` in lower case.
fn normal_os(os: &str) -> String {
    if os == "macos" {
        "darwin".to_owned()
    } else {
        os.to_owned()
    }
}

/// Both in lower case. The spellings are those that containerd takes for the same (platforms 1.0).
fn normal_architecture(architecture: &str, variant: Option<String>) -> (String, Option<String>) {
    let (architecture, variant) = match (architecture, variant.as_deref()) {
        ("i386", _) => ("386", None),
        ("x86_64" | "x86-64" | "amd64", None | Some("v1")) => ("amd64", None),
        ("x86_64" | "x86-64", variant) => ("amd64", variant),
        ("aarch64" | "arm64", None | Some("8" | "v8" | "v8.0")) => ("arm64", None),
        ("aarch64" | "arm64", Some("9" | "9.0" | "v9.0")) => ("arm64", Some("v9")),
        ("aarch64", variant) => ("arm64", variant),
        ("armhf", _) | ("arm", None | Some("7")) => ("arm", Some("v7")),
        ("armel", _) => ("arm", Some("v6")),
        ("arm", Some("5")) => ("arm", Some("v5")),
        ("arm", Some("6")) => ("arm", Some("v6")),
        ("arm", Some("8")) => ("arm", Some("v8")),
        other => other,
    };
    (architecture.to_owned(), variant.map(str::to_owned))
}

/// Go's name for an architecture that Rust names otherwise.
fn go_architecture(architecture: &str) -> &str {
    let little_endian = cfg!(target_endian = "little");
    match architecture {
        "x86" => "386",
        "loongarch64" => "loong64",
        "mips" if little_endian => "mipsle",
        "mips64" if little_endian => "mips64le",
        "powerpc" => "ppc",
        "powerpc64" if little_endian => "ppc64le",
        "powerpc64" => "ppc64",
        "wasm32" => "wasm",
        same => same,
    }
}
