//! A server that answers slowly.

use std::pin::pin;
use std::time::Duration;

use bus::nats::NatsBus;
use bus::{BucketSpec, KeyValueError, SharedState as _};
use support::faulty_link::FaultyLink;
use support::nats::NatsConfig;
use tokio::time::timeout;

use super::{LIMIT, server, urls};

const ROUND_TRIP: Duration = Duration::from_secs(2);

#[tokio::test]
async fn a_refused_create_takes_one_round_trip() {
    let server = server!(NatsConfig::default());
    let far = FaultyLink::from(&server.address(), Duration::ZERO);
    let bus = NatsBus::connect(urls(format!("nats://{}", far.address()))).await.unwrap();
    bus.wait_connected(LIMIT).await.unwrap();
    let spec = BucketSpec { name: "leases".to_owned(), marker_ttl: None, max_bytes: None, forgets_oldest: false, republish_to: None };
    let leases = bus.bucket(&spec).await.unwrap();
    leases.create("taken", "me".into(), None).await.unwrap();
    leases.create("deleted", "me".into(), None).await.unwrap();
    leases.delete("deleted", None).await.unwrap();

    far.set_round_trip(ROUND_TRIP);
    let mut refused = pin!(leases.create("taken", "you".into(), None));
    assert!(timeout(ROUND_TRIP / 2, &mut refused).await.is_err(), "the server is asked");
    let refused = timeout(ROUND_TRIP * 5 / 4, refused).await;
    assert_eq!(refused, Ok(Err(KeyValueError::Conflict { key: "taken".to_owned() })), "within less than two round trips");
    let over_a_marker = timeout(3 * ROUND_TRIP, leases.create("deleted", "you".into(), None)).await;
    assert!(matches!(over_a_marker, Ok(Ok(_))), "within less than three round trips: {over_a_marker:?}");
}
