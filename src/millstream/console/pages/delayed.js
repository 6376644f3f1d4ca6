// Delayed records: what is due when, and what waits. An operator can cancel one.
import { useState } from '../vendor/hooks.js';
import { html, Panel } from '../parts/ui.js';
import { ListPage } from '../parts/list_page.js';
import { Histogram, buckets } from '../parts/histogram.js';
import { ActDialog } from '../parts/overlay.js';
import { all, call, part } from '../data/api.js';
import { href } from '../data/place.js';
import { agoMs, num, span, utc, when } from '../data/format.js';

const BARS_MAX = 96;

function DueTimes({ rows }) {
  if (!rows?.length) return null;
  const late = rows.filter((d) => d.due_at_ms < Date.now());
  const oldest = Math.min(...late.map((d) => d.due_at_ms));
  return html`<${Panel} title="Due times" aside=${html`<span class=${late.length ? 'warn' : 'muted'}>${late.length ? `${num(late.length)} late, by ${span((Date.now() - oldest) / 1000)} at most` : 'none is late'}</span>`}>
    <${Histogram} label="Delayed records by due time" ...${buckets(
      rows.map((d) => d.due_at_ms),
      BARS_MAX,
    )} /></${Panel}>`;
}

export function Page({ query }) {
  const [cancel, setCancel] = useState(null);
  const columns = () => [
    {
      key: 'due',
      head: 'Due',
      width: 180,
      sort: (d) => d.due_at_ms,
      cell: (d) => html`<time title=${utc(d.due_at_ms)}>${when(d.due_at_ms)}</time>`,
    },
    { key: 'in', head: 'In', width: 120, cell: (d) => agoMs(d.due_at_ms) },
    {
      key: 'topic',
      head: 'Topic',
      sort: (d) => d.topic,
      cell: (d) => html`<a class="name" href=${href(`/topics/${part(d.topic)}`)}>${d.topic}</a>`,
    },
    { key: 'partition', head: 'P', num: true, width: 52, cell: (d) => d.partition },
    { key: 'id', head: 'Id', plain: (d) => d.id, cell: (d) => html`<code>${d.id}</code>` },
    {
      key: 'act',
      head: '',
      label: 'Cancel',
      width: 92,
      cell: (d) => html`<button type="button" class="link" onClick=${() => setCancel(d)}>Cancel…</button>`,
    },
  ];
  return html`<${ListPage} title="Delayed" query=${{ sort: 'due', ...query }} load=${(signal) => all('/v1/delayed', { signal, most: 2000 })} columns=${columns} textOf=${(d) => `${d.topic} ${d.id}`} rowKey=${(d) => d.id}
    empty="Nothing waits for its time" emptyCode="millstream produce orders '{}' --delay 10m" commands=${{ cli: 'millstream delayed list', curl: `curl ${location.origin}/v1/delayed` }}
    before=${(state) => html`<${DueTimes} rows=${state.data} />`} facts=${(rows) => [html`<b>${num(rows.length)}${rows.isCut ? '+' : ''}</b> wait`]}>
    ${(state) => (cancel ? html`<${ActDialog} title="Cancel a delayed record" sub=${cancel.id} label="Cancel 1 record" danger=${true} onClose=${() => setCancel(null)} onDone=${state.reload} act=${() => call('DELETE', `/v1/delayed/${part(cancel.id)}`)}><p>It will never be delivered.</p></${ActDialog}>` : null)}
  </${ListPage}>`;
}
