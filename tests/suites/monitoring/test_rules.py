"""Alert rules: promtool checks, a test and a runbook heading for each alert."""

import re
import subprocess
import sys

import pytest
import yaml

from suites.monitoring import normal_day, sources

sys.path.insert(0, str(sources.MONITORING))
import make_alerts  # noqa: E402

# promtool repeats numbers, as in 1x9, but not NaN.
NANS = re.compile(r"\bNaNx(\d+)\b")


@pytest.fixture
def promtool(tmp_path):
    """Runs promtool in the folder of the rules; returns exit code and output."""
    (tmp_path / "rules.yaml").write_text(make_alerts.alerts())

    def run(*words, **files):
        for name, text in files.items():
            (tmp_path / f"{name}.yaml").write_text(text)
        done = subprocess.run(
            ["promtool", *words],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return done.returncode, done.stdout

    return run


class TestRules:
    def test_promtool_finds_no_problems(self, promtool):
        code, output = promtool("check", "rules", "--lint=all", "--lint-fatal", "rules.yaml")
        assert code == 0, output
        assert f"SUCCESS: {len(sources.alerts())} rules found" in output

    def test_plain_rules_equal_the_prometheus_rule(self):
        assert yaml.safe_load(make_alerts.alerts()) == sources.rule_groups()

    def test_prometheus_accepts_the_plain_files(self, promtool):
        # A Prometheus before 2.43 has no scrape_config_files, but the file's format is that of
        # prometheus.yml.
        text = f"rule_files: [rules.yaml]\n{sources.SCRAPE.read_text()}"
        code, output = promtool("check", "config", "prometheus.yaml", prometheus=text)
        assert code == 0, output
        assert f"{len(sources.alerts())} rules found" in output
        # Alerts name the job.
        jobs = [job["job_name"] for job in yaml.safe_load(sources.SCRAPE.read_text())["scrape_configs"]]
        assert jobs == ["rtad", "rtad-writer"]

    @pytest.mark.parametrize("path", sources.TESTS, ids=lambda path: path.stem)
    def test_alerts_fire_only_when_expected(self, promtool, path):
        def repeated(found):
            return " ".join(["NaN"] * (int(found[1]) + 1))

        test = NANS.sub(repeated, path.read_text())
        code, output = promtool("test", "rules", "test.yaml", test=test)
        assert code == 0, output

    def test_normal_day_fires_no_alert(self, promtool):
        # JSON is YAML.
        code, output = promtool("test", "rules", "test.yaml", test=normal_day.document())
        assert code == 0, output


class TestTheTests:
    """Every alert has a test that queries all alerts: it fires, and at some time no alert does."""

    def samples(self):
        for path in sources.TESTS:
            for test in yaml.safe_load(path.read_text())["tests"]:
                for query in test["promql_expr_test"]:
                    if query["expr"].startswith('ALERTS{alertstate="firing"'):
                        yield test["name"].split(":")[0], query["exp_samples"]

    def test_each_is_tested(self):
        fires, silent, labels = set(), set(), {}
        for about, expected in self.samples():
            silent |= set() if expected else {about}
            for sample in expected:
                found = dict(re.findall(r'(\w+)="([^"]*)"', sample["labels"]))
                if found["alertname"] == about:
                    fires.add((about, found["severity"]))
                    labels.setdefault(about, set()).update(found)
        alerts = {(rule["alert"], rule["labels"]["severity"]) for rule in sources.alerts()}
        assert fires == alerts
        assert silent == {name for name, _ in alerts}
        for rule in sources.alerts():
            # Labels in the text exist when it fires.
            named = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
            assert named <= labels[rule["alert"]], rule["alert"]

    def test_each_names_its_subject(self):
        for rule in sources.alerts():
            assert re.search("^Rtad[A-Z]", rule["alert"])
            assert rule["labels"]["severity"] in ("critical", "warning")
            assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
            assert not re.search(r"\$|\.$", rule["annotations"]["summary"])
            assert re.search(r"\$labels\.namespace.*\.$", rule["annotations"]["description"])


class TestDocuments:
    def test_failures_of_manual_jobs_are_detected(self):
        [rule] = [rule for rule in sources.alerts() if rule["alert"] == "RtadLoaderFailed"]
        [names] = re.findall(r'job_name=~"([^"]+)"', rule["expr"])
        made = []
        for path in [*sources.ROOT.glob("docs/**/*.md"), *sources.ROOT.glob("*.md")]:
            made += re.findall(r"create job --from=cronjob/[\w-]+ ([\w-]+)", path.read_text())
        assert len(made) > 4
        assert [name for name in made if not re.fullmatch(names, name)] == []


class TestRunbook:
    def test_alerts_and_runbook_headings_match(self):
        text = sources.RUNBOOK.read_text()
        headings = sources.headings(text)
        for rule in sources.alerts():
            assert (
                rule["annotations"]["runbook_url"]
                == f"docs/guides/runbook.md#{rule['alert'].lower()}"
            )
        alerts = {rule["alert"]: rule["labels"]["severity"] for rule in reversed(sources.alerts())}
        assert {anchor: name for anchor, name in headings.items() if name.startswith("Rtad")} == {
            name.lower(): name for name in alerts
        }
        # With the severity of the rule.
        parts = dict(
            re.findall(r"^### (Rtad\w+)\n\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
        )
        for name in alerts:
            severities = {
                rule["labels"]["severity"] for rule in sources.alerts() if rule["alert"] == name
            }
            assert set(re.findall(r"\*\*(critical|warning)\*\*", parts[name])) == severities, name
            for word in ("*Check*", "*Action*"):
                assert word in parts[name], name

    def test_panels_of_the_runbook_exist(self):
        # Log lines are in italics too, and begin with a small letter.
        named = set(re.findall(r"(?<!\*)\*([A-Z0-9][^*]+)\*(?!\*)", sources.RUNBOOK.read_text()))
        named = {" ".join(name.split()) for name in named} - {"Check", "Action"}
        titles = {panel["title"] for panel in sources.dashboard()["panels"]}
        assert len(named) > 10
        assert named <= titles
