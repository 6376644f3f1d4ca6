// Line chart with direct labels and spark line. SVG at its real width, coloured by CSS alone.
import { useEffect, useRef, useState } from '../vendor/hooks.js';
import { html } from './ui.js';
import { clock, minute, day } from '../data/format.js';
import { words } from '../words.js';

export function Spark({ values, width = 64, height = 16, level = '' }) {
  const known = (values ?? []).filter((v) => v != null);
  if (known.length < 2) return html`<svg class="spark" width=${width} height=${height} aria-hidden="true" />`;
  const max = Math.max(...known, 1e-9);
  const step = (width - 4) / (known.length - 1);
  const y = (v) => height - 2 - (v / max) * (height - 4);
  const d = known.map((v, i) => `${i ? 'L' : 'M'}${(i * step + 1).toFixed(1)} ${y(v).toFixed(1)}`).join('');
  return html`<svg class=${`spark ${level}`} width=${width} height=${height} viewBox=${`0 0 ${width} ${height}`} aria-hidden="true">
    <path d=${d} /><circle cx=${width - 3} cy=${y(known.at(-1))} r="1.75" /></svg>`;
}

function nice(max) {
  const unit = 10 ** Math.floor(Math.log10(max || 1));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((m) => m * unit).find((m) => m >= max) ?? max;
}

export function useWidth(initial = 300) {
  const box = useRef(null);
  const [width, setWidth] = useState(initial);
  useEffect(() => {
    const observer = new ResizeObserver(() => setWidth(box.current?.clientWidth || initial));
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  return [box, width];
}

function runs(values, x, y) {
  // A missing value parts the line: nothing is drawn where nothing was measured.
  let d = '';
  let isOpen = false;
  values.forEach((v, i) => {
    if (v == null) isOpen = false;
    else {
      d += `${isOpen ? 'L' : 'M'}${x(i).toFixed(1)} ${y(v).toFixed(1)}`;
      isOpen = true;
    }
  });
  return d;
}

const last = (values) => values.findLast((v) => v != null) ?? 0;

function Axis({ ticks, max, y, w, height, from, to, format }) {
  const count = w < 260 ? 2 : w < 520 ? 3 : 5;
  const label = to - from > 36e5 * 20 ? (t) => `${day(t)} ${minute(t)}` : minute;
  return html`<g>
    ${Array.from({ length: ticks }, (_, k) => {
      const v = (max * k) / (ticks - 1);
      const yy = Math.round(y(v)) + 0.5;
      return html`<line class=${k ? 'grid' : 'base'} x1="0" x2=${w} y1=${yy} y2=${yy} />${k ? html`<text x="0" y=${yy - 3}>${format(v)}</text>` : null}`;
    })}
    ${Array.from(
      { length: count + 1 },
      (_, k) => html`<text x=${(w * k) / count} y=${height - 4} text-anchor=${k === 0 ? 'start' : k === count ? 'end' : 'middle'}>
      ${k === count ? words.now : label(from + ((to - from) * k) / count)}</text>`,
    )}
  </g>`;
}

// series: [{name, color: 'c1', values}], all of one length. The table behind the chart is for readers of screens.
export function LineChart({ series, from, to, height = 140, format = String, limit, label, right = 76, ticks = 3, area = true }) {
  const [box, width] = useWidth();
  const [cross, setCross] = useState(null);
  const n = Math.max(2, ...series.map((s) => s.values.length));
  const w = Math.max(40, width - right);
  const low = height - 18;
  const head = 14;
  const max = nice(Math.max(...series.flatMap((s) => s.values.map((v) => v ?? 0)), limit?.value ?? 0, 1e-9) * 1.02);
  const x = (i) => (i / (n - 1)) * w;
  const y = (v) => low - (v / max) * (low - head);
  const ends = [];
  const line = (s) => {
    const d = runs(s.values, x, y);
    let at = Math.min(low - 2, Math.max(head + 6, y(last(s.values)) + 4));
    while (ends.some((e) => Math.abs(e - at) < 26)) at -= 26;
    ends.push(at);
    return html`<g style=${{ color: `var(--${s.color})` }}>
      ${area && d && !s.values.includes(null) ? html`<path class="area" d=${`${d}L${x(s.values.length - 1)} ${low}L0 ${low}Z`} />` : null}
      <path class="line" d=${d} /><circle cx=${x(s.values.length - 1)} cy=${y(last(s.values))} r="2.5" fill="currentColor" />
      ${right > 20 ? html`<text class="name" x=${w + 8} y=${at - (s.name ? 6 : 0)}>${format(last(s.values))}</text>${s.name ? html`<text x=${w + 8} y=${at + 7}>${s.name}</text>` : null}` : null}
    </g>`;
  };
  const move = (event) => setCross(Math.min(1, Math.max(0, event.offsetX / w)));
  const onKey = (event) => {
    const step = { ArrowLeft: -0.02, ArrowRight: 0.02 }[event.key];
    if (!step) return;
    event.preventDefault();
    setCross((old) => Math.min(1, Math.max(0, (old ?? 1) + step)));
  };
  const index = cross == null ? null : Math.round(cross * (n - 1));
  const reading =
    index == null
      ? ''
      : `${clock(from + ((to - from) * index) / (n - 1))}  ${series.map((s) => (s.values[index] == null ? '–' : format(s.values[index]))).join(' · ')}`;
  return html`<figure class="chart" role="img" aria-label=${`${label}: ${series.map((s) => `${s.name ?? ''} ${format(last(s.values))}`).join(', ')}${reading ? `; ${reading}` : ''}`}
    tabindex="0" ref=${box} onPointerMove=${move} onPointerLeave=${() => setCross(null)} onKeyDown=${onKey} onBlur=${() => setCross(null)}>
    <svg height=${height} viewBox=${`0 0 ${width} ${height}`}>
      <${Axis} ticks=${ticks} max=${max} y=${y} w=${w} height=${height} from=${from} to=${to} format=${format} />
      ${limit ? html`<line class="limit" x1="0" x2=${w} y1=${y(limit.value)} y2=${y(limit.value)} /><text class="limit-text" x=${w} y=${y(limit.value) - 4} text-anchor="end">${limit.text}</text>` : null}
      ${series.map(line)}
      ${
        index == null
          ? null
          : html`<line class="cross" x1=${x(index)} x2=${x(index)} y1=${head} y2=${low} />
        <text class="cross-text" x=${x(index) + (cross > 0.6 ? -6 : 6)} y=${head + 2} text-anchor=${cross > 0.6 ? 'end' : 'start'}>${reading}</text>`
      }
    </svg>
  </figure>`;
}
