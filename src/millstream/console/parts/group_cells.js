// How a group's lag and state are shown wherever groups are listed.
import { html, Shape } from './ui.js';
import { span } from '../data/format.js';

export const Behind = ({ seconds }) =>
  seconds == null
    ? html`<span class="muted">–</span>`
    : seconds > 60
      ? html`<b class="bad"><${Shape} level="bad" label="behind" /> ${span(seconds)}</b>`
      : span(seconds);
export const State = ({ state }) =>
  /^empty$/i.test(state)
    ? html`<span class="warn"><${Shape} level="warn" /> no members</span>`
    : html`<span class="muted">${String(state).toLowerCase().replaceAll('_', ' ')}</span>`;
