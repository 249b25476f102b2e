-- Sends the requests of a file of request_files.py in order, repeatedly.
local requests, last, at = {}, 0, 0

function init(args)
    local file = assert(io.open(args[1], "rb"))
    for length in function() return file:read("*n") end do
        file:read(1)
        last = last + 1
        requests[last] = file:read(length)
    end
    file:close()
end

function request()
    at = at % last + 1
    return requests[at]
end

function done(summary)
    local errors = summary.errors
    local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
    io.write(string.format("answered %d in %d us, failed %d\n", summary.requests, summary.duration, failed))
end
