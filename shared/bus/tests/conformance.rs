//! One suite for both adapters: the semantics of every bus. Each semantic is a function under `conformance/`. It runs on the memory adapter
//! (time paused) and on real nats-servers, the newest and the oldest supported; those of state and streams also run on a cluster of three
//! servers, concurrently.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bench;
mod cluster;
mod key_value;
mod messages;
mod requests;
mod streams;

macro_rules! conformance {
    ($($module:ident { $($name:ident),* $(,)? })*) => {
        mod on_memory {
            $($(
                #[tokio::test(start_paused = true)]
                async fn $name() {
                    super::$module::$name(&super::bench::Bench::memory()).await;
                }
            )*)*
        }
        mod on_nats {
            $($(
                #[tokio::test]
                async fn $name() {
                    if let Some(bench) = super::bench::Bench::nats().await {
                        super::$module::$name(&bench).await;
                    }
                }
            )*)*
        }
        mod on_oldest_nats {
            $($(
                #[tokio::test]
                async fn $name() {
                    if let Some(bench) = super::bench::Bench::oldest_nats().await {
                        super::$module::$name(&bench).await;
                    }
                }
            )*)*
        }
        /// Module, name and function of each semantic.
        fn all() -> Vec<(&'static str, &'static str, cluster::Semantic)> {
            vec![$($((
                stringify!($module),
                stringify!($name),
                |bench| Box::pin(async move { $module::$name(&bench).await }),
            ),)*)*]
        }
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
        the_state_of_a_caller_is_known,
        a_caller_that_cannot_be_probed_counts_as_waiting,
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
        a_full_bucket_forgets_its_oldest_values_if_its_spec_asks_for_it,
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
        the_age_of_a_bucket_is_measured_by_its_server,
        changes_are_republished_with_their_place,
        an_expiry_is_republished,
        a_bucket_learns_to_expire_and_republish,
    }
    streams {
        a_message_id_is_stored_once_within_the_window,
        a_message_id_is_stored_again_after_the_window,
        appending_where_nothing_stores_has_no_responders,
        appending_where_only_subscribers_listen_has_no_responders,
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
