"""The alert rules: promtool's own checks, a test for each, a heading of the runbook for each."""

import os
import re
import subprocess
import unittest
from pathlib import Path

import normal_day
import sources
import yaml

WORK = Path(os.environ["WORK"])
# promtool repeats numbers, as in 1x9, but not NaN.
NANS = re.compile(r"\bNaNx(\d+)\b")


def promtool(*words, folder=WORK):
    done = subprocess.run(["promtool", *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


class Rules(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        (WORK / "rules.yaml").write_text(yaml.safe_dump(sources.rule_groups()))

    def check(self, *words):
        code, said = promtool(*words)
        self.assertEqual(code, 0, said)
        return said

    def test_promtool_has_nothing_to_say_against_them(self):
        said = self.check("check", "rules", "--lint=all", "--lint-fatal", "rules.yaml")
        self.assertIn(f"SUCCESS: {len(sources.alerts())} rules found", said)

    def test_each_fires_when_it_should_and_not_before(self):
        for path in sources.TESTS:
            with self.subTest(path.name):
                (WORK / path.name).write_text(NANS.sub(lambda found: " ".join(["NaN"] * (int(found[1]) + 1)), path.read_text()))
                self.check("test", "rules", path.name)

    def test_a_swap_and_a_rolling_restart_wake_nobody_up(self):
        (WORK / "normal_day.json").write_text(normal_day.document())
        self.check("test", "rules", "normal_day.json")

    def test_promtool_would_say_so(self):
        """A test that expects an alert which does not come fails."""
        right = (Path(__file__).parent / "alerts/pods.yaml").read_text()
        wrong = right.replace("eval_time: 8m", "eval_time: 7m", 1)
        self.assertNotEqual(wrong, right)
        (WORK / "wrong.yaml").write_text(wrong)
        self.assertNotEqual(promtool("test", "rules", "wrong.yaml")[0], 0)


class Tests(unittest.TestCase):
    """Every alert has a test of its own, in which all alerts are asked for: it fires in it, and there is a time when nothing does."""

    def samples(self):
        for path in sources.TESTS:
            for test in yaml.safe_load(path.read_text())["tests"]:
                for asked in test["promql_expr_test"]:
                    if asked["expr"].startswith('ALERTS{alertstate="firing"'):
                        yield test["name"].split(":")[0], asked["exp_samples"]

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
        self.assertEqual(fires, alerts)
        self.assertEqual(silent, {name for name, _ in alerts})
        for rule in sources.alerts():
            # What the text names is there when it fires.
            named = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
            self.assertLessEqual(named, labels[rule["alert"]], rule["alert"])

    def test_each_says_what_it_is_about(self):
        for rule in sources.alerts():
            with self.subTest(rule["alert"]):
                self.assertRegex(rule["alert"], "^Rtad[A-Z]")
                self.assertIn(rule["labels"]["severity"], ("critical", "warning"))
                self.assertEqual(set(rule["annotations"]), {"summary", "description", "runbook_url"})
                self.assertNotRegex(rule["annotations"]["summary"], r"\$|\.$")
                self.assertRegex(rule["annotations"]["description"], r"\$labels\.namespace.*\.$")


class Documents(unittest.TestCase):
    def test_jobs_that_are_made_by_hand_are_seen_to_fail(self):
        [rule] = [rule for rule in sources.alerts() if rule["alert"] == "RtadLoaderFailed"]
        [names] = re.findall(r'job_name=~"([^"]+)"', rule["expr"])
        made = []
        for path in [*sources.ROOT.glob("docs/*.md"), *sources.ROOT.glob("*.md")]:
            made += re.findall(r"create job --from=cronjob/[\w-]+ ([\w-]+)", path.read_text())
        self.assertGreater(len(made), 5)
        self.assertEqual([name for name in made if not re.fullmatch(names, name)], [])


class Runbook(unittest.TestCase):
    def test_each_alert_has_a_heading_and_each_such_heading_an_alert(self):
        text = sources.RUNBOOK.read_text()
        headings = sources.headings(text)
        for rule in sources.alerts():
            self.assertEqual(rule["annotations"]["runbook_url"], f"docs/runbook.md#{rule['alert'].lower()}")
        alerts = {rule["alert"]: rule["labels"]["severity"] for rule in reversed(sources.alerts())}
        self.assertEqual(
            {anchor: name for anchor, name in headings.items() if name.startswith("Rtad")}, {name.lower(): name for name in alerts}
        )
        # And says how bad it is as the rule does.
        parts = dict(re.findall(r"^### (Rtad\w+)\n\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL))
        for name in alerts:
            severities = {rule["labels"]["severity"] for rule in sources.alerts() if rule["alert"] == name}
            self.assertEqual(set(re.findall(r"\*\*(critical|warning)\*\*", parts[name])), severities, name)
            for word in ("*Means*", "*Look*", "*Do*"):
                self.assertIn(word, parts[name], name)

    def test_what_it_links_to_is_there(self):
        text = sources.RUNBOOK.read_text()
        for target in re.findall(r"\]\(([^)#]*#?[^)]*)\)", text):
            path, _, anchor = target.partition("#")
            if path.startswith("http"):
                continue
            found = sources.RUNBOOK.parent / path if path else sources.RUNBOOK
            self.assertTrue(found.exists(), target)
            if anchor:
                self.assertIn(anchor, sources.headings(found.read_text()), target)


if __name__ == "__main__":
    unittest.main()
