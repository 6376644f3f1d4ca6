// The smallest parts: templates, icons, severity shapes, copy buttons, keys, panels, chips.
import { h } from '../vendor/preact.js';
import { useState } from '../vendor/hooks.js';
import htm from '../vendor/htm.js';
import { isPlain, size, short, num, visible } from '../data/format.js';
import { words } from '../words.js';

// Every text that is drawn: characters that would not be seen, or would turn text around, are spelled out.
const drawn = (child) => (typeof child === 'string' && !isPlain(child) ? visible(child) : child);
export const html = htm.bind((type, props, ...children) => h(type, props, ...children.map(drawn)));

const ICONS = {
  overview: 'M2 9h3l2-5 3 8 2-3h2',
  topics: 'M2 4h12M2 8h12M2 12h12',
  groups:
    'M5 7a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM11 7a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM1.5 13c0-2 1.5-3.5 3.5-3.5S8.5 11 8.5 13M7.5 13c0-2 1.5-3.5 3.5-3.5s3.5 1.5 3.5 3.5',
  dead: 'M8 2l6.5 11.5h-13zM8 6.5v3M8 11.5v.2',
  delayed: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 5v3.3l2.2 1.4',
  views: 'M2 3h12l-4.5 5.5V13l-3-1.5v-3z',
  schemas: 'M6 2C4 2 4.5 5 4.5 6S4 8 2.5 8C4 8 4.5 9 4.5 10S4 14 6 14M10 2c2 0 1.5 3 1.5 4S12 8 13.5 8C12 8 11.5 9 11.5 10s.5 4-1.5 4',
  pipelines:
    'M3 5.5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3zM3 13.5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3zM13 9.5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3zM4.5 4C8 4 8 8 11.5 8M4.5 12C8 12 8 8 11.5 8',
  transactions: 'M2 5h10l-3-3M14 11H4l3 3',
  subscriptions: 'M3 3h10v7H8l-3 3v-3H3z',
  cluster: 'M2 3h12v3H2zM2 10h12v3H2zM4.5 4.5h.2M4.5 11.5h.2',
  access: 'M8 2l5 2v4c0 3-2 5-5 6-3-1-5-3-5-6V4z',
  audit: 'M4 2h6l3 3v9H4zM6 7h4M6 10h4',
  config: 'M2 4h7M12 4h2M2 8h2M7 8h7M2 12h6M11 12h3M10.5 2.5v3M5.5 6.5v3M9.5 10.5v3',
  quotas: 'M2.5 12a6 6 0 1 1 11 0M8 10l3-4',
  api: 'M5 4L1.5 8 5 12M11 4l3.5 4-3.5 4M9 3L7 13',
  connections: 'M6 10L10 6M7 4.5L8.5 3A3 3 0 0 1 13 7.5L11.5 9M9 11.5L7.5 13A3 3 0 0 1 3 8.5L4.500 7',
  index: 'M2 13V9M5 13V4M8 13V7M11 13V3M14 13V10',
  jobs: 'M3 4h10v8H3zM6 4V2.5h4V4M3 8h10',
  about: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 7.500v4M8 5v.2',
  search: 'M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10zM10.7 10.700L14 14',
  copy: 'M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3',
  check: 'M3 8.500l3.500 3.500L13 4.500',
  close: 'M4 4l8 8M12 4l-8 8',
  menu: 'M2 4h12M2 8h12M2 12h12',
  right: 'M6 3.5L10.5 8 6 12.5',
  down: 'M3.5 6L8 10.5 12.5 6',
  up: 'M3.5 10L8 5.5 12.5 10',
  play: 'M5 3l8 5-8 5z',
  pause: 'M5 3v10M11 3v10',
  more: 'M3 8h.2M8 8h.2M13 8h.2',
  moon: 'M13 9.5A5.500 5.500 0 0 1 6.500 3 5.500 5.500 0 1 0 13 9.500z',
  plus: 'M8 3v10M3 8h10',
  columns: 'M2.5 3h11v10h-11zM6 3v10M10 3v10',
  download: 'M8 2v8M4.5 7L8 10.5 11.5 7M3 13.5h10',
  terminal: 'M3 4l4 4-4 4M8.5 12H13',
  arrow: 'M2 8h11M9 4l4 4-4 4',
  help: 'M6 6a2 2 0 1 1 2.7 1.900C8.200 8.100 8 8.500 8 9.200M8 11.500v.2',
  undo: 'M5 3L2 6l3 3M2 6h7.500a4 4 0 0 1 0 8H6',
  stop: 'M4 4h8v8H4z',
  user: 'M8 8a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM2.500 14c0-3 2.500-4.500 5.500-4.500s5.500 1.500 5.500 4.500',
  edit: 'M3 13l.500-3L11 2.500 13.500 5 6 12.500z',
  trash: 'M3 4.500h10M6 4.500v-2h4v2M4.500 4.500l.500 9h6l.500-9',
};

export const Icon = ({ name, size: side = 16 }) =>
  html`<svg class="icon" viewBox="0 0 16 16" width=${side} height=${side} aria-hidden="true"><path d=${ICONS[name] || ''} /></svg>`;

// Severity is a shape as well as a colour: circle, triangle, diamond, ring.
const SHAPES = {
  good: 'M8 3a5 5 0 1 0 0 10A5 5 0 0 0 8 3z',
  warn: 'M8 2.500l6 11H2z',
  bad: 'M8 1.500L14.500 8 8 14.500 1.500 8z',
  idle: 'M8 4a4 4 0 1 0 0 8 4 4 0 0 0 0-8z',
  live: 'M8 3a5 5 0 1 0 0 10A5 5 0 0 0 8 3z',
};
export const Shape = ({ level, label }) =>
  html`<svg class=${`shape ${level}`} viewBox="0 0 16 16" width="12" height="12" role=${label ? 'img' : null} aria-label=${label}
    aria-hidden=${label ? null : 'true'}><path d=${SHAPES[level] || SHAPES.idle} /></svg>`;

export const LEVELS = { healthy: 'good', degraded: 'warn', unhealthy: 'bad' };

// Without a secure origin there is no clipboard: a hidden text area is copied instead.
export async function copyText(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = document.createElement('textarea');
  area.value = text;
  (document.querySelector('dialog[open]') ?? document.body).append(area);
  area.select();
  document.execCommand('copy');
  area.remove();
}

export function Copy({ text, label = words.copy }) {
  const [isDone, setDone] = useState(false);
  const copy = async () => {
    await copyText(typeof text === 'function' ? text() : text);
    setDone(true);
    setTimeout(setDone, 1400, false);
  };
  return html`<button type="button" class=${`icon-button${isDone ? ' done' : ''}`} aria-label=${label} title=${label} onClick=${copy}>
    <${Icon} name=${isDone ? 'check' : 'copy'} size=${14} /></button>`;
}

export const Keys = ({ of }) => html`<span class="keys">${of.split(' ').map((key) => html`<kbd>${key}</kbd>`)}</span>`;

export const Panel = ({ title, aside, children, flush, className = '' }) => html`<section class=${`panel ${className}`}>
  ${title ? html`<header><h2>${title}</h2>${aside}</header>` : null}
  ${flush ? children : html`<div class="body">${children}</div>`}
</section>`;

export const Chip = ({ level = '', children, title }) => html`<span class=${`chip ${level}`} title=${title}>${children}</span>`;
export const Dash = () => html`<span class="muted">–</span>`;
export const Bytes = ({ of }) => {
  if (!of) return html`<${Dash} />`;
  const [figure, unit] = size(of);
  return html`${figure}<span class="unit">${unit}</span>`;
};
export const Rate = ({ of, unit = '/s' }) => (of ? html`${short(of)}<span class="unit">${unit}</span>` : html`<${Dash} />`);
export const Count = ({ of }) => (Number(of) ? num(of) : html`<${Dash} />`);
export const Meter = ({ share, level = '' }) =>
  html`<span class="meter"><i class=${level} style=${{ width: `${Math.max(0, Math.min(1, share)) * 100}%` }} /></span>`;

export function Segments({ options, value, onPick, label, small }) {
  return html`<div class=${`segments${small ? ' small' : ''}`} role="group" aria-label=${label}>
    ${options.map(
      ([key, text, count]) => html`<button type="button" aria-pressed=${String(key === value)} onClick=${() => onPick(key)}>
      ${text}${count == null ? null : html`<span class="count muted">${num(count)}</span>`}</button>`,
    )}
  </div>`;
}

// A button that the principal may not use is greyed and says which right it needs.
export function Act({ may = true, needs, primary, danger, quiet, onClick, children, dataKey, title }) {
  const kind = primary ? ' primary' : danger ? ' danger' : quiet ? ' quiet' : '';
  return html`<button type="button" class=${`button${kind}`} aria-disabled=${may ? null : 'true'} data-key=${dataKey}
    title=${may ? title : needs} onClick=${() => may && onClick?.()}>${children}</button>`;
}

export const Title = ({ children, facts, acts }) => html`<div class="title">
  <div class="grow"><h1>${children}</h1>${facts ? html`<div class="facts">${facts.filter(Boolean).map((fact) => html`<span>${fact}</span>`)}</div>` : null}</div>
  ${acts ? html`<div class="acts">${acts}</div>` : null}
</div>`;
