// Cluster: nodes with load, where every partition lies, and the health of this node.
import { useState } from '../vendor/hooks.js';
import { html, Act, Chip, Icon, Shape, Panel, Title, LEVELS } from '../parts/ui.js';
import { Table } from '../parts/table.js';
import { Loaded, Note, Code } from '../parts/states.js';
import { ActDialog, Dialog } from '../parts/overlay.js';
import { Menu } from '../parts/menu.js';
import { MapKey, Squares, stateOf } from '../parts/partition_map.js';
import { all, call, get, readHealth } from '../data/api.js';
import { useLoad } from '../data/use.js';
import { may, useTitle } from '../data/frame.js';
import { go, href } from '../data/place.js';
import { num, plural, short, when } from '../data/format.js';
import { words } from '../words.js';
import { LeaveDialog, MoveDialog, Moves } from './cluster.moves.js';
import { text } from './cluster.words.js';

const REFRESH_MS = 3000;
const PARTITIONS_MAX = 20000;
const TOPICS_SHOWN = 50;
const STATES = { ready: 'good', starting: 'warn', draining: 'warn', stopping: 'warn', down: 'bad' };

async function load(signal) {
  const [cluster, nodes, partitions, moves, checks] = await Promise.all([
    get('/v1/cluster', { signal }),
    get('/v1/nodes', { signal }).then((page) => page.items),
    all('/v1/cluster/partitions', { signal, most: PARTITIONS_MAX }).catch(() => []),
    all('/v1/reassignments', { signal }).catch(() => []),
    readHealth(signal).catch(() => null),
  ]);
  return { cluster, nodes, partitions, moves, checks };
}

const Node = ({ node, isAlone, setDialog, isAllowed }) => {
  const isDrained = node.state === 'draining';
  const needs = words.needs('ALTER', 'cluster', 'kafka-cluster');
  return html`<section class="panel node"><header><${Shape} level=${STATES[node.state] ?? 'warn'} label=${node.state} /><h2>${text.node(node.id)}</h2>
    ${node.is_controller ? html`<${Chip} level="accent">${text.controller}</${Chip}>` : null}${node.state === 'ready' ? null : html`<${Chip} level=${STATES[node.state] ?? 'warn'}>${node.state}</${Chip}>`}
    ${
      isAlone
        ? null
        : html`<span class="push"><${Menu} label=${text.acts(node.id)} items=${[
            [isDrained ? text.undrain : text.drain, () => setDialog([isDrained ? 'undrain' : 'drain', node]), isAllowed, needs],
            [text.leave, () => setDialog(['leave', node]), isAllowed, needs],
          ]} /></span>`
    }</header>
  <div class="body"><dl class="pairs tight"><dt>${text.leads}</dt><dd><b>${num(node.leaders)}</b> ${text.ofPartitions(node.partitions)}</dd>
    <dt>${text.behind}</dt><dd class=${node.behind ? 'warn' : ''}>${node.behind ? plural(node.behind, 'partition') : text.none}</dd>
    ${node.listeners.map((l) => html`<dt>${l.name}</dt><dd><code>${l.address}</code>${node.is_this ? html` <span class="muted">${plural(l.connections, 'connection')}</span>` : null}</dd>`)}
    ${node.rack ? html`<dt>${text.rack}</dt><dd>${node.rack}</dd>` : null}<dt>${text.version}</dt><dd>${node.version ?? '–'}</dd></dl></div></section>`;
};

const figure = (value) => (typeof value === 'number' ? short(value) : String(value ?? '–'));
const checkColumns = [
  {
    key: 'name',
    head: text.columns.check,
    width: 160,
    sort: (c) => c.name,
    cell: (c) => html`<${Shape} level=${LEVELS[c.status] ?? 'idle'} label=${c.status} /> <b>${c.name}</b>`,
  },
  { key: 'message', head: text.columns.now, cell: (c) => c.message ?? '' },
  { key: 'value', head: text.columns.value, num: true, width: 120, hide: 'hide-narrow', cell: (c) => figure(c.value) },
  { key: 'limit', head: text.columns.limit, num: true, width: 120, hide: 'hide-narrow', cell: (c) => figure(c.limit) },
  { key: 'since', head: text.columns.since, num: true, width: 160, hide: 'hide-narrow', cell: (c) => (c.since ? when(Date.parse(c.since)) : '–') },
];

// Topics with their partitions; those that need a look come first.
function byTopic(partitions) {
  const topics = new Map();
  for (const p of partitions) topics.set(p.topic, [...(topics.get(p.topic) ?? []), p]);
  const rows = [...topics].map(([topic, list]) => ({
    topic,
    partitions: list,
    leaderless: list.filter((p) => p.leader == null).length,
    behind: list.reduce((n, p) => n + p.replicas.filter((node) => stateOf(p, node) === 'B').length, 0),
  }));
  return rows.sort((a, b) => b.leaderless - a.leaderless || b.behind - a.behind || b.partitions.length - a.partitions.length);
}

const mapColumns = (nodes) => [
  {
    key: 'topic',
    head: text.columns.topic,
    width: 220,
    cell: (row) => html`<a class="name" href=${href(`/topics/${encodeURIComponent(row.topic)}/partitions`)}>${row.topic}</a>`,
  },
  ...nodes.map((node) => ({
    key: `node-${node.id}`,
    head: text.node(node.id),
    className: 'map-cell',
    cell: (row) => html`<${Squares} partitions=${row.partitions} node=${node.id} />`,
  })),
  {
    key: 'state',
    head: text.columns.state,
    width: 168,
    hide: 'hide-narrow',
    cell: (row) =>
      row.leaderless
        ? html`<b class="bad"><${Shape} level="bad" /> ${text.leaderless(row.leaderless)}</b>`
        : row.behind
          ? html`<span class="warn"><${Shape} level="warn" /> ${text.behindCount(row.behind)}</span>`
          : html`<span class="muted">–</span>`,
  },
];

function Placement({ nodes, partitions, query }) {
  const rows = byTopic(partitions);
  const shown = query.all ? rows : rows.slice(0, TOPICS_SHOWN);
  const states = nodes.length > 1 ? ['L', 'F', 'B'] : ['L'];
  return html`<section class="panel map"><header><h2>${text.map}</h2><span class="muted wide-only">${text.mapNote}</span><${MapKey} states=${states} /></header>
    <${Table} label=${text.mapLabel} inset=${true} rows=${shown} columns=${mapColumns(nodes)} rowKey=${(row) => row.topic} />
    ${rows.length > shown.length ? html`<footer class="muted">${text.more(rows.length - shown.length)} <button type="button" class="link" onClick=${() => go({ all: '1' })}>${text.showAll}</button></footer>` : null}</section>`;
}

function Invite({ onClose }) {
  const state = useLoad((signal) => call('POST', '/v1/cluster/invitations', { signal }), []);
  return html`<${Dialog} title=${text.invite} sub=${text.inviteNote} className="act" onClose=${onClose}><${Loaded} of=${state} rows=${2}>${({ data }) =>
    html`<${Code} text=${`millstream serve --join ${data.token} --data-dir data`} />`}</${Loaded}></${Dialog}>`;
}

const ChangeDialog = ({ kind, node, onClose, onDone }) => html`<${ActDialog} title=${text.changeTitle[kind](node.id)} label=${text.changeTitle[kind](node.id)} onClose=${onClose} onDone=${onDone} act=${() => call('POST', `/v1/nodes/${node.id}:${kind}`)}>
  <p>${text.changeNote[kind](node)}</p><${Code} text=${`millstream cluster ${kind} ${node.id}`} /></${ActDialog}>`;

export function Page({ query }) {
  const state = useLoad(load, [], REFRESH_MS);
  const [dialog, setDialog] = useState(null);
  const isAllowed = may('ALTER', 'cluster');
  useTitle({ title: text.title, crumbs: [[text.title]], commands: { cli: 'millstream cluster status', curl: `curl ${location.origin}/v1/cluster` } });
  const content = ({ cluster, nodes, partitions, moves, checks }) => {
    const up = nodes.filter((node) => node.is_up).length;
    const facts = [
      html`<b>${num(up)}</b> ${text.ofNodes(nodes.length)}`,
      plural(partitions.length, 'partition'),
      html`<span class=${partitions.some((p) => p.leader == null) ? 'bad' : ''}>${text.leaderless(partitions.filter((p) => p.leader == null).length)}</span>`,
      html`id <code>${cluster.id}</code>`,
    ];
    const needs = words.needs('ALTER', 'cluster', 'kafka-cluster');
    const acts = html`${nodes.length > 1 ? html`<${Act} may=${isAllowed} needs=${needs} onClick=${() => setDialog(['move'])}>${text.move}</${Act}>` : null}
      <${Act} may=${isAllowed} needs=${needs} onClick=${() => setDialog(['invite'])}><${Icon} name="plus" size=${14} />${text.invite}</${Act}>`;
    return html`<${Title} facts=${facts} acts=${acts}>${text.title}</${Title}>
      ${up < nodes.length ? html`<${Note} level="bad"><b>${text.down(nodes.filter((node) => !node.is_up).map((node) => node.id))}</b></${Note}>` : null}
      <div class=${nodes.length > 1 ? 'three' : 'stack12'}>${nodes.map((node) => html`<${Node} key=${node.id} node=${node} isAlone=${nodes.length === 1} setDialog=${setDialog} isAllowed=${isAllowed} />`)}</div>
      <${Moves} moves=${moves} onDone=${state.reload} isAllowed=${isAllowed} />
      ${checks?.checks ? html`<${Panel} title=${text.health} flush=${true}><${Table} label=${text.healthLabel} inset=${true} rows=${checks.checks} columns=${checkColumns} /></${Panel}>` : null}
      ${partitions.isCut ? html`<${Note}>${text.cut(PARTITIONS_MAX)}</${Note}>` : null}
      ${partitions.length ? html`<${Placement} nodes=${nodes} partitions=${partitions} query=${query} />` : null}
      ${dialog?.[0] === 'invite' ? html`<${Invite} onClose=${() => setDialog(null)} />` : null}
      ${dialog?.[0] === 'move' ? html`<${MoveDialog} onClose=${() => setDialog(null)} onDone=${state.reload} />` : null}
      ${dialog?.[0] === 'leave' ? html`<${LeaveDialog} node=${dialog[1]} onClose=${() => setDialog(null)} onDone=${state.reload} />` : null}
      ${dialog?.[0] === 'drain' || dialog?.[0] === 'undrain' ? html`<${ChangeDialog} kind=${dialog[0]} node=${dialog[1]} onClose=${() => setDialog(null)} onDone=${state.reload} />` : null}`;
  };
  return html`<div class="page"><${Loaded} of=${state}>${content}</${Loaded}></div>`;
}
