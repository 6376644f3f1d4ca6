// Two texts side by side, with notes under the lines they speak of.
import { html } from './ui.js';
import { lines, inner } from '../data/diff.js';

export function Diff({ before, after, names = ['before', 'after'], label }) {
  const side = (cell, other, kind, className) => {
    const [start, middle, end] = cell && kind === 'changed' ? inner(cell[1], other[1]) : [cell?.[1] ?? '', '', ''];
    return html`<td class="ln">${cell ? cell[0] : ''}</td>
      <td class=${`tx ${cell && kind !== 'same' ? className : cell ? '' : 'none'}`}>${cell ? html`<code>${start}${middle ? html`<mark>${middle}</mark>` : null}${end}</code>` : null}</td>`;
  };
  return html`<table class="diff" aria-label=${label}><colgroup><col class="ln" /><col /><col class="ln" /><col /></colgroup>
    <thead><tr><th colspan="2" scope="col">${names[0]}</th><th colspan="2" scope="col">${names[1]}</th></tr></thead>
    <tbody>${lines(before, after).map((row) => html`<tr class=${row.kind}>${side(row.a, row.b, row.kind, 'gone')}${side(row.b, row.a, row.kind, 'new')}</tr>`)}</tbody></table>`;
}
