#!/usr/bin/env bash
# Runs the Spark job on a real master with two workers, on free ports of this machine, against `rtad-loader build` of the same ids: the same
# chunks must come of it, with tasks that fail at their first try, and with a worker that is killed on the way.
#
#   bash tests/spark/run.sh PATH_TO_LOADER [IDS]     # a million ids otherwise
set -euo pipefail

loader=$(realpath "${1:?usage: bash tests/spark/run.sh PATH_TO_LOADER [IDS]}")
count=${2:-1000000}
cd "$(dirname "$0")/../.."
. tests/venv.sh
need_python_packages spark
if ! java -version 2>&1 | grep -qE 'version "(1[7-9]|2[0-9])'; then
    [ "$(id -u)" = 0 ] || { echo "Spark needs Java 17: install openjdk-17-jre-headless" >&2; exit 1; }
    apt-get update -qq && apt-get install -qq -y openjdk-17-jre-headless >/dev/null
fi

work=$(mktemp -d)
pids=()
stop() {
    for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
    for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
    # Executors watch their worker and end by themselves; what they still write is in the way of no one.
    for _ in 1 2 3 4 5; do rm -rf "$work" 2>/dev/null && break; sleep 0.5; done
}
trap stop EXIT
trap 'exit 1' INT TERM
fail() { echo "spark: $*" >&2; tail -n 8 "$work"/{master,worker?}.log >&2; tail -n 20 "$work"/{first,second,third}.* >&2; exit 1; }

SPARK_HOME=$("$venv/bin/python3" -c 'import os, pyspark; print(os.path.dirname(pyspark.__file__))')
export SPARK_HOME PYSPARK_PYTHON=$venv/bin/python3 PYSPARK_DRIVER_PYTHON=$venv/bin/python3 SPARK_LOCAL_IP=127.0.0.1
export SPARK_CONF_DIR=$work/conf SPARK_LOCAL_DIRS=$work/local SPARK_NO_DAEMONIZE=1
mkdir -p "$work"/{conf,local,workers}
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
start() {
    local name=$1
    shift
    "$SPARK_HOME/bin/spark-class" "$@" >"$work/$name.log" 2>&1 &
    pids+=($!)
}
export SPARK_DAEMON_MEMORY=256m
start master org.apache.spark.deploy.master.Master --host 127.0.0.1 --port "$port" --webui-port 0
for worker in 1 2; do
    start "worker$worker" org.apache.spark.deploy.worker.Worker --host 127.0.0.1 --port 0 --webui-port 0 --cores 1 --memory 1g \
        --work-dir "$work/workers/$worker" "spark://127.0.0.1:$port"
done
for _ in $(seq 300); do
    [ "$(grep -l 'Successfully registered' "$work"/worker?.log 2>/dev/null | wc -l)" = 2 ] && break
    sleep 0.2
done
[ "$(grep -l 'Successfully registered' "$work"/worker?.log | wc -l)" = 2 ] || fail "the workers do not come"

# A table of two kinds: every fifth row a second time, cells that are blank, cells that are malformed; in four files.
mkdir "$work/table" "$work/lines"
"$loader" synth --id-kind idfa --count "$((count / 2))" >"$work/idfa"
"$loader" synth --id-kind imei --count "$((count / 2))" >"$work/imei"
paste -d, "$work/idfa" "$work/imei" | awk -F, -v OFS=, -v folder="$work/table" '
    BEGIN { for (n = 0; n < 4; n++) print "idfa,note,imei" > (folder "/" n ".csv") }
    { if (NR % 11 == 0) $1 = ""; if (NR % 13 == 0) $1 = "00000000-0000-0000-0000-000000000000"; if (NR % 997 == 0) $2 = "not, an imei"
      line = $1 ",\"a \"\"note\"\", with commas\"," (NR % 997 == 0 ? "\"not, an imei\"" : $2)
      print line > (folder "/" (NR % 4) ".csv"); if (NR % 5 == 0) print line > (folder "/" (NR % 3) ".csv") }'
"$loader" synth --count "$((count / 4))" --seed 5 >"$work/lines/a"
{ cat "$work/lines/a" | tail -n 1000; echo nonsense; echo; "$loader" synth --count 50000 --seed 6; } >"$work/lines/b"
"$loader" synth --id-kind idfa --count 2000 --offset 100 >"$work/gone"
"$loader" synth --id-kind oaid --count 3000 >"$work/added"
"$loader" synth --id-kind imei --count 500 --offset 7000 >"$work/erased"

# Two stores with the same past: a generation, devices added, removed and erased since.
for store in expected built; do
    there=(--store "$work/$store" --audience old_users --quiet)
    head -n 1000 "$work/lines/a" | "$loader" build "${there[@]}" -
    "$loader" append "${there[@]}" --id-kind oaid "$work/added"
    "$loader" remove "${there[@]}" --id-kind idfa "$work/gone"
    "$loader" remove "${there[@]}" --id-kind imei --tombstone "$work/erased"
done
columns=(--format csv --column idfa=idfa --column imei=imei)
"$loader" build --store "$work/expected" --audience old_users --quiet "${columns[@]}" "$work"/table/*.csv

# rtad-loader, as executors see it: the first try of each step fails, a chunk's once it is written.
cat >"$work/flaky" <<FLAKY
#!/usr/bin/env bash
step=\$1
# That one is the driver's, which tries nothing twice.
[ "\${*: -1}" != --cut ] || step=cut
case \$step in
    keys | chunk | distinct)
        if mkdir "$work/failed-\$step" 2>/dev/null; then
            [ "\$step" = chunk ] && "$loader" "\$@" >/dev/null
            echo "error: the first \$step fails, for a test" >&2
            exit 5
        fi
        if [ -e "$work/slow" ] && [ "\$step" = distinct ]; then touch "$work/slowed"; sleep 3; fi ;;
esac
exec "$loader" "\$@"
FLAKY
chmod +x "$work/flaky"

# What the job writes to stderr, spark-submit passes on to stdout as well.
submitting=()
submit() {
    "$SPARK_HOME/bin/spark-submit" --master "spark://127.0.0.1:$port" --driver-memory 512m --executor-memory 768m --executor-cores 1 \
        --conf spark.ui.enabled=false --conf spark.speculation=true --conf spark.speculation.multiplier=1.5 \
        --conf spark.driver.host=127.0.0.1 --conf spark.driver.bindAddress=127.0.0.1 "${submitting[@]}" \
        loader/spark/build_audience.py --loader "$work/flaky" --store "$work/built" --audience old_users "$@" 2>>"$work/submit.log"
}
same() { diff <(cd "$work/expected/old_users/chunks" && ls) <(cd "$work/built/old_users/chunks" && ls) >&2; }
manifest() { "$loader" inspect --store "$work/$1" --audience old_users --json |
    python3 -c 'import json, sys; it = json.load(sys.stdin); print(it["keys"], it["expected_fpr"], it["folded"], it["build"]["rows"],
        it["build"]["duplicates"], it["build"]["rejected"], [chunk["digest"] for chunk in it["chunks"]])'; }

began=$(date +%s)
submit "${columns[@]}" --json "$work"/table/*.csv >"$work/first.txt" || fail "the job failed"
for step in keys distinct chunk; do [ -d "$work/failed-$step" ] || fail "no $step has failed"; done
[ "$(manifest expected)" = "$(manifest built)" ] || { diff <(manifest expected) <(manifest built) >&2; fail "the manifests differ"; }
same || fail "the chunks differ"
echo "spark: $(python3 -c 'import json, sys; it = json.loads(list(open(sys.argv[1]))[-1]); print(it["keys"], "keys of", it["values"], "values in", it["chunks"], "chunks")' \
    "$work/first.txt"): the bytes of a build, though the first try of every step failed; $(($(date +%s) - began)) s"

# The same rows as a warehouse has them.
warehouse=(--conf spark.sql.catalogImplementation=hive --conf "spark.sql.warehouse.dir=$work/warehouse"
    --conf "spark.hadoop.javax.jdo.option.ConnectionURL=jdbc:derby:;databaseName=$work/metastore;create=true"
    --conf "spark.driver.extraJavaOptions=-Dderby.stream.error.file=$work/derby.log")
"$SPARK_HOME/bin/spark-submit" --master "spark://127.0.0.1:$port" --driver-memory 512m --executor-memory 768m --conf spark.ui.enabled=false \
    --conf spark.driver.host=127.0.0.1 --conf spark.driver.bindAddress=127.0.0.1 "${warehouse[@]}" \
    tests/spark/make_tables.py "$work/table" "$work/parquet" "$work/json" dumps.devices >"$work/first.txt" 2>>"$work/submit.log" ||
    fail "the tables were not made"
all=(--column idfa=idfa --column imei=imei --column digest=md5)
# check WHAT FORMAT FILES... -- COLUMNS... -- as Spark is to read them: FORMAT INPUT
check() {
    local what=$1 format=$2 files=()
    shift 2
    while [ "$1" != -- ]; do files+=("$1"); shift; done
    shift
    local flags=()
    while [ "$1" != -- ]; do flags+=("$1"); shift; done
    "$loader" build --store "$work/expected" --audience old_users --quiet --max-shrink 1 --format "$format" "${flags[@]}" "${files[@]}"
    submit --max-shrink 1 --format "$2" "${flags[@]}" "$3" >"$work/first.txt" || fail "the job failed over $what"
    [ "$(manifest expected)" = "$(manifest built)" ] ||
        { diff <(manifest expected) <(manifest built) | cut -c1-300 >&2; fail "the manifests differ over $what"; }
    same || fail "the chunks differ over $what"
}
check Parquet parquet "$work"/parquet/*.parquet -- "${all[@]}" -- parquet "$work/parquet"
check JSON ndjson "$work"/json/*.json -- "${all[@]}" -- json "$work/json"
submitting=("${warehouse[@]}")
check "a table" parquet "$work"/parquet/*.parquet -- "${all[@]}" -- table dumps.devices
submitting=()
echo "spark: Parquet, JSON and a table of the catalog with binary digests: the bytes of a build"

# Lines, and a worker that dies with its executor while keys are made distinct: what it held is made again by the other.
"$loader" build --store "$work/expected" --audience old_users --quiet --max-shrink 1 "$work"/lines/*
touch "$work/slow"
submit --max-shrink 1 "$work/lines/a" "$work/lines/b" >"$work/second.txt" &
job=$!
for _ in $(seq 1200); do [ -e "$work/slowed" ] && break; kill -0 "$job" 2>/dev/null || break; sleep 0.1; done
[ -e "$work/slowed" ] || fail "the job did not come so far"
kill -KILL "${pids[2]}"
wait "$job" || fail "the job did not outlive a worker"
[ "$(manifest expected)" = "$(manifest built)" ] || fail "the manifests differ after a worker died"
same || fail "the chunks differ after a worker died"
echo "spark: a worker was killed on the way: the bytes of a build"

# What a loader refuses in an executor is the job's own exit code and message; nothing is published.
before=$(cat "$work/built/old_users/CURRENT")
rm "$work/slow"
code=0
submit --max-shrink 1 --max-reject-ratio 0 "$work/lines/b" >"$work/third.txt" || code=$?
[ "$code" = 3 ] && [ "$before" = "$(cat "$work/built/old_users/CURRENT")" ] || fail "malformed ids: ended with $code"
code=0
submit --id-kind no_such_kind "$work/lines/b" >"$work/third.txt" || code=$?
[ "$code" = 2 ] && grep -q "^error: .*(rtad-loader keys, in an executor)" "$work/third.txt" || fail "a wrong kind: ended with $code"
! grep -qE '[0-9A-F]{8}-[0-9A-F]{4}-' "$work/submit.log" || fail "an id is in Spark's log"
echo "spark: refusals keep their exit codes"
