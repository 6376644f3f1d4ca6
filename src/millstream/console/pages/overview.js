// Overview: first what needs a person, then proof that everything else is well, then where the traffic is.
import { useEffect } from '../vendor/hooks.js';
import { html, Shape, Panel, Rate, Bytes, LEVELS, Title } from '../parts/ui.js';
import { LineChart, Spark } from '../parts/chart.js';
import { Table } from '../parts/table.js';
import { Loaded } from '../parts/states.js';
import { all, get, part, readHealth } from '../data/api.js';
import { deadTopics } from '../data/dead.js';
import { groupsWithLag } from '../data/groups.js';
import { topicsWithFigures } from '../data/topics.js';
import { useLoad } from '../data/use.js';
import { setCounts, useTitle } from '../data/frame.js';
import { isInternal } from '../data/topic.js';
import { findings, headline } from '../data/findings.js';
import { href } from '../data/place.js';
import { agoMs, minute, num, plural, short, sizeText, span } from '../data/format.js';
import { Behind, State } from '../parts/group_cells.js';
import { Fresh } from './overview.fresh.js';

const REFRESH_MS = 3000;
const maybe = (promise) => promise.catch(() => null);

async function load(signal) {
  const [health, topics, groups, figures, dead, delayed, pipelines, nodes] = await Promise.all([
    maybe(readHealth(signal)),
    topicsWithFigures({ signal }),
    maybe(groupsWithLag({ signal })),
    maybe(get('/v1/figures', { signal })),
    maybe(deadTopics({ signal })),
    maybe(get('/v1/delayed', { signal, query: { limit: 5 } })),
    maybe(all('/v1/pipelines', { signal })),
    maybe(get('/v1/nodes', { signal }).then((page) => page.items)),
  ]);
  return { health, topics, groups: groups ?? [], figures, dead: dead ?? [], delayed, pipelines: pipelines ?? [], nodes: nodes ?? [] };
}

const Finding = ({
  of,
}) => html`<li class=${`finding ${of.level}`}><${Shape} level=${of.level} label=${of.level === 'bad' ? 'Wrong' : 'Soon'} />
  <div class="grow"><div>${of.parts.map((piece) => (typeof piece === 'object' ? html`<b>${piece.bold}</b>` : piece))}</div><div class="muted">${of.evidence}</div></div>
  ${of.sinceMs > 0 ? html`<span class="muted nowrap wide-only">since ${minute(of.sinceMs)}</span>` : null}<a class="button" href=${href(of.path, of.query)}>${of.act}</a></li>`;

const Checks = ({ health }) =>
  html`<ul class="checks" aria-label="Health checks">${(health?.checks ?? []).map(
    (check) => html`<li title=${check.message ?? ''}>
  <${Shape} level=${LEVELS[check.status] ?? 'idle'} label=${check.status} /><span>${check.name}</span><span class="muted">${check.message ?? ''}</span></li>`,
  )}</ul>`;

const series = (figures, name) => figures.series.find((s) => s.name === name)?.values ?? null;

function Figure({ name, values, format, unit, from, to, color = 'c1' }) {
  if (!values?.length) return null;
  const now = values.findLast((v) => v != null) ?? 0;
  return html`<section class="panel figure"><header><h2>${name}</h2></header><div class="body"><div class="big">${format(now)}<small class="unit">${unit}</small></div>
    <${LineChart} label=${name} height=${84} right=${4} ticks=${2} from=${from} to=${to} format=${format} series=${[{ color, values }]} /></div></section>`;
}

function Figures({ figures }) {
  if (!figures) return null;
  const to = figures.until_ms;
  const from = to - figures.step_ms * Math.max(1, (figures.series[0]?.values.length ?? 1) - 1);
  const millis = (v) => (v == null ? '–' : span(v));
  const list = [
    ['In', series(figures, 'appended_records'), short, 'records/s', 'c1'],
    ['Out', series(figures, 'read_bytes'), (v) => sizeText(Math.round(v)), '/s', 'c1'],
    ['Sync round', series(figures, 'sync_s'), millis, '', 'c3'],
    ['Loop late', series(figures, 'loop_late_s'), millis, '', 'c3'],
  ];
  return html`<div class="four">${list.map(([name, values, format, unit, color]) => html`<${Figure} name=${name} values=${values} format=${format} unit=${unit} color=${color} from=${from} to=${to} />`)}</div>`;
}

const topicColumns = [
  { key: 'name', head: 'Topic', cell: (t) => html`<a class="name" href=${href(`/topics/${part(t.name)}`)}>${t.name}</a>` },
  { key: 'in', head: 'In', num: true, width: 140, cell: (t) => html`<${Spark} values=${t.rates} /> <${Rate} of=${t.append_rate} />` },
  { key: 'size', head: 'Size', num: true, width: 96, cell: (t) => html`<${Bytes} of=${t.bytes} />` },
];
const groupColumns = [
  { key: 'name', head: 'Group', cell: (g) => html`<a class="name" href=${href(`/groups/${part(g.name)}`)}>${g.name}</a>` },
  { key: 'behind', head: 'Behind', num: true, width: 120, cell: (g) => html`<${Behind} seconds=${g.lag_seconds} />` },
  { key: 'records', head: 'Records', num: true, width: 96, hide: 'hide-narrow', cell: (g) => num(g.lag) },
  { key: 'state', head: 'State', width: 132, hide: 'hide-narrow', cell: (g) => html`<${State} state=${g.state} />` },
];

const Lines = ({ rows }) =>
  html`<ul class="lines">${rows.map(([name, note, figure]) => html`<li><span class="cut">${name}</span><span class="muted cut grow">${note}</span><b>${figure}</b></li>`)}</ul>`;

function Below({ data }) {
  const busy = [...data.topics]
    .filter((t) => !isInternal(t))
    .sort((a, b) => (b.append_rate ?? 0) - (a.append_rate ?? 0) || (b.bytes ?? 0) - (a.bytes ?? 0))
    .slice(0, 7);
  const behind = [...data.groups].sort((a, b) => (b.lag_seconds ?? -1) - (a.lag_seconds ?? -1)).slice(0, 7);
  const waiting = data.dead.filter((d) => d.count > 0);
  return html`<div class="two">
      <${Panel} title="Busiest topics" flush=${true} aside=${html`<a class="more" href=${href('/topics')}>All ${num(data.topics.length)}</a>`}><${Table} label="Busiest topics" inset=${true} rows=${busy} columns=${topicColumns} /></${Panel}>
      <${Panel} title="Groups by lag" flush=${true} aside=${html`<a class="more" href=${href('/groups')}>All ${num(data.groups.length)}</a>`}>${behind.length ? html`<${Table} label="Groups by lag" inset=${true} rows=${behind} columns=${groupColumns} />` : html`<div class="body muted">No group reads yet.</div>`}</${Panel}></div>
    <div class="four tops">
      <${Panel} title="Dead letters" aside=${html`<a class="more" href=${href('/dead-letters')}>${num(waiting.reduce((n, d) => n + d.count, 0))} wait</a>`}>${waiting.length ? html`<${Lines} rows=${waiting.slice(0, 4).map((d) => [d.topic, '', num(d.count)])} />` : html`<p class="muted">None waits.</p>`}</${Panel}>
      <${Panel} title="Due next" aside=${html`<a class="more" href=${href('/delayed')}>Delayed</a>`}>${data.delayed?.items?.length ? html`<${Lines} rows=${data.delayed.items.slice(0, 4).map((d) => [agoMs(d.due_at_ms), d.topic, ''])} />` : html`<p class="muted">Nothing waits for its time.</p>`}</${Panel}>
      <${Panel} title="Nodes" aside=${html`<a class="more" href=${href('/cluster')}>Cluster</a>`}><${Lines} rows=${data.nodes.slice(0, 4).map((n) => [`node ${n.id}`, n.state, `leads ${num(n.leaders)}`])} /></${Panel}>
      <${Panel} title="Pipelines" aside=${html`<a class="more" href=${href('/pipelines')}>All</a>`}>${data.pipelines.length ? html`<${Lines} rows=${data.pipelines.slice(0, 4).map((p) => [p.name, p.state, ''])} />` : html`<p class="muted">None reports here.</p>`}</${Panel}>
    </div>`;
}

export function Page({ query }) {
  const state = useLoad(load, [], REFRESH_MS);
  useTitle({
    title: 'Overview',
    crumbs: [],
    commands: { cli: 'millstream health', curl: `curl ${location.origin}/health`, python: 'connect().admin.health()' },
  });
  useEffect(() => {
    if (!state.data) return;
    const late = state.data.groups.filter((g) => (g.lag_seconds ?? 0) > 60).length;
    const dead = state.data.dead.reduce((n, d) => n + (d.count ?? 0), 0);
    setCounts({ ...(late ? { '/groups': [late, 'bad'] } : {}), ...(dead ? { '/dead-letters': [short(dead), 'warn'] } : {}) });
  }, [state.data]);
  const content = (data) => {
    const own = data.topics.filter((t) => !isInternal(t));
    if (own.length === 0 || query.fresh) return html`<${Fresh} data=${data} query=${query} />`;
    const list = findings(data);
    return html`<${Title} facts=${[html`<b>${num(data.nodes.length || 1)}</b> ${data.nodes.length > 1 ? 'nodes' : 'node'}`, html`<b>${num(own.length)}</b> topics`, html`<b>${num(own.reduce((n, t) => n + t.partitions, 0))}</b> partitions`, plural(data.groups.length, 'group')]}>${headline(list.length)}</${Title}>
      ${list.length ? html`<ul class="findings" aria-label="What needs you">${list.slice(0, 8).map((finding) => html`<${Finding} of=${finding} />`)}</ul>` : null}
      <${Checks} health=${data.health} /><${Figures} figures=${data.figures} /><${Below} data=${data} />`;
  };
  return html`<div class="page overview"><${Loaded} of=${state}>${content}</${Loaded}></div>`;
}
