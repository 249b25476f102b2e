"""The alert rules as a plain rule file, from the PrometheusRule. `make dist` ships it.

python3 k8s/components/monitoring/make_alerts.py > rtad-alerts.yaml
"""

import textwrap
from pathlib import Path

RULE = Path(__file__).parent / "prometheusrule.yaml"


def alerts():
    comment, _, rest = RULE.read_text().partition("apiVersion:")
    _, _, spec = rest.partition("\nspec:\n")
    source = "# Generated from prometheusrule.yaml by make_alerts.py, for rule_files.\n#\n"
    return source + comment + textwrap.dedent(spec)


if __name__ == "__main__":
    print(alerts(), end="")
