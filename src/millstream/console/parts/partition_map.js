// Where partitions lie: a column is a node, a square is a replica; a shape of its own for each state.
import { html } from './ui.js';
import { words } from '../words.js';

const SQUARES_MAX = 200; // Of one topic on one node.

// Of one partition on one node: L leader, F in step, B behind, N not here.
export function stateOf(partition, node) {
  if (!partition.replicas.includes(node)) return 'N';
  if (partition.leader === node) return 'L';
  return partition.in_sync && !partition.in_sync.includes(node) ? 'B' : 'F';
}

export const Squares = ({ partitions, node }) => {
  const states = partitions.slice(0, SQUARES_MAX).map((p) => [p, stateOf(p, node)]);
  const count = (state) => states.filter(([, s]) => s === state).length;
  const label = ['L', 'F', 'B'].filter(count).map((state) => `${count(state)} ${words.replica[state]}`);
  return html`<div class="squares" role="img" aria-label=${label.join(', ') || words.replica.N}>
    ${states.map(([p, state]) => html`<i class=${state} title=${`${p.topic}/${p.partition}: ${words.replica[state]}`} />`)}
    ${partitions.length > SQUARES_MAX ? html`<span class="muted">+${partitions.length - SQUARES_MAX}</span>` : null}</div>`;
};

export const MapKey = ({ states = ['L', 'F', 'B'] }) =>
  html`<ul class="map-key">${states.map((state) => html`<li><i class=${state} />${words.replica[state]}</li>`)}</ul>`;
