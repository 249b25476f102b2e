//! `# HELP` texts of the metrics, and the values that they start with.

/// Name and `# HELP` of each counter.
const COUNTERS: &[(&str, &str)] = &[
    (
        "rtad_requests_total",
        "Requests answered, by route and HTTP status",
    ),
    (
        "rtad_decisions_total",
        "Decisions, by platform, strategy, outcome and reason",
    ),
    (
        "rtad_shadow_decisions_total",
        "Decisions of shadow strategies, which answer nothing",
    ),
    (
        "rtad_bucket_decisions_total",
        "Decisions about the devices of a bucket, by strategy, experiment and outcome",
    ),
    (
        "rtad_bid_values_total",
        "Bids with a value, by strategy, row of its values, audience, tier, experiment and bucket",
    ),
    (
        "rtad_platform_failures_total",
        "Platform requests not answered by their ids, by cause",
    ),
    (
        "rtad_ids_total",
        "Device ids in requests, by platform, kind and result",
    ),
    (
        "rtad_shed_total",
        "Requests and connections refused by a limit",
    ),
    (
        "rtad_sync_total",
        "Polls of the store, by audience and result",
    ),
    (
        "rtad_chunks_read_total",
        "Chunks read and verified, by source",
    ),
    (
        "rtad_cache_errors_total",
        "Cache files that could not be read, written or verified",
    ),
    (
        "rtad_cache_starts_total",
        "Snapshots loaded from the cache while the store was unavailable, by audience",
    ),
    (
        "rtad_cap_records_total",
        "Records of caps that this pod created, and calls that failed",
    ),
    (
        "rtad_log_rows_total",
        "Rows in closed files of the decision log",
    ),
    (
        "rtad_log_bytes_total",
        "Bytes of closed files of the decision log",
    ),
    (
        "rtad_log_dropped_rows_total",
        "Rows that are not in the decision log, by reason",
    ),
    (
        "rtad_log_deleted_files_total",
        "Files of the decision log that were deleted by age or size",
    ),
    (
        "rtad_log_failures_total",
        "Failures of the decision log, by step: write, upload, retention",
    ),
];

/// Name and `# HELP` of each gauge.
const GAUGES: &[(&str, &str)] = &[
    ("rtad_in_flight", "Requests being answered"),
    (
        "rtad_buffered_bytes",
        "Declared bytes of bodies that did not arrive with their heads",
    ),
    ("rtad_connections", "Open connections of the decision port"),
    (
        "rtad_snapshot_generation",
        "Generation being served, by audience",
    ),
    ("rtad_snapshot_keys", "Distinct device keys in the snapshot"),
    ("rtad_snapshot_size_bytes", "Size of the snapshot's chunks"),
    (
        "rtad_snapshot_created_timestamp_seconds",
        "Time at which the snapshot was built",
    ),
    (
        "rtad_snapshot_expires_timestamp_seconds",
        "Expiry of the snapshot; NaN = never",
    ),
    (
        "rtad_snapshot_max_age_seconds",
        "Configured max_age of the audience; NaN = none",
    ),
    (
        "rtad_snapshot_target_fpr",
        "False-positive rate that the snapshot was built for",
    ),
    (
        "rtad_snapshot_expected_fpr",
        "Expected false-positive rate of the filters",
    ),
    (
        "rtad_snapshot_overlap_ratio",
        "Share of the devices of the snapshot before that stayed members",
    ),
    (
        "rtad_snapshot_mixed",
        "1 while chunks of two generations are served",
    ),
    (
        "rtad_snapshot_staged",
        "1 while the served generation is staged: the other pods serve the live one",
    ),
    (
        "rtad_snapshot_fill_ratio",
        "Fraction of the filters' bits that are set; NaN for ribbon filters",
    ),
    (
        "rtad_tiers_missing",
        "1 while strategies ask for values of an audience that is served without any",
    ),
    ("rtad_sync_alive", "1 while the sync thread runs"),
    (
        "rtad_sync_caught_up_timestamp_seconds",
        "Start of the last poll after which all published changes were served, by audience",
    ),
    ("rtad_build_info", "Always 1; the version is a label"),
    ("rtad_deltas", "Deltas that apply, by audience"),
    (
        "rtad_delta_keys",
        "Keys in the deltas, by change: added, removed, tombstone",
    ),
    (
        "rtad_delta_appended_timestamp_seconds",
        "Time at which the newest served change was published",
    ),
    (
        "rtad_cap_devices",
        "Distinct devices counted by the cap in its period",
    ),
    (
        "rtad_cap_limit",
        "Most distinct devices of the cap on this pod in its period",
    ),
    (
        "rtad_cap_granted_devices",
        "Devices that were granted to all pods of the cap in its period",
    ),
    (
        "rtad_log_open_file_age_seconds",
        "Age of the open file of the decision log; 0 without one",
    ),
    (
        "rtad_log_waiting_files",
        "Files of the decision log that wait for their upload",
    ),
    (
        "rtad_log_upload_lag_seconds",
        "Age of the oldest file of the decision log that waits for its upload",
    ),
    ("rtad_ready", "1 while /readyz answers 200"),
    (
        "rtad_max_connections",
        "Limit of open connections of the decision port",
    ),
    (
        "rtad_config_hash",
        "First 48 bits of the SHA-256 of the served config's file: equal in pods of one config",
    ),
    (
        "rtad_config_loaded_timestamp_seconds",
        "Time at which the served config was loaded",
    ),
    (
        "rtad_config_last_reload_successful",
        "1 if the last reload of the config succeeded, 0 if it was refused",
    ),
];

/// Name and `# HELP` of each histogram.
const HISTOGRAMS: &[(&str, &str)] = &[(
    "rtad_sync_duration_seconds",
    "Duration of a poll, by audience",
)];

/// Sets `# HELP` of every metric.
pub fn describe() {
    for (name, help) in COUNTERS {
        metrics::describe_counter!(*name, *help);
    }
    for (name, help) in GAUGES {
        metrics::describe_gauge!(*name, *help);
    }
    for (name, help) in HISTOGRAMS {
        metrics::describe_histogram!(*name, *help);
    }
}

/// Sets the metrics that must exist from the start: nothing is loaded, and the config is valid.
pub fn set_initial_values() {
    metrics::gauge!("rtad_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    metrics::gauge!("rtad_ready").set(0.0);
    metrics::gauge!("rtad_config_last_reload_successful").set(1.0);
    // The counter begins at 0, so that the first error is an increase.
    let _ = metrics::counter!("rtad_cache_errors_total");
}
