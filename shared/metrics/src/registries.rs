//! Names of registries as labels, limited in number.

use std::sync::{Mutex, PoisonError};

/// The most registries with a label of their own. A node uses a handful; more would multiply the series of four instruments.
pub(crate) const NAMED: usize = 4;
/// The label of all others.
pub(crate) const OTHER: &str = "other";
/// The longest name that becomes a label, in bytes: a host name with a port is not longer.
const NAME_MAX_BYTES: usize = 260;

/// The registries with a label of their own: the first that were asked.
#[derive(Debug, Default)]
pub(crate) struct Registries(Mutex<Vec<String>>);

impl Registries {
    pub(crate) fn label(&self, registry: &str) -> String {
        let mut named = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if named.iter().any(|known| known == registry) {
            return registry.to_owned();
        }
        // Other nodes' reports can hold any text. A space could make a line that a scraper refuses, with all others.
        let is_name = !registry.is_empty() && registry.bytes().all(|byte| byte.is_ascii_graphic());
        let fits = is_name && registry.len() <= NAME_MAX_BYTES && registry != OTHER;
        if named.len() < NAMED && fits {
            named.push(registry.to_owned());
            return registry.to_owned();
        }
        OTHER.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_registries_keep_their_names_and_the_rest_are_other() {
        let registries = Registries::default();
        let label = |number: usize| registries.label(&format!("r{number}.example"));
        let first: Vec<String> = (0..NAMED).map(label).collect();
        assert_eq!(first.last().map(String::as_str), Some("r3.example"));
        assert!((NAMED..1_000).all(|number| label(number) == OTHER));
        assert_eq!(label(0), "r0.example", "a name is kept");
        for text in ["", "x # {", "x\ny", "\u{e9}", &"x".repeat(300)] {
            assert_eq!(Registries::default().label(text), OTHER, "{text:.20}");
        }
    }
}
