// Acts on a topic, each with its plan: grow, truncate, delete, change a setting.
import { useState } from '../vendor/hooks.js';
import { html } from '../parts/ui.js';
import { ActDialog, Field } from '../parts/overlay.js';
import { Code } from '../parts/states.js';
import { call, part } from '../data/api.js';
import { visit } from '../data/place.js';
import { text } from './topic.words.js';

const pathOf = (topic, verb = '') => `/v1/topics/${part(topic.name)}${verb}`;

export function GrowDialog({ topic, onClose, onDone }) {
  const [count, setCount] = useState(topic.partitions + 1);
  const isMore = Number.isInteger(count) && count > topic.partitions;
  return html`<${ActDialog} title=${text.grow} sub=${topic.name} label=${text.growLabel(count)} isReady=${isMore} onClose=${onClose} onDone=${onDone}
    act=${() => call('POST', pathOf(topic, ':grow'), { body: { count } })}>
    <${Field} label=${text.partitions} hint=${text.growNote}><input class="field mono" type="number" min=${topic.partitions + 1} value=${count} onInput=${(e) => setCount(Number(e.target.value))} /></${Field}>
    <${Code} text=${`millstream topic alter ${topic.name} --partitions ${count}`} />
  </${ActDialog}>`;
}

export function TruncateDialog({ topic, onClose, onDone }) {
  const [before, setBefore] = useState('7d');
  const place = /^\d+$/.test(before) ? Number(before) : before;
  const all = Object.fromEntries(Array.from({ length: topic.partitions }, (_, i) => [i, place]));
  return html`<${ActDialog} title=${text.truncate} sub=${topic.name} label=${text.truncateLabel(topic.name)} danger=${true} typed=${topic.name} isReady=${before !== ''} onClose=${onClose} onDone=${onDone}
    act=${() => call('POST', pathOf(topic, ':truncate'), { body: { before: all } })}>
    <${Field} label=${text.before} hint=${text.truncateNote}><input class="field mono" value=${before} onInput=${(e) => setBefore(e.target.value)} /></${Field}>
  </${ActDialog}>`;
}

export function DeleteDialog({ topic, onClose }) {
  return html`<${ActDialog} title=${text.deleteTitle(topic.name)} label=${text.deleteTitle(topic.name)} danger=${true} typed=${topic.name} onClose=${onClose} onDone=${() => visit('/topics')}
    act=${() => call('DELETE', pathOf(topic), { etag: topic.etag })}>
    <p>${text.deleteNote(topic)}</p><${Code} text=${`millstream topic delete ${topic.name}`} />
  </${ActDialog}>`;
}

export function SettingDialog({ topic, setting, onClose, onDone }) {
  const [value, setValue] = useState(String(setting.value ?? ''));
  const change = (next) => call('PATCH', pathOf(topic), { body: { settings: { [setting.name]: next } }, etag: topic.etag });
  return html`<${ActDialog} title=${text.changeTitle(setting.name)} sub=${topic.name} label=${text.save} isReady=${value !== String(setting.value ?? '')} onClose=${onClose} onDone=${onDone} act=${() => change(value)}>
    <p class="muted">${setting.meaning}</p>
    <${Field} label=${text.newValue} hint=${`default ${setting.default ?? '–'}`}><input class="field mono" autofocus value=${value} onInput=${(e) => setValue(e.target.value)} /></${Field}>
    <button type="button" class="button" onClick=${() =>
      change(null).then(() => {
        onDone();
        onClose();
      })}>${text.resetValue}</button>
    <${Code} text=${`millstream topic alter ${topic.name} --set ${setting.name}=${value}`} />
  </${ActDialog}>`;
}
