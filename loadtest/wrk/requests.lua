-- Shared by the wrk scripts: sends the requests of a file in order, repeatedly, and verifies the
-- answers.
--
-- wrk does not match answers to requests, so the script counts the pending requests per correct
-- answer. An answer without a pending request is wrong. Answers to platforms and /v1/decide repeat
-- the request's id. For `{"member":true}`, one wrong answer can be masked by another connection of
-- the thread. With as many threads as connections (wrk -t8 -c8) only one request is pending, and
-- every answer is verified.
--
-- Requests are read from $REQUESTS, or target/loadtest/requests. CHECK=0 verifies only the status,
-- for the highest rate of wrk. DELAY=6 lets each connection wait 6 ms on average before a request:
-- for a rate below the highest. SHARE=8 gives each of 8 threads an eighth of the requests, for a
-- quick start.

local threads = {}

function setup(thread)
    thread:set("number", #threads)
    table.insert(threads, thread)
end

local bytes = {}
for byte = 0, 255 do bytes[string.format("%02x", byte)] = string.char(byte) end

local function unhex(text)
    if text == "-" then return nil end
    return (text:gsub("%x%x", bytes))
end

local requests, answers, index, sent = {}, {}, 0, 0
-- Pending requests per answer, and the statuses whose bodies are not compared.
local pending, status_only = {}, {}
wrong, example = 0, ""

local function read(line)
    local method, target, status, body, answer = line:match("^(%S+)\t(%S+)\t(%S+)\t(%S+)\t(%S+)$")
    body, answer = unhex(body), unhex(answer)
    if not answer then status_only[tonumber(status)] = true end
    -- Headers of wrk's -H, and Host.
    local headers = {}
    for name, value in pairs(wrk.headers) do headers[name] = value end
    if body then headers["Content-Type"] = target:find("^/v1/") and "application/json" or "application/x-protobuf" end
    table.insert(requests, wrk.format(method, target, headers, body))
    table.insert(answers, status .. (answer or ""))
    pending[answers[#answers]] = 0
end

function init()
    local path = (os.getenv("REQUESTS") or "target/loadtest/requests") .. "/" .. file
    local share, lines = tonumber(os.getenv("SHARE") or 1), 0
    for line in io.lines(path) do
        lines = lines + 1
        if lines % share == number % share then read(line) end
    end
    assert(#requests > 0, path .. " has too few requests")
    -- Threads start at different requests.
    index = number * 7919 % #requests
    -- wrk calls the first thread's request() once before the start, and does not send it.
    if number == 0 then sent = -1 end
    if os.getenv("CHECK") == "0" then response = nil end
end

local mean = tonumber(os.getenv("DELAY"))
if mean then
    function delay() return math.random(0, 2 * mean) end
end

function request()
    index = index % #requests + 1
    sent = sent + 1
    if sent > 0 then
        local answer = answers[index]
        pending[answer] = pending[answer] + 1
    end
    return requests[index]
end

function response(status, _, body)
    local answer = status_only[status] and tostring(status) or status .. body
    local count = pending[answer]
    if count and count > 0 then
        pending[answer] = count - 1
    else
        wrong = wrong + 1
        example = answer
    end
end

-- Line for loadtest/run.sh: requests, requests per second, p50, p99 and p99.9 in ms, socket errors,
-- wrong answers.
function done(summary, latency)
    local wrong_answers = os.getenv("CHECK") == "0" and summary.errors.status or 0
    for _, thread in ipairs(threads) do
        wrong_answers = wrong_answers + thread:get("wrong")
        local text = thread:get("example")
        if text ~= "" then print("wrong answer: " .. text:gsub("[^%g ]", ".")) end
    end
    local errors = summary.errors
    print(string.format("row %d %.0f %.2f %.2f %.2f %d %d", summary.requests, summary.requests / summary.duration * 1e6,
        latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, latency:percentile(99.9) / 1e3,
        errors.connect + errors.read + errors.write + errors.timeout, wrong_answers))
end
