// Dead letters: many records are a handful of kinds. Choose a topic, understand it, send records back or let them go.
import { useState } from '../vendor/hooks.js';
import { html, Icon, Shape, Panel, Title, Act } from '../parts/ui.js';
import { Table } from '../parts/table.js';
import { ActDialog, Field } from '../parts/overlay.js';
import { Loaded, Empty, Problem, Code } from '../parts/states.js';
import { JsonTree } from '../parts/json.js';
import { all, call, get, part, post } from '../data/api.js';
import { deadTopics } from '../data/dead.js';
import { useLoad } from '../data/use.js';
import { useTitle } from '../data/frame.js';
import { go, href } from '../data/place.js';
import { shown } from '../data/record.js';
import { agoMs, num, plural, visible } from '../data/format.js';

const REFRESH_MS = 4000;

// Error texts folded to one line for each kind: numbers, ids and quoted values are left out.
export const fold = (text) =>
  text
    .replace(/'[^']*'|"[^"]*"/g, '…')
    .replace(/\b[0-9a-f]{8,}\b|\d+/gi, '#')
    .slice(0, 160);

function kindsOf(letters) {
  const kinds = new Map();
  for (const { record, error, reason, group } of letters) {
    const key = JSON.stringify([reason, group, fold(error)]);
    const kind = kinds.get(key) ?? { key, reason, group, error, records: [] };
    kind.records.push(record);
    kinds.set(key, kind);
  }
  return [...kinds.values()].sort((a, b) => b.records.length - a.records.length);
}

const Kind = ({
  kind,
  isChosen,
  onPick,
}) => html`<li><button type="button" class="kind" aria-pressed=${String(isChosen)} onClick=${onPick}><b class="count">${num(kind.records.length)}</b>
  <span class="grow"><code class="cut">${kind.error || kind.reason || 'no error text'}</code><span class="muted cut">${[kind.group, kind.reason].filter(Boolean).join(' · ')}</span></span>
  <span class="kind-side muted">${agoMs(Math.max(...kind.records.map((r) => r.timestamp_ms)))}</span></button></li>`;

function RedriveDialog({ topic, kind, onClose, onDone }) {
  const [rate, setRate] = useState('50');
  const [plan, setPlan] = useState(null);
  const body = (dryRun) => ({ group: kind?.group || undefined, rate: Number(rate) || undefined, dry_run: dryRun });
  const path = `/v1/dead-letters/${part(topic)}:redrive`;
  useLoad(async () => setPlan(await post(path, body(true))), [topic]);
  return html`<${ActDialog} title=${`Redrive ${topic}`} sub="Records go back to the topic they came from, once each." label=${plan ? `Redrive ${plural(plan.sent, 'record')}` : 'Redrive'} onClose=${onClose} onDone=${onDone} act=${() => call('POST', path, { body: body(false) })}>
    <${Field} label="Records a second"><input class="field mono" inputmode="numeric" value=${rate} onInput=${(e) => setRate(e.target.value)} /></${Field}>
    ${plan ? html`<p role="status"><b>${num(plan.sent)}</b> would go back, ${num(plan.skipped)} would stay.</p>` : null}
    <${Code} text=${`millstream dlq redrive ${topic}${kind?.group ? ` --group ${kind.group}` : ''} --rate ${rate} --dry-run`} /></${ActDialog}>`;
}

function Triage({ kind, topic, onDone }) {
  const [index, setIndex] = useState(0);
  const [error, setError] = useState(null);
  const [isRedriving, setRedriving] = useState(false);
  const record = kind.records[Math.min(index, kind.records.length - 1)];
  const { kind: form, text } = shown(record.value);
  const back = () => call('POST', `/v1/dead-letters/${part(topic)}/${record.partition}/${record.offset}:replay`).then(onDone, setError);
  return html`<section class="panel triage"><header><${Shape} level="warn" label="Soon" /><h2 class="cut"><code>${visible(kind.error || kind.reason || '')}</code></h2></header><div class="body stack12">
    <dl class="pairs"><dt>Waiting</dt><dd><b>${plural(kind.records.length, 'record')}</b></dd><dt>Given up by</dt><dd>${kind.group ? html`<a href=${href(`/groups/${part(kind.group)}`)}>${kind.group}</a>` : 'the broker'}</dd><dt>Reason</dt><dd>${kind.reason.replaceAll('_', ' ') || '–'}</dd></dl>
    <div class="sample"><div class="row section-head"><h3>Sample</h3><a class="mono muted cut" href=${href(`/topics/${part(record.topic)}`, { at: `${record.partition}@${record.offset}` })}>${record.partition}@${num(record.offset)}</a><span class="grow" />
        <button type="button" class="icon-button" aria-label="Newer sample" disabled=${index === 0} onClick=${() => setIndex(index - 1)}><${Icon} name="up" size=${14} /></button><span class="muted">${index + 1} of ${kind.records.length}</span>
        <button type="button" class="icon-button" aria-label="Older sample" disabled=${index >= kind.records.length - 1} onClick=${() => setIndex(index + 1)}><${Icon} name="down" size=${14} /></button></div>
      ${form === 'json' ? html`<${JsonTree} text=${text} />` : html`<pre class="rawtext mono" tabindex="0">${visible(text.slice(0, 4000))}</pre>`}</div>
    <${Problem} error=${error} onDismiss=${() => setError(null)} />
    <div class="acts-row"><${Act} onClick=${back}>Send this one back</${Act}><span class="grow" /><${Act} primary=${true} onClick=${() => setRedriving(true)}>Redrive…</${Act}></div>
    ${isRedriving ? html`<${RedriveDialog} topic=${topic} kind=${kind} onClose=${() => setRedriving(false)} onDone=${onDone} />` : null}</div></section>`;
}

const Job = ({
  job,
  onDone,
}) => html`<div class="job" role="status"><span class="row"><span class="pulse"><${Shape} level="live" /></span><b>${job.kind}</b><span class="cut">${job.subject}</span></span>
  <span class="grow muted">${job.state}</span>
  <button type="button" class="button" onClick=${() => call('DELETE', `/v1/jobs/${job.id}`).then(onDone)}><${Icon} name="stop" size=${12} />Stop</button></div>`;

export function Page({ query }) {
  const list = useLoad(
    async (signal) => ({
      topics: await deadTopics({ signal }),
      jobs: (await get('/v1/jobs', { signal }).catch(() => ({ items: [] }))).items.filter((j) => j.state === 'running'),
    }),
    [],
    REFRESH_MS,
  );
  const waiting = (list.data?.topics ?? []).filter((t) => t.count > 0);
  const topic = query.topic ?? waiting[0]?.topic;
  const letters = useLoad(
    (signal) => (topic ? all(`/v1/dead-letters/${part(topic)}`, { signal, most: 1000, query: { limit: 200 } }) : []),
    [topic],
    REFRESH_MS,
  );
  const [purge, setPurge] = useState(false);
  const kinds = kindsOf(letters.data ?? []);
  const kind = kinds.find((k) => k.key === query.kind) ?? kinds[0];
  const count = waiting.find((t) => t.topic === topic)?.count ?? letters.data?.length ?? 0;
  useTitle({
    title: 'Dead letters',
    crumbs: [['Dead letters']],
    commands: {
      cli: topic ? `millstream dlq list ${topic}` : 'millstream dlq list',
      curl: `curl ${location.origin}/v1/dead-letters${topic ? `/${part(topic)}` : ''}`,
    },
  });
  const columns = [
    { key: 'topic', head: 'Topic', cell: (t) => html`<b>${t.topic}</b>` },
    { key: 'count', head: 'Waiting', num: true, width: 100, cell: (t) => num(t.count) },
  ];
  const content = () =>
    waiting.length === 0
      ? html`<${Empty} title="No dead letters wait">Records that a handler gives up appear here, by kind of error.</${Empty}>`
      : html`<div class="split"><div class="stack12"><${Panel} title="Topics" flush=${true}><${Table} label="Topics with dead letters" inset=${true} rows=${waiting} columns=${columns} chosen=${(t) => t.topic === topic} onOpen=${(t) => go({ topic: t.topic, kind: null })} /></${Panel}>
        <${Panel} title="Kinds" flush=${true} aside=${html`<span class="muted">numbers and quoted values left out</span>`}><ul class="kinds">${kinds.map((k) => html`<${Kind} kind=${k} isChosen=${k === kind} onPick=${() => go({ kind: k.key })} />`)}</ul></${Panel}></div>
      ${
        kind
          ? html`<${Triage} key=${kind.key} kind=${kind} topic=${topic} onDone=${() => {
              list.reload();
              letters.reload();
            }} />`
          : null
      }</div>`;
  return html`<div class="page dead"><${Title} facts=${[html`<b>${num(waiting.reduce((n, t) => n + t.count, 0))}</b> wait`, plural(waiting.length, 'topic')]} acts=${topic && waiting.length ? html`<${Act} danger=${true} onClick=${() => setPurge(true)}>Purge…</${Act}>` : null}>Dead letters</${Title}>
    ${(list.data?.jobs ?? []).map((job) => html`<${Job} job=${job} onDone=${list.reload} />`)}<${Loaded} of=${list}>${content}</${Loaded}>
    ${
      purge
        ? html`<${ActDialog} title=${`Purge the dead letters of ${topic}`} label=${`Delete ${plural(count, 'dead letter')}`} danger=${true} typed=${String(count)} onClose=${() => setPurge(false)} onDone=${() => {
            list.reload();
            letters.reload();
          }}
      act=${() => call('DELETE', `/v1/dead-letters/${part(topic)}`, { query: { expected_count: count } })}><p>They cannot be brought back.</p></${ActDialog}>`
        : null
    }</div>`;
}
