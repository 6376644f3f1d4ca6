// Jobs: long work that goes on when the page is closed.
import { html } from '../parts/ui.js';
import { ListPage } from '../parts/list_page.js';
import { all, call } from '../data/api.js';
import { when } from '../data/format.js';

const columns = (state) => [
  { key: 'id', head: 'Job', width: 80, sort: (j) => j.id, cell: (j) => html`<code>${j.id}</code>` },
  { key: 'kind', head: 'Does', sort: (j) => j.kind, cell: (j) => html`${j.kind} <b>${j.subject}</b>` },
  { key: 'state', head: 'State', width: 120, sort: (j) => j.state, cell: (j) => j.state },
  { key: 'since', head: 'Since', width: 160, sort: (j) => j.started_at, cell: (j) => when(Date.parse(j.started_at)) },
  {
    key: 'message',
    head: 'Says',
    plain: (j) => j.message ?? '',
    cell: (j) => html`<span class=${j.error ? 'bad' : 'muted'}>${j.message ?? ''}</span>`,
  },
  {
    key: 'act',
    head: '',
    label: 'Stop',
    width: 84,
    cell: (j) =>
      j.state === 'running'
        ? html`<button type="button" class="link" onClick=${() => call('DELETE', `/v1/jobs/${j.id}`).then(state.reload)}>Stop</button>`
        : null,
  },
];

export const Page = ({ query }) =>
  html`<${ListPage} title="Jobs" query=${query} load=${(signal) => all('/v1/jobs', { signal })} refreshMs=${2000} columns=${columns} textOf=${(j) => `${j.id} ${j.kind} ${j.subject}`} empty="No job runs, and none is remembered" commands=${{ cli: 'millstream health', curl: `curl ${location.origin}/v1/jobs` }} />`;
