//! The simulated bus with its faults off passes the test suite of the bus, as the adapters of agents do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, dead_code, missing_docs, unreachable_pub)]

#[path = "fleet/arriving.rs"]
mod arriving;
mod bench;
#[path = "fleet/faulty_bus.rs"]
mod faulty;
#[path = "fleet/faulty_bucket.rs"]
mod faulty_bucket;
#[path = "fleet/faulty_network.rs"]
mod faulty_network;
#[path = "../../../shared/bus/tests/conformance/key_value.rs"]
mod key_value;
#[path = "fleet/latency.rs"]
mod latency;
#[path = "fleet/leases.rs"]
mod leases;
#[path = "../../../shared/bus/tests/conformance/messages.rs"]
mod messages;
#[path = "../../../shared/bus/tests/conformance/requests.rs"]
mod requests;
#[path = "../../../shared/bus/tests/conformance/streams.rs"]
mod streams;

use faulty as faulty_bus;

macro_rules! conformance {
    ($($module:ident { $($name:ident),* $(,)? })*) => {
        $($(
            #[tokio::test(start_paused = true)]
            async fn $name() {
                $module::$name(&bench::Bench::fair()).await;
            }
        )*)*
    };
}

conformance! {
    messages {
        wildcards_stand_for_one_token_or_all_that_follow,
        a_queue_group_gets_each_message_once,
        messages_of_one_sender_arrive_in_order_and_once,
        what_is_published_before_subscribing_never_arrives,
        header_names_are_case_sensitive,
        a_message_of_one_mebibyte_passes_and_one_byte_more_does_not,
        invalid_subjects_are_refused,
        invalid_headers_are_refused,
        a_full_subscription_drops_the_newest_and_counts,
        a_dropped_subscription_receives_nothing,
        draining_ends_subscriptions_after_what_has_arrived,
        draining_one_connection_leaves_the_others,
        health_changes_begin_with_the_current_health,
    }
    requests {
        an_answer_comes_back_with_its_headers,
        request_without_responders_fails_at_once,
        no_answer_is_a_time_out,
        a_late_answer_reaches_nobody,
        the_first_of_several_answers_counts,
        a_question_to_many_is_answered_by_each,
        a_queue_group_answers_each_request_once,
        a_request_carries_its_deadline,
        many_requests_at_once_get_their_own_answers,
        an_answer_of_one_mebibyte_passes,
    }
    key_value {
        revisions_count_for_the_bucket,
        a_refused_change_takes_no_revision,
        create_wants_no_value_and_takes_a_marker_for_none,
        update_wants_the_newest_revision,
        delete_wants_the_newest_revision_if_one_is_given,
        invalid_keys_are_refused,
        invalid_times_to_live_are_refused,
        invalid_buckets_are_refused,
        a_value_of_one_mebibyte_passes_and_one_byte_more_does_not,
        a_full_bucket_refuses_values,
        two_handles_see_one_bucket,
        an_expired_key_has_no_value,
        a_lease_taken_over_a_marker_expires_again,
        a_renewed_lease_lives_on_and_expires_again,
        a_put_without_time_to_live_stays,
        markers_of_deletion_go_without_a_trace,
        a_lost_bucket_is_made_again_at_its_next_use,
        a_snapshot_holds_every_value_with_its_age,
        a_snapshot_since_another_holds_what_was_stored_after_it,
        a_lost_bucket_is_another_one,
        changes_are_republished_with_their_place,
        an_expiry_is_republished,
        a_bucket_learns_to_expire_and_republish,
    }
    streams {
        a_message_id_is_stored_once_within_the_window,
        a_message_id_is_stored_again_after_the_window,
        appending_where_nothing_stores_has_no_responders,
        subscribers_see_what_is_appended,
        plain_messages_are_stored_too,
        a_stream_stores_under_other_subjects_and_subscribers_receive_as_published,
        a_stream_takes_more_subjects,
        invalid_streams_are_refused,
        a_stream_is_read_in_pages_from_a_sequence_on,
        a_stream_is_read_from_a_time_on,
        reading_a_missing_stream_is_an_error,
        a_stream_reports_its_identity_and_last_sequence,
    }
}

/// Tests of each fault by itself.
mod network {
    use std::time::Duration;

    use bus::memory::MemoryBus;
    use bus::{BusError, BusHealth, Message, Messaging as _, SharedState as _};
    use clock::{Clock, Random};
    use futures::StreamExt as _;

    use super::bench;
    use super::faulty::FaultyBus;
    use super::faulty_network::{FaultyNetwork, Kind, Line, Odds};
    use super::latency::ONE_WAY;

    fn two(odds: Odds) -> (FaultyNetwork, FaultyBus, MemoryBus) {
        let hub = MemoryBus::new(Clock::host());
        let network = FaultyNetwork::new(ONE_WAY, Random::seeded(1), Clock::host());
        network.set_odds(odds);
        let one = network.over(hub.connect(), 1);
        (network, one, hub)
    }

    async fn received(odds: Odds, line: Line) -> (usize, FaultyNetwork, Duration) {
        let (network, one, hub) = two(odds);
        let mut arriving = one.subscribe("s", None).await.unwrap();
        network.set_line(1, line);
        for _ in 0..100 {
            hub.publish(Message::new("s", "m")).await.unwrap();
        }
        let clock = Clock::simulated(Duration::ZERO);
        let mut received = 0;
        while tokio::time::timeout(Duration::from_secs(3), arriving.next()).await.is_ok_and(|message| message.is_some()) {
            received += 1;
        }
        (received, network, clock.now().monotonic)
    }

    #[tokio::test(start_paused = true)]
    async fn messages_are_lost_duplicated_delayed_and_blocked_by_the_odds() {
        let (lost, network, _) = received(Odds { loss: 0.3, ..Odds::default() }, Line::Up).await;
        assert_eq!(lost as u64, 100 - network.counts()[&Kind::Loss]);
        assert!((50..90).contains(&lost), "{lost}");
        let (doubled, network, _) = received(Odds { duplication: 0.3, ..Odds::default() }, Line::Up).await;
        assert_eq!(doubled as u64, 100 + network.counts()[&Kind::Duplication]);
        let (delayed, network, took) = received(Odds { delay: 0.3, ..Odds::default() }, Line::Up).await;
        // Delays overlap; the test waits 3 s for further messages after the last one.
        assert!(delayed == 100 && took > Duration::from_millis(3_500), "{delayed} in {took:?}");
        assert!((10..50).contains(&network.counts()[&Kind::Delay]), "{:?}", network.counts());
        for line in [Line::Cut, Line::Silent] {
            let (cut, network, _) = received(Odds::default(), line).await;
            assert_eq!((cut, network.counts()[&Kind::Partition]), (0, 100));
        }
    }

    /// Whether messages of a node with this line arrive, whether messages to it arrive, and whether its request is answered.
    async fn gets_through(line: Line, slowness: f64) -> (bool, bool, bool) {
        let (network, one, hub) = two(Odds::default());
        let (mut from_it, mut to_it) = (hub.subscribe("from", None).await.unwrap(), one.subscribe("to", None).await.unwrap());
        network.set_line(1, line);
        network.set_slowness(1, slowness);
        one.publish(Message::new("from", "m")).await.unwrap();
        hub.publish(Message::new("to", "m")).await.unwrap();
        let soon = Duration::from_secs(3);
        let arrives_from_it = tokio::time::timeout(soon, from_it.next()).await.is_ok();
        let arrives_at_it = tokio::time::timeout(soon, to_it.next()).await.is_ok();
        let bucket = one.bucket(&bench::bucket("b")).await.unwrap();
        (arrives_from_it, arrives_at_it, bucket.status().await.is_ok())
    }

    #[tokio::test(start_paused = true)]
    async fn one_way_line_passes_one_direction_and_answers_no_request() {
        assert_eq!(gets_through(Line::Up, 1.0).await, (true, true, true));
        assert_eq!(gets_through(Line::SendOnly, 1.0).await, (true, false, false));
        assert_eq!(gets_through(Line::ReceiveOnly, 1.0).await, (false, true, false));
    }

    #[tokio::test(start_paused = true)]
    async fn every_message_takes_time_and_longer_on_a_slow_node() {
        let clock = Clock::simulated(Duration::ZERO);
        let mut took = [1.0, 20.0].map(|slowness| (slowness, Duration::ZERO));
        for (slowness, took) in &mut took {
            let before = clock.now().monotonic;
            assert_eq!(gets_through(Line::Up, *slowness).await, (true, true, true));
            *took = clock.now().monotonic - before;
        }
        assert!(took[0].1 >= Duration::from_millis(3) && took[1].1 > 4 * took[0].1, "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn cut_line_is_reported_and_silent_line_is_detected() {
        let (network, one, hub) = two(Odds::default());
        let _answering = hub.subscribe("q", None).await.unwrap();
        let mut health = one.health_changes();
        assert_eq!(health.next().await, Some(BusHealth::Connected));
        network.set_line(1, Line::Cut);
        assert!(matches!(health.next().await, Some(BusHealth::Disconnected { .. })));
        assert!(matches!(one.publish(Message::new("s", "m")).await, Err(BusError::Disconnected { .. })));
        network.set_line(1, Line::Silent);
        assert_eq!(one.health(), BusHealth::Connected);
        assert_eq!(one.publish(Message::new("s", "m")).await, Ok(()));
        let asked = one.request(Message::new("q", "m"), Duration::from_millis(250)).await;
        assert!(matches!(asked, Err(BusError::TimedOut { .. })), "{asked:?}");
    }
}
