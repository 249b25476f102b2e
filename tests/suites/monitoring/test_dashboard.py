"""The dashboard's file: what the script makes, and laid out so that no panel covers another."""

import json
import re
import sys

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models import dashboard as grafana

from suites.monitoring import sources

sys.path.insert(0, str(sources.MONITORING))
import make_dashboard  # noqa: E402

# What Grafana writes and reads, but does not have in its schemas.
UNKNOWN = {"definition", "titleFormat", "step"}


def lost(before, after):
    """Names of fields that are not in what comes back, or are another there."""
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
    def test_it_is_what_the_script_makes(self):
        again = "python3 k8s/components/monitoring/make_dashboard.py > k8s/components/monitoring/rtad-dashboard.json"
        assert sources.dashboard() == make_dashboard.dashboard(), f"make it again: {again}"

    def test_grafana_knows_every_field(self):
        """Grafana's own types read it and write it again: what they do not know is gone then."""
        register_default_plugins()
        before = sources.dashboard()
        after = json.loads(JSONEncoder().encode(grafana.Dashboard.from_json(before)))
        assert lost(before, after) == UNKNOWN
        before["panels"][1]["options"]["colourMode"] = "background"
        after = json.loads(JSONEncoder().encode(grafana.Dashboard.from_json(before)))
        assert lost(before, after) == UNKNOWN | {"colourMode"}, "a misspelt option would be seen"

    def test_panels_have_their_own_places_and_names(self):
        taken, titles = {}, set()
        for panel in sources.dashboard()["panels"]:
            place, title = panel["gridPos"], panel["title"]
            assert title not in titles
            titles.add(title)
            assert place["x"] + place["w"] <= 24, title
            for x in range(place["x"], place["x"] + place["w"]):
                for y in range(place["y"], place["y"] + place["h"]):
                    assert (x, y) not in taken, f"{title} and {taken.get((x, y))}"
                    taken[x, y] = title
            if panel["type"] != "row":
                assert panel["description"].endswith("."), title

    def test_every_query_can_be_narrowed_down(self):
        variables = {variable["name"] for variable in sources.dashboard()["templating"]["list"]}
        assert variables == {"datasource", "namespace", "job", "pod"}
        for title, query in sources.queries():
            for name, matchers in sources.SELECTOR.findall(query):
                for variable in ("namespace", "job", "pod"):
                    assert f'{variable}=~"${variable}"' in matchers, f"{title}: {name}"
            used = set(re.findall(r"\$(\w+)", query))
            assert used <= variables | {"__rate_interval"}, title

    def test_every_metric_is_shown(self):
        shown = " ".join(query for _, query in sources.queries())
        for name in sources.metrics_of_pods():
            assert name in shown
