// Produce a record: JSON, text, base64 or a tombstone; key, headers, partition; delay, lifetime, message id.
import { useState } from '../vendor/hooks.js';
import { html, Segments } from './ui.js';
import { ActDialog, Field } from './overlay.js';
import { call, part } from '../data/api.js';
import { editable, produceBody } from '../data/record.js';
import { produceWords as text } from './produce.words.js';

const FORMS = ['json', 'text', 'base64', 'null'];
const OPTIONS = ['delay_ms', 'deliver_at', 'ttl_ms', 'message_id'];

const headerLines = (headers) =>
  (headers ?? [])
    .filter((h) => !h.name.startsWith('ms-'))
    .map((h) => `${h.name}: ${h.value?.text ?? h.value?.json_text ?? ''}`)
    .join('\n');

function parseHeaders(lines) {
  return lines
    .split('\n')
    .filter((line) => line.trim())
    .map((line) => {
      const at = line.indexOf(':');
      return { name: (at < 0 ? line : line.slice(0, at)).trim(), value: { text: at < 0 ? '' : line.slice(at + 1).trim() } };
    });
}

function jsonProblem(form, source) {
  if (form !== 'json') return '';
  try {
    JSON.parse(source);
    return '';
  } catch (error) {
    return error.message;
  }
}

export function ProduceDialog({ topic, record, onClose, onDone }) {
  const start = editable(record?.value ?? { text: '' });
  const [valueForm, setValueForm] = useState(record ? start.form : 'json');
  const [value, setValue] = useState(record ? start.text : '{"item": "flour", "kg": 25}');
  const startKey = editable(record?.key);
  const [keyForm, setKeyForm] = useState(record ? startKey.form : 'text');
  const [key, setKey] = useState(startKey.text);
  const [headers, setHeaders] = useState(headerLines(record?.headers));
  const [partition, setPartition] = useState('');
  const [options, setOptions] = useState(Object.fromEntries(OPTIONS.map((name) => [name, ''])));
  const problem = jsonProblem(valueForm, value) || (keyForm === 'json' ? jsonProblem('json', key) : '');
  const act = () => {
    const usedKey = keyForm === 'text' && key === '' ? 'null' : keyForm;
    const body = produceBody({ key, keyForm: usedKey, value, valueForm, headers: parseHeaders(headers), partition, options });
    return call('POST', `/v1/topics/${part(topic)}/records`, { body });
  };
  return html`<${ActDialog} title=${text.title(topic)} sub=${text.sub} label=${text.act} act=${act} onClose=${onClose} onDone=${(answer) => onDone?.(answer.data)} isReady=${!problem}>
    <div class="form">
      <div class="whole row"><${Segments} small=${true} label=${text.valueForm} options=${FORMS.map((form) => [form, text.forms[form]])} value=${valueForm} onPick=${setValueForm} /></div>
      ${valueForm === 'null' ? html`<p class="muted whole">${text.tombstone}</p>` : html`<div class="whole"><${Field} label=${text.value} error=${problem}><textarea class="field" rows="8" spellcheck="false" value=${value} onInput=${(e) => setValue(e.target.value)} /></${Field}></div>`}
      <${Field} label=${text.key}><input class="field mono" value=${key} disabled=${keyForm === 'null'} onInput=${(e) => setKey(e.target.value)} /></${Field}>
      <${Field} label=${text.keyForm}><select class="field" value=${keyForm} onChange=${(e) => setKeyForm(e.target.value)}>${FORMS.map((form) => html`<option value=${form}>${text.forms[form]}</option>`)}</select></${Field}>
      <div class="whole"><${Field} label=${text.headers} hint=${text.headersHint}><textarea class="field" rows="2" spellcheck="false" value=${headers} onInput=${(e) => setHeaders(e.target.value)} /></${Field}></div>
      <${Field} label=${text.partition} hint=${text.partitionHint}><input class="field mono" inputmode="numeric" value=${partition} onInput=${(e) => setPartition(e.target.value)} /></${Field}>
      ${OPTIONS.map((name) => html`<${Field} label=${text.options[name]}><input class="field mono" value=${options[name]} onInput=${(e) => setOptions({ ...options, [name]: e.target.value })} /></${Field}>`)}
    </div>
  </${ActDialog}>`;
}
