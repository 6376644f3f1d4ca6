// A graph in layers, left to right: longest path gives the layer, sweeps of barycentres the order.
import { html } from './ui.js';

const NODES_MAX = 200;

function layers(nodes, edges) {
  const layer = new Map(nodes.map((n) => [n.id, 0]));
  for (let round = 0; round < nodes.length; round++)
    for (const [a, b] of edges) if (a !== b && layer.get(b) <= layer.get(a)) layer.set(b, Math.min(layer.get(a) + 1, nodes.length));
  const used = [...new Set(layer.values())].sort((a, b) => a - b);
  return used.map((value) => nodes.filter((n) => layer.get(n.id) === value));
}

function ordered(rows, edges) {
  const place = new Map();
  rows.forEach((row) => row.forEach((n, i) => place.set(n.id, i)));
  for (let sweep = 0; sweep < 6; sweep++)
    for (const row of sweep % 2 ? [...rows].reverse() : rows) {
      const centre = (n) => {
        const near = edges.filter(([a, b]) => (sweep % 2 ? a : b) === n.id).map(([a, b]) => place.get(sweep % 2 ? b : a));
        return near.length ? near.reduce((x, y) => x + y, 0) / near.length : place.get(n.id);
      };
      const keyed = row.map((n) => [centre(n), n]).sort((x, y) => x[0] - y[0]);
      keyed.forEach(([, n], i) => place.set(n.id, i));
      row.sort((x, y) => place.get(x.id) - place.get(y.id));
    }
  return place;
}

// Heights: each node is drawn to the mean of its neighbours; the order within a layer and the distance hold.
function heights(rows, edges, place, step) {
  const y = new Map([...place].map(([id, i]) => [id, i * step]));
  for (let round = 0; round < 24; round++)
    for (const row of round % 2 ? [...rows].reverse() : rows) {
      const target = row.map((n) => {
        const near = edges.flatMap(([a, b]) => (a === n.id ? [b] : b === n.id ? [a] : []));
        return near.length ? near.reduce((sum, m) => sum + y.get(m), 0) / near.length : y.get(n.id);
      });
      const spaced = [...target];
      for (let i = 1; i < spaced.length; i++) spaced[i] = Math.max(spaced[i], spaced[i - 1] + step);
      const shift = spaced.reduce((sum, v, i) => sum + v - target[i], 0) / spaced.length;
      row.forEach((n, i) => y.set(n.id, spaced[i] - shift));
    }
  return y;
}

export function layout(allNodes, allEdges, { width = 168, height = 48, gapX = 92, gapY = 20 } = {}) {
  const nodes = allNodes.slice(0, NODES_MAX);
  const names = new Set(nodes.map((n) => n.id));
  const edges = allEdges.filter(([a, b]) => names.has(a) && names.has(b));
  const rows = layers(nodes, edges);
  const y = heights(rows, edges, ordered(rows, edges), height + gapY);
  const low = Math.min(0, ...y.values());
  const at = new Map();
  rows.forEach((row, l) => row.forEach((n) => at.set(n.id, { x: l * (width + gapX), y: Math.round(y.get(n.id) - low) })));
  return {
    at,
    edges,
    nodes,
    width: Math.max(1, rows.length) * (width + gapX) - gapX,
    height: Math.max(0, ...[...at.values()].map((p) => p.y)) + height,
    w: width,
    h: height,
  };
}

// node: {id, type, state, lines: [name, note]}; edges: [from, to, {label, level}].
export function Graph({ nodes, edges, chosen, onOpen, label }) {
  const l = layout(nodes, edges);
  const line = ([from, to, { text, level, weight } = {}]) => {
    const a = l.at.get(from);
    const b = l.at.get(to);
    const [x1, y1, x2, y2] = [a.x + l.w, a.y + l.h / 2, b.x, b.y + l.h / 2];
    const bend = Math.max(24, Math.min(48, Math.abs(x2 - x1) / 2));
    return html`<g class=${`edge ${level || ''}`}><path d=${`M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2 - 5} ${y2}`} stroke-width=${weight ?? 2} />
      <polygon points=${`${x2},${y2} ${x2 - 7},${y2 - 4} ${x2 - 7},${y2 + 4}`} />
      ${text ? html`<text x=${(x1 + x2) / 2} y=${(y1 + y2) / 2 - 7} text-anchor="middle">${text}</text>` : null}</g>`;
  };
  const cut = (text) => (text.length > 22 ? `${text.slice(0, 21)}…` : text);
  const box = (
    n,
  ) => html`<g class=${`gnode ${n.type} ${n.state || ''}`} transform=${`translate(${l.at.get(n.id).x} ${l.at.get(n.id).y})`} tabindex="0" role="button"
    aria-label=${n.label ?? n.id} aria-pressed=${String(chosen === n.id)} onClick=${() => onOpen?.(n)} onKeyDown=${(e) => (e.key === 'Enter' || e.key === ' ') && onOpen?.(n)}>
    <rect width=${l.w} height=${l.h} rx=${n.type === 'flow' ? 22 : 4} /><title>${n.lines.join(', ')}</title>
    <text class="gname" x="14" y="20">${cut(n.lines[0])}</text><text class="gnote" x="14" y="36">${cut(n.lines[1] ?? '')}</text></g>`;
  return html`<svg class="graph" viewBox=${`-2 -16 ${l.width + 4} ${l.height + 22}`} width=${l.width + 4} height=${l.height + 22} role="group" aria-label=${label}>
    ${l.edges.map(line)}${l.nodes.map(box)}</svg>`;
}
