// Figures and times as people read them. Pure.

export const num = (n) =>
  n == null
    ? '–'
    : typeof n === 'string'
      ? group(n)
      : typeof n === 'bigint'
        ? group(String(n))
        : Number.isInteger(n)
          ? group(String(n))
          : String(n);
const group = (digits) => digits.replace(/\B(?=(\d{3})+(?!\d))/g, ',');

export function short(n) {
  if (n == null) return '–';
  const value = Math.abs(n);
  if (value >= 1e9) return `${trim(n / 1e9)} G`;
  if (value >= 1e6) return `${trim(n / 1e6)} M`;
  if (value >= 1e5) return `${trim(n / 1e3)} k`;
  if (value >= 100 || Number.isInteger(n)) return num(Math.round(n));
  return trim(n);
}
const trim = (n) => (Math.abs(n) >= 100 ? String(Math.round(n)) : String(Math.round(n * 10) / 10));

// [figure, unit], so that the unit can be muted.
export function size(bytes) {
  if (bytes == null) return ['–', ''];
  const units = ['B', 'KB', 'MB', 'GB', 'TB', 'PB'];
  let value = Number(bytes);
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit++;
  }
  return [unit ? trim(value) : String(value), units[unit]];
}
export const sizeText = (bytes) => size(bytes).join(' ').trim();

// Seconds as a span: 40 ms, 6.3 s, 4 min 12 s, 3 h 20 min, 12.3 d.
export function span(seconds) {
  if (seconds == null) return '–';
  const s = Math.abs(seconds);
  if (s === 0) return '0 s';
  if (s < 0.01) return `${Math.max(0.1, Math.round(s * 10000) / 10)} ms`;
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 60) return `${Math.round(s * 10) / 10} s`;
  if (s < 3600) return pair(s, 60, 'min', 1, 's');
  if (s < 86400 * 2) return pair(s, 3600, 'h', 60, 'min');
  return `${trim(s / 86400)} d`;
}
function pair(s, large, largeUnit, small, smallUnit) {
  const total = Math.round(s / small) * small; // Before it is parted: 1 h 59.8 min is 2 h.
  const whole = Math.floor(total / large);
  const remainder = Math.round((total - whole * large) / small);
  return remainder && whole < 60 ? `${whole} ${largeUnit} ${remainder} ${smallUnit}` : `${whole} ${largeUnit}`;
}

export const ago = (seconds) => (seconds < 1 ? 'now' : `${span(seconds)} ago`);
export const agoMs = (ms, now = Date.now()) =>
  ms == null || ms < 0 ? '–' : ms > now ? `in ${span((ms - now) / 1000)}` : ago((now - ms) / 1000);
export const plural = (n, word, many = `${word}s`) => `${num(n)} ${Number(n) === 1 ? word : many}`;

const two = (n) => String(n).padStart(2, '0');
const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];
export const day = (ms) => `${new Date(ms).getDate()} ${MONTHS[new Date(ms).getMonth()]}`;
export const minute = (ms) => `${two(new Date(ms).getHours())}:${two(new Date(ms).getMinutes())}`;
export const clock = (ms, millis = false) =>
  `${minute(ms)}:${two(new Date(ms).getSeconds())}${millis ? `.${String(Math.floor(ms) % 1000).padStart(3, '0')}` : ''}`;
// As a field of the type datetime-local holds it.
export const localTime = (ms) => {
  const at = new Date(ms);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}T${clock(ms, true)}`;
};
export const utc = (ms) => (ms == null || ms < 0 ? '–' : new Date(ms).toISOString());
export const when = (ms, now = Date.now()) =>
  ms == null || ms < 0
    ? '–'
    : Math.abs(now - ms) < 86400e3 && new Date(ms).getDate() === new Date(now).getDate()
      ? clock(ms)
      : `${day(ms)} ${clock(ms)}`;

// Characters that would not be seen, or would turn text around, are spelled out.
// eslint-disable-next-line no-control-regex
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;
const HAS_UNSEEN = new RegExp(UNSEEN.source);
export const isPlain = (text) => !HAS_UNSEEN.test(text);
export const visible = (text) => String(text).replace(UNSEEN, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);

export function hex(bytes, limit = 4096) {
  const lines = [];
  for (let at = 0; at < Math.min(bytes.length, limit); at += 16) {
    const row = [...bytes.slice(at, at + 16)];
    const codes = row
      .map((b) => b.toString(16).padStart(2, '0'))
      .join(' ')
      .padEnd(49);
    lines.push(
      `${at.toString(16).padStart(6, '0')}  ${codes}${row.map((b) => (b > 31 && b < 127 ? String.fromCharCode(b) : '·')).join('')}`,
    );
  }
  if (bytes.length > limit) lines.push(`… ${num(bytes.length - limit)} bytes more`);
  return lines.join('\n');
}
export const fromBase64 = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
