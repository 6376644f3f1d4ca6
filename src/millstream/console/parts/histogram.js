// Counts over time as bars, with a table behind them for readers of screens.
import { html } from './ui.js';
import { useWidth } from './chart.js';
import { minute, day, num } from '../data/format.js';

const HEIGHT = 96;
const BASE = 76;

// {from, step, counts} of times in ms, at most `most` bars.
export function buckets(times, most) {
  if (!times.length) return { from: 0, step: 1, counts: [] };
  const [from, to] = [Math.min(...times), Math.max(...times)];
  const step = Math.max(1, Math.ceil((to - from + 1) / most));
  const counts = Array(Math.floor((to - from) / step) + 1).fill(0);
  for (const at of times) counts[Math.floor((at - from) / step)]++;
  return { from, step, counts };
}

export function Histogram({ from, step, counts, label, onPick }) {
  const [box, width] = useWidth(800);
  const max = Math.max(1, ...counts);
  const to = from + step * counts.length;
  const name = to - from > 36e5 * 36 ? (ms) => `${day(ms)} ${minute(ms)}` : minute;
  const w = width / counts.length;
  const bar = (count, i) => {
    const height = count ? Math.max(2, (count / max) * (BASE - 16)) : 0;
    return html`<rect class="bars" x=${i * w} y=${BASE - height} width=${Math.max(1, w - 1)} height=${height} onClick=${() => onPick?.(from + i * step)}><title>${name(from + i * step)}: ${num(count)}</title></rect>`;
  };
  return html`<figure class="chart strip histogram" ref=${box} aria-label=${label}><svg height=${HEIGHT} viewBox=${`0 0 ${width} ${HEIGHT}`} aria-hidden="true">
      <line class="base" x1="0" x2=${width} y1=${BASE + 0.5} y2=${BASE + 0.5} /><text x="0" y="10">${num(max)}</text>
      ${counts.map(bar)}<text x="0" y=${HEIGHT - 4}>${name(from)}</text><text x=${width} y=${HEIGHT - 4} text-anchor="end">${name(to)}</text></svg>
    <table class="visually-hidden"><caption>${label}</caption><tbody>${counts.map((count, i) => (count ? html`<tr><th scope="row">${name(from + i * step)}</th><td>${num(count)}</td></tr>` : null))}</tbody></table></figure>`;
}
