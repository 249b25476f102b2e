-- GET and POST /v1/check and POST /v1/decide with ids of every kind, raw and hashed, blank and
-- malformed ones among them.
--
--   wrk -t1 -c64 -d10s --latency -s loadtest/wrk/mixed.lua http://127.0.0.1:8080

file = "mixed.tsv"
dofile((debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "requests.lua")
