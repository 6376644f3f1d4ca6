// Records over the kept span as bars: a click is time travel, a drag is a range; the same by arrows, Shift and Enter.
import { useState } from '../vendor/hooks.js';
import { html } from './ui.js';
import { useWidth } from './chart.js';
import { day, minute, clock, num } from '../data/format.js';

const HEIGHT = 56;
const BASE = 40;
const LABELS = 6;

const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

function labelOf(spanMs) {
  if (spanMs > 36e5 * 60) return day;
  return spanMs > 6e5 ? minute : clock;
}

const Axis = ({ from, to, width }) => {
  const count = clamp(Math.floor(width / 110), 2, LABELS);
  const label = labelOf(to - from);
  return Array.from({ length: count + 1 }, (_, k) => {
    const anchor = k === 0 ? 'start' : k === count ? 'end' : 'middle';
    return html`<text x=${(width * k) / count} y=${HEIGHT - 3} text-anchor=${anchor}>${label(from + ((to - from) * k) / count)}</text>`;
  });
};

// The bars of one path: thousands of elements would cost more than the page.
function bars(counts, width, isIn) {
  const max = Math.max(1, ...counts);
  const step = width / counts.length;
  const gap = step > 3 ? 1 : 0;
  return counts
    .map((count, i) => {
      if (!count || !isIn(i)) return '';
      const height = Math.max(1.5, (count / max) * (BASE - 6));
      return `M${(i * step).toFixed(1)} ${BASE}v${-height.toFixed(1)}h${(step - gap).toFixed(1)}v${height.toFixed(1)}z`;
    })
    .join('');
}

// line: {from_ms, step_ms, counts}; chosen: {from, until} in ms or null; onPick({from, until or null}).
export function Strip({ line, chosen, onPick, words }) {
  const [box, width] = useWidth(800);
  const [cursor, setCursor] = useState(null);
  const [anchor, setAnchor] = useState(null);
  const [from, count] = [line.from_ms, line.counts.length];
  const to = from + line.step_ms * count;
  const timeOf = (i) => from + i * line.step_ms;
  const indexOf = (event) => clamp(Math.floor((event.offsetX / width) * count), 0, count - 1);
  const pick = (a, b) => {
    const [low, high] = [Math.min(a, b), Math.max(a, b)];
    onPick({ from: timeOf(low), until: low === high ? null : Math.min(to, timeOf(high + 1)) });
    setAnchor(null);
  };
  const onKey = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -count, End: count }[event.key];
    if (step) {
      event.preventDefault();
      const now = cursor ?? count - 1;
      setAnchor(event.shiftKey ? (anchor ?? now) : null);
      setCursor(clamp(now + (cursor == null ? 0 : step), 0, count - 1));
    } else if (event.key === 'Enter' && cursor != null) pick(anchor ?? cursor, cursor);
    else if (event.key === 'Escape') onPick(null);
  };
  const isIn = (i) => !chosen || (timeOf(i + 1) > chosen.from && (chosen.until == null || timeOf(i) < chosen.until));
  const reading = cursor == null ? '' : words.reading(timeOf(cursor), line.counts[cursor]);
  const x = (i) => (i * width) / count;
  const span = anchor != null && cursor != null ? [Math.min(anchor, cursor), Math.max(anchor, cursor) + 1] : null;
  return html`<div class="chart strip" ref=${box} role="slider" tabindex="0" aria-label=${words.label} aria-valuemin="0" aria-valuemax=${count - 1} aria-valuenow=${cursor ?? count - 1}
    aria-valuetext=${reading || words.whole(num(line.counts.reduce((a, b) => a + b, 0)))} title=${words.hint} onKeyDown=${onKey} onBlur=${() => setCursor(null)}
    onPointerDown=${(e) => {
      e.currentTarget.setPointerCapture(e.pointerId);
      setAnchor(indexOf(e));
    }} onPointerMove=${(e) => setCursor(indexOf(e))} onPointerUp=${(e) => anchor != null && pick(anchor, indexOf(e))} onPointerLeave=${() => anchor == null && setCursor(null)}>
    <svg height=${HEIGHT} viewBox=${`0 0 ${width} ${HEIGHT}`} aria-hidden="true">
      ${span ? html`<rect class="range" x=${x(span[0])} width=${x(span[1]) - x(span[0])} y="0" height=${BASE} />` : null}
      <line class="base" x1="0" x2=${width} y1=${BASE + 0.5} y2=${BASE + 0.5} />
      <path class="bars-out" d=${bars(line.counts, width, (i) => !isIn(i))} /><path class="bars" d=${bars(line.counts, width, isIn)} />
      <${Axis} from=${from} to=${to} width=${width} />
      ${cursor == null ? null : html`<line class="cross" x1=${x(cursor + 0.5)} x2=${x(cursor + 0.5)} y1="0" y2=${BASE} /><text class="cross-text" x=${clamp(x(cursor + 0.5), 4, width - 4)} y="10" text-anchor=${cursor > count * 0.7 ? 'end' : 'start'} dx=${cursor > count * 0.7 ? -6 : 6}>${reading}</text>`}
    </svg></div>`;
}
