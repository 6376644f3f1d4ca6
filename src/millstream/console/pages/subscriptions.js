// Subscriptions: members, what is outstanding, what is slow.
import { html, Count } from '../parts/ui.js';
import { ListPage } from '../parts/list_page.js';
import { all } from '../data/api.js';

const columns = () => [
  { key: 'name', head: 'Subscription', sort: (s) => s.name, cell: (s) => html`<b>${s.name}</b>` },
  {
    key: 'subject',
    head: 'Reads',
    sort: (s) => s.topics.join(', ') || s.pattern || '',
    cell: (s) => s.topics.join(', ') || s.pattern || '',
  },
  {
    key: 'members',
    head: 'Members',
    num: true,
    width: 100,
    sort: (s) => s.member_count ?? 0,
    cell: (s) => html`<${Count} of=${s.member_count} />`,
  },
  {
    key: 'in_flight',
    head: 'In flight',
    num: true,
    width: 120,
    sort: (s) => s.in_flight,
    cell: (s) => html`<${Count} of=${s.in_flight} />`,
  },
  {
    key: 'slow',
    head: 'State',
    width: 120,
    sort: (s) => String(s.is_slow),
    cell: (s) => (s.is_slow ? html`<span class="warn">slow</span>` : html`<span class="muted">keeps up</span>`),
  },
];

export const Page = ({
  query,
}) => html`<${ListPage} title="Subscriptions" query=${query} load=${(signal) => all('/v1/subscriptions', { signal })} columns=${columns} textOf=${(s) => `${s.name} ${s.topics.join(' ')} ${s.pattern ?? ''}`} empty="There is no subscription"
  emptyCode="printf 'SUB orders 1\r\n' | nc localhost 4222" commands=${{ cli: 'millstream health', curl: `curl ${location.origin}/v1/subscriptions` }} />`;
