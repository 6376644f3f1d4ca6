// Topics: one list for 10,000. What is zero is a dash, so that the others stand out.
import { useMemo, useState } from '../vendor/hooks.js';
import { html, Icon, Chip, Count, Bytes, Rate, Dash, Segments, Act, Shape, Title } from '../parts/ui.js';
import { Table, csv, download } from '../parts/table.js';
import { Spark } from '../parts/chart.js';
import { ActDialog, Field } from '../parts/overlay.js';
import { Loaded, Empty, Note, Code } from '../parts/states.js';
import { all, call, part } from '../data/api.js';
import { groupsWithLag } from '../data/groups.js';
import { topicsWithFigures } from '../data/topics.js';
import { useLoad } from '../data/use.js';
import { kindOf, retentionMs, tagsOf } from '../data/topic.js';
import { useTitle, may } from '../data/frame.js';
import { go, href, visit } from '../data/place.js';
import { num, plural, sizeText, short, span } from '../data/format.js';
import { words } from '../words.js';

const REFRESH_MS = 5000;
const KINDS = ['log', 'compacted', 'queue', 'view', 'dead_letters', 'internal'];
const text = {
  title: 'Topics',
  find: 'Name, tag or owner',
  create: 'Create',
  all: 'All',
  none: 'No topic has such a name',
  empty: 'No topics yet',
  kinds: { log: 'Log', compacted: 'Compacted', queue: 'Queue', view: 'View', dead_letters: 'Dead letters', internal: 'Internal' },
  name: 'Name',
  partitions: 'Partitions',
  kind: 'Kind',
  retention: 'Keep for (hours, empty: the broker’s default)',
  createLabel: (name) => `Create ${name || 'the topic'}`,
  kindHelp: {
    log: 'Records are kept for a time.',
    compacted: 'The last record of each key is kept.',
    queue: 'Retries and dead letters for subscriptions.',
  },
  chosen: (n) => `${num(n)} chosen`,
  remove: 'Delete…',
  chooseNone: 'Choose none',
  deleteTitle: (n) => `Delete ${plural(n, 'topic')}`,
};

const lag = (seconds) =>
  seconds == null
    ? html`<${Dash} />`
    : seconds > 60
      ? html`<b class="bad"><${Shape} level="bad" label="behind" /> ${span(seconds)}</b>`
      : seconds > 15
        ? html`<span class="warn"><${Shape} level="warn" label="late" /> ${span(seconds)}</span>`
        : span(seconds);

function columnsOf(chosen, toggle) {
  return [
    {
      key: 'choose',
      head: '',
      label: 'Choose',
      width: 48,
      hide: 'hide-narrow',
      cell: (t) =>
        html`<label class="check"><input type="checkbox" aria-label=${`Choose ${t.name}`} checked=${chosen.has(t.name)} onChange=${() => toggle(t.name)} /></label>`,
    },
    {
      key: 'name',
      head: 'Topic',
      className: 'first',
      sort: (t) => t.name,
      cell: (t) =>
        html`<a class="name" href=${href(`/topics/${part(t.name)}`)}>${t.name}</a>${tagsOf(t).map((tag) => html`<span class="chip tag">${tag}</span>`)}<span class="sub">${text.kinds[kindOf(t)] ?? t.kind} · ${plural(t.partitions, 'partition')} · ${sizeText(t.bytes)}</span>`,
    },
    {
      key: 'kind',
      head: 'Kind',
      width: 100,
      sort: kindOf,
      hide: 'hide-narrow',
      cell: (t) => html`<span class="muted">${text.kinds[kindOf(t)]?.toLowerCase() ?? t.kind}</span>`,
    },
    {
      key: 'partitions',
      head: 'Parts',
      num: true,
      width: 64,
      sort: (t) => t.partitions,
      hide: 'hide-narrow',
      cell: (t) => num(t.partitions),
    },
    {
      key: 'append_rate',
      head: 'In',
      num: true,
      width: 140,
      sort: (t) => t.append_rate ?? 0,
      cell: (t) => html`<${Spark} values=${t.rates} /> <${Rate} of=${t.append_rate} />`,
    },
    {
      key: 'bytes',
      head: 'Size',
      num: true,
      width: 88,
      sort: (t) => t.bytes ?? 0,
      hide: 'hide-narrow',
      cell: (t) => html`<${Bytes} of=${t.bytes} />`,
    },
    {
      key: 'retention',
      head: 'Kept',
      num: true,
      width: 84,
      sort: (t) => retentionMs(t) ?? 0,
      hide: 'hide-narrow hide-large',
      cell: (t) =>
        html`<span class="muted">${retentionMs(t) == null ? 'default' : retentionMs(t) > 0 ? span(retentionMs(t) / 1000) : 'for ever'}</span>`,
    },
    {
      key: 'groups',
      head: 'Groups',
      num: true,
      width: 76,
      sort: (t) => t.group_count ?? 0,
      hide: 'hide-narrow hide-mid',
      cell: (t) => html`<${Count} of=${t.group_count} />`,
    },
    {
      key: 'lag',
      head: 'Worst lag',
      num: true,
      width: 108,
      sort: (t) => t.lag_seconds ?? -1,
      hide: 'hide-narrow',
      cell: (t) => lag(t.lag_seconds),
    },
    {
      key: 'dead',
      head: 'Dead',
      num: true,
      width: 68,
      sort: (t) => t.dead_letters ?? 0,
      hide: 'hide-narrow',
      cell: (t) =>
        t.dead_letters ? html`<a href=${href('/dead-letters', { topic: t.name })}>${num(t.dead_letters)}</a>` : html`<${Dash} />`,
    },
    {
      key: 'delayed',
      head: 'Delayed',
      num: true,
      width: 80,
      sort: (t) => t.delayed ?? 0,
      hide: 'hide-narrow hide-large',
      cell: (t) => html`<${Count} of=${t.delayed} />`,
    },
    {
      key: 'owner',
      head: 'Owner',
      width: 108,
      sort: (t) => t.owner ?? '',
      hide: 'hide-narrow hide-large',
      cell: (t) => html`<span class="muted">${t.owner ?? ''}</span>`,
    },
  ];
}

function CreateDialog({ onClose }) {
  const [name, setName] = useState('');
  const [count, setCount] = useState(3);
  const [kind, setKind] = useState('log');
  const [hours, setHours] = useState('');
  const settings = {
    ...(kind === 'compacted' ? { 'cleanup.policy': 'compact' } : {}),
    ...(hours ? { 'retention.ms': String(Math.round(Number(hours) * 36e5)) } : {}),
  };
  const flags = Object.entries(settings)
    .map(([key, value]) => ` --set ${key}=${value}`)
    .join('');
  return html`<${ActDialog} title=${text.create} label=${text.createLabel(name)} isReady=${name !== '' && count > 0} onClose=${onClose} onDone=${() => visit(`/topics/${part(name)}`)}
    act=${() => call('POST', '/v1/topics', { body: { name, partitions: count, settings } })}>
    <${Segments} label=${text.kind} options=${['log', 'compacted'].map((k) => [k, text.kinds[k]])} value=${kind} onPick=${setKind} />
    <p class="muted">${text.kindHelp[kind]}</p>
    <div class="form"><${Field} label=${text.name}><input class="field mono" autofocus value=${name} onInput=${(e) => setName(e.target.value.trim())} /></${Field}>
      <${Field} label=${text.partitions}><input class="field mono" type="number" min="1" value=${count} onInput=${(e) => setCount(Number(e.target.value))} /></${Field}>
      <div class="whole"><${Field} label=${text.retention}><input class="field mono" type="number" min="0" value=${hours} onInput=${(e) => setHours(e.target.value)} /></${Field}></div></div>
    <${Code} text=${`millstream topic create ${name || 'NAME'} --partitions ${count}${flags}`} />
  </${ActDialog}>`;
}

function DeleteMany({ names, topics, onClose, onDone }) {
  const rows = topics.filter((t) => names.has(t.name));
  const act = async () => {
    for (const topic of rows) await call('DELETE', `/v1/topics/${part(topic.name)}`);
  };
  return html`<${ActDialog} title=${text.deleteTitle(rows.length)} label=${text.deleteTitle(rows.length)} danger=${true} typed=${String(rows.length)} act=${act} onClose=${onClose} onDone=${onDone}>
    <${Table} label=${text.deleteTitle(rows.length)} inset=${true} rows=${rows} columns=${[
      { key: 'name', head: 'Topic', cell: (t) => t.name },
      { key: 'parts', head: 'Partitions', num: true, width: 100, cell: (t) => num(t.partitions) },
      { key: 'bytes', head: 'Size', num: true, width: 100, cell: (t) => html`<${Bytes} of=${t.bytes} />` },
    ]} /></${ActDialog}>`;
}

// Groups and dead letters may need rights that the list of topics does not.
const load = (signal, show, isInternal) =>
  topicsWithFigures({
    signal,
    show,
    query: { internal: isInternal ? 'true' : undefined },
    groups: groupsWithLag({ signal }).catch(() => []),
    dead: all('/v1/dead-letters', { signal }).catch(() => []),
  });

function countKinds(topics) {
  const counts = {};
  for (const topic of topics) counts[kindOf(topic)] = (counts[kindOf(topic)] ?? 0) + 1;
  return counts;
}

export function Page({ query }) {
  const state = useLoad(
    (signal, show) => load(signal, show, query.kind === 'internal'),
    [query.kind === 'internal'],
    REFRESH_MS,
  );
  const [chosen, setChosen] = useState(new Set());
  const [dialog, setDialog] = useState('');
  const sort = query.sort ?? '-bytes';
  useTitle({
    title: text.title,
    crumbs: [[text.title]],
    commands: {
      cli: `millstream topic list${query.name ? ` | grep ${query.name}` : ''}`,
      curl: `curl ${location.origin}/v1/topics`,
      python: 'connect().admin.topics()',
    },
  });
  const toggle = (name) =>
    setChosen((old) => {
      const next = new Set(old);
      if (!next.delete(name)) next.add(name);
      return next;
    });
  const columns = useMemo(() => columnsOf(chosen, toggle), [chosen]);
  const find = (query.name ?? '').toLowerCase();
  const matching = useMemo(
    () =>
      (state.data ?? []).filter(
        (t) =>
          (!query.kind || kindOf(t) === query.kind) &&
          (!find || t.name.toLowerCase().includes(find) || tagsOf(t).includes(find) || t.owner === query.name),
      ),
    [state.data, query.kind, find],
  );
  const counts = useMemo(() => countKinds(state.data ?? []), [state.data]);
  const kinds = [
    ['', text.all, state.data?.length],
    ...KINDS.filter((k) => k === 'internal' || counts[k]).map((k) => [k, text.kinds[k], counts[k] ?? null]),
  ];
  const totals = html`<p class="totals" role="status">${plural(matching.length, 'topic')} · ${plural(
    matching.reduce((n, t) => n + (t.partitions ?? 0), 0),
    'partition',
  )} · ${short(matching.reduce((n, t) => n + (t.append_rate ?? 0), 0))}/s · ${sizeText(matching.reduce((n, t) => n + (t.bytes ?? 0), 0))}</p>`;
  const list = (rows) =>
    rows.length
      ? html`<div class="list scroll" tabindex="0"><${Table} label=${text.title} rows=${matching} columns=${columns} sort=${sort} onSort=${(next) => go({ sort: next })} rowKey=${(t) => t.name}
      onOpen=${(t) => visit(`/topics/${part(t.name)}`)} />${matching.length ? null : html`<${Empty} title=${text.none} />`}</div>${totals}`
      : html`<${Empty} title=${text.empty}><${Code} text="millstream topic create orders --partitions 3" /></${Empty}>`;
  const bar = chosen.size
    ? html`<div class="row grow choice"><b>${text.chosen(chosen.size)}</b>
      <${Act} danger=${true} may=${[...chosen].every((name) => may('DELETE', 'topic', name))} needs=${words.needs(
        'DELETE',
        'topic',
        [...chosen].find((name) => !may('DELETE', 'topic', name)),
      )} onClick=${() => setDialog('delete')}>${text.remove}</${Act}>
      <${Act} quiet=${true} onClick=${() => setChosen(new Set())}>${text.chooseNone}</${Act}></div>`
    : html`<label class="fieldbox finder"><${Icon} name="search" size=${14} /><input data-find placeholder=${text.find} aria-label=${text.find} value=${query.name ?? ''} onInput=${(e) => go({ name: e.target.value }, { replace: true })} /><kbd>/</kbd></label>
      <${Segments} label=${text.kind} options=${kinds} value=${query.kind ?? ''} onPick=${(kind) => go({ kind })} /><span class="grow" />
      <button type="button" class="button quiet wide-only" onClick=${() => download('topics.csv', csv(columns, matching))}><${Icon} name="download" size=${14} />CSV</button>`;
  return html`<div class="page full topics"><div class="stack12"><${Title} acts=${html`<${Act} dataKey="p" primary=${true} may=${may('CREATE', 'cluster', 'kafka-cluster')} needs=${words.needs('CREATE', 'cluster', 'kafka-cluster')} onClick=${() => setDialog('create')}><${Icon} name="plus" size=${14} />${text.create}</${Act}>`}>${text.title}</${Title}>
      <div class="toolbar">${bar}</div>${state.data?.isCut ? html`<${Note}>Only the first 10,000 topics are shown: narrow the name.</${Note}>` : null}</div>
    <${Loaded} of=${state} rows=${12}>${list}</${Loaded}>
    ${dialog === 'create' ? html`<${CreateDialog} onClose=${() => setDialog('')} />` : null}
    ${
      dialog === 'delete'
        ? html`<${DeleteMany} names=${chosen} topics=${state.data} onClose=${() => setDialog('')} onDone=${() => {
            setChosen(new Set());
            state.reload();
          }} />`
        : null
    }</div>`;
}
