# Drills of docs/guides/runbook.md: run them part by part, on a separate pod and store. The comment of
# a command is its expected output, possibly after some seconds. All parts need the first one.

mkdir drill
cd drill
rtad-loader synth --count 10000 > ids.txt
rtad-loader build --store store --audience old_users --quiet ids.txt
cat > rtad.toml <<'END'
[store]
url = "store"
cache_dir = "cache"
poll_interval = "1s"
[[audience]]
name = "old_users"
[[strategy]]
name = "new-users"
exclude = ["old_users"]
END
rtad serve --config rtad.toml 2> rtad.log &
pod=$!
id=$(head -n 1 ids.txt)
metric() { curl -s 127.0.0.1:9090/metrics | grep "^rtad_$1"; }
curl -s 127.0.0.1:9090/readyz  # ready
curl -s 127.0.0.1:8080/v1/check/old_users/$id  # {"member":true}

# The store goes away, and the pod restarts meanwhile (RtadSyncFails): it keeps serving, and starts
# from its cache.
mv store away
echo "not a store" > store
metric sync_total  # result="store"
curl -s 127.0.0.1:9090/readyz  # ready
kill $pod
wait $pod
rtad serve --config rtad.toml 2>> rtad.log &
pod=$!
metric cache_starts_total  # {audience="old_users"} 1
curl -s 127.0.0.1:8080/v1/check/old_users/$id  # {"member":true}
rm store
mv away store
curl -s 127.0.0.1:9090/v1/status  # "result":"unchanged"

# A bad config is applied (RtadConfigReloadFailed): the old one stays until a good one replaces it.
cp rtad.toml good.toml
echo 'exlude = ["vip"]' >> rtad.toml
kill -HUP $pod
metric config_last_reload_successful  # 0
rtad check-config rtad.toml  # exlude
curl -s 127.0.0.1:8080/v1/check/old_users/$id  # {"member":true}
cp good.toml rtad.toml
curl -s -X POST 127.0.0.1:9090/v1/reload  # {"reloaded":true,"changed":[],"needs_restart":[]}
metric config_last_reload_successful  # 1

# Half an export goes live (RtadBidShareChanged): the gate refuses it, a flag overrides the gate,
# and a rollback undoes it.
head -n 4000 ids.txt > cut.txt
rtad-loader build --store store --audience old_users --quiet cut.txt  # --max-change
rtad-loader build --store store --audience old_users --quiet --max-change any cut.txt
metric snapshot_keys  # {audience="old_users"} 4000
rtad-loader rollback --store store --audience old_users --quiet
metric snapshot_keys  # {audience="old_users"} 10000
metric snapshot_generation  # {audience="old_users"} 1

# A snapshot expires (RtadSnapshotExpires, RtadUnavailableAnswers): the audience is unavailable
# until the next publish, here a build of the same export.
rtad-loader build --store store --audience old_users --quiet --expires 5s ids.txt
curl -s 127.0.0.1:8080/v1/decide -d '{}'  # no_device
curl -s 127.0.0.1:8080/v1/check/old_users/$id  # not_loaded
curl -s 127.0.0.1:8080/v1/decide -d '{"device":{"oaid":"77c1e0d2-5b3f-4f6a-9b1d-2e4f6a8b0c1d"}}'  # "reason":"unavailable"
metric decisions_total  # reason="unavailable"} 
rtad-loader build --store store --audience old_users --quiet --expires 48h ids.txt
curl -s 127.0.0.1:8080/v1/check/old_users/$id  # {"member":true}

# Published files are damaged (RtadSyncFails, RtadPodNotReady): a new pod without a cache is not
# ready; another generation repairs it.
kill $pod
wait $pod
rm -r cache
for chunk in store/old_users/chunks/*; do echo damaged >> $chunk; done
rtad serve --config rtad.toml 2>> rtad.log &
pod=$!
curl -s 127.0.0.1:9090/readyz  # waiting for the first snapshot of old_users
metric sync_total  # result="truncated"
metric ready  # 0
rm store/old_users/chunks/*
rtad-loader build --store store --audience old_users --quiet ids.txt
metric ready  # 1
kill $pod
