// The tabs of a topic but its records: partitions, groups, settings, dead letters, delayed, views, access, producers.
import { useState } from '../vendor/hooks.js';
import { html, Count, Chip, Panel } from '../parts/ui.js';
import { Table } from '../parts/table.js';
import { Loaded, Empty } from '../parts/states.js';
import { all, get, part, rules } from '../data/api.js';
import { groupsWithLag } from '../data/groups.js';
import { useLoad } from '../data/use.js';
import { go, href } from '../data/place.js';
import { agoMs, num, span, utc, when } from '../data/format.js';
import { words } from '../words.js';
import { SettingDialog } from './topic.acts.js';
import { Partitions } from './topic.partitions.js';
import { text } from './topic.words.js';

const REFRESH_MS = 5000;
const c = text.columns;
const time = (ms) => (ms == null || ms < 0 ? html`<span class="muted">–</span>` : html`<time title=${utc(ms)}>${when(ms)}</time>`);

// One tab that is one list.
const listTab =
  (load, columns, emptyTitle, label) =>
  ({ name, query }) => {
    const state = useLoad((signal) => load(name, signal), [name], REFRESH_MS);
    return html`<${Loaded} of=${state}>${(rows) => (rows.length ? html`<${Panel} flush=${true}><${Table} label=${label} inset=${true} rows=${rows} columns=${columns} sort=${query.sort} onSort=${(sort) => go({ sort })} /></${Panel}>` : html`<${Empty} title=${rows.isOff ? words.rulesOff : emptyTitle} code=${rows.isOff ? words.rulesOn : null} />`)}</${Loaded}>`;
  };

const Groups = listTab(
  async (name, signal) => (await groupsWithLag({ signal })).filter((g) => g.topics.includes(name)),
  [
    {
      key: 'name',
      head: c.group,
      sort: (g) => g.name,
      cell: (g) => html`<a class="name" href=${href(`/groups/${part(g.name)}`)}>${g.name}</a>`,
    },
    { key: 'state', head: c.state, width: 120, cell: (g) => g.state },
    { key: 'members', head: c.members, num: true, width: 92, sort: (g) => g.members, cell: (g) => html`<${Count} of=${g.members} />` },
    { key: 'lag', head: c.records, num: true, width: 112, sort: (g) => g.lag, cell: (g) => num(g.lag) },
    {
      key: 'behind',
      head: c.behind,
      num: true,
      width: 112,
      sort: (g) => g.lag_seconds,
      cell: (g) => (g.lag_seconds == null ? '–' : span(g.lag_seconds)),
    },
  ],
  text.noGroups,
  'Groups',
);

function Settings({ topic, name, query, reload, isAllowed }) {
  const state = useLoad((signal) => get(`/v1/topics/${part(name)}/settings`, { signal }), [name]);
  const [setting, setSetting] = useState(null);
  const mayChange = isAllowed('ALTER_CONFIGS');
  const columns = [
    { key: 'name', head: c.setting, width: 260, sort: (s) => s.name, cell: (s) => html`<code>${s.name}</code>` },
    {
      key: 'value',
      head: c.value,
      width: 200,
      cell: (s) => html`<code class=${s.source === 'topic' ? 'accent' : ''}>${String(s.value ?? '–')}</code>`,
    },
    {
      key: 'source',
      head: c.source,
      width: 100,
      sort: (s) => s.source,
      cell: (s) =>
        s.source === 'topic' ? html`<${Chip} level="accent">${s.source}</${Chip}>` : html`<span class="muted">${s.source}</span>`,
    },
    { key: 'meaning', head: c.meaning, hide: 'hide-narrow', cell: (s) => html`<span class="muted" title=${s.meaning}>${s.meaning}</span>` },
    {
      key: 'act',
      head: '',
      label: text.change,
      width: 92,
      cell: (s) =>
        html`<button type="button" class="link" aria-disabled=${mayChange ? null : 'true'} onClick=${() => mayChange && setSetting(s)}>${text.change}</button>`,
    },
  ];
  return html`<label class="row"><input type="checkbox" checked=${query.changed === '1'} onChange=${(e) => go({ changed: e.target.checked ? '1' : null })} />${text.onlyChanged}</label>
    <${Loaded} of=${state}>${(data) => html`<${Panel} flush=${true}><${Table} label=${text.tabs.settings} inset=${true} rows=${(data.items ?? data).filter((s) => query.changed !== '1' || s.source === 'topic')} columns=${columns} sort=${query.sort} onSort=${(sort) => go({ sort })} /></${Panel}>`}</${Loaded}>
    ${
      setting
        ? html`<${SettingDialog} topic=${topic} setting=${setting} onClose=${() => setSetting(null)} onDone=${() => {
            state.reload();
            reload();
          }} />`
        : null
    }`;
}

const Delayed = listTab(
  (name, signal) => all('/v1/delayed', { signal, query: { topic: name }, most: 1000 }),
  [
    {
      key: 'due',
      head: c.due,
      width: 220,
      sort: (d) => d.due_at_ms,
      cell: (d) => html`${time(d.due_at_ms)} <span class="muted">${agoMs(d.due_at_ms)}</span>`,
    },
    { key: 'id', head: c.id, cell: (d) => html`<code>${d.id}</code>` },
    { key: 'partition', head: c.partition, num: true, width: 60, cell: (d) => d.partition },
  ],
  text.noDelayed,
  'Delayed records',
);

const Views = listTab(
  async (name, signal) => (await all('/v1/views', { signal })).filter((v) => v.topic === name),
  [
    {
      key: 'name',
      head: c.view,
      width: 240,
      sort: (v) => v.name,
      cell: (v) => html`<a class="name" href=${href(`/topics/${part(v.name)}`)}>${v.name}</a>`,
    },
    { key: 'filter', head: c.filter, cell: (v) => html`<code>${v.filter}</code>` },
  ],
  text.noViews,
  'Views',
);

const Access = listTab(
  (name, signal) => rules('/v1/acls', { signal, query: { resource_type: 'topic', resource_name: name } }),
  [
    { key: 'principal', head: c.principal, sort: (a) => a.principal, cell: (a) => a.principal },
    { key: 'operation', head: c.operation, width: 140, cell: (a) => a.operation },
    {
      key: 'permission',
      head: c.permission,
      width: 112,
      cell: (a) => html`<${Chip} level=${a.permission === 'deny' ? 'bad' : 'good'}>${a.permission}</${Chip}>`,
    },
    { key: 'host', head: c.host, width: 112, cell: (a) => a.host },
    { key: 'pattern', head: c.pattern, cell: (a) => html`<code>${a.resource_name}</code>` },
  ],
  text.noAcls,
  'ACLs',
);

const Producers = listTab(
  async (name, signal) => {
    const partitions = await all(`/v1/topics/${part(name)}/partitions`, { signal });
    const lists = await Promise.all(
      partitions.slice(0, 64).map((p) => get(`/v1/topics/${part(name)}/partitions/${p.partition}/producers`, { signal })),
    );
    return lists.flatMap((list, i) => (list.items ?? list).map((producer) => ({ ...producer, partition: partitions[i].partition })));
  },
  [
    { key: 'partition', head: c.partition, num: true, width: 48, cell: (p) => p.partition },
    { key: 'producer', head: c.producer, num: true, width: 140, sort: (p) => p.producer_id, cell: (p) => num(p.producer_id) },
    { key: 'epoch', head: c.epoch, num: true, width: 80, cell: (p) => p.epoch },
    { key: 'sequence', head: c.sequence, num: true, width: 110, cell: (p) => num(p.last_sequence) },
    { key: 'last', head: c.last, cell: (p) => time(p.last_time_ms) },
    {
      key: 'transaction',
      head: c.transaction,
      cell: (p) =>
        p.open_transaction_offset == null
          ? html`<span class="muted">–</span>`
          : html`<span class="warn">@${num(p.open_transaction_offset)}</span>`,
    },
  ],
  text.noProducers,
  'Producers',
);

const Schema = listTab(
  async (name, signal) => {
    const subjects = await get('/subjects', { signal, query: { subjectPrefix: name } });
    return subjects.filter((s) => s === `${name}-key` || s === `${name}-value` || s.startsWith(`${name}-`)).map((subject) => ({ subject }));
  },
  [{ key: 'subject', head: 'Subject', cell: (s) => html`<a class="name" href=${href(`/schemas/${part(s.subject)}`)}>${s.subject}</a>` }],
  text.noSchemas,
  'Schemas',
);

export const TABS = [
  ['partitions', Partitions],
  ['groups', Groups],
  ['settings', Settings],
  ['schema', Schema],
  ['delayed', Delayed],
  ['views', Views],
  ['access', Access],
  ['producers', Producers],
];
