#!/usr/bin/env bash
# Metrics, alerts, dashboard and runbook, held against each other and against what is real: promtool checks and tests the alert rules; a
# Prometheus scrapes running programs under a little traffic, evaluates the rules and answers every query of the dashboard; the drills of
# the runbook are run as they stand there. Installs prometheus (Debian) if need be; what it starts listens on free ports, and is stopped.
#
#   bash tests/monitoring/run.sh PATH_TO_RTAD PATH_TO_LOADER [TEST...]    # such as test_live, or test_rules.Runbook
set -euo pipefail

usage="usage: bash tests/monitoring/run.sh PATH_TO_RTAD PATH_TO_LOADER [TEST...]"
rtad=$(realpath "${1:?$usage}")
loader=$(realpath "${2:?$usage}")
shift 2
cd "$(dirname "$0")/../.."
. tests/venv.sh
need_python_packages monitoring
wanted=()
for program in prometheus curl; do
    command -v "$program" >/dev/null || wanted+=("$program")
done
if [ ${#wanted[@]} -gt 0 ]; then
    [ "$(id -u)" = 0 ] || { echo "install ${wanted[*]}" >&2; exit 1; }
    # Not started by its package: what runs here is started here.
    apt-get update -qq && RUNLEVEL=1 apt-get install -qq -y --no-install-recommends "${wanted[@]}" >/dev/null
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ $# -gt 0 ] || set -- test_rules test_dashboard test_live test_drills
RTAD=$rtad LOADER=$loader WORK=$work PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=tests/monitoring:k8s/components/monitoring \
    "$venv/bin/python3" -m unittest "$@"
