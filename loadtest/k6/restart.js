// Rolling restart: RATE requests per second alternate between URLS while the servers are restarted
// one after another. No request may be lost.
//
//   k6 run -e URLS=http://127.0.0.1:8080,http://127.0.0.1:8081 -e RATE=500 -e SECONDS=20 loadtest/k6/restart.js
//
// Each VU acts like a load balancer: it retries on the next server if a server refuses or closes
// the connection before the answer begins, and avoids that server for a second. Decisions are
// idempotent, so retries are safe. `broken` counts the requests that a client without retries would
// lose. k6 hides the `Connection: close` of a draining server from scripts, so they cannot react to
// it.

import {
    openLoop, recordAnswerTime, recordFromIntendedStart, requestsOf, send, summaryTrendStats, thresholds,
} from './requests.js';
import { Counter, Rate } from 'k6/metrics';

const urls = (__ENV.URLS || 'http://127.0.0.1:8080,http://127.0.0.1:8081').split(',');
const rate = Number(__ENV.RATE || 500);
const requests = requestsOf('tencent');
const CONNECTION_REFUSED = 1212;

// Requests without an answer from any server; refused connections; connections closed during a
// request.
const lost = new Rate('lost');
const refused = new Counter('refused');
const broken = new Rate('broken');

export const options = {
    scenarios: { steady: openLoop(rate, Number(__ENV.SECONDS || 20)) },
    thresholds: {
        ...thresholds,
        // Includes retried requests; `lost` is the criterion.
        http_req_failed: [],
        lost: ['rate==0'],
        from_intended_start: ['p(99)<60'],
    },
    summaryTrendStats,
};

// Until when each server is avoided, per VU.
const avoidUntil = urls.map(() => 0);
let count = 0;

export default function () {
    const now = Date.now();
    count += 1;
    const order = urls.map((_, i) => (count + i) % urls.length);
    // Avoided servers come last.
    order.sort((a, b) => (avoidUntil[a] > now) - (avoidUntil[b] > now));
    const answers = [];
    let wasBroken = false;
    for (const server of order) {
        const answer = send(urls[server], requests);
        answers.push(answer);
        const ended = /EOF|connection reset|broken pipe/.test(answer.error);
        wasBroken = wasBroken || ended;
        if (answer.error_code === CONNECTION_REFUSED) refused.add(1);
        else if (!ended) break;
        avoidUntil[server] = now + 1000;
    }
    lost.add(answers[answers.length - 1].status !== 200);
    broken.add(wasBroken);
    recordAnswerTime(...answers);
    recordFromIntendedStart(rate);
}
