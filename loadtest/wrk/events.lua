-- POST /v1/windows/{window}/events: every key is new, or every key was sent by an earlier run.
--
--   WINDOW=clicks wrk -t1 -c16 -d10s --latency -s loadtest/wrk/events.lua http://127.0.0.1:8070
--
-- Environment (defaults in parentheses):
--   WINDOW (clicks)
--   BATCH (1000)      keys of a request, in binary; 0 sends single events in JSON
--   RUN (0)           runs of different numbers send different keys, up to 2^24 runs
--   REPEAT (0)        sends only the first REPEAT requests of each thread of this RUN, again and
--                     again; the number of threads and BATCH must be those of the first time
--   KEYED (0)         1 gives each request an Idempotency-Key of its own
--
-- A key is made from the numbers of run, thread and event by a bijection, so no key repeats.

local ffi, bit = require("ffi"), require("bit")
local bxor, shift = bit.bxor, bit.rshift
local threads = {}

function setup(thread)
    thread:set("number", #threads)
    table.insert(threads, thread)
end

-- SplitMix64.
local function mix(n)
    n = n * 0x9e3779b97f4a7c15ULL
    n = bxor(n, shift(n, 30)) * 0xbf58476d1ce4e5b9ULL
    n = bxor(n, shift(n, 27)) * 0x94d049bb133111ebULL
    return bxor(n, shift(n, 31))
end

local ones = {}
for byte = 0, 255 do
    local count = 0
    for place = 0, 7 do count = count + bit.band(shift(byte, place), 1) end
    ones[byte] = count
end

local batch, again, path, first, keys, headers, is_json, run, is_keyed
-- Requests made, answers other than 200, and events answered `new`.
sent, failed, fresh = 0, 0, 0

function init()
    batch, again = tonumber(os.getenv("BATCH") or 1000), tonumber(os.getenv("REPEAT") or 0)
    is_json = batch == 0
    if is_json then batch = 1 end
    path = "/v1/windows/" .. (os.getenv("WINDOW") or "clicks") .. "/events"
    run = tonumber(os.getenv("RUN") or 0)
    is_keyed = os.getenv("KEYED") == "1"
    first = run * 0x10000000000ULL + number * 0x100000000ULL
    keys = ffi.new("uint64_t[?]", 2 * batch)
    headers = {["Content-Type"] = is_json and "application/json" or "application/octet-stream"}
    -- Headers of wrk's -H, and Host.
    for name, value in pairs(wrk.headers) do headers[name] = value end
end

function request()
    local index = sent
    sent = sent + 1
    -- Not the request 0: wrk makes it once more before the start, and does not send that one.
    if again > 0 then index = 1 + index % again end
    local from = first + index * batch
    for n = 0, batch - 1 do
        keys[2 * n] = mix(from + n)
        keys[2 * n + 1] = mix(bit.bnot(from + n))
    end
    local body
    if is_json then
        body = '{"ids":["' .. bit.tohex(keys[0]) .. bit.tohex(keys[1]) .. '"]}'
    else
        body = ffi.string(keys, 16 * batch)
    end
    if is_keyed then
        headers["Idempotency-Key"] = string.format("%d-%d-%d", run, number, sent)
    end
    return wrk.format("POST", path, headers, body)
end

function response(status, _, body)
    if status ~= 200 then
        failed = failed + 1
    elseif is_json then
        if body:find('"new":[true]', 1, true) then fresh = fresh + 1 end
    else
        local count = 0
        for place = 1, #body do count = count + ones[body:byte(place)] end
        fresh = fresh + count
    end
end

-- Line for loadtest/events.py: requests, seconds, p50 and p99 in ms, socket errors, answers other
-- than 200, events answered `new`, and the least number of requests of a thread.
function done(summary, latency)
    local failures, news, least = 0, 0, math.huge
    for _, thread in ipairs(threads) do
        failures, news = failures + thread:get("failed"), news + thread:get("fresh")
        least = math.min(least, thread:get("sent"))
    end
    local errors = summary.errors
    print(string.format("row %d %.3f %.2f %.2f %d %d %d %d", summary.requests, summary.duration / 1e6,
        latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
        errors.connect + errors.read + errors.write + errors.timeout, failures, news, least))
end
