-- GET /v1/check/{audience}/{md5}: one id, half of them members.
--
--   wrk -t1 -c64 -d10s --latency -s loadtest/wrk/check.lua http://127.0.0.1:8080

file = "check.tsv"
dofile((debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "requests.lua")
