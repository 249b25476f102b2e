// Acceptance test of a platform: warm-up, the agreed rate, then 1.5 times that rate. Requests
// alternate between Tencent and Ocean Engine and are sent when due (open loop).
//
//   k6 run -e URL=http://127.0.0.1:8080 -e RATE=1000 -e SECONDS=30 loadtest/k6/acceptance.js

import {
    openLoop, recordAnswerTime, recordFromIntendedStart, requestsOf, send, summaryTrendStats, thresholds,
} from './requests.js';

const url = __ENV.URL || 'http://127.0.0.1:8080';
const rate = Number(__ENV.RATE || 1000);
const seconds = Number(__ENV.SECONDS || 30);
const warmUp = Math.max(1, Math.round(seconds / 6));
const higher = Math.round(rate * 1.5);
const requests = requestsOf('tencent', 'ocean');

export const options = {
    scenarios: {
        warm_up: {
            executor: 'ramping-arrival-rate',
            stages: [{ target: rate, duration: `${warmUp}s` }],
            preAllocatedVUs: openLoop(rate).preAllocatedVUs,
        },
        agreed: openLoop(rate, seconds, { startTime: `${warmUp}s`, exec: 'agreed' }),
        half_as_much_again: openLoop(higher, seconds, { startTime: `${warmUp + seconds}s`, exec: 'halfAsMuchAgain' }),
    },
    thresholds: {
        ...thresholds,
        'answer_time{scenario:agreed}': ['p(99)<60'],
        'answer_time{scenario:half_as_much_again}': ['p(99)<60'],
        from_intended_start: ['p(99)<60'],
    },
    summaryTrendStats,
};

export default function () {
    recordAnswerTime(send(url, requests));
}

export function agreed() {
    recordAnswerTime(send(url, requests));
    recordFromIntendedStart(rate);
}

export function halfAsMuchAgain() {
    recordAnswerTime(send(url, requests));
    recordFromIntendedStart(higher);
}
