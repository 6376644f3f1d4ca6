// Groups: behind in seconds first, records second; the state as the broker says it.
import { html, Count } from '../parts/ui.js';
import { Behind, State } from '../parts/group_cells.js';
import { ListPage } from '../parts/list_page.js';
import { part } from '../data/api.js';
import { groupsWithLag } from '../data/groups.js';
import { href, visit } from '../data/place.js';
import { num } from '../data/format.js';

const columns = () => [
  {
    key: 'name',
    head: 'Group',
    className: 'first',
    sort: (g) => g.name,
    cell: (g) =>
      html`<a class="name" href=${href(`/groups/${part(g.name)}`)}>${g.name}</a><span class="sub">${g.state} · ${(g.topics ?? []).join(', ')}</span>`,
  },
  {
    key: 'topics',
    head: 'Reads',
    plain: (g) => (g.topics ?? []).join(' '),
    hide: 'hide-narrow',
    cell: (g) =>
      (g.topics ?? []).slice(0, 3).map((t, i) => html`${i ? ', ' : ''}<a class="plain" href=${href(`/topics/${part(t)}`)}>${t}</a>`),
  },
  {
    key: 'kind',
    head: 'Kind',
    width: 100,
    sort: (g) => g.kind,
    hide: 'hide-narrow',
    cell: (g) => html`<span class="muted">${g.kind}</span>`,
  },
  { key: 'state', head: 'State', width: 132, sort: (g) => g.state, hide: 'hide-narrow', cell: (g) => html`<${State} state=${g.state} />` },
  {
    key: 'members',
    head: 'Members',
    num: true,
    width: 92,
    sort: (g) => g.members,
    hide: 'hide-narrow',
    cell: (g) => html`<${Count} of=${g.members} />`,
  },
  {
    key: 'lag_seconds',
    head: 'Behind',
    num: true,
    width: 128,
    sort: (g) => g.lag_seconds ?? -1,
    cell: (g) => html`<${Behind} seconds=${g.lag_seconds} />`,
  },
  { key: 'lag_records', head: 'Records', num: true, width: 112, sort: (g) => g.lag, cell: (g) => num(g.lag) },
];

export const Page = ({
  query,
}) => html`<${ListPage} title="Groups" query=${{ sort: '-lag_seconds', ...query }} load=${(signal) => groupsWithLag({ signal })} columns=${columns} textOf=${(g) => `${g.name} ${(g.topics ?? []).join(' ')}`}
  empty="No group has read yet" emptyCode="millstream consume orders --group mill" onOpen=${(g) => visit(`/groups/${part(g.name)}`)} rowKey=${(g) => g.name}
  commands=${{ cli: 'millstream group list', curl: `curl ${location.origin}/v1/groups`, python: 'connect().admin.groups()' }} />`;
