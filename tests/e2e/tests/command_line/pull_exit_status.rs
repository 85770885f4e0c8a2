//! The exit status of `pull`: 0 if all images are present; 2 for wrong usage; else 5 if any pull ran out of time; 3 if some images are
//! present and some not; 4 if none is and all pulls are in back-off; else 1. (4 needs an agent with its back-off: see `fleet`.)

use e2e::{Registry, Workplace};
use memory_registry::{Fault, FaultAction};

use super::common::small;

#[test]
fn the_status_sums_all_images_up() {
    let (registry, place) = (Registry::new(), Workplace::new());
    registry.add_image("shop/web", "v1", &small());
    registry.add_image("shop/db", "v1", &small().seeded(2));
    registry.faults().add(Fault::new("/shop/slow/manifests/", FaultAction::Hang));
    let image = |name: &str| registry.image(name);
    let (web, db, missing, slow) = (image("shop/web:v1"), image("shop/db:v1"), image("shop/web:v9"), image("shop/slow:v1"));
    let table: [(&[&str], i32); 8] = [
        (&[&web], 0),
        (&[&web, &db], 0),
        (&[&missing], 1),
        (&[&missing, "Bad"], 1),
        (&[&web, &missing], 3),
        (&[&slow], 5),
        (&[&web, &slow], 5),
        (&[&missing, &slow], 5),
    ];
    for (images, status) in table {
        for format in ["text", "json"] {
            let limit = if images.contains(&slow.as_str()) { "1s" } else { "1m" };
            let arguments = [&["pull", "--timeout", limit, "--store", "store", "-o", format], images].concat();
            let done = place.run(&arguments).expect(status);
            assert_eq!(done.stdout.lines().count(), images.len(), "{done}");
        }
    }
}
