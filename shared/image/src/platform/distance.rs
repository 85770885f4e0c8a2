//! The compatibility of platforms, and the order in which containerd prefers them (platforms 1.0).

use std::ops::RangeInclusive;

use super::Platform;

/// The instruction set family (0 is the wanted one), then the steps down within it. The smallest is best.
pub(super) type Distance = (u8, u32);

/// The 32-bit version that every arm64 runs.
const ARM_OF_ARM64: u32 = 8;

/// The oldest 32-bit ARM version that counts as compatible.
const ARM_OLDEST: u32 = 5;

/// Minor versions of `arm64/v8` that containerd knows.
const ARM64_V8_MINORS: RangeInclusive<u32> = 0..=9;

/// Minor versions of `arm64/v9` that containerd knows.
const ARM64_V9_MINORS: RangeInclusive<u32> = 0..=7;

/// `v9.0` contains `v8.5`, and so on upwards.
const ARM64_V9_CONTAINS_V8: u32 = 5;

/// The distance of `offered` from `wanted`; none if it does not run there.
pub(super) fn between(wanted: &Platform, offered: &Platform) -> Option<Distance> {
    if wanted.os() != offered.os() {
        return None;
    }
    if wanted == offered {
        return Some((0, 0));
    }
    match (wanted.architecture(), offered.architecture()) {
        ("amd64", "amd64") => steps_down(0, amd64_level(wanted)?, amd64_level(offered)?),
        ("amd64", "386") => offered.variant().is_none().then_some((1, 0)),
        ("arm", "arm") => steps_down(0, arm_version(wanted)?, arm_version(offered)?),
        ("arm64", "arm64") => between_arm64(arm64_version(wanted)?, arm64_version(offered)?),
        ("arm64", "arm") if arm64_version(wanted).is_some() => steps_down(2, ARM_OF_ARM64, arm_version(offered)?),
        _ => None,
    }
}

fn steps_down(family: u8, wanted: u32, offered: u32) -> Option<Distance> {
    Some((family, wanted.checked_sub(offered)?))
}

fn between_arm64(wanted: (u32, u32), offered: (u32, u32)) -> Option<Distance> {
    match (wanted, offered) {
        ((9, wanted), (8, offered)) => {
            let contained = (wanted + ARM64_V9_CONTAINS_V8).min(*ARM64_V8_MINORS.end());
            steps_down(1, contained, offered)
        }
        ((wanted_major, wanted), (offered_major, offered)) if wanted_major == offered_major => steps_down(0, wanted, offered),
        _ => None,
    }
}

/// 1 for plain amd64, else the number of `v2` and above.
fn amd64_level(platform: &Platform) -> Option<u32> {
    match platform.variant() {
        None => Some(1),
        Some(variant) => version(variant).filter(|level| *level > 1),
    }
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

/// Parses a number without leading zeros or a sign, so that each version has one spelling.
fn number(text: &str) -> Option<u32> {
    let canonical = text == "0" || text.starts_with(|first: char| matches!(first, '1'..='9'));
    canonical.then(|| text.parse().ok()).flatten()
}
