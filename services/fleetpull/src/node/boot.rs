//! Identifies the current boot of this host.

use clock::Random;

/// The kernel's id of the boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// An id that no other boot of any host has. If the kernel provides none, each call returns a new id, as if the host had just booted.
#[must_use]
pub fn boot_id() -> String {
    std::fs::read_to_string(BOOT_ID).map_or_else(|_| format!("{:032x}", Random::from_system().id()), |id| id.trim().to_owned())
}
