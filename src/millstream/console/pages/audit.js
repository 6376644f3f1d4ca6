// Audit: events of the trail, newest first, by result, event and principal; exported as the broker has them.
import { html, Icon, Segments, Shape } from '../parts/ui.js';
import { ListPage } from '../parts/list_page.js';
import { address, all } from '../data/api.js';
import { go } from '../data/place.js';
import { num, utc, visible, when } from '../data/format.js';

const SHOWN_MAX = 1000;
const RESULTS = [
  ['', 'All'],
  ['success', 'Success'],
  ['denied', 'Denied'],
  ['failure', 'Failure'],
];
// The names of the command's flags differ from those of the API.
const FLAGS = { result: 'result', event: 'type', principal: 'user', from: 'start' };
const LEVEL = { success: 'good', denied: 'warn', failure: 'bad' };

const filterOf = (query) => ({ result: query.result, event: query.event, principal: query.principal, from: query.from });
const more = (event) => {
  const entries = Object.entries(event.details ?? {}).map(([key, value]) => `${key} ${typeof value === 'object' ? JSON.stringify(value) : value}`);
  return visible([event.count > 1 ? `${event.count} times` : '', event.rule, ...entries].filter(Boolean).join(' · '));
};
// A broker without logins keeps no trail, and refuses the plainest question; that is an empty list here.
const load = (signal, filter) =>
  all('/v1/audit', { signal, query: filter, most: SHOWN_MAX }).catch((problem) => {
    if (problem.status === 422 && !Object.values(filter).some(Boolean)) return [];
    throw problem;
  });
const Pick = ({ name, value }) =>
  html`<button type="button" class="link" title=${`Only ${name} ${value}`} onClick=${() => go({ [name]: value })}>${visible(value)}</button>`;

const columns = () => [
  {
    key: 'time',
    head: 'Time',
    width: 180,
    sort: (e) => e.time,
    plain: (e) => e.time,
    cell: (e) => html`<time title=${utc(Date.parse(e.time))}>${when(Date.parse(e.time))}</time>`,
  },
  {
    key: 'result',
    head: 'Result',
    width: 104,
    sort: (e) => e.result,
    plain: (e) => e.result,
    cell: (e) => html`<${Shape} level=${LEVEL[e.result] ?? 'off'} label=${e.result} /> ${e.result}`,
  },
  { key: 'event', head: 'Event', width: 160, sort: (e) => e.event, plain: (e) => e.event, cell: (e) => html`<${Pick} name="event" value=${e.event} />` },
  {
    key: 'principal',
    head: 'Principal',
    width: 180,
    sort: (e) => e.principal,
    plain: (e) => e.principal,
    cell: (e) => (e.principal ? html`<${Pick} name="principal" value=${e.principal} />` : '–'),
  },
  { key: 'resource', head: 'Resource', sort: (e) => e.resource, plain: (e) => e.resource, cell: (e) => html`<b>${visible(e.resource || '–')}</b>` },
  { key: 'more', head: 'What', hide: 'hide-narrow', plain: more, cell: (e) => html`<span class="muted">${more(e)}</span>` },
  {
    key: 'address',
    head: 'From',
    width: 150,
    hide: 'hide-narrow',
    sort: (e) => e.address,
    plain: (e) => e.address,
    cell: (e) => html`<code>${visible(e.address || '–')}</code>`,
  },
];

const Chosen = ({ query }) =>
  ['event', 'principal']
    .filter((name) => query[name])
    .map(
      (name) =>
        html`<button type="button" class="button quiet" onClick=${() => go({ [name]: null })}>${name} ${visible(query[name])} <${Icon} name="close" size=${12} /></button>`,
    );

export function Page({ query }) {
  const filter = filterOf(query);
  const words = Object.entries(filter).filter(([, value]) => value);
  const flags = words.map(([name, value]) => `--${FLAGS[name]} ${value}`).join(' ');
  const acts = () =>
    html`<a class="button" download="audit.ndjson" href=${address('/v1/audit/export', { ...filter, format: 'ndjson' })}><${Icon} name="download" size=${14} />NDJSON</a>
      <a class="button" download="audit.csv" href=${address('/v1/audit/export', { ...filter, format: 'csv' })}><${Icon} name="download" size=${14} />All as CSV</a>`;
  return html`<${ListPage} title="Audit" query=${query} inputs=${words.flat()} load=${(signal) => load(signal, filter)}
    columns=${columns} textOf=${(e) => `${e.event} ${e.principal} ${e.resource} ${e.address} ${more(e)}`} rowKey=${(e) => e.id} acts=${acts}
    facts=${(rows) => [html`<b>${num(rows.length)}${rows.isCut ? '+' : ''}</b> ${rows.length === 1 ? 'event' : 'events'}`]}
    before=${() => html`<div class="toolbar"><${Segments} label="Result" options=${RESULTS} value=${query.result ?? ''} onPick=${(result) => go({ result: result || null })} /><${Chosen} query=${query} /></div>`}
    empty=${words.length ? 'No event fits' : 'No events: a trail is kept where clients log in, or with audit.enabled'} emptyCode=${words.length ? null : 'millstream serve --secure'}
    commands=${{ cli: `millstream audit query ${flags}`.trim(), curl: `curl '${location.origin}${address('/v1/audit', filter)}'` }} />`;
}
