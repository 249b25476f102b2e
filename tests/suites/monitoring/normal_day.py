"""A normal day without alerts: 1,000 requests per second, a nightly snapshot on one pod after
another, occasional store failures, a config change, and a rolling restart of all three pods. The
owner of an event window restarts too."""

import json

DAY = 1440
# Minute of the swap, and of the restart, on the first pod.
SWAP, RESTART = DAY + 30, DAY + 60
END = DAY + 120


def series(name, labels, begin, end, value, job="rtad"):
    """A series that exists from one minute to another."""
    values = [
        f"{value(minute):.12g}" if begin <= minute < end else "stale" if minute == end else "_"
        for minute in range(END + 1)
    ]
    return {"series": f'{name}{{namespace="ads",job="{job}",{labels}}}', "values": " ".join(values)}


def pod(number, begin, end, swap):
    """Series of a pod: ready after two minutes, rolling to the new generation for three."""
    name = f'pod="{number}",instance="10.0.0.{number}"'

    def counter(metric, labels, per_minute):
        return series(
            metric,
            f"{name},{labels}",
            begin,
            end,
            lambda minute: max(0, minute - begin - 2) * per_minute,
        )

    def gauge(metric, value, labels="", since=begin):
        return series(metric, f"{name},{labels}", since, end, value)

    def built(minute):
        return 0 if minute < swap else (SWAP - 20) * 60

    audience = 'audience="old_users"'
    yield series("up", name, begin, end, lambda _: 1)
    yield gauge("rtad_ready", lambda minute: minute >= begin + 2 or begin == 0)
    yield gauge("rtad_config_last_reload_successful", lambda _: 1)
    yield gauge("rtad_connections", lambda _: 400)
    yield gauge("rtad_max_connections", lambda _: 20_000)
    yield gauge(
        "container_memory_working_set_bytes",
        lambda minute: 8.7e9 if swap <= minute < swap + 3 else 4.4e9,
        'container="rtad"',
    )
    yield gauge("container_spec_memory_limit_bytes", lambda _: 9e9, 'container="rtad"')
    yield counter("rtad_requests_total", 'route="tencent",code="200"', 20_000)
    yield counter("rtad_request_duration_seconds_count", 'route="tencent"', 20_000)
    # Five in ten thousand are late.
    yield counter("rtad_request_duration_seconds_bucket", 'route="tencent",le="0.06"', 19_990)
    yield counter("rtad_shed_total", "", 10)
    yield counter("rtad_platform_failures_total", 'platform="tencent",cause="unauthorized"', 20)
    yield counter("rtad_platform_failures_total", 'platform="tencent",cause="internal"', 0)
    for decision, reason, per_minute in (
        ("bid", "not_member", 6_000),
        ("no_bid", "member", 13_980),
        ("no_bid", "unavailable", 20),
    ):
        yield counter(
            "rtad_decisions_total",
            f'platform="tencent",strategy="new-users",decision="{decision}",reason="{reason}"',
            per_minute,
        )
    for result, per_minute in (("usable", 30_000), ("blank", 10_000), ("malformed", 100)):
        yield counter("rtad_ids_total", f'kind="oaid_md5",result="{result}"', per_minute)
    loaded = begin + (2 if begin else 0)
    for metric, value in (
        ("generation", lambda minute: 7 if minute < swap else 8),
        ("keys", lambda minute: 1.5e9 if minute < swap else 1.49e9),
        ("created_timestamp_seconds", built),
        ("expires_timestamp_seconds", lambda minute: built(minute) + 48 * 3600),
        ("max_age_seconds", lambda _: float("nan")),
        ("size_bytes", lambda _: 4.2e9),
        ("target_fpr", lambda _: 1e-4),
        ("expected_fpr", lambda _: 1.03e-4),
        ("mixed", lambda minute: swap - 3 <= minute < swap),
    ):
        yield gauge(f"rtad_snapshot_{metric}", value, audience, loaded)
    yield counter("rtad_sync_total", f'{audience},result="unchanged"', 6)
    yield counter("rtad_sync_total", f'{audience},result="store"', 0.1)
    yield gauge("rtad_cache_errors_total", lambda _: 0)


def owner(instance, begin, end):
    """Series of the owner of a window, which fills to 85 % and is restored after a restart."""
    name = f'pod="writer-0",instance="10.0.1.{instance}"'
    window, audience = 'window="clicks"', 'audience="clicked"'

    def gauge(metric, value, labels=""):
        return series(metric, f"{name},{labels}", begin, end, value, "rtad-writer")

    yield gauge("up", lambda _: 1)
    yield gauge("rtad_writer_queue", lambda _: 0)
    yield gauge("rtad_window_owner", lambda _: 1, window)
    yield gauge("rtad_window_behind_seconds", lambda _: 0.4, window)
    yield gauge("rtad_window_fill_ratio", lambda minute: 0.85 * minute / END, window)
    # A publish waits for the store once.
    yield gauge(
        "rtad_window_audience_lag_seconds", lambda minute: 45 if minute == SWAP else 1, audience
    )
    for result, per_minute in (("new", 600), ("duplicate", 900), ("unusable", 6), ("full", 0)):
        yield gauge(
            "rtad_window_events_total",
            lambda minute, per_minute=per_minute: (minute - begin) * per_minute,
            f'{window},result="{result}"',
        )


def test():
    """A promtool test."""
    # One scrape fails during the restart.
    all_series = [*owner(1, 0, RESTART), *owner(2, RESTART + 1, END + 1)]
    for number in range(3):
        restarted = RESTART + 5 * number
        all_series += pod(number, 0, restarted, SWAP + 2 * number)
        # The new pod starts first and loads the live generation.
        all_series += pod(number + 3, restarted - 3, END + 1, 0)
    # All series start a day earlier, for comparisons with yesterday.
    nothing_fired = {
        "expr": f'count_over_time(ALERTS{{alertstate="firing"}}[{END}m])',
        "eval_time": f"{END}m",
        "exp_samples": [],
    }
    pending = 'count(count_over_time(ALERTS{alertname=~"RtadPodNotReady|RtadFleetSplit|RtadRollStuck|RtadWindow.+"}[2h]) > 0) by (alertname)'
    # The day has incidents: these alerts were pending and resolved.
    went_by = [
        {"labels": f'{{alertname="{name}"}}', "value": count}
        for name, count in (
            ("RtadFleetSplit", 1),
            ("RtadPodNotReady", 3),
            ("RtadRollStuck", 3),
            ("RtadWindowLag", 1),
        )
    ]
    return {
        "name": "a normal day",
        "interval": "1m",
        "input_series": all_series,
        "promql_expr_test": [
            nothing_fired,
            {"expr": pending, "eval_time": f"{END}m", "exp_samples": went_by},
        ],
    }


def document():
    return json.dumps(
        {"rule_files": ["rules.yaml"], "evaluation_interval": "2m", "tests": [test()]}
    )
