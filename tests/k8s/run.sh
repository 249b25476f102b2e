#!/usr/bin/env bash
# Dockerfile and k8s/: rendered by kubectl, held against Kubernetes' schemas, and every argument, config key, port, path and size in
# them against the programs themselves, which are run with them. No cluster and no container engine is needed, or there.
#
#   bash tests/k8s/run.sh PATH_TO_RTAD PATH_TO_LOADER [TEST...]    # such as test_manifests.Mutations
set -euo pipefail

usage="usage: bash tests/k8s/run.sh PATH_TO_RTAD PATH_TO_LOADER [TEST...]"
rtad=$(realpath "${1:?$usage}")
loader=$(realpath "${2:?$usage}")
shift 2
cd "$(dirname "$0")/../.."
. tests/venv.sh
need_python_packages k8s

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
export RTAD=$rtad LOADER=$loader WORK=$work PATH=$venv/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=tests/k8s
"$venv/bin/python3" tests/k8s/main.py "$@"
