//! Back-off entries as a table.

use contract::messages::backoff_tracker::{EntryKind, KeyParts};
use contract::{BudgetOwner, View};

use super::{Known, differ, found_by};
use crate::output::refusal::result_in_words;
use crate::output::table::{Cell, Column, Table, Tone};
use crate::output::units;

/// Hex digits of a route that are shown.
const ROUTE_SHOWN: usize = 8;

/// The columns of a list of back-off entries.
pub static COLUMNS: [Column; 14] = [
    Column::name("REGISTRY", 8),
    Column::name("WHAT", 10),
    Column::sentence("CAUSE", 9),
    Column::new("SINCE"),
    Column::new("NEXT ATTEMPT"),
    Column::name("BY", 6),
    Column::new("NODES"),
    Column::wide("LATEST"),
    Column::wide("CLASS"),
    Column::wide("BINDS"),
    Column::wide("FAILURES"),
    Column::wide("FOUND BY"),
    Column::wide("KEY"),
    Column::wide("VIEW"),
];

/// The entries as rows.
#[must_use]
pub fn table(known: &[Known]) -> Table {
    let mut table = Table::new(&COLUMNS);
    known.iter().for_each(|known| table.add(&known.entry.key, known.cells()));
    table
}

impl Known {
    /// The result of the last attempt in a few words.
    #[must_use]
    pub fn last_result(&self) -> String {
        result_in_words(self.entry.class, &self.entry.cause)
    }

    /// The subject in words. That of a node's own entry names the node.
    #[must_use]
    pub fn subject(&self) -> String {
        let words = key_in_words(&self.entry.key_parts);
        self.own_node().map_or(words.clone(), |node| words.replacen(" on this node", &format!(" on {node}"), 1))
    }

    fn cells(&self) -> Vec<Cell> {
        let entry = &self.entry;
        let ((soonest, _), (latest, latest_node)) = self.span();
        let next = match self.prober() {
            Some(_) => "now".to_owned(),
            None => units::due(Some(soonest)),
        };
        let later = latest_node.filter(|_| self.prober().is_none() && differ(soonest, latest));
        let own = self.own_node().map(|node| node.as_str());
        vec![
            Cell::from(entry.key_parts.registry.as_str()),
            Cell::from(what(&entry.key_parts)),
            Cell::from(self.last_result()).toned(Tone::Bad),
            Cell::age(entry.since_ms),
            Cell::from(next).sorted_by(soonest),
            Cell::from(self.prober().or(own).unwrap_or_default()),
            Cell::count(self.nodes.len() as u64),
            Cell::from(later.map(|node| format!("{node} {}", units::due(Some(latest)))).unwrap_or_default()),
            Cell::from(entry.class.as_str()),
            Cell::from(entry.binds.as_str()),
            Cell::count(entry.step.into()),
            Cell::from(found_by(entry)),
            Cell::from(if self.is_shared() { entry.key.as_str() } else { "" }),
            Cell::from(entry.view.as_ref().map(short_view).unwrap_or_default()),
        ]
    }
}

/// The subject of an entry. For a budget it is the owner in words instead of the owner's key.
fn key_in_words(key_parts: &KeyParts) -> String {
    match BudgetOwner::read(&key_parts.owner).filter(|_| key_parts.kind == EntryKind::Budget) {
        Some(owner) => format!("budget of {}", owner.in_words()),
        None => key_parts.to_string(),
    }
}

/// The subject of an entry without its registry, in a few words.
fn what(key_parts: &KeyParts) -> String {
    let KeyParts { registry, zone, owner, repository, image, platform, .. } = key_parts;
    let of_registry = |name: &str| name.strip_prefix(registry.as_str()).and_then(|rest| rest.strip_prefix('/')).unwrap_or(name).to_owned();
    let (repository, image) = (of_registry(repository), of_registry(image));
    let in_zone = |part: &str| if zone.is_empty() { part.to_owned() } else { format!("{part}, zone {zone}") };
    match key_parts.kind {
        EntryKind::Registry => in_zone("registry"),
        EntryKind::TokenServer => in_zone("token server"),
        EntryKind::Blobs => in_zone("blobs"),
        EntryKind::Budget => {
            BudgetOwner::read(owner).map_or_else(|| "rate".to_owned(), |owner| format!("rate, login {}", owner.login_in_words()))
        }
        EntryKind::Repository => repository,
        EntryKind::Login if key_parts.anonymous => format!("{repository}, no login"),
        EntryKind::Login => format!("{repository}, login"),
        EntryKind::Image => image,
        EntryKind::Platform => format!("{image}, {platform}"),
        EntryKind::Content => format!("{image}, content"),
        EntryKind::Signature => format!("{image}, signature"),
        EntryKind::NodeImage => key_parts.pod.as_ref().map_or(image.clone(), |pod| format!("{image}, pod {pod}")),
        EntryKind::Unknown(_) => key_parts.to_string(),
    }
}

/// The scope and the beginning of the route.
fn short_view(view: &View) -> String {
    let route: String = view.route.chars().take(ROUTE_SHOWN).collect();
    let boot = if view.boot.is_empty() { "" } else { " (this host)" };
    format!("{}/{}@{route}{boot}", view.scope, view.registry)
}

#[cfg(test)]
mod tests {
    use contract::PodRef;
    use contract::messages::backoff_tracker::BackoffEntry;

    use super::super::Merger;
    use super::super::tests::{node, own, shared};
    use super::*;
    use crate::output::table::Look;

    fn known(entries: Vec<(&str, BackoffEntry)>) -> Vec<Known> {
        let mut merger = Merger::default();
        entries.into_iter().for_each(|(name, entry)| merger.add(&node(name), vec![entry]));
        merger.into_known()
    }

    #[test]
    fn entries_have_a_row_each_that_fits_80_columns() {
        let image = "registry.example/team/platform/application:v2.14.0";
        let known = known(vec![("n1", shared(image, 2)), ("n2", shared(image, 2)), ("n3", own("busybox"))]);
        assert_eq!(
            table(&known).lines(&Look::of_width(Some(79))),
            [
                "REGISTRY          WHAT                 CAUSE     SINCE  NEXT ATTEMPT  BY  NODES",
                "registry.example  team/pla...:v2.14.0  404       63s    in 7s         -   2",
                "docker.io         busybox              an error  0s     due           n3  1",
            ]
        );
        let wide = table(&known).lines(&Look { is_wide: true, ..Look::of_width(None) });
        assert!(wide[1].contains(" 316e2d029ab1c464307b9b74a4007f6a  default/registry.example@01234567"), "{wide:#?}");
        assert_eq!(table(&known).names().collect::<Vec<_>>(), ["316e2d029ab1c464307b9b74a4007f6a", "busybox"]);
    }

    #[test]
    fn node_that_waits_longer_than_others_is_named_with_its_time() {
        let known = known(vec![
            ("n1", BackoffEntry { next_attempt_ms: 0, ..shared("a:1", 1) }),
            ("n3", BackoffEntry { next_attempt_ms: 12_400, ..shared("a:1", 2) }),
        ]);
        let wide = table(&known).lines(&Look { is_wide: true, ..Look::of_width(None) });
        assert!(wide[1].contains(" due ") && wide[1].contains(" n3 in 12s "), "{wide:#?}");
        let probed = BackoffEntry { probed_by: Some("n7".to_owned()), ..shared("a:1", 1) };
        let lines = table(&self::known(vec![("n1", probed)])).lines(&Look::of_width(None));
        assert!(lines[1].contains("now           n7  1"), "{lines:#?}");
    }

    #[test]
    fn owner_of_a_budget_is_shown_in_words() {
        let owner = "default|r.example|0123456789abcdef||anonymous|eu-1".to_owned();
        let key_parts = KeyParts { owner, ..KeyParts::of(EntryKind::Budget, "r.example") };
        assert_eq!(key_in_words(&key_parts), "budget of r.example without login from egress eu-1 by route 01234567");
        assert_eq!(key_in_words(&KeyParts { owner: String::new(), ..key_parts }), "budget  of registry r.example");
    }

    #[test]
    fn own_entry_of_a_node_names_the_node() {
        let known = known(vec![("n1", shared("a:1", 1)), ("n3", own("busybox"))]);
        assert_eq!(known.iter().map(Known::subject).collect::<Vec<_>>(), ["image a:1", "image busybox on n3"]);
        assert!(known[1].details(0).iter().any(|line| line == "  binds:        n3"), "{:#?}", known[1].details(0));
    }

    #[test]
    fn subject_of_an_entry_is_shown_without_its_registry() {
        let of = |kind| KeyParts::of(kind, "r.example");
        let zone = |kind| KeyParts { zone: "a".to_owned(), ..of(kind) };
        let repository = |kind| KeyParts { repository: "r.example/a".to_owned(), ..of(kind) };
        let image = |kind| KeyParts { image: "r.example/a:1".to_owned(), ..of(kind) };
        let pod = Some(PodRef { namespace: "shop".to_owned(), name: "web-0".to_owned(), uid: String::new() });
        let owner = "default|r.example|h||anonymous|e".to_owned();
        for (key_parts, text) in [
            (of(EntryKind::Registry), "registry"),
            (zone(EntryKind::Registry), "registry, zone a"),
            (zone(EntryKind::TokenServer), "token server, zone a"),
            (of(EntryKind::Blobs), "blobs"),
            (KeyParts { owner, ..of(EntryKind::Budget) }, "rate, login none"),
            (of(EntryKind::Budget), "rate"),
            (repository(EntryKind::Repository), "a"),
            (KeyParts { anonymous: true, ..repository(EntryKind::Login) }, "a, no login"),
            (repository(EntryKind::Login), "a, login"),
            (image(EntryKind::Image), "a:1"),
            (KeyParts { platform: "linux/arm64".to_owned(), ..image(EntryKind::Platform) }, "a:1, linux/arm64"),
            (image(EntryKind::Content), "a:1, content"),
            (image(EntryKind::Signature), "a:1, signature"),
            (KeyParts { image: "busybox".to_owned(), ..of(EntryKind::NodeImage) }, "busybox"),
            (KeyParts { pod, ..image(EntryKind::NodeImage) }, "a:1, pod shop/web-0"),
            (of(EntryKind::from_text("moon")), "moon of r.example"),
        ] {
            assert_eq!(what(&key_parts), text, "{key_parts:?}");
        }
    }
}
