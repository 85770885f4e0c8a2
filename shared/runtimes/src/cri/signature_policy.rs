//! The signature policy of CRI-O, by which nodes see whether the same images are accepted.

use std::path::Path;

use sha2::{Digest, Sha256};

/// CRI-O's signature policy by default: its built-in path, and the one of its packages. Its own settings decide which counts, so nodes
/// compare both.
const POLICY_FILES: [&str; 2] = ["/etc/containers/policy.json", "/etc/crio/policy.json"];
/// How many bytes of a policy's hash are used; a fleet has few policies.
const POLICY_HASH_BYTES: usize = 8;

/// Hash of the signature policies of this node; empty if none can be read.
pub(super) fn policy_hash() -> String {
    hash_of(POLICY_FILES.map(Path::new))
}

fn hash_of(files: [&Path; 2]) -> String {
    let policies = files.map(|file| std::fs::read(file).ok());
    if policies.iter().all(Option::is_none) {
        return String::new();
    }
    let mut hash = Sha256::new();
    for policy in policies {
        // The length separates the files, and tells a missing file from an empty one.
        hash.update(policy.as_ref().map_or(u64::MAX, |policy| policy.len() as u64).to_be_bytes());
        hash.update(policy.unwrap_or_default());
    }
    hash.finalize().iter().take(POLICY_HASH_BYTES).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn policy_hash_depends_on_both_files() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, content: Option<&str>| {
            let path = folder.path().join(name);
            content.iter().for_each(|content| std::fs::write(&path, content).unwrap());
            path
        };
        let of = |number: usize, one: Option<&str>, other: Option<&str>| {
            hash_of([&file(&format!("{number}-containers"), one), &file(&format!("{number}-crio"), other)])
        };
        assert_eq!(of(0, None, None), "");
        let policies = [
            of(1, Some("reject"), None),
            of(2, None, Some("reject")),
            of(3, Some("reject"), Some("accept")),
            of(4, Some("rejectaccept"), Some("")),
            of(5, Some(""), None),
        ];
        for (index, policy) in policies.iter().enumerate() {
            assert_eq!(policy.len(), 2 * POLICY_HASH_BYTES);
            assert!(!policies[..index].contains(policy), "{index}");
        }
        assert_eq!(policies[0], of(6, Some("reject"), None));
    }
}
