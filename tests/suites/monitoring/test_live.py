"""Scrapes of running programs: documented metrics, and data for every query of dashboard and
alerts."""

import contextlib
import math
import re
import subprocess
import time
import urllib.parse

import pytest

from suites.monitoring import running, sources
from suites.testkit.client import ask
from suites.testkit.waiting import wait_until

# An unreachable server.
NOWHERE = "http://127.0.0.1:1/rtad"
# Selectors without series in this test, and the reason.
NOT_HERE = {
    "kube_job_failed": "from kube-state-metrics",
    "node_systemd_unit_state": "from node_exporter",
    "container_memory_working_set_bytes": "from cAdvisor",
    "container_spec_memory_limit_bytes": "from cAdvisor",
}
RATE_INTERVAL = "10s"


class Watched:
    """Fixture: programs and Prometheus."""

    def __init__(self, folder):
        self.fleet = running.Fleet(folder)

    def start(self):
        fleet = self.fleet
        self.pods = [fleet.rtad("a", fleet.store), fleet.rtad("b", NOWHERE)]
        self.writer = fleet.writer()
        self.prometheus = fleet.prometheus(self.pods, self.writer)
        for decisions, _ in self.pods:
            fleet.traffic(decisions)
        # Another generation follows after Prometheus has scraped the first.
        generation = 'rtad_snapshot_generation{audience="vip"}'
        wait_until("the first generation", lambda: self.values(generation) == [1, 1])
        fleet.publish("vip", fleet.ids[900:1101])
        wait_until("the other generation", lambda: 2 in self.values(generation))
        busy = "sum by (pod) (rate(rtad_requests_total[5s])) > 1"
        wait_until("traffic on both pods", lambda: len(self.values(busy)) == len(self.pods))
        # Rates need several samples.
        time.sleep(3)

    def admins(self):
        return [*(admin for _, admin in self.pods), self.writer]

    def ask(self, path, **parameters):
        query = urllib.parse.urlencode(parameters, doseq=True)
        answer = ask(self.prometheus, f"/api/v1/{path}?{query}").json()
        assert answer["status"] == "success", answer
        assert not answer.get("warnings"), answer
        return answer["data"]

    def values(self, query):
        """Values of an instant vector, without NaN."""
        data = self.ask("query", query=query)
        found = [float(sample["value"][1]) for sample in data["result"]]
        return [value for value in found if not math.isnan(value)]


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    watched = Watched(tmp_path_factory.mktemp("fleet"))
    with contextlib.closing(watched.fleet):
        watched.start()
        yield watched


class Scrape:
    """A parsed answer of /metrics."""

    def __init__(self, address):
        self.text = ask(address, "/metrics").text()
        self.types = dict(re.findall(r"^# TYPE (\w+) (\w+)$", self.text, re.MULTILINE))
        self.helps = dict(re.findall(r"^# HELP (\w+) (.+)$", self.text, re.MULTILINE))
        # Labels of each metric, and values of each label.
        self.labels = {name: {} for name in self.types}
        for name, labels in re.findall(
            r"^(\w+?)(?:_bucket|_sum|_count)?(?:\{(.*)\})? \S+$", self.text, re.MULTILINE
        ):
            for label, value in re.findall(r'(\w+)="([^"]*)"', labels):
                self.labels[name].setdefault(label, set()).add(value)
            assert name in self.types, f"{name} has no type"


class TestMetrics:
    def test_promtool_finds_no_problems(self, watched):
        for address in watched.admins():
            done = subprocess.run(
                ["promtool", "check", "metrics"],
                input=Scrape(address).text,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            assert (done.returncode, done.stdout) == (0, "")

    def test_metrics_equal_the_documented_ones(self, watched):
        self.compare(sources.metrics_of_pods(), [Scrape(admin) for _, admin in watched.pods])
        self.compare(sources.metrics_of_writer(), [Scrape(watched.writer)])

    def compare(self, documented, scrapes):
        found = {}
        for scrape in scrapes:
            for name, labels in scrape.labels.items():
                for label, seen in labels.items():
                    found.setdefault(name, {}).setdefault(label, set()).update(seen)
                found.setdefault(name, {})
        assert sorted(found) == sorted(documented)
        for name, labels in documented.items():
            assert sorted(found[name].keys() - {"le"}) == sorted(labels), name
            for label, accepted in labels.items():
                if accepted and label not in ("route", "platform", "kind"):
                    assert found[name][label] <= set(accepted), f"{name} {label}"

    def test_documents_name_only_existing_metrics(self, watched):
        known = {*sources.metrics_of_pods(), *sources.metrics_of_writer()}
        histograms = {
            name
            for _, admin in watched.pods
            for name, kind in Scrape(admin).types.items()
            if kind == "histogram"
        }
        known |= {name + suffix for name in histograms for suffix in ("_bucket", "_sum", "_count")}
        documents = [
            *sources.ROOT.glob("docs/**/*.md"),
            *sources.ROOT.glob("*.md"),
            sources.RULES,
            sources.DASHBOARD,
            *sources.TESTS,
        ]
        for path in documents:
            named = set(
                re.findall(
                    r"\brtad_[a-z_]+(?:_total|_seconds|_bytes|_ratio|_fpr|_bucket|_sum|_count|_generation|_keys|_mixed)\b",
                    path.read_text(),
                )
            )
            assert named <= known, path.name


class TestDashboard:
    def test_every_query_gets_data(self, watched):
        for title, query in sources.queries():
            query = re.sub(r"\$(namespace|job|pod|platform|strategy)\b", ".*", query).replace(
                "$__rate_interval", RATE_INTERVAL
            )
            if title == "New generations":
                query = query.replace("[1m]", "[5m]")
            # A rate has no data while the machine is too busy for several scrapes.
            wait_until(title, lambda query=query: watched.values(query))

    def test_every_variable_has_values(self, watched):
        for variable in sources.dashboard()["templating"]["list"]:
            if variable["type"] == "query":
                query = re.sub(r"\$\w+", ".*", variable["definition"])
                selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", query).groups()
                assert watched.ask(f"label/{label}/values", **{"match[]": selector}), variable[
                    "name"
                ]


class TestRunbook:
    def test_every_documented_query_is_valid(self, watched):
        queries = [
            code
            for code in re.findall(r"`([^`\n]+)`", sources.RUNBOOK.read_text())
            if re.search(r"\brtad_", code)
        ]
        assert len(queries) > 15
        for query in queries:
            assert isinstance(watched.values(query), list)


class TestAlerts:
    def test_every_rule_is_evaluated_without_an_error(self, watched):
        def rules():
            return [rule for group in watched.ask("rules")["groups"] for rule in group["rules"]]

        wait_until("an evaluation", lambda: all(rule["health"] != "unknown" for rule in rules()))
        assert [
            (rule["name"], rule["lastError"]) for rule in rules() if rule["health"] != "ok"
        ] == []
        assert sorted(rule["name"] for rule in rules()) == sorted(
            rule["alert"] for rule in sources.alerts()
        )

    def test_every_selector_finds_series(self, watched):
        """An alert with a misspelled metric, label or value would never fire."""
        missing = set()
        for rule in sources.alerts():
            for name, matchers in sources.SELECTOR.findall(rule["expr"]):
                if not watched.ask("query", query=name + matchers)["result"]:
                    missing.add(name)
        assert missing == set(NOT_HERE)

    def test_alert_fires_and_is_sent(self, watched):
        """From a rising counter to the notification."""
        assert [
            alert["labels"]["alertname"]
            for alert in watched.ask("alerts")["alerts"]
            if alert["state"] == "firing"
        ] == []
        # A file in place of the cache folder: the next write fails.
        folder = watched.fleet.folder / "cache/vip"
        folder.rename(watched.fleet.folder / "away")
        folder.touch()
        watched.fleet.publish("vip", watched.fleet.ids[900:1102])

        def firing():
            return [
                alert
                for alert in watched.ask("alerts")["alerts"]
                if alert["labels"]["alertname"] == "RtadCacheErrors" and alert["state"] == "firing"
            ]

        wait_until("RtadCacheErrors", firing)
        (alert,) = firing()
        assert alert["labels"]["pod"] == "rtad-0"
        assert alert["annotations"]["description"].startswith("ads/rtad-0 could not write"), alert
        # The new generation is served anyway.
        wait_until(
            "the third generation",
            lambda: 3 in watched.values('rtad_snapshot_generation{audience="vip"}'),
        )
