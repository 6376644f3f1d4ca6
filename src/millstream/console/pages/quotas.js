// Quotas: limit and use of users and client ids.
import { html } from '../parts/ui.js';
import { ListPage } from '../parts/list_page.js';
import { all } from '../data/api.js';
import { sizeText } from '../data/format.js';

const entity = (q) =>
  [
    ['user', q.user],
    ['client id', q.client_id],
    ['address', q.ip],
  ]
    .filter(([, name]) => name != null)
    .map(([kind, name]) => `${kind} ${name}`)
    .join(', ');
const limits = (q) => Object.entries(q.limits);
const columns = () => [
  { key: 'entity', head: 'Of', sort: entity, cell: (q) => html`<b>${entity(q)}</b>` },
  {
    key: 'limits',
    head: 'Limit',
    plain: (q) =>
      limits(q)
        .map(([k, v]) => `${k}=${v}`)
        .join(' '),
    cell: (q) =>
      limits(q).map(([k, v], i) => html`${i ? ', ' : ''}<span class="muted">${k}</span> ${/byte/.test(k) ? `${sizeText(v)}/s` : v}`),
  },
];

export const Page = ({
  query,
}) => html`<${ListPage} title="Quotas" query=${query} load=${(signal) => all('/v1/quotas', { signal })} columns=${columns} textOf=${entity} empty="No quota is set" emptyCode="millstream quota set --user ann producer_byte_rate=1048576" refreshMs=${10000}
  commands=${{ cli: 'millstream quota list', curl: `curl ${location.origin}/v1/quotas` }} />`;
