"""Dashboard file: equal to the output of its generator, valid, without overlapping panels."""

import json
import re
import sys

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models import dashboard as grafana

from suites.monitoring import sources

sys.path.insert(0, str(sources.MONITORING))
import make_dashboard  # noqa: E402

# Fields that Grafana uses but its schemas lack.
UNKNOWN = {"definition", "titleFormat", "step"}


def lost(before, after):
    """Names of fields that are missing or different after the round trip."""
    if isinstance(before, dict) and isinstance(after, dict):
        return set().union(
            *(
                {name} if name not in after else lost(value, after[name])
                for name, value in before.items()
            )
        )
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return set().union(*(lost(*pair) for pair in zip(before, after)))
    return set() if before == after else {f"{before} is {after}"}


class TestDashboard:
    def test_file_equals_the_generator_output(self):
        again = "python3 k8s/components/monitoring/make_dashboard.py > k8s/components/monitoring/rtad-dashboard.json"
        assert sources.dashboard() == make_dashboard.dashboard(), f"regenerate it: {again}"

    def test_grafana_knows_every_field(self):
        """A round trip through Grafana's types drops unknown fields."""
        register_default_plugins()
        before = sources.dashboard()
        after = json.loads(JSONEncoder().encode(grafana.Dashboard.from_json(before)))
        assert lost(before, after) == UNKNOWN
        before["panels"][1]["options"]["colourMode"] = "background"
        after = json.loads(JSONEncoder().encode(grafana.Dashboard.from_json(before)))
        assert lost(before, after) == UNKNOWN | {"colourMode"}, (
            "the check finds a misspelled option"
        )

    def test_every_query_uses_the_variables(self):
        variables = {variable["name"] for variable in sources.dashboard()["templating"]["list"]}
        assert variables == {"datasource", "namespace", "job", "pod", "platform", "strategy"}
        for title, query in sources.queries():
            for name, matchers in sources.SELECTOR.findall(query):
                for variable in ("namespace", "job", "pod"):
                    assert f'{variable}=~"${variable}"' in matchers, f"{title}: {name}"
            used = set(re.findall(r"\$(\w+)", query))
            assert used <= variables | {"__rate_interval"}, title

    def test_every_metric_is_shown(self):
        shown = " ".join(query for _, query in sources.queries())
        windows = [name for name in sources.metrics_of_writer() if name.startswith("rtad_window_")]
        assert len(windows) > 10
        for name in [*sources.metrics_of_pods(), *windows]:
            assert name in shown
