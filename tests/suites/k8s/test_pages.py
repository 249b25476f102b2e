"""The references of docs/guides/kubernetes.md exist, and the examples of
docs/guides/size-a-fleet.md follow their formula."""

import math
import re

from suites.k8s.rendered import render, seconds
from suites.k8s.sizes import plan
from suites.testkit.programs import ROOT

PAGE = (ROOT / "docs/guides/kubernetes.md").read_text()
SIZES = (ROOT / "docs/guides/size-a-fleet.md").read_text()
MEASURED = (ROOT / "docs/explanation/performance.md").read_text()

CPU_SECONDS = 10e-6
CORES, BUSY, GROWTH, LEAST = 4, 0.6, 1.2, 3
BESIDE = 0.5e9
IDS = {"1.5 billion": 1_500_000_000, "10 billion": 10_000_000_000}


def row(rate, ids, swap):
    busy = rate * CPU_SECONDS
    pods = max(LEAST, math.ceil(busy / (CORES * BUSY)) + 1)
    planned = plan(IDS[ids])
    snapshots = planned["swap_memory_bytes"] if swap == "whole" else planned["memory_bytes"]
    memory = math.ceil((GROWTH * snapshots + BESIDE) / (1 << 30))
    return [
        f"{rate:,}",
        ids,
        f"`{swap}`",
        f"{busy:g}",
        str(pods),
        str(pods * CORES),
        f"{memory} GiB",
    ]


class TestSizing:
    def test_table_follows_the_formula(self):
        table = re.search(r"^\| requests a second \|.*\n\|[-|]+\n((?:\|.*\n)+)", SIZES, re.M)[1]
        rows = [
            [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()
        ]
        assert len(rows) > 4
        for found in rows:
            assert found == row(int(found[0].replace(",", "")), found[1], found[2].strip("`"))

    def test_inputs_equal_the_measurements(self):
        assert "8 to 10 µs" in MEASURED
        for stated in ("10 µs", "60 %", "four cores", "a fifth", "0.5 GB"):
            assert stated in SIZES

    def test_production_overlay_is_in_the_table(self):
        [server] = [
            one
            for document, _, one in render(ROOT / "k8s/overlays/prod").containers()
            if document["kind"] == "Deployment"
        ]
        limits = server["resources"]["limits"]
        memory = row(300_000, "1.5 billion", "whole")[6].replace(" GiB", "Gi")
        assert (limits["cpu"], limits["memory"]) == (str(CORES), memory)


class TestNames:
    def test_commands_use_the_created_jobs(self):
        made = set(re.findall(r"create job --from=cronjob/[\w-]+ ([\w-]+)", PAGE))
        named = re.findall(r"\bjob/([\w-]+)", PAGE)
        assert len(named) > 1
        assert set(named) <= made

    def test_rollout_status_waits_within_the_deadline(self):
        """`rollout status` fails at the progress deadline, so longer steps come before it."""
        deadline = render(ROOT / "k8s/overlays/prod").one("Deployment", "rtad")["spec"][
            "progressDeadlineSeconds"
        ]
        [first] = [
            block
            for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S)
            if "rtad-build-first" in block
        ]
        assert "rollout status" not in first
        for line in re.findall(r"^.*rollout status.*--timeout[ =](\w+)", PAGE, re.M):
            assert seconds(line) <= deadline

    def test_references_exist(self):
        overlay = render(ROOT / "k8s/overlays/prod")
        kinds = {
            "deploy": "Deployment",
            "cronjob": "CronJob",
            "configmap": "ConfigMap",
            "job": None,
            "service": "Service",
        }
        named = re.findall(r"\b(deploy|cronjob|configmap|service)/([a-z-]+)", PAGE)
        assert len(named) > 5
        for kind, name in named:
            assert overlay.has(kinds[kind], name), f"{kind}/{name}"
        for path in re.findall(r"(?<![\w/])k8s/[\w./-]+\w", PAGE):
            assert (ROOT / path).exists(), path
