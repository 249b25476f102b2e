// Shared by the k6 scripts: reads requests, sends them and verifies the answers.

import encoding from 'k6/encoding';
import exec from 'k6/execution';
import http from 'k6/http';
import { check } from 'k6';
import { SharedArray } from 'k6/data';
import { Trend } from 'k6/metrics';

const folder = __ENV.REQUESTS || import.meta.resolve('../../target/loadtest/requests');

// Headers of all requests. HEADER adds one, such as a platform's authentication.
const common = { 'Content-Type': 'application/x-protobuf' };
if (__ENV.HEADER) {
    const [name, ...value] = __ENV.HEADER.split(':');
    common[name] = value.join(':').trim();
}

// Milliseconds from the request to the last byte of the answer, including a new connection.
const answerTime = new Trend('answer_time', true);
// Milliseconds from the due time of the request to its answer, in whole milliseconds as k6's clock.
// Too high after a dropped request, as k6 does not number those.
const fromIntendedStart = new Trend('from_intended_start', true);

function base64(hex) {
    const bytes = new Uint8Array(hex.length / 2);
    for (let i = 0; i < bytes.length; i++) bytes[i] = parseInt(hex.substr(2 * i, 2), 16);
    return encoding.b64encode(bytes.buffer);
}

// Up to 5,000 requests, alternating between the files. Shared by all VUs as text, hence base64.
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

// Sends the next request to `url`. No answer, or a status other than 200, counts as
// http_req_failed; a wrong answer as a failed check.
export function send(url, requests, headers = {}) {
    const one = requests[exec.scenario.iterationInTest % requests.length];
    const answer = http.request(one.method, url + one.path, one.body && encoding.b64decode(one.body), {
        headers: { ...common, ...headers },
        responseType: 'binary',
        timeout: '5s',
        // The default name is the URL, which for a GET contains an id.
        tags: { name: one.method },
    });
    if (answer.status === 200) check(answer, { 'right answer': () => encoding.b64encode(answer.body) === one.answer });
    return answer;
}

export function recordAnswerTime(...answers) {
    answerTime.add(answers.reduce((sum, answer) => sum + answer.timings.blocked + answer.timings.duration, 0));
}

// For a scenario of executor constant-arrival-rate and this rate.
export function recordFromIntendedStart(rate) {
    fromIntendedStart.add(Math.max(0, Date.now() - exec.scenario.startTime - (exec.scenario.iterationInTest * 1000) / rate));
}

// Open-loop scenario: each request is sent when it is due. Enough VUs, each with its own
// connection, for answers of 60 ms. If all are busy, the next request is dropped, which fails the
// run.
export function openLoop(rate, seconds, more = {}) {
    return {
        executor: 'constant-arrival-rate',
        rate,
        duration: `${seconds}s`,
        preAllocatedVUs: Math.ceil(rate * 0.06) + 10,
        ...more,
    };
}

// The platforms' deadline and error limits, or stricter.
export const thresholds = {
    answer_time: ['p(99)<60'],
    http_req_failed: ['rate<0.001'],
    dropped_iterations: ['count==0'],
    checks: ['rate==1'],
};

export const summaryTrendStats = ['med', 'p(99)', 'p(99.9)', 'max'];
