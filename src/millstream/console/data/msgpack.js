// MessagePack written as JSON text, so that 64-bit numbers keep their digits. Pure.

const DEPTH_MAX = 100;
const TEXT_MAX = 1e6; // Characters; a longer value is refused.
const TIMESTAMP = -1; // The type of an extension that the format itself defines.

const hexOf = (bytes) => `0x${[...bytes].map((b) => b.toString(16).padStart(2, '0')).join('')}`;
const number = (value) => (Number.isFinite(value) ? String(value) : JSON.stringify(String(value)));

// The instant of a timestamp of 4, 8 or 12 bytes, as text.
function instant(view) {
  if (view.byteLength === 4) return new Date(view.getUint32(0) * 1000).toISOString();
  const isLong = view.byteLength === 12;
  const word = isLong ? 0n : view.getBigUint64(0);
  const nanos = isLong ? view.getUint32(0) : Number(word >> 34n);
  const seconds = isLong ? Number(view.getBigInt64(4)) : Number(word & 0x3ffffffffn);
  return new Date(seconds * 1000 + nanos / 1e6).toISOString();
}

// The JSON text of one value that takes all `bytes`; raises SyntaxError with the place of a mistake.
export function msgpackToJson(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const utf8 = new TextDecoder('utf-8', { fatal: true });
  let at = 0;
  let written = 0;
  const fail = (reason) => {
    throw new SyntaxError(`not MessagePack: ${reason} at byte ${at}`);
  };
  const take = (size) => {
    if (at + size > bytes.length) fail('the value has no end');
    at += size;
    return at - size;
  };
  const size = (width) => (width === 1 ? view.getUint8(take(1)) : width === 2 ? view.getUint16(take(2)) : view.getUint32(take(4)));
  const part = (length) => {
    const from = take(length);
    return bytes.subarray(from, from + length);
  };
  const note = (text) => {
    written += text.length;
    if (written > TEXT_MAX) fail('more than a million characters');
    return text;
  };
  const string = (length) => {
    try {
      return note(JSON.stringify(utf8.decode(part(length))));
    } catch (error) {
      return error instanceof TypeError ? fail('a text that is not UTF-8') : fail(error.message);
    }
  };
  const binary = (length) => note(JSON.stringify(hexOf(part(length))));
  const extension = (length) => {
    const type = view.getInt8(take(1));
    const data = part(length);
    if (type === TIMESTAMP && [4, 8, 12].includes(length)) {
      try {
        return note(JSON.stringify(instant(new DataView(data.buffer, data.byteOffset, length))));
      } catch {
        fail('a time that no calendar has');
      }
    }
    return note(JSON.stringify(`ext ${type} ${hexOf(data)}`));
  };
  const list = (length, depth) => {
    const items = [];
    for (let i = 0; i < length; i++) items.push(value(depth + 1));
    return `[${items.join(', ')}]`;
  };
  const map = (length, depth) => {
    const members = [];
    for (let i = 0; i < length; i++) {
      const key = value(depth + 1);
      members.push(`${key[0] === '"' ? key : JSON.stringify(key)}: ${value(depth + 1)}`);
    }
    return `{${members.join(', ')}}`;
  };
  const FIXED = [
    [0xc0, () => 'null'],
    [0xc2, () => 'false'],
    [0xc3, () => 'true'],
    ...[1, 2, 4].flatMap((width, i) => [
      [0xc4 + i, () => binary(size(width))],
      [0xc7 + i, () => extension(size(width))],
      [0xcc + i, () => String(size(width))],
      [0xd9 + i, () => string(size(width))],
    ]),
    ...[1, 2, 4, 8, 16].map((length, i) => [0xd4 + i, () => extension(length)]),
    [0xca, () => number(view.getFloat32(take(4)))],
    [0xcb, () => number(view.getFloat64(take(8)))],
    [0xcf, () => String(view.getBigUint64(take(8)))],
    [0xd0, () => String(view.getInt8(take(1)))],
    [0xd1, () => String(view.getInt16(take(2)))],
    [0xd2, () => String(view.getInt32(take(4)))],
    [0xd3, () => String(view.getBigInt64(take(8)))],
    ...[2, 4].flatMap((width, i) => [
      [0xdc + i, (depth) => list(size(width), depth)],
      [0xde + i, (depth) => map(size(width), depth)],
    ]),
  ];
  const kinds = new Map(FIXED);
  const value = (depth) => {
    if (depth > DEPTH_MAX) fail(`more than ${DEPTH_MAX} levels`);
    const first = view.getUint8(take(1));
    note(' ');
    if (first < 0x80) return String(first);
    if (first >= 0xe0) return String(first - 256);
    if (first < 0x90) return map(first & 15, depth);
    if (first < 0xa0) return list(first & 15, depth);
    if (first < 0xc0) return string(first & 31);
    const read = kinds.get(first);
    return read ? read(depth) : fail('a byte without a meaning');
  };
  const text = value(0);
  if (at < bytes.length) fail('bytes are left over');
  return text;
}
