// The clients of bench/endpoint_chaos.py. Each line that it prints is a JSON object: what is worth checking afterwards.
import http from 'k6/http';
import { sleep } from 'k6';
import { Counter } from 'k6/metrics';
import { setResponseCallback, expectedStatuses } from 'k6/http';

const PLAN = JSON.parse(open(__ENV.PLAN));
const statuses = {};
setResponseCallback(expectedStatuses({ min: 100, max: 599 }));
export const options = {
  scenarios: {
    clients: { executor: 'constant-vus', vus: PLAN.clients, duration: `${PLAN.seconds}s`, gracefulStop: '60s' },
  },
  summaryTrendStats: ['avg', 'med', 'p(99)', 'max'],
};
for (const status of PLAN.statuses) statuses[status] = new Counter(`status_${status}`);

const mine = []; // ids of this client's jobs
let seen = []; // ids of its tenant's latest jobs
const began = Date.now();
let due = null; // times at which this client submits, the next one last
let replica = __VU % PLAN.urls.length;

function tell(line) {
  console.log(JSON.stringify({ ...line, at: Date.now() / 1000, client: __VU }));
}

function count(answer, method, path, asked) {
  const known = statuses[answer.status] || statuses.other;
  known.add(1);
  if (answer.status === 0) {
    tell({ what: 'connection', url: asked.url, error: answer.error_code, text: answer.error, since: asked.at, method, path });
  } else if (answer.status >= 500) {
    const after = answer.headers['Retry-After'];
    tell({ what: 'server_error', status: answer.status, retry_after: after === undefined ? null : after, method, path,
      body: String(answer.body).slice(0, 300) });
  } else if (answer.status === 429 || answer.status === 422 || answer.status === 401) {
    tell({ what: 'refused', status: answer.status, method, path, body: String(answer.body).slice(0, 300) });
  }
}

function headersOf(key) {
  const headers = { Authorization: `Bearer ${PLAN.keys[__VU % PLAN.keys.length]}`, 'Content-Type': 'application/json' };
  return key ? { ...headers, 'Idempotency-Key': key } : headers;
}

// Asks one replica, and after a lost connection or a 503 the other, until there is another answer.
function ask(method, path, body, key) {
  for (let attempt = 0; attempt < 120; attempt++) {
    const asked = { url: PLAN.urls[replica], at: Date.now() / 1000 };
    const answer = http.request(method, asked.url + path, body, {
      headers: headersOf(key), timeout: '30s', tags: { name: `${method} ${path.replace(/job_[^/]+/, 'ID')}` },
    });
    count(answer, method, path, asked);
    if (answer.status !== 0 && answer.status !== 503) return answer;
    replica = (replica + 1) % PLAN.urls.length;
    sleep(answer.status === 0 ? 0.2 : 1);
  }
  tell({ what: 'gave_up', method, path });
  return null;
}

function accepted(answer, key) {
  if (answer === null || answer.status !== 202) return;
  const id = answer.json('id');
  tell({ what: 'accepted', id, key: key || null });
  if (!mine.includes(id)) mine.push(id);
}

// A third of the submissions carry a key, and are sent to both replicas at once, and again until each was answered 202.
function submit() {
  const body = JSON.stringify({ kind: 'c2b', config: PLAN.config });
  if (Math.random() >= 1 / 3) return accepted(ask('POST', '/v1/audits', body), null);
  const key = `k-${__VU}-${Math.random().toString(36).slice(2)}`;
  const at = Date.now() / 1000;
  const requests = PLAN.urls.map((url) => ['POST', `${url}/v1/audits`, body, { headers: headersOf(key), timeout: '30s' }]);
  http.batch(requests).forEach((answer, number) => {
    count(answer, 'POST', '/v1/audits', { url: PLAN.urls[number], at });
    accepted(answer.status === 0 || answer.status === 503 ? ask('POST', '/v1/audits', body, key) : answer, key);
  });
}

function read() {
  const known = mine.concat(seen);
  const id = known[Math.floor(Math.random() * known.length)];
  const chance = Math.random();
  if (id === undefined || chance < 0.15) {
    const page = ask('GET', '/v1/audits?limit=20', null);
    if (page !== null && page.status === 200) seen = page.json('items').map((job) => job.id);
    return;
  }
  const answer = ask('GET', `/v1/audits/${id}`, null);
  if (answer === null) return;
  if (answer.status !== 200) {
    tell({ what: 'vanished', id, status: answer.status });
  } else if (answer.json('state') === 'finished' && chance < 0.5) {
    const report = ask('GET', `/v1/audits/${id}/${chance < 0.3 ? 'report' : 'tables'}`, null);
    if (report !== null && report.status !== 200) tell({ what: 'unreadable', id, status: report.status, body: String(report.body).slice(0, 300) });
  }
}

function cancel(id) {
  const answer = ask('DELETE', `/v1/audits/${id}`, null);
  if (answer !== null && answer.status === 202) tell({ what: 'cancelled', id });
}

export default function () {
  if (due === null) due = PLAN.due[(__VU - 1) % PLAN.clients].slice().reverse();
  if (due.length && (Date.now() - began) / 1000 >= due[due.length - 1]) {
    due.pop();
    submit();
    if (mine.length && Math.random() < PLAN.cancel) {
      sleep(Math.random() * 15);
      cancel(mine[mine.length - 1]);
    }
  }
  read();
  sleep(PLAN.pause * (0.5 + Math.random()));
}
