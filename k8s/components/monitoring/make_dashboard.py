"""Generator of the Grafana dashboard rtad-dashboard.json: availability and latency, decisions,
snapshots, windows, decision log.

    cd k8s/components/monitoring && python3 make_dashboard.py > rtad-dashboard.json

Needs no packages. A test compares the file with the output, and runs every query in a Prometheus
that scrapes a running rtad and rtad-loader.
"""

import json

from panels import BYTES, COUNT, DATASOURCE, LOGARITHMIC, PER_SECOND, SECONDS, SHARE, STEPS, Board

# Matchers of every series. "All" also matches series without namespace and pod, outside Kubernetes.
SELECTED = 'namespace=~"$namespace",job=~"$job",pod=~"$pod"'
# Routes with the deadline of platforms.
ON_DEADLINE = 'route!~"check_many|unknown"'


def of(metric, *labels):
    """Selector of the chosen pods."""
    return f"{metric}{{{','.join([SELECTED, *labels])}}}"


def rate(metric, *labels):
    return f"rate({of(metric, *labels)}[$__rate_interval])"


def sum_by(labels, query):
    return f"sum by ({labels}) ({query})"


def share(part, whole, by):
    return f"{sum_by(by, part)} / {sum_by(by, whole)}"


def quantile(quantile, metric, by, *labels):
    return f"histogram_quantile({quantile}, sum by ({by}) ({rate(metric + '_bucket', *labels)}))"


DURATION = "rtad_request_duration_seconds"
IN_TIME = rate(f"{DURATION}_bucket", 'le="0.06"', ON_DEADLINE)
TIMED = rate(f"{DURATION}_count", ON_DEADLINE)


def up_and_fast(board):
    board.row("Availability and latency")
    board.stat(
        "Pods ready",
        COUNT,
        f"sum({of('rtad_ready')})",
        "Pods whose /readyz answers 200.",
        bad_below=1,
    )
    board.stat(
        "Pods not ready",
        COUNT,
        f"count({of('rtad_ready')}) - sum({of('rtad_ready')})",
        "Loading, draining, or without a store.",
        bad_above=1,
    )
    board.stat("Requests", PER_SECOND, f"sum({rate('rtad_requests_total')})", "All routes.")
    board.stat(
        "Within 60 ms",
        SHARE,
        f"sum({IN_TIME}) / sum({TIMED})",
        "Share of platform requests, /v1/decide and single checks.",
        bad_below=0.999,
    )
    board.stat(
        "Shed",
        PER_SECOND,
        f"sum({rate('rtad_shed_total')})",
        "Requests and connections refused because of a limit.",
        bad_above=1,
    )
    firing = 'count(ALERTS{alertname=~"Rtad.+",alertstate="firing"}) or vector(0)'
    board.stat(
        "Alerts",
        COUNT,
        firing,
        "Firing alerts of rtad in this Prometheus, in all namespaces; see docs/guides/runbook.md.",
        bad_above=1,
    )
    board.graph(
        "Requests by route",
        PER_SECOND,
        [(f"sum by (route) ({rate('rtad_requests_total')})", "{{route}}")],
        "The route of a platform is named like the platform.",
    )
    board.graph(
        "Latency",
        SECONDS,
        [
            (quantile(q, DURATION, "le", ON_DEADLINE), name)
            for q, name in ((0.5, "median"), (0.99, "99 %"), (0.999, "99.9 %"))
        ],
        "From a request's head to its answer, without the network. Platforms drop answers after 60 ms.",
        custom=LOGARITHMIC,
    )
    board.heatmap(
        "Requests by duration",
        f"sum by (le) (increase({of(DURATION + '_bucket', ON_DEADLINE)}[$__rate_interval]))",
        "Histogram behind the quantiles.",
    )
    board.graph(
        "99 % by route",
        SECONDS,
        [(quantile(0.99, DURATION, "le, route"), "{{route}}")],
        "check_many is batches, which may take longer.",
        custom=LOGARITHMIC,
    )
    late = f"1 - sum by (route) ({IN_TIME}) / sum by (route) ({TIMED})"
    board.graph(
        "Later than 60 ms",
        SHARE,
        [(late, "{{route}}")],
        "RtadLateAnswers is critical at 1.44 %; platforms reduce traffic at 1 to 2 %.",
        min=0,
    )
    others = sum_by("route, code", rate("rtad_requests_total", 'code!="200"'))
    shed = f"sum by (pod) ({rate('rtad_shed_total')})"
    board.graph(
        "Refused",
        PER_SECOND,
        [(others, "{{route}} {{code}}"), (shed, "shed by {{pod}}")],
        "Answers other than 200, and requests shed by a limit. Platforms always get 200.",
    )
    board.graph(
        "In flight",
        COUNT,
        [(of("rtad_in_flight"), "{{pod}} {{instance}}")],
        "Requests in progress; mostly those still sending their body.",
    )
    board.graph(
        "Buffered",
        BYTES,
        [(of("rtad_buffered_bytes"), "{{pod}} {{instance}}")],
        "Declared bytes of incomplete bodies; at server.max_buffered, further ones are refused.",
    )
    board.graph(
        "Connections",
        COUNT,
        [
            (of("rtad_connections"), "{{pod}} {{instance}}"),
            (f"min({of('rtad_max_connections')})", "limit"),
        ],
        "A connection beyond the limit gets 503 and is closed.",
    )
    board.graph(
        "Sync thread",
        COUNT,
        [(of("rtad_sync_alive"), "{{pod}} {{instance}}")],
        "0 means that the thread has died: the pod is not ready and must be restarted.",
        max=1,
        min=0,
    )
    board.graph(
        "Pods by version",
        COUNT,
        [(f"count by (version) ({of('rtad_build_info')})", "{{version}}")],
        "Two versions for longer than a rollout indicate a stuck rollout.",
        custom=STEPS,
    )


def decided(board):
    board.row("Decisions")
    decisions, by = rate("rtad_decisions_total"), "platform, strategy"
    bids = share(rate("rtad_decisions_total", 'decision="bid"'), decisions, by)
    board.graph(
        "Share of bids",
        SHARE,
        [(bids, "{{platform}} {{strategy}}")],
        "A sudden change means a broken export or integration, or a changed rule. `api` is /v1/decide.",
        min=0,
        max=1,
    )
    board.graph(
        "Decisions by reason",
        PER_SECOND,
        [(f"sum by (decision, reason) ({decisions})", "{{decision}}: {{reason}}")],
        "Reasons for bids and no-bids.",
    )
    unavailable = share(rate("rtad_decisions_total", 'reason="unavailable"'), decisions, by)
    board.graph(
        "Unavailable decisions",
        SHARE,
        [(unavailable, "{{platform}} {{strategy}}")],
        "The configured `unavailable` answer: an audience is missing, too old or expired, or overload.",
        min=0,
    )
    ids = rate("rtad_ids_total")
    board.graph(
        "Ids by result",
        PER_SECOND,
        [(f"sum by (result) ({ids})", "{{result}}")],
        "`doubtful` ids are marked so by the platform.",
    )
    usable = sum_by("kind", rate("rtad_ids_total", 'result="usable"'))
    board.graph(
        "Usable ids by kind",
        PER_SECOND,
        [(f"{usable} > 0", "{{kind}}")],
        "Kinds of ids that platforms send.",
    )
    for result, description in (
        ("blank", "Zeros, null, unexpanded macros, and their md5s."),
        ("malformed", "Not an id of its kind: truncated, or hashed in an unexpected way."),
    ):
        part = sum_by("kind", rate("rtad_ids_total", f'result="{result}"'))
        query = f"{part} / ({sum_by('kind', ids)} > 0)"
        board.graph(
            f"{result.capitalize()} ids", SHARE, [(query, "{{kind}}")], description, min=0, max=1
        )
    failures = f"sum by (platform, cause) ({rate('rtad_platform_failures_total')})"
    board.graph(
        "Platform failures",
        PER_SECOND,
        [(failures, "{{platform}}: {{cause}}")],
        "Requests without a decision from their ids; causes in docs/reference/platforms.md.",
    )
    no_device = share(rate("rtad_decisions_total", 'reason="no_device"'), decisions, by)
    board.graph(
        "Decisions without a usable id",
        SHARE,
        [(no_device, "{{platform}} {{strategy}}")],
        "The configured `no_device` answer.",
        min=0,
    )
    counted = sum_by("cap", of("rtad_cap_devices"))
    granted = f"max by (cap) ({of('rtad_cap_granted_devices')})"
    unused = sum_by("cap", f"{of('rtad_cap_limit')} - {of('rtad_cap_devices')}")
    board.graph(
        "Unique caps",
        COUNT,
        [(counted, "counted {{cap}}"), (granted, "granted {{cap}}"), (unused, "unused {{cap}}")],
        "Devices counted by the pods in the period, granted to all, and not yet used by running pods.",
        min=0,
    )
    created = rate("rtad_cap_records_total", 'result="created"')
    failed = rate("rtad_cap_records_total", 'result="failed"')
    board.graph(
        "Records of caps",
        PER_SECOND,
        [(sum_by("cap", created), "created {{cap}}"), (sum_by("pod, cap", failed), "failed {{pod}} {{cap}}")],
        "Blocks that pods take and give back. Pods whose calls fail go on with what they have.",
        min=0,
    )


def asked(board):
    board.row("Growth: $platform, $strategy")
    chosen = ['platform=~"$platform"', 'strategy=~"$strategy"']
    decisions = rate("rtad_decisions_total", *chosen)
    bids = rate("rtad_decisions_total", 'decision="bid"', *chosen)
    hourly = f"increase({of('rtad_decisions_total', *chosen)}[1h])"
    board.graph(
        "Decisions per hour",
        COUNT,
        [(sum_by("platform, strategy, decision", hourly), "{{platform}} {{strategy}}: {{decision}}")],
        "Decisions of the hour before each point, of all pods.",
    )
    board.graph(
        "Share of bids of the selection",
        SHARE,
        [(share(bids, decisions, "platform, strategy"), "{{platform}} {{strategy}}")],
        "Bids among the decisions of a platform and strategy.",
        min=0,
        max=1,
    )
    daily = [f"increase({of('rtad_decisions_total', *only, *chosen)}[1d])" for only in (['decision="bid"'], [])]
    board.graph(
        "Participation",
        SHARE,
        [(share(*daily, "platform, strategy"), "{{platform}} {{strategy}}")],
        "Bids among the requests of the day before each point. Platforms end accounts that stay under 10 %.",
        min=0,
        max=1,
    )
    shadow = rate("rtad_shadow_decisions_total", *chosen)
    board.graph(
        "Share of bids in shadow",
        SHARE,
        [
            (
                share(rate("rtad_shadow_decisions_total", 'decision="bid"', *chosen), shadow, "platform, strategy"),
                "{{platform}} {{strategy}}",
            )
        ],
        "Decisions of strategies with `shadow = true`, which answer nothing.",
        min=0,
        max=1,
    )
    only = 'strategy=~"$strategy"'
    buckets = rate("rtad_bucket_decisions_total", only)
    board.graph(
        "Share of bids by bucket",
        SHARE,
        [
            (
                share(
                    rate("rtad_bucket_decisions_total", 'decision="bid"', only),
                    buckets,
                    "strategy, experiment, bucket",
                ),
                "{{strategy}} {{experiment}}:{{bucket}}",
            )
        ],
        "Buckets of experiments. Shares of requests, not of devices: docs/guides/run-an-ab-test.md.",
        min=0,
        max=1,
    )
    values = rate("rtad_bid_values_total", only)
    board.graph(
        "Share of bids by value",
        SHARE,
        [
            (
                f"{sum_by('strategy, row, audience, tier, bucket', values)} / on (strategy) group_left () "
                f"{sum_by('strategy', values)}",
                "{{strategy}} {{row}} {{audience}} {{tier}} {{bucket}}",
            )
        ],
        "Rows of `[[strategy.value]]`, among bids that have a value. The default has no conditions.",
        min=0,
        max=1,
    )
    board.graph(
        "Reasons of the selection",
        PER_SECOND,
        [(sum_by("decision, reason, condition", decisions), "{{decision}}: {{reason}} {{condition}}")],
        "`capped` and `no_grant` are those of caps; docs/guides/answer-growth-questions.md.",
    )


def served(board):
    board.row("Snapshots")
    audience = "audience"
    board.graph(
        "Generation by pod",
        "none",
        [(of("rtad_snapshot_generation"), "{{audience}} {{pod}} {{instance}}")],
        "All pods follow a publish within a poll interval plus the load time.",
        custom=STEPS,
    )
    age = f"time() - min by ({audience}) ({of('rtad_snapshot_created_timestamp_seconds')})"
    board.graph(
        "Age",
        SECONDS,
        [(age, "{{audience}}")],
        "Age of the oldest snapshot that a pod serves.",
        min=0,
    )
    left = f"min by ({audience}) ({of('rtad_snapshot_expires_timestamp_seconds')}) - time()"
    created, max_age = (
        of("rtad_snapshot_created_timestamp_seconds"),
        of("rtad_snapshot_max_age_seconds"),
    )
    board.graph(
        "Time to expiry",
        SECONDS,
        [
            (left, "{{audience}}, by its expiry"),
            (f"min by ({audience}) ({created} + {max_age}) - time()", "{{audience}}, by max_age"),
        ],
        "Afterwards the audience is unavailable. Empty if neither is set.",
    )
    board.graph(
        "Keys",
        COUNT,
        [(f"max by ({audience}) ({of('rtad_snapshot_keys')})", "{{audience}}")],
        "Distinct device keys, without deltas.",
        custom=STEPS,
    )
    board.graph(
        "Kept devices",
        SHARE,
        [(f"min by ({audience}) ({of('rtad_snapshot_overlap_ratio')})", "{{audience}}")],
        "Share of the devices of the generation before that stayed. A build refuses less than 80 %.",
        min=0,
        max=1,
        custom=STEPS,
    )
    board.graph(
        "Size",
        BYTES,
        [(f"max by ({audience}) ({of('rtad_snapshot_size_bytes')})", "{{audience}}")],
        "Size of its chunks, equal to its size in memory.",
        custom=STEPS,
    )
    rates = [
        (f"max by ({audience}) ({of('rtad_snapshot_' + name + '_fpr')})", "{{audience}}, " + name)
        for name in ("expected", "target")
    ]
    board.graph(
        "False-positive rate",
        "none",
        rates,
        "Expected of the filters, and target: the share of new users taken for members.",
        custom=STEPS,
    )
    fill = f"max by ({audience}, stat) ({of('rtad_snapshot_fill_ratio')})"
    board.graph(
        "Fill",
        SHARE,
        [(fill, "{{audience}} {{stat}}")],
        "Share of set bits over all shards. A shard near 1 matches every device.",
        min=0,
        max=1,
        custom=STEPS,
    )
    results = f"sum by ({audience}, result) ({rate('rtad_sync_total')})"
    board.graph(
        "Polls of the store",
        "ops",
        [(results, "{{audience}}: {{result}}")],
        "All results except ok and unchanged are failures; causes in docs/reference/errors.md.",
    )
    mean = share(
        rate("rtad_sync_duration_seconds_sum"), rate("rtad_sync_duration_seconds_count"), audience
    )
    durations = [
        (quantile(0.99, "rtad_sync_duration_seconds", "le, audience"), "{{audience}}, 99 %"),
        (mean, "{{audience}}, mean"),
    ]
    board.graph("Duration of a poll", SECONDS, durations, "Includes loading a new snapshot.")
    behind = f"time() - {of('rtad_sync_caught_up_timestamp_seconds')}"
    board.graph(
        "Time since all changes were served",
        SECONDS,
        [(f"max by ({audience}) ({behind})", "{{audience}}")],
        "By the pod that is furthest behind the store. Normal: up to a poll interval.",
        min=0,
    )
    board.graph(
        "Deltas",
        COUNT,
        [(f"max by ({audience}) ({of('rtad_deltas')})", "{{audience}}")],
        "At most 12; a build merges them.",
        custom=STEPS,
    )
    keys = f"max by ({audience}, change) ({of('rtad_delta_keys')})"
    board.graph(
        "Keys in deltas",
        COUNT,
        [(keys, "{{audience}} {{change}}")],
        "Grows until the next build.",
        custom=STEPS,
    )
    newest = f"time() - min by ({audience}) ({of('rtad_delta_appended_timestamp_seconds')})"
    board.graph(
        "Newest change",
        SECONDS,
        [(newest, "{{audience}}")],
        "Time since its publish, on the pod furthest behind.",
    )
    board.graph(
        "Chunks read",
        "ops",
        [(f"sum by (source) ({rate('rtad_chunks_read_total')})", "{{source}}")],
        "At start and at each new generation.",
    )
    problems = [
        (f"sum by (pod) ({rate('rtad_cache_errors_total')})", "cache errors, {{pod}}"),
        (
            f"max by (pod, {audience}) ({of('rtad_snapshot_mixed')})",
            "mixed generations, {{pod}} {{audience}}",
        ),
        (
            f"max by (pod, {audience}) ({of('rtad_snapshot_staged')})",
            "staged generation, {{pod}} {{audience}}",
        ),
        (
            f"max by (pod, {audience}) ({of('rtad_tiers_missing')})",
            "values missing, {{pod}} {{audience}}",
        ),
        (
            f"1 - min by (pod) ({of('rtad_config_last_reload_successful')})",
            "config refused, {{pod}}",
        ),
        (f"count(count_values('hash', {of('rtad_config_hash')})) - 1", "other configs"),
        (
            f"time() - max({of('rtad_config_loaded_timestamp_seconds')}) < bool 300",
            "config loaded in the last 5 minutes",
        ),
        (
            f"sum by (pod, {audience}) (increase({of('rtad_cache_starts_total')}[$__rate_interval]))",
            "started from the cache, {{pod}} {{audience}}",
        ),
    ]
    board.graph(
        "Minor problems",
        COUNT,
        problems,
        "Normally 0; mixed generations are 1 during a rolling swap.",
    )


def counted(board):
    board.row("Windows")
    window, audience = "window", "audience"
    board.graph(
        "Window fill",
        SHARE,
        [(f"max by ({window}) ({of('rtad_window_fill_ratio')})", "{{window}}")],
        "Entries divided by capacity. RtadWindowNearFull fires at 90 %.",
        min=0,
        max=1,
    )
    events = rate("rtad_window_events_total")
    board.graph(
        "Events by result",
        PER_SECOND,
        [(f"sum by ({window}, result) ({events})", "{{window}}: {{result}}")],
        "`full` (also counted as `new`) and `failed` events are not recorded.",
    )
    duplicates = share(
        rate("rtad_window_events_total", 'result="duplicate"'),
        rate("rtad_window_events_total", 'result=~"new|duplicate"'),
        window,
    )
    board.graph(
        "Duplicates",
        SHARE,
        [(duplicates, "{{window}}")],
        "Share of recorded events whose device was already in the window.",
        min=0,
        max=1,
    )
    other = [
        (f"sum by ({window}) ({rate('rtad_window_checks_total')})", "{{window}}: checked"),
        (f"sum by ({window}) ({rate('rtad_window_forgotten_total')})", "{{window}}: forgotten"),
    ]
    board.graph("Checks and erasures", PER_SECOND, other, "Ids of requests that record nothing.")
    board.graph(
        "Window entries",
        COUNT,
        [
            (f"max by ({window}) ({of('rtad_window_entries')})", "{{window}}"),
            (f"max by ({window}) ({of('rtad_window_capacity')})", "{{window}}: capacity"),
        ],
        "Devices in the window.",
    )
    board.graph(
        "Audience lag",
        SECONDS,
        [(f"max by ({audience}) ({of('rtad_window_audience_lag_seconds')})", "{{audience}}")],
        "Age of the oldest event that is not published yet. RtadWindowLag fires at 30 s. Pods add"
        " the time since all changes were served.",
        min=0,
    )
    board.graph(
        "Window log",
        BYTES,
        [(f"max by ({window}) ({of('rtad_window_log_bytes')})", "{{window}}")],
        "Bytes since the last table in the store: a standby reads both at its start.",
    )
    behind = of("rtad_window_behind_seconds")
    board.graph(
        "Owners and standbys",
        SECONDS,
        [(f"max by ({window}, pod) ({behind})", "{{window}} {{pod}}")],
        "Of an owner, the age of the oldest events that the store lacks: from 10 s on it refuses"
        " events. Of a standby, the time since it had all of the store. RtadWindowNotCopied fires at"
        " a minute.",
        min=0,
    )
    failures = [
        (
            sum_by(window, rate("rtad_window_answers_evicted_total")),
            "{{window}}: answers evicted/s",
        ),
        (
            sum_by(window, rate("rtad_window_events_total", 'result="failed"')),
            "{{window}}: events failed/s",
        ),
        (f"1 - max by ({window}) ({of('rtad_window_owner')})", "{{window}}: without an owner"),
    ]
    board.graph("Window failures", COUNT, failures, "Normally 0.")


def logged(board):
    board.row("Decision log")
    rows = [
        (f"sum({rate('rtad_log_rows_total')})", "in closed files"),
        (sum_by("reason", rate("rtad_log_dropped_rows_total")), "dropped: {{reason}}"),
    ]
    board.graph("Logged rows", PER_SECOND, rows, "RtadLogRowsDropped fires after 10 minutes.")
    board.graph(
        "Logged bytes",
        "Bps",
        [(f"sum({rate('rtad_log_bytes_total')})", "bytes of closed files")],
        "After compression.",
    )
    ages = [
        (f"max by (pod) ({of('rtad_log_open_file_age_seconds')})", "{{pod}}: open file"),
        (f"max by (pod) ({of('rtad_log_upload_lag_seconds')})", "{{pod}}: oldest upload"),
    ]
    board.graph(
        "Ages of files",
        SECONDS,
        ages,
        "A file is closed after log.max_age. RtadLogFails fires at uploads of 600 s.",
        min=0,
    )
    files = [
        (f"sum({of('rtad_log_waiting_files')})", "wait for their upload"),
        (f"sum(increase({of('rtad_log_deleted_files_total')}[1h]))", "deleted in an hour"),
        (
            f"sum by (step) (increase({of('rtad_log_failures_total')}[1h]))",
            "failures in an hour: {{step}}",
        ),
    ]
    board.graph("Files of the log", COUNT, files, "Failures are normally 0.")


def variable(name, label, query):
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def dashboard():
    board = Board()
    for part in (up_and_fast, decided, asked, served, counted, logged):
        part(board)
    return {
        "uid": "rtad",
        "title": "rtad",
        "description": "Generated by k8s/components/monitoring/make_dashboard.py; edit that file instead.",
        "tags": ["rtad"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "templating": {
            "list": [
                {
                    "name": "datasource",
                    "label": "Prometheus",
                    "type": "datasource",
                    "query": "prometheus",
                    "refresh": 1,
                    "current": {},
                },
                variable("namespace", "Namespace", "label_values(rtad_build_info, namespace)"),
                variable("job", "Job", 'label_values(rtad_build_info{namespace=~"$namespace"}, job)'),
                variable(
                    "pod",
                    "Pod",
                    'label_values(rtad_build_info{namespace=~"$namespace",job=~"$job"}, pod)',
                ),
                variable("platform", "Platform", f"label_values({of('rtad_decisions_total')}, platform)"),
                variable("strategy", "Strategy", f"label_values({of('rtad_decisions_total')}, strategy)"),
            ]
        },
        "annotations": {
            "list": [
                {
                    "name": "New generations",
                    "datasource": DATASOURCE,
                    "enable": True,
                    "iconColor": "blue",
                    "expr": f"changes({of('rtad_snapshot_generation')}[1m]) > 0",
                    "titleFormat": "{{audience}}: a new generation on {{pod}}",
                    "step": "1m",
                }
            ]
        },
        "panels": board.panels,
    }


if __name__ == "__main__":
    print(json.dumps(dashboard(), indent=1, ensure_ascii=False))
