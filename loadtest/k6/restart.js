// A rolling restart: RATE requests a second go to all of URLS in turn, while somebody restarts those servers one after another. No
// request may be lost.
//
//   k6 run -e URLS=http://127.0.0.1:8080,http://127.0.0.1:8081 -e RATE=500 -e SECONDS=20 loadtest/k6/restart.js
//
// Each VU is a client with a list of addresses, as a load balancer is: a server that refuses the connection, or ends it before the answer
// begins, is left alone for a second, and the next one is asked at once. A decision changes nothing, so it may be asked for
// twice. Whoever cannot ask again loses what is counted as broken. (k6 hides from its scripts the `Connection: close` by which a
// server says that it is leaving, so they cannot heed it.)

import { ask, openLoop, requestsOf, summaryTrendStats, thresholds, took, tookFromIntendedStart } from './asking.js';
import { Counter, Rate } from 'k6/metrics';

const urls = (__ENV.URLS || 'http://127.0.0.1:8080,http://127.0.0.1:8081').split(',');
const rate = Number(__ENV.RATE || 500);
const requests = requestsOf('tencent');
const CONNECTION_REFUSED = 1212;

// Requests without an answer from any server; connections that were refused; those that ended under a request.
const lost = new Rate('lost');
const refused = new Counter('refused');
const broken = new Rate('broken');

export const options = {
    scenarios: { steady: openLoop(rate, Number(__ENV.SECONDS || 20)) },
    thresholds: {
        ...thresholds,
        // Has in it what was asked again: what counts is what was lost.
        http_req_failed: [],
        lost: ['rate==0'],
        from_intended_start: ['p(99)<60'],
    },
    summaryTrendStats,
};

// Of each server, until when it is left alone; every VU has its own.
const restsUntil = urls.map(() => 0);
let turn = 0;

export default function () {
    const now = Date.now();
    turn += 1;
    const order = urls.map((_, i) => (turn + i) % urls.length);
    // Those that rest come last, but come, should there be no other.
    order.sort((a, b) => (restsUntil[a] > now) - (restsUntil[b] > now));
    const answers = [];
    let wasBroken = false;
    for (const server of order) {
        const answer = ask(urls[server], requests);
        answers.push(answer);
        const ended = /EOF|connection reset|broken pipe/.test(answer.error);
        wasBroken = wasBroken || ended;
        if (answer.error_code === CONNECTION_REFUSED) refused.add(1);
        else if (!ended) break;
        restsUntil[server] = now + 1000;
    }
    lost.add(answers[answers.length - 1].status !== 200);
    broken.add(wasBroken);
    took(...answers);
    tookFromIntendedStart(rate);
}
