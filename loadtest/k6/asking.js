// What the scripts beside it share: reading the requests, asking, and comparing the answer with the one that it must be.

import encoding from 'k6/encoding';
import exec from 'k6/execution';
import http from 'k6/http';
import { check } from 'k6';
import { SharedArray } from 'k6/data';
import { Trend } from 'k6/metrics';

const folder = __ENV.REQUESTS || import.meta.resolve('../../target/loadtest/requests');

// Of every request: HEADER is one more, such as what a platform authenticates itself with.
const common = { 'Content-Type': 'application/x-protobuf' };
if (__ENV.HEADER) {
    const [name, ...value] = __ENV.HEADER.split(':');
    common[name] = value.join(':').trim();
}

// Milliseconds from asking to the last byte of the answer, with the time that a new connection took.
const answerTime = new Trend('answer_time', true);
// Milliseconds from when the rate says that the request was due, to its answer; to the millisecond, as k6's clock goes. Too much
// once a request was dropped, as k6 does not number those.
const fromIntendedStart = new Trend('from_intended_start', true);

function base64(hex) {
    const bytes = new Uint8Array(hex.length / 2);
    for (let i = 0; i < bytes.length; i++) bytes[i] = parseInt(hex.substr(2 * i, 2), 16);
    return encoding.b64encode(bytes.buffer);
}

// Up to 5,000 requests, taken from the files in turn. All VUs share them, which takes text: hence base64.
export function requestsOf(...names) {
    return new SharedArray(names.join(), () => {
        const files = names.map((name) => open(`${folder}/${name}.tsv`).trim().split('\n'));
        const requests = [];
        for (let i = 0; requests.length < 5000 && i < files[0].length; i++) {
            for (const [method, path, , body, answer] of files.map((lines) => lines[i].split('\t'))) {
                requests.push({ method, path, body: body === '-' ? null : base64(body), answer: base64(answer) });
            }
        }
        return requests;
    });
}

// Asks the server at `url`, each iteration another of the requests. What does not come, or not with a 200, counts as
// http_req_failed; a 200 that says something else than it must, as a failed check.
export function ask(url, requests, headers = {}) {
    const one = requests[exec.scenario.iterationInTest % requests.length];
    const answer = http.request(one.method, url + one.path, one.body && encoding.b64decode(one.body), {
        headers: { ...common, ...headers },
        responseType: 'binary',
        timeout: '5s',
        // Series of metrics are named by the URL, which for a GET has an id in it.
        tags: { name: one.method },
    });
    if (answer.status === 200) check(answer, { 'right answer': () => encoding.b64encode(answer.body) === one.answer });
    return answer;
}

export function took(...answers) {
    answerTime.add(answers.reduce((sum, answer) => sum + answer.timings.blocked + answer.timings.duration, 0));
}

// In a scenario of executor constant-arrival-rate, with its rate.
export function tookFromIntendedStart(rate) {
    fromIntendedStart.add(Math.max(0, Date.now() - exec.scenario.startTime - (exec.scenario.iterationInTest * 1000) / rate));
}

// A scenario of so many requests a second, each sent when it is due. There are as many VUs, each with a connection of its own,
// as are busy if every answer takes the whole 60 ms; when all are, the next request is dropped, and that fails the run.
export function openLoop(rate, seconds, more = {}) {
    return {
        executor: 'constant-arrival-rate',
        rate,
        duration: `${seconds}s`,
        preAllocatedVUs: Math.ceil(rate * 0.06) + 10,
        ...more,
    };
}

// The platforms' deadline, and what their agreements allow, or less.
export const thresholds = {
    answer_time: ['p(99)<60'],
    http_req_failed: ['rate<0.001'],
    dropped_iterations: ['count==0'],
    checks: ['rate==1'],
};

export const summaryTrendStats = ['med', 'p(99)', 'p(99.9)', 'max'];
