//! The owner of a budget: what a registry counts as one client, by login and address. Its text is used in messages and names leases.

use std::fmt;

use crate::View;

/// The login scope that runtimes report for a pull without a login.
const ANONYMOUS: &str = "anonymous";
/// How many bytes of a hash are displayed.
const HASH_SHOWN: usize = 8;

/// The owner of a budget. `Display` is the text that [`BudgetOwner::read`] reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetOwner {
    /// The view of the registry.
    pub view: View,
    /// Credential scope.
    pub login: String,
    /// The address from which the registry sees the node.
    pub egress: String,
}

impl BudgetOwner {
    /// Reads an owner's text; none if it has another form.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let parts: Vec<String> = text.split('|').map(|part| part.replace("%7C", "|").replace("%25", "%")).collect();
        let [scope, registry, route, boot, login, egress] = <[String; 6]>::try_from(parts).ok()?;
        Some(Self { view: View { scope, registry, route, boot }, login, egress })
    }

    /// The login for people; of a hash only the beginning.
    #[must_use]
    pub fn login_in_words(&self) -> String {
        if self.login == ANONYMOUS { "none".to_owned() } else { short(&self.login).to_owned() }
    }

    /// For people: registry, login, address, and route and host if the owner has them.
    #[must_use]
    pub fn in_words(&self) -> String {
        let View { registry, route, boot, .. } = &self.view;
        let login = if self.login == ANONYMOUS { "without login".to_owned() } else { format!("login {}", short(&self.login)) };
        let mut words = format!("{registry} {login} from egress {}", self.egress);
        if !route.is_empty() {
            words.push_str(&format!(" by route {}", short(route)));
        }
        if !boot.is_empty() {
            words.push_str(&format!(" on host {}", short(boot)));
        }
        words
    }
}

impl fmt::Display for BudgetOwner {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let View { scope, registry, route, boot } = &self.view;
        let parts = [scope, registry, route, boot, &self.login, &self.egress];
        out.write_str(&parts.map(|part| part.replace('%', "%25").replace('|', "%7C")).join("|"))
    }
}

/// The registry of a budget, from its owner's text, as images name it. A text of another form is returned unchanged.
#[must_use]
pub fn registry_of_budget(owner: &str) -> String {
    BudgetOwner::read(owner).map_or_else(|| owner.to_owned(), |owner| owner.view.registry)
}

/// A budget's owner for people, from its text. A text of another form is returned unchanged.
#[must_use]
pub fn budget_in_words(owner: &str) -> String {
    BudgetOwner::read(owner).map_or_else(|| owner.to_owned(), |owner| owner.in_words())
}

fn short(hash: &str) -> &str {
    &hash[..hash.floor_char_boundary(HASH_SHOWN)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_reads_as_it_was_written() {
        let view = View { scope: "s%7C".to_owned(), registry: "[::1%x|]:5000".to_owned(), route: "h".to_owned(), boot: String::new() };
        let owner = BudgetOwner { view, login: "anonymous".to_owned(), egress: "e|1".to_owned() };
        assert_eq!(owner.to_string(), "s%257C|[::1%25x%7C]:5000|h||anonymous|e%7C1");
        assert_eq!(BudgetOwner::read(&owner.to_string()), Some(owner.clone()));
        assert_eq!(registry_of_budget(&owner.to_string()), "[::1%x|]:5000");
        assert_eq!((BudgetOwner::read("hub"), BudgetOwner::read("||||||")), (None, None));
    }

    #[test]
    fn an_owner_is_worded_for_people() {
        for (owner, words, login) in [
            ("s|registry.example|||anonymous|eu-1", "registry.example without login from egress eu-1", "none"),
            (
                "s|registry.example|0123456789ab||anonymous|eu-1",
                "registry.example without login from egress eu-1 by route 01234567",
                "none",
            ),
            (
                "s|localhost:5000||fedcba9876543210|00112233445566|e%7C1",
                "localhost:5000 login 00112233 from egress e|1 on host fedcba98",
                "00112233",
            ),
            ("hub", "hub", ""),
        ] {
            assert_eq!(budget_in_words(owner), words);
            assert_eq!(BudgetOwner::read(owner).map(|owner| owner.login_in_words()).unwrap_or_default(), login);
        }
    }
}
