// A spike of new connections, as a platform makes it when answers slow down: while RATE requests a second come on connections that are
// kept, AT_ONCE VUs connect in one moment, and NEW requests a second come on a new connection each.
//
//   k6 run -e URL=http://127.0.0.1:8080 -e RATE=200 -e NEW=1000 -e AT_ONCE=100 -e SECONDS=10 loadtest/k6/spike.js

import { ask, openLoop, requestsOf, summaryTrendStats, thresholds, took } from './asking.js';

const url = __ENV.URL || 'http://127.0.0.1:8080';
const seconds = Number(__ENV.SECONDS || 10);
const requests = requestsOf('tencent');
// The middle half.
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
    took(ask(url, requests));
}

// k6's option noConnectionReuse does the same, but for all scenarios.
export function newConnection() {
    took(ask(url, requests, { Connection: 'close' }));
}
