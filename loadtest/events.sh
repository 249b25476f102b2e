#!/usr/bin/env bash
# Load test of event windows: serves windows of every durability with `rtad-writer` on free
# ports of 127.0.0.1, sends events with wrk, verifies the answers and prints a Markdown table with
# the CPU time of the server. README.md explains it. Fails on wrong or missing answers. Installs wrk
# (Debian) if missing.
#
#   bash loadtest/events.sh                 # about two minutes after the build, 2 GB of memory
#   bash loadtest/events.sh --quick         # some seconds; only checks that everything works
#   bash loadtest/events.sh --redis         # beside redis-server of Debian: SET NX EX, and SETBIT
#   bash loadtest/events.sh --freshness     # time from an event to the answers of pods, instead
#   bash loadtest/events.sh --freshness --s3    # the same over an S3 server, SeaweedFS from PyPI
#
# Options (defaults in parentheses; --quick lowers them):
#   --seconds S (5)           of each run; --redis-events N (3000000) of each of Redis
#   --rounds N (3)            alternating; the table has the one with the median CPU time
#   --connections N (16)
#   --batch N (1000)          keys of a binary request
#   --capacity N (100000000)  of each window
#   --state DIR (target/loadtest/events)   store and logs; emptied. On a real disk
#   --server-cores N (1)      cores for the server; wrk gets the others
#   --rate N (2000), --samples N (100)     of --freshness: events per second, and events to follow;
#                             --seconds is 20
#
# TEST_PROGRAMS=DIR uses the programs in DIR; otherwise they are built.
set -euo pipefail
case " $* " in
    *" --help "* | *" -h "*) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit ;;
esac
cd "$(dirname "$0")/.."
if [ -z "${TEST_PROGRAMS:-}" ]; then
    packages=(-p rtad-writer)
    case " $* " in *" --freshness "*) packages+=(-p rtad) ;; esac
    cargo build --release --quiet "${packages[@]}"
    export TEST_PROGRAMS=${CARGO_TARGET_DIR:-target}/release
fi
groups=(events)
case " $* " in *" --s3 "*) groups+=(s3) ;; esac
case " $* " in
    *" --redis "*)
        command -v redis-server redis-cli > /dev/null ||
            { echo "events: --redis needs the Debian packages redis-server and redis-tools" >&2; exit 2; } ;;
esac
bash tests/setup.sh "${groups[@]}"
PYTHONPATH=tests exec python3 loadtest/events.py "$@"
