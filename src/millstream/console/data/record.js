// Records as the API gives them, made ready to show. Pure.
import { fromBase64, hex, visible } from './format.js';
import { msgpackToJson } from './msgpack.js';

// {kind: json, text, hex or null; text} of a value: {"json": …}, {"text": …}, {"base64": …} or null. Bytes that do not
// decode as asked are hex, with `problem`.
export function shown(value, decode = '') {
  if (value == null) return { kind: 'null', text: 'null' };
  const bytes = () => (value.base64 != null ? fromBase64(value.base64) : new TextEncoder().encode(value.json_text ?? value.text ?? ''));
  if (decode === 'hex') return { kind: 'hex', text: hex(bytes()) };
  if (decode === 'text') return { kind: 'text', text: visible(value.text ?? value.json_text ?? new TextDecoder().decode(bytes())) };
  if (decode === 'msgpack') {
    try {
      return { kind: 'json', text: msgpackToJson(bytes()) };
    } catch (error) {
      return { kind: 'hex', text: hex(bytes()), problem: error.message };
    }
  }
  if (value.json_text != null) return { kind: 'json', text: value.json_text };
  if (value.text != null) return { kind: looksLikeJson(value.text) ? 'json' : 'text', text: value.text };
  return { kind: 'hex', text: hex(bytes()) };
}

export function looksLikeJson(text) {
  if (!/^\s*[[{]/.test(text) || text.length > 1e6) return false;
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

export const oneLine = (value) => {
  const { kind, text } = shown(value);
  return kind === 'hex' ? text.split('\n')[0].slice(8, 56) : visible(text.slice(0, 400));
};

export const placeOf = (record) => `${record.partition}@${record.offset}`;

// The text to put into an editor, and how to send it back.
export function editable(value) {
  if (value == null) return { form: 'null', text: '' };
  if (value.json_text != null) return { form: 'json', text: value.json_text };
  if (value.text != null) return { form: 'text', text: value.text };
  return { form: 'base64', text: value.base64 ?? '' };
}

// The JSON text of a produce request. JSON values go in as they were typed, so numbers keep their digits.
export function produceBody({ key, keyForm, value, valueForm, headers, partition, options }) {
  const field = (form, text) =>
    form === 'null' ? 'null' : form === 'json' ? `{"json": ${text}}` : `{${JSON.stringify(form)}: ${JSON.stringify(text)}}`;
  const members = [`"value": ${field(valueForm, value)}`];
  if (keyForm !== 'null') members.push(`"key": ${field(keyForm, key)}`);
  if (headers.length) members.push(`"headers": ${JSON.stringify(headers)}`);
  if (partition !== '') members.push(`"partition": ${Number(partition)}`);
  for (const [name, text] of Object.entries(options))
    if (text !== '')
      members.push(`${JSON.stringify(name)}: ${JSON.stringify(/^\d+$/.test(text) && name.endsWith('_ms') ? Number(text) : text)}`);
  return `{"records": [{${members.join(', ')}}]}`;
}
