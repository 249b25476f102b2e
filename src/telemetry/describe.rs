//! `# HELP` texts of the metrics, and the values that they start with.

use metrics::Unit;

/// `# HELP` of every metric.
pub(super) fn describe() {
    metrics::describe_counter!(
        "rtad_requests_total",
        "Requests answered, by route and HTTP status"
    );
    metrics::describe_counter!(
        "rtad_decisions_total",
        "Decisions, by platform, strategy, outcome and reason"
    );
    metrics::describe_counter!(
        "rtad_shadow_decisions_total",
        "Decisions of shadow strategies, which answer nothing"
    );
    metrics::describe_counter!(
        "rtad_bucket_decisions_total",
        "Decisions about the devices of a bucket, by strategy, experiment and outcome"
    );
    metrics::describe_counter!(
        "rtad_bid_values_total",
        "Bids with a value, by strategy, row of its values, audience and tier"
    );
    metrics::describe_counter!(
        "rtad_platform_failures_total",
        "Platform requests not answered by their ids, by cause"
    );
    metrics::describe_counter!("rtad_ids_total", "Device ids in requests, by kind and result");
    metrics::describe_gauge!("rtad_in_flight", "Requests being answered");
    metrics::describe_gauge!(
        "rtad_buffered_bytes",
        Unit::Bytes,
        "Bytes of unanswered requests, beyond 8 KiB per connection"
    );
    metrics::describe_counter!("rtad_shed_total", "Requests and connections refused by a limit");
    metrics::describe_gauge!("rtad_connections", "Open connections of the decision port");
    metrics::describe_gauge!("rtad_snapshot_generation", "Generation being served, by audience");
    metrics::describe_gauge!("rtad_snapshot_keys", "Distinct device keys in the snapshot");
    metrics::describe_gauge!(
        "rtad_snapshot_size_bytes",
        Unit::Bytes,
        "Size of the snapshot's chunks"
    );
    metrics::describe_gauge!(
        "rtad_snapshot_created_timestamp_seconds",
        Unit::Seconds,
        "Time at which the snapshot was built"
    );
    metrics::describe_gauge!(
        "rtad_snapshot_expires_timestamp_seconds",
        Unit::Seconds,
        "Expiry of the snapshot; NaN = never"
    );
    metrics::describe_gauge!(
        "rtad_snapshot_max_age_seconds",
        Unit::Seconds,
        "Configured max_age of the audience; NaN = none"
    );
    metrics::describe_gauge!(
        "rtad_snapshot_target_fpr",
        "False-positive rate that the snapshot was built for"
    );
    metrics::describe_gauge!(
        "rtad_snapshot_expected_fpr",
        "Expected false-positive rate of the filters"
    );
    metrics::describe_gauge!("rtad_snapshot_mixed", "1 while chunks of two generations are served");
    metrics::describe_gauge!(
        "rtad_snapshot_fill_ratio",
        "Fraction of the filters' bits that are set; NaN for ribbon filters"
    );
    metrics::describe_gauge!(
        "rtad_tiers_missing",
        "1 while strategies ask for values of an audience that is served without any"
    );
    metrics::describe_gauge!("rtad_sync_alive", "1 while the sync thread runs");
    metrics::describe_counter!("rtad_sync_total", "Polls of the store, by audience and result");
    metrics::describe_histogram!(
        "rtad_sync_duration_seconds",
        Unit::Seconds,
        "Duration of a poll, by audience"
    );
    metrics::describe_gauge!(
        "rtad_sync_caught_up_timestamp_seconds",
        Unit::Seconds,
        "Start of the last poll after which all published changes were served, by audience"
    );
    metrics::describe_gauge!("rtad_build_info", "Always 1; the version is a label");
    metrics::describe_counter!("rtad_chunks_read_total", "Chunks read and verified, by source");
    metrics::describe_counter!(
        "rtad_cache_errors_total",
        "Cache files that could not be read, written or verified"
    );
    metrics::describe_counter!(
        "rtad_cache_starts_total",
        "Snapshots loaded from the cache while the store was unavailable, by audience"
    );
    metrics::describe_gauge!("rtad_deltas", "Deltas that apply, by audience");
    metrics::describe_gauge!(
        "rtad_delta_keys",
        "Keys in the deltas, by change: added, removed, tombstone"
    );
    metrics::describe_gauge!(
        "rtad_delta_appended_timestamp_seconds",
        Unit::Seconds,
        "Time at which the newest served change was published"
    );
    metrics::describe_gauge!(
        "rtad_cap_devices",
        "Distinct devices counted by the cap in its period, by strategy"
    );
    metrics::describe_gauge!(
        "rtad_cap_limit",
        "Most distinct devices of the cap on this pod in its period, by strategy"
    );
    metrics::describe_gauge!(
        "rtad_cap_leased_devices",
        "Devices that all pods have leased of the cap in its period, by strategy"
    );
    metrics::describe_counter!(
        "rtad_cap_lease_calls_total",
        "Calls to the server of the caps' leases, by strategy and result"
    );
    metrics::describe_counter!("rtad_log_rows_total", "Rows in closed files of the decision log");
    metrics::describe_counter!(
        "rtad_log_bytes_total",
        Unit::Bytes,
        "Bytes of closed files of the decision log"
    );
    metrics::describe_counter!(
        "rtad_log_dropped_rows_total",
        "Rows that are not in the decision log, by reason"
    );
    metrics::describe_counter!(
        "rtad_log_deleted_files_total",
        "Files of the decision log that were deleted by age or size"
    );
    metrics::describe_counter!(
        "rtad_log_failures_total",
        "Failures of the decision log, by step: write, upload, retention"
    );
    metrics::describe_gauge!(
        "rtad_log_open_file_age_seconds",
        Unit::Seconds,
        "Age of the open file of the decision log; 0 without one"
    );
    metrics::describe_gauge!(
        "rtad_log_waiting_files",
        "Files of the decision log that wait for their upload"
    );
    metrics::describe_gauge!(
        "rtad_log_upload_lag_seconds",
        Unit::Seconds,
        "Age of the oldest file of the decision log that waits for its upload"
    );
    metrics::describe_gauge!("rtad_ready", "1 while /readyz answers 200");
    metrics::describe_gauge!(
        "rtad_max_connections",
        "Limit of open connections of the decision port"
    );
    metrics::describe_gauge!(
        "rtad_config_last_reload_successful",
        "1 if the last reload of the config succeeded, 0 if it was refused"
    );
}

/// Sets the metrics that must exist from the start: nothing is loaded, and the config is valid.
pub(super) fn set_initial_values() {
    metrics::gauge!("rtad_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    metrics::gauge!("rtad_ready").set(0.0);
    metrics::gauge!("rtad_config_last_reload_successful").set(1.0);
    // The counter begins at 0, so that the first error is an increase.
    let _ = metrics::counter!("rtad_cache_errors_total");
}
