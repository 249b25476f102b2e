-- Ocean Engine's requests: devices of one to three ids, half of them members.
--
--   wrk -t1 -c64 -d10s --latency -s loadtest/wrk/ocean.lua http://127.0.0.1:8080

file = "ocean.tsv"
dofile((debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "requests.lua")
