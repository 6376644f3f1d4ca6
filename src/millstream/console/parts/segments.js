// Segments of a partition on a time axis: width is the time that a segment covers, height how well it is indexed.
import { html, Bytes } from './ui.js';
import { Table } from './table.js';
import { useWidth } from './chart.js';
import { minute, day, num, sizeText, utc, when } from '../data/format.js';

const HEIGHT = 64;
const BASE = 44;

// Each segment reaches from the newest record of the one before it to its own.
export function spans(segments) {
  const timed = segments.filter((s) => s.last_time_ms != null);
  return timed.map((segment, i) => ({ segment, from: i ? timed[i - 1].last_time_ms : null, to: segment.last_time_ms }));
}

const density = (segment) => (segment.index_entries ? segment.bytes / segment.index_entries : segment.bytes);
const levelOf = (segment) => (segment.problem ? 'bad' : segment.has_index ? 'good' : 'idle');

export function SegmentAxis({ segments, words }) {
  const list = spans(segments);
  return list.length < 2 ? null : html`<${Axis} list=${list} segments=${segments} words=${words} />`;
}

function Axis({ list, segments, words }) {
  const [box, width] = useWidth(800);
  const first = list[1].from;
  const last = Math.max(first + 1, ...list.map((s) => s.to));
  const x = (ms) => ((Math.max(first, ms ?? first) - first) / (last - first)) * width;
  const sparsest = Math.max(1, ...segments.map(density));
  const label = last - first > 36e5 * 36 ? day : minute;
  return html`<div class="chart segments-axis" ref=${box} role="img" aria-label=${words.axis(segments.length)}><svg height=${HEIGHT} viewBox=${`0 0 ${width} ${HEIGHT}`} aria-hidden="true">
    <line class="base" x1="0" x2=${width} y1=${BASE + 0.5} y2=${BASE + 0.5} />
    ${list.map(({ segment, from, to }) => {
      const height = Math.max(6, (density(segment) / sparsest) * (BASE - 8));
      return html`<rect class=${`seg ${levelOf(segment)}`} x=${x(from)} width=${Math.max(2, x(to) - x(from) - 1)} y=${BASE - height} height=${height}><title>${words.segment(segment, sizeText(segment.bytes))}</title></rect>`;
    })}
    <text x="0" y=${HEIGHT - 4}>${label(first)}</text><text x=${width} y=${HEIGHT - 4} text-anchor="end">${label(last)}</text></svg></div>`;
}

const columns = (words) => [
  { key: 'base', head: words.columns.base, num: true, width: 120, sort: (s) => s.base_offset, cell: (s) => num(s.base_offset) },
  { key: 'end', head: words.columns.end, num: true, width: 120, hide: 'hide-narrow', cell: (s) => num(s.end_offset) },
  { key: 'bytes', head: words.columns.bytes, num: true, width: 92, sort: (s) => s.bytes, cell: (s) => html`<${Bytes} of=${s.bytes} />` },
  { key: 'last', head: words.columns.last, width: 180, sort: (s) => s.last_time_ms ?? 0, cell: (s) => (s.last_time_ms == null ? '–' : html`<time title=${utc(s.last_time_ms)}>${when(s.last_time_ms)}</time>`) },
  { key: 'entries', head: words.columns.entries, num: true, width: 112, hide: 'hide-narrow', sort: (s) => s.index_entries, cell: (s) => num(s.index_entries) },
  { key: 'stretch', head: words.columns.stretch, num: true, width: 120, hide: 'hide-narrow', sort: (s) => s.stretch_bytes, cell: (s) => html`<${Bytes} of=${s.stretch_bytes} />` },
  { key: 'state', head: words.columns.state, cell: (s) => (s.problem ? html`<span class="bad">${s.problem}</span>` : html`<span class="muted">${s.has_index ? words.sealed : words.active}</span>`) },
];

export const SegmentTable = ({ segments, words }) =>
  html`<${Table} label=${words.title} inset=${true} rows=${[...segments].reverse()} columns=${columns(words)} rowKey=${(s) => s.base_offset} />`;
