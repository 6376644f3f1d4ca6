// Cluster: nodes with load and disk, and which partitions need a look.
import { html, Shape, Panel, Title, LEVELS } from '../parts/ui.js';
import { Table } from '../parts/table.js';
import { Loaded, Empty } from '../parts/states.js';
import { all, get, readHealth } from '../data/api.js';
import { useLoad } from '../data/use.js';
import { useTitle } from '../data/frame.js';
import { go, href } from '../data/place.js';
import { num, plural, when } from '../data/format.js';

const REFRESH_MS = 3000;

async function load(signal) {
  const [cluster, nodes, partitions, checks] = await Promise.all([
    get('/v1/cluster', { signal }),
    get('/v1/nodes', { signal }).then((page) => page.items),
    all('/v1/cluster/partitions', { signal, most: 20000 }).catch(() => []),
    readHealth(signal).catch(() => null),
  ]);
  return { cluster, nodes, partitions, checks };
}

const Node = ({
  node,
}) => html`<section class="panel node"><header><${Shape} level=${node.state === 'ready' ? 'good' : 'warn'} label=${node.state} /><h2>Node ${node.id}</h2>${node.is_controller ? html`<span class="muted more">active controller</span>` : null}</header>
  <div class="body">    <dl class="pairs tight"><dt>Leads</dt><dd>${num(node.leaders)} of ${num(node.partitions)} partitions</dd>${node.listeners.map((l) => html`<dt>${l.name}</dt><dd><code>${l.address}</code> <span class="muted">${plural(l.connections, 'connection')}</span></dd>`)}${node.version ? html`<dt>Version</dt><dd>${node.version}</dd>` : null}</dl></div></section>`;

const checkColumns = [
  {
    key: 'name',
    head: 'Check',
    width: 160,
    sort: (c) => c.name,
    cell: (c) => html`<${Shape} level=${LEVELS[c.status] ?? 'idle'} label=${c.status} /> <b>${c.name}</b>`,
  },
  { key: 'message', head: 'Now', cell: (c) => c.message ?? '' },
  { key: 'value', head: 'Value', num: true, width: 120, hide: 'hide-narrow', cell: (c) => (c.value == null ? '–' : String(c.value)) },
  { key: 'limit', head: 'Limit', num: true, width: 120, hide: 'hide-narrow', cell: (c) => (c.limit == null ? '–' : String(c.limit)) },
  { key: 'since', head: 'Since', num: true, width: 160, hide: 'hide-narrow', cell: (c) => (c.since ? when(Date.parse(c.since)) : '–') },
];
const partitionColumns = [
  {
    key: 'topic',
    head: 'Topic',
    sort: (p) => p.topic,
    cell: (p) => html`<a class="name" href=${href(`/topics/${encodeURIComponent(p.topic)}/partitions`)}>${p.topic}</a>`,
  },
  { key: 'partition', head: 'P', num: true, width: 56, sort: (p) => p.partition, cell: (p) => p.partition },
  {
    key: 'leader',
    head: 'Leader',
    num: true,
    width: 88,
    sort: (p) => p.leader ?? -1,
    cell: (p) => p.leader ?? html`<b class="bad">none</b>`,
  },
  { key: 'replicas', head: 'Replicas', width: 140, cell: (p) => (p.replicas ?? []).join(', ') },
];

export function Page({ query }) {
  const state = useLoad(load, [], REFRESH_MS);
  useTitle({ title: 'Cluster', crumbs: [['Cluster']], commands: { cli: 'millstream health', curl: `curl ${location.origin}/v1/cluster` } });
  const content = ({ cluster, nodes, partitions, checks }) => {
    const bad = partitions.filter((p) => p.leader == null);
    return html`<${Title} facts=${[plural(nodes.length, 'node'), plural(partitions.length, 'partition'), html`id <code>${cluster.id}</code>`]}>Cluster</${Title}>
      <div class="three">${nodes.map((node) => html`<${Node} node=${node} />`)}</div>
      ${checks?.checks ? html`<${Panel} title="Health" flush=${true}><${Table} label="Health checks" inset=${true} rows=${checks.checks} columns=${checkColumns} /></${Panel}>` : null}
      <${Panel} title="Partitions without a leader" flush=${true} aside=${html`<span class="muted">${num(bad.length)} of ${num(partitions.length)}</span>`}>${bad.length ? html`<${Table} label="Partitions without a leader" inset=${true} rows=${bad} columns=${partitionColumns} sort=${query.sort} onSort=${(sort) => go({ sort })} />` : html`<${Empty} title="All partitions have a leader" />`}</${Panel}>`;
  };
  return html`<div class="page"><${Loaded} of=${state}>${content}</${Loaded}></div>`;
}
