"""Running programs, scraped: what they tell is what the documents say, and every query of dashboard and alerts gets its data."""

import json
import math
import re
import subprocess
import time
import unittest

import fleet
import sources

# A server that nobody has started.
NOWHERE = "http://127.0.0.1:1/rtad"
# What no series can match here, and why.
NOT_HERE = {
    "kube_job_failed": "from kube-state-metrics",
    "container_memory_working_set_bytes": "from cAdvisor",
    "container_spec_memory_limit_bytes": "from cAdvisor",
}
RATE_INTERVAL = "10s"


def setUpModule():
    global running, pods, writer, prometheus
    running = fleet.Fleet()
    unittest.addModuleCleanup(running.close)
    pods = [running.rtad("a", running.store), running.rtad("b", NOWHERE)]
    writer = running.writer()
    prometheus = running.prometheus(pods, writer)
    for decisions, _ in pods:
        running.traffic(decisions)
    # Another generation comes while Prometheus looks.
    time.sleep(2)
    running.publish("vip", running.ids[900:1101])
    fleet.until("traffic on both pods", lambda: len(values("sum by (pod) (rate(rtad_requests_total[5s])) > 1")) == len(pods))
    fleet.until("the other generation", lambda: 2 in values('rtad_snapshot_generation{audience="vip"}'))
    # Rates need some samples of everything.
    time.sleep(3)


def ask(path, **parameters):
    answer = json.loads(fleet.get(prometheus, f"/api/v1/{path}", **parameters))
    assert answer["status"] == "success", answer
    assert not answer.get("warnings"), answer
    return answer["data"]


def values(query):
    """Of an instant vector, without NaN."""
    data = ask("query", query=query)
    found = [float(sample["value"][1]) for sample in data["result"]]
    return [value for value in found if not math.isnan(value)]


class Scrape:
    """One answer of /metrics."""

    def __init__(self, address):
        self.text = fleet.get(address, "/metrics")
        self.types = dict(re.findall(r"^# TYPE (\w+) (\w+)$", self.text, re.MULTILINE))
        self.helps = dict(re.findall(r"^# HELP (\w+) (.+)$", self.text, re.MULTILINE))
        # Of each metric its labels, of each label its values.
        self.labels = {name: {} for name in self.types}
        for name, labels in re.findall(r"^(\w+?)(?:_bucket|_sum|_count)?(?:\{(.*)\})? \S+$", self.text, re.MULTILINE):
            for label, value in re.findall(r'(\w+)="([^"]*)"', labels):
                self.labels[name].setdefault(label, set()).add(value)
            assert name in self.types, f"{name} has no type"


class Metrics(unittest.TestCase):
    maxDiff = None

    def test_promtool_has_nothing_to_say_against_them(self):
        for address in (*(admin for _, admin in pods), writer):
            done = subprocess.run(
                ["promtool", "check", "metrics"],
                input=Scrape(address).text,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_type_help_and_unit_fit_the_name(self):
        for address in (*(admin for _, admin in pods), writer):
            scrape = Scrape(address)
            self.assertEqual(set(scrape.helps), set(scrape.types))
            for name, kind in scrape.types.items():
                self.assertEqual(kind == "counter", name.endswith("_total"), name)
                self.assertEqual(kind == "histogram", name.endswith("_duration_seconds"), name)

    def test_what_is_documented_is_there_and_nothing_else(self):
        self.compare(sources.metrics_of_pods(), [Scrape(admin) for _, admin in pods])
        self.compare(sources.metrics_of_writer(), [Scrape(writer)])

    def compare(self, documented, scrapes):
        found = {}
        for scrape in scrapes:
            for name, labels in scrape.labels.items():
                for label, seen in labels.items():
                    found.setdefault(name, {}).setdefault(label, set()).update(seen)
                found.setdefault(name, {})
        self.assertEqual(sorted(found), sorted(documented))
        for name, labels in documented.items():
            self.assertEqual(sorted(found[name].keys() - {"le"}), sorted(labels), name)
            for label, accepted in labels.items():
                if accepted and label not in ("route", "platform", "kind"):
                    self.assertLessEqual(found[name][label], set(accepted), f"{name} {label}")

    def test_no_document_names_a_metric_that_is_not(self):
        known = {*sources.metrics_of_pods(), *sources.metrics_of_writer()}
        histograms = {name for _, admin in pods for name, kind in Scrape(admin).types.items() if kind == "histogram"}
        known |= {name + suffix for name in histograms for suffix in ("_bucket", "_sum", "_count")}
        documents = [*sources.ROOT.glob("docs/*.md"), *sources.ROOT.glob("*.md"), sources.RULES, sources.DASHBOARD, *sources.TESTS]
        for path in documents:
            named = set(
                re.findall(
                    r"\brtad_[a-z_]+(?:_total|_seconds|_bytes|_ratio|_fpr|_bucket|_sum|_count|_generation|_keys|_mixed)\b",
                    path.read_text(),
                )
            )
            self.assertLessEqual(named, known, path.name)


class Dashboard(unittest.TestCase):
    def test_every_query_gets_data(self):
        for title, query in sources.queries():
            query = re.sub(r"\$(namespace|job|pod)\b", ".*", query).replace("$__rate_interval", RATE_INTERVAL)
            with self.subTest(title, query=query):
                if title == "New generations":
                    query = query.replace("[1m]", "[5m]")
                self.assertTrue(values(query))

    def test_every_variable_has_values(self):
        for variable in sources.dashboard()["templating"]["list"]:
            if variable["type"] == "query":
                query = re.sub(r"\$\w+", ".*", variable["definition"])
                selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", query).groups()
                self.assertTrue(ask(f"label/{label}/values", **{"match[]": selector}), variable["name"])


class Runbook(unittest.TestCase):
    def test_every_query_in_it_is_one(self):
        asked = [code for code in re.findall(r"`([^`\n]+)`", sources.RUNBOOK.read_text()) if re.search(r"\brtad_", code)]
        self.assertGreater(len(asked), 15)
        for query in asked:
            with self.subTest(query):
                self.assertIsInstance(values(query), list)


class Alerts(unittest.TestCase):
    def test_every_rule_is_evaluated_without_an_error(self):
        def rules():
            return [rule for group in ask("rules")["groups"] for rule in group["rules"]]

        fleet.until("an evaluation", lambda: all(rule["health"] != "unknown" for rule in rules()))
        self.assertEqual([(rule["name"], rule["lastError"]) for rule in rules() if rule["health"] != "ok"], [])
        self.assertEqual(sorted(rule["name"] for rule in rules()), sorted(rule["alert"] for rule in sources.alerts()))

    def test_every_selector_finds_series(self):
        """A misspelt metric, label or value would make an alert that never fires."""
        missing = set()
        for rule in sources.alerts():
            for name, matchers in sources.SELECTOR.findall(rule["expr"]):
                if not ask("query", query=name + matchers)["result"]:
                    missing.add(name)
        self.assertEqual(missing, set(NOT_HERE))

    def test_one_goes_off(self):
        """The whole way: from a counter that rises to what a pager is sent."""
        self.assertEqual([alert["labels"]["alertname"] for alert in ask("alerts")["alerts"] if alert["state"] == "firing"], [])
        # A file in the way of the cache's folder: what comes next cannot be written there.
        folder = running.folder / "cache/vip"
        folder.rename(running.folder / "away")
        folder.touch()
        running.publish("vip", running.ids[900:1102])

        def firing():
            return [
                alert
                for alert in ask("alerts")["alerts"]
                if alert["labels"]["alertname"] == "RtadCacheErrors" and alert["state"] == "firing"
            ]

        fleet.until("RtadCacheErrors", firing)
        (alert,) = firing()
        self.assertEqual(alert["labels"]["pod"], "rtad-0")
        self.assertTrue(alert["annotations"]["description"].startswith("ads/rtad-0 could not write"), alert)
        # And the new generation is served all the same.
        fleet.until("the third generation", lambda: 3 in values('rtad_snapshot_generation{audience="vip"}'))


if __name__ == "__main__":
    unittest.main()
