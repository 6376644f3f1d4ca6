// The broker's REST. The console knows the broker by /v1, the schema registry and /health only.
import { parseExact } from './json.js';

export class ApiError extends Error {
  constructor(status, problem, method, path) {
    super(problem.message || problem.detail || problem.title || `the broker answered ${status}`);
    this.status = status;
    this.code = problem.error || String(problem.error_code ?? '');
    this.requestId = problem.instance || '';
    this.fields = problem.fields || [];
    this.retriable = problem.retriable === true || status === 503;
    this.method = method;
    this.path = path;
  }
}

let csrf = '';
export const setCsrf = (token) => {
  csrf = token || '';
};

export function address(path, query = {}) {
  const entries = Object.entries(query).filter(([, value]) => value != null && value !== '');
  return entries.length ? `${path}?${new URLSearchParams(entries)}` : path;
}

async function bodyOf(answer) {
  const text = await answer.text();
  try {
    return text ? parseExact(text) : null;
  } catch {
    return { message: text.slice(0, 400) };
  }
}

function refusal(answer, data, method, path) {
  if (answer.status === 401) dispatchEvent(new CustomEvent('login-needed'));
  return new ApiError(answer.status, data && typeof data === 'object' ? data : {}, method, path);
}

const unreachable = (method, path) => new ApiError(0, { message: 'The broker does not answer.', retriable: true }, method, path);

// {data, etag}. Raises ApiError with the broker's sentence; a broken connection has status 0.
export async function call(method, path, { query, body, etag, signal, type = 'application/json', key } = {}) {
  const headers = { Accept: 'application/json' };
  if (body !== undefined) headers['Content-Type'] = type;
  if (method !== 'GET' && csrf) headers['X-Millstream-Csrf'] = csrf;
  if (etag) headers['If-Match'] = etag;
  if (key) headers['Idempotency-Key'] = key;
  let answer;
  try {
    answer = await fetch(address(path, query), {
      method,
      headers,
      signal,
      body: body === undefined ? undefined : typeof body === 'string' ? body : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw unreachable(method, path);
  }
  const data = await bodyOf(answer);
  if (!answer.ok) throw refusal(answer, data, method, path);
  return { data, etag: answer.headers.get('ETag'), location: answer.headers.get('Location'), status: answer.status };
}

export const get = async (path, options) => (await call('GET', path, options)).data;
export const post = async (path, body, options) => (await call('POST', path, { ...options, body })).data;

// All pages of a list, at most `most` items. The list says whether it was cut. `show` gets the items so far, page by page.
export async function all(path, { query = {}, most = 10000, signal, show } = {}) {
  const items = [];
  let after = null;
  do {
    const page = await get(path, { query: { limit: 1000, ...query, after }, signal });
    items.push(...page.items);
    after = page.next;
    if (after) show?.([...items]);
  } while (after && items.length < most);
  items.isCut = Boolean(after);
  return items;
}

// Rules of access; `isOff` where no login is asked for, and every client may do everything.
export async function rules(path, options) {
  try {
    return await all(path, options);
  } catch (error) {
    if (error.code !== 'authorization_off') throw error;
    return Object.assign([], { isOff: true });
  }
}

export const part = (name) => encodeURIComponent(name);

// `/health` answers 503 with its checks when something is wrong: that is an answer, too.
export async function readHealth(signal) {
  const answer = await fetch('/health', { signal, headers: { Accept: 'application/json' } });
  return answer.json();
}

// The bytes of a long answer as they come. An answer that breaks off raises, so that half a file is never taken for a whole one.
export async function* download(path, signal) {
  const answer = await fetch(path, { signal }).catch((error) => {
    throw error.name === 'AbortError' ? error : unreachable('GET', path);
  });
  if (!answer.ok) throw refusal(answer, await bodyOf(answer), 'GET', path);
  const reader = answer.body.getReader();
  for (let step = await reader.read(); !step.done; step = await reader.read()) yield step.value;
}
