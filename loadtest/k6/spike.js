// Spike of new connections, as platforms cause when answers slow down: beside RATE requests per
// second on keep-alive connections, AT_ONCE VUs connect at once, and NEW requests per second use a new
// connection each.
//
//   k6 run -e URL=http://127.0.0.1:8080 -e RATE=200 -e NEW=1000 -e AT_ONCE=100 -e SECONDS=10 loadtest/k6/spike.js

import { openLoop, recordAnswerTime, requestsOf, send, summaryTrendStats, thresholds } from './requests.js';

const url = __ENV.URL || 'http://127.0.0.1:8080';
const seconds = Number(__ENV.SECONDS || 10);
const requests = requestsOf('tencent');
// The spike is the middle half.
const from = `${seconds / 4}s`;

export const options = {
    scenarios: {
        kept: openLoop(Number(__ENV.RATE || 200), seconds),
        at_once: { executor: 'per-vu-iterations', vus: Number(__ENV.AT_ONCE || 100), iterations: 1, startTime: from },
        spike: openLoop(Number(__ENV.NEW || 1000), seconds / 2, { startTime: from, exec: 'newConnection' }),
    },
    thresholds: {
        ...thresholds,
        'answer_time{scenario:kept}': ['p(99)<60'],
        'answer_time{scenario:spike}': ['p(99)<60'],
    },
    summaryTrendStats,
};

export default function () {
    recordAnswerTime(send(url, requests));
}

// k6's option noConnectionReuse would apply to all scenarios.
export function newConnection() {
    recordAnswerTime(send(url, requests, { Connection: 'close' }));
}
