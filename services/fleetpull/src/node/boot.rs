//! Which boot of which host this is.

use clock::Random;

/// Where the kernel says it.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Tells this boot of this host from all others. If the kernel does not say, each call returns another one, as if the host had just booted.
#[must_use]
pub fn boot_id() -> String {
    std::fs::read_to_string(BOOT_ID).map_or_else(|_| format!("{:032x}", Random::from_system().id()), |id| id.trim().to_owned())
}
