"""Makes rtad-dashboard.json, which Grafana imports: is it up and fast, what is decided, what is served.

    python3 k8s/components/monitoring/make_dashboard.py > k8s/components/monitoring/rtad-dashboard.json

Needs no package. A test compares the file with what this makes, and asks every query of a Prometheus that scrapes a running rtad.
"""

import json

from panels import BYTES, COUNT, DATASOURCE, LOGARITHMIC, PER_SECOND, SECONDS, SHARE, STEPS, Board

# Of every series; outside Kubernetes, where a series has no namespace and no pod, "All" matches that too.
SELECTED = 'namespace=~"$namespace",job=~"$job",pod=~"$pod"'
# A platform's request, and those who ask as platforms do.
ASKED = 'route!~"check_many|unknown"'


def of(metric, *labels):
    """A selector of the pods that are looked at."""
    return f"{metric}{{{','.join([SELECTED, *labels])}}}"


def rate(metric, *labels):
    return f"rate({of(metric, *labels)}[$__rate_interval])"


def sum_by(labels, what):
    return f"sum by ({labels}) ({what})"


def share(part, whole, by):
    return f"{sum_by(by, part)} / {sum_by(by, whole)}"


def quantile(quantile, metric, by, *labels):
    return f"histogram_quantile({quantile}, sum by ({by}) ({rate(metric + '_bucket', *labels)}))"


DURATION = "rtad_request_duration_seconds"
IN_TIME = rate(f"{DURATION}_bucket", 'le="0.06"', ASKED)
TIMED = rate(f"{DURATION}_count", ASKED)


def up_and_fast(board):
    board.row("Is it up, and fast?")
    board.stat("Pods ready", COUNT, f"sum({of('rtad_ready')})", "Pods whose /readyz says ready.", bad_below=1)
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
        "Of platforms' requests, /v1/decide and single checks.",
        bad_below=0.999,
    )
    board.stat(
        "Shed", PER_SECOND, f"sum({rate('rtad_shed_total')})", "Requests and connections refused because of a limit.", bad_above=1
    )
    firing = 'count(ALERTS{alertname=~"Rtad.+",alertstate="firing"}) or vector(0)'
    board.stat(
        "Alerts",
        COUNT,
        firing,
        "Of rtad, that are firing, in all that this Prometheus sees; docs/guides/runbook.md says what to do.",
        bad_above=1,
    )
    board.graph(
        "Requests by route",
        PER_SECOND,
        [(f"sum by (route) ({rate('rtad_requests_total')})", "{{route}}")],
        "A platform's route has the platform's name.",
    )
    board.graph(
        "Latency",
        SECONDS,
        [(quantile(q, DURATION, "le", ASKED), name) for q, name in ((0.5, "median"), (0.99, "99 %"), (0.999, "99.9 %"))],
        "From a request's head to its answer, without the network. Platforms stop listening after 60 ms.",
        custom=LOGARITHMIC,
    )
    board.heatmap(
        "Requests by duration",
        f"sum by (le) (increase({of(DURATION + '_bucket', ASKED)}[$__rate_interval]))",
        "Where the quantiles come from.",
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
        "RtadLateAnswers wakes somebody up at 1.44 %; platforms send less from 1 to 2 % on.",
        min=0,
    )
    others = sum_by("route, code", rate("rtad_requests_total", 'code!="200"'))
    shed = f"sum by (pod) ({rate('rtad_shed_total')})"
    board.graph(
        "Refused",
        PER_SECOND,
        [(others, "{{route}} {{code}}"), (shed, "shed by {{pod}}")],
        "Answers other than 200, and what a limit has refused. Platforms are always answered 200.",
    )
    board.graph(
        "In flight",
        COUNT,
        [(of("rtad_in_flight"), "{{pod}} {{instance}}")],
        "Requests being answered: in practice, those whose bodies have still to come.",
    )
    board.graph(
        "Connections",
        COUNT,
        [(of("rtad_connections"), "{{pod}} {{instance}}"), (f"min({of('rtad_max_connections')})", "limit")],
        "One beyond the limit is told 503 and closed.",
    )
    board.graph(
        "Pods by version",
        COUNT,
        [(f"count by (version) ({of('rtad_build_info')})", "{{version}}")],
        "Two versions for longer than a roll-out takes is a roll-out that hangs.",
        custom=STEPS,
    )


def decided(board):
    board.row("What is decided?")
    decisions, by = rate("rtad_decisions_total"), "platform, strategy"
    bids = share(rate("rtad_decisions_total", 'decision="bid"'), decisions, by)
    board.graph(
        "Share of bids",
        SHARE,
        [(bids, "{{platform}} {{strategy}}")],
        "An abrupt change is a broken export, a broken integration or a changed rule. `api` is /v1/decide.",
        min=0,
        max=1,
    )
    board.graph(
        "Decisions by reason",
        PER_SECOND,
        [(f"sum by (decision, reason) ({decisions})", "{{decision}}: {{reason}}")],
        "Why devices got an ad, or none.",
    )
    unavailable = share(rate("rtad_decisions_total", 'reason="unavailable"'), decisions, by)
    board.graph(
        "Decided without data",
        SHARE,
        [(unavailable, "{{platform}} {{strategy}}")],
        "An audience is missing, too old or expired, or overload: the config's `unavailable` word.",
        min=0,
    )
    ids = rate("rtad_ids_total")
    board.graph(
        "Ids by what became of them",
        PER_SECOND,
        [(f"sum by (result) ({ids})", "{{result}}")],
        "Doubtful ones are those that the platform itself marks.",
    )
    usable = sum_by("kind", rate("rtad_ids_total", 'result="usable"'))
    board.graph("Usable ids by kind", PER_SECOND, [(f"{usable} > 0", "{{kind}}")], "What platforms know devices by.")
    for result, why in (
        ("blank", "Zeros, null, unexpanded macros, and the md5 of those."),
        ("malformed", "Neither an id nor nothing: hashed in another way than agreed, or cut."),
    ):
        part = sum_by("kind", rate("rtad_ids_total", f'result="{result}"'))
        query = f"{part} / ({sum_by('kind', ids)} > 0)"
        board.graph(f"{result.capitalize()} ids", SHARE, [(query, "{{kind}}")], why, min=0, max=1)
    failures = f"sum by (platform, cause) ({rate('rtad_platform_failures_total')})"
    board.graph(
        "Platforms' failures",
        PER_SECOND,
        [(failures, "{{platform}}: {{cause}}")],
        "Requests that were not answered by their ids; docs/reference/platforms.md has the causes.",
    )
    no_device = share(rate("rtad_decisions_total", 'reason="no_device"'), decisions, by)
    board.graph(
        "Decided without a usable id", SHARE, [(no_device, "{{platform}} {{strategy}}")], "The config's `no_device` word.", min=0
    )


def served(board):
    board.row("What is served?")
    audience = "audience"
    board.graph(
        "Generation by pod",
        "none",
        [(of("rtad_snapshot_generation"), "{{audience}} {{pod}} {{instance}}")],
        "All pods follow a publish within a poll interval and the time of a load.",
        custom=STEPS,
    )
    age = f"time() - min by ({audience}) ({of('rtad_snapshot_created_timestamp_seconds')})"
    board.graph("Age", SECONDS, [(age, "{{audience}}")], "Of the oldest that a pod serves.", min=0)
    left = f"min by ({audience}) ({of('rtad_snapshot_expires_timestamp_seconds')}) - time()"
    created, max_age = of("rtad_snapshot_created_timestamp_seconds"), of("rtad_snapshot_max_age_seconds")
    board.graph(
        "May be served for",
        SECONDS,
        [(left, "{{audience}}, by its expiry"), (f"min by ({audience}) ({created} + {max_age}) - time()", "{{audience}}, by max_age")],
        "Then it counts as unavailable. Nothing where neither is set.",
    )
    board.graph(
        "Keys",
        COUNT,
        [(f"max by ({audience}) ({of('rtad_snapshot_keys')})", "{{audience}}")],
        "Distinct device keys, without deltas.",
        custom=STEPS,
    )
    board.graph(
        "Size",
        BYTES,
        [(f"max by ({audience}) ({of('rtad_snapshot_size_bytes')})", "{{audience}}")],
        "Of its chunks, and in a pod's memory.",
        custom=STEPS,
    )
    rates = [
        (f"max by ({audience}) ({of('rtad_snapshot_' + name + '_fpr')})", "{{audience}}, " + name) for name in ("expected", "target")
    ]
    board.graph(
        "False-positive rate",
        "none",
        rates,
        "By its filters' fill, beside what it was built for: so many new users are taken for known ones.",
        custom=STEPS,
    )
    fill = f"max by ({audience}, stat) ({of('rtad_snapshot_fill_ratio')})"
    board.graph(
        "Fill",
        SHARE,
        [(fill, "{{audience}} {{stat}}")],
        "Bits that are set, over all shards. A shard near 1 bids for nobody.",
        min=0,
        max=1,
        custom=STEPS,
    )
    results = f"sum by ({audience}, result) ({rate('rtad_sync_total')})"
    board.graph(
        "Looks at the store",
        "ops",
        [(results, "{{audience}}: {{result}}")],
        "Anything but ok and unchanged is a failure; docs/guides/monitor.md has the causes.",
    )
    mean = share(rate("rtad_sync_duration_seconds_sum"), rate("rtad_sync_duration_seconds_count"), audience)
    durations = [(quantile(0.99, "rtad_sync_duration_seconds", "le, audience"), "{{audience}}, 99 %"), (mean, "{{audience}}, mean")]
    board.graph("Time of a look", SECONDS, durations, "With the load, if there is something to load.")
    board.graph(
        "Deltas",
        COUNT,
        [(f"max by ({audience}) ({of('rtad_deltas')})", "{{audience}}")],
        "At most 12; a build takes them up.",
        custom=STEPS,
    )
    keys = f"max by ({audience}, change) ({of('rtad_delta_keys')})"
    board.graph("Keys in deltas", COUNT, [(keys, "{{audience}} {{change}}")], "Grows until the next build.", custom=STEPS)
    newest = f"time() - min by ({audience}) ({of('rtad_delta_appended_timestamp_seconds')})"
    board.graph(
        "Newest change", SECONDS, [(newest, "{{audience}}")], "How long ago it was published, on the pod that is furthest behind."
    )
    board.graph(
        "Chunks read",
        "ops",
        [(f"sum by (source) ({rate('rtad_chunks_read_total')})", "{{source}}")],
        "At a start and at each new generation.",
    )
    trouble = [
        (f"sum by (pod) ({rate('rtad_cache_errors_total')})", "cache errors, {{pod}}"),
        (f"max by (pod, {audience}) ({of('rtad_snapshot_mixed')})", "mixed generations, {{pod}} {{audience}}"),
        (f"1 - min by (pod) ({of('rtad_config_last_reload_successful')})", "config refused, {{pod}}"),
        (
            f"sum by (pod, {audience}) (increase({of('rtad_cache_starts_total')}[$__rate_interval]))",
            "started from the cache, {{pod}} {{audience}}",
        ),
    ]
    board.graph("Small troubles", COUNT, trouble, "All at 0 on a good day; mixed generations are 1 while a pod rolls.")


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
    for part in (up_and_fast, decided, served):
        part(board)
    return {
        "uid": "rtad",
        "title": "rtad",
        "description": "Made by k8s/components/monitoring/make_dashboard.py: change that, not this.",
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
                variable("namespace", "Namespace", "label_values(rtad_ready, namespace)"),
                variable("job", "Job", 'label_values(rtad_ready{namespace=~"$namespace"}, job)'),
                variable("pod", "Pod", 'label_values(rtad_ready{namespace=~"$namespace",job=~"$job"}, pod)'),
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
