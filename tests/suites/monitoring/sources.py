"""Sources of the consistency tests: alert rules, their tests, dashboard and documentation."""

import json
import re
from pathlib import Path

import yaml

from suites.testkit.programs import ROOT

MONITORING = ROOT / "k8s/components/monitoring"
RULES = MONITORING / "prometheusrule.yaml"
SCRAPE = MONITORING / "rtad-scrape.yaml"
DASHBOARD = MONITORING / "rtad-dashboard.json"
RUNBOOK = ROOT / "docs/guides/runbook.md"
TESTS = sorted((Path(__file__).parent / "alerts").glob("*.yaml"))

# A selector: metric name and matchers.
SELECTOR = re.compile(r"\b((?:rtad|kube|container|node)_\w+|up)\b(\{[^}]*\})?")


def rule_groups():
    """`spec` of the PrometheusRule, which has the format of a rule file."""
    return yaml.safe_load(RULES.read_text())["spec"]


def alerts():
    return [rule for group in rule_groups()["groups"] for rule in group["rules"]]


def dashboard():
    return json.loads(DASHBOARD.read_text())


def queries():
    """Queries of the dashboard with the titles of their panels."""
    board = dashboard()
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    for annotation in board["annotations"]["list"]:
        yield annotation["name"], annotation["expr"]


def metrics_of(heading):
    """A table of docs/reference/metrics.md: of each metric its labels, and of each label its values
    where the table has them all."""
    text = (ROOT / "docs/reference/metrics.md").read_text()
    section = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    metrics = {}
    rows = re.findall(r"^\| `(rtad_\w+)` \|(.*?)\|(.*)\|$", section, re.MULTILINE)
    for name, labels, meaning in rows:
        of_label = {}
        for label, values in re.findall(r"`(\w+)`(?: \(([^)]*)\))?", labels):
            of_label[label] = re.findall(r"`([^`]*)`", values)
        # Too many values for the column.
        if name == "rtad_sync_total":
            of_label["result"] = re.findall(r"`([^`]*)`", meaning)
        metrics[name] = of_label
    return metrics


def metrics_of_pods():
    """Metrics of `rtad`."""
    return metrics_of("Service")


def metrics_of_writer():
    """Metrics of `rtad-writer`."""
    return metrics_of("Writer")


def headings(text):
    """Headings of a Markdown file by their GitHub anchors."""
    found = re.findall(
        r"^#{1,6} (.*)$",
        re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL),
        re.MULTILINE,
    )
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-"): heading for heading in found}
