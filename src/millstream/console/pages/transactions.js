// Transactions: open ones by age, with the partitions they hold up; an operator can abort one.
import { useState } from '../vendor/hooks.js';
import { html } from '../parts/ui.js';
import { ListPage } from '../parts/list_page.js';
import { ActDialog } from '../parts/overlay.js';
import { all, call, part } from '../data/api.js';
import { num, span } from '../data/format.js';

export function Page({ query }) {
  const [abort, setAbort] = useState(null);
  const columns = () => [
    { key: 'id', head: 'Transactional id', sort: (t) => t.transactional_id, cell: (t) => html`<b>${t.transactional_id}</b>` },
    { key: 'state', head: 'State', width: 160, sort: (t) => t.state, cell: (t) => t.state },
    { key: 'producer', head: 'Producer', num: true, width: 120, hide: 'hide-narrow', cell: (t) => num(t.producer_id) },
    {
      key: 'age',
      head: 'Open for',
      num: true,
      width: 120,
      sort: (t) => t.age_ms ?? 0,
      cell: (t) => (t.age_ms == null ? '–' : span(t.age_ms / 1000)),
    },
    {
      key: 'partitions',
      head: 'Partitions',
      num: true,
      width: 112,
      sort: (t) => t.partitions?.length ?? 0,
      cell: (t) => num(t.partitions?.length ?? 0),
    },
    {
      key: 'act',
      head: '',
      label: 'Abort',
      width: 84,
      cell: (t) =>
        /ongoing/i.test(t.state) ? html`<button type="button" class="link" onClick=${() => setAbort(t)}>Abort…</button>` : null,
    },
  ];
  return html`<${ListPage} title="Transactions" query=${{ sort: '-age', ...query }} load=${(signal) => all('/v1/transactions', { signal })} columns=${columns} textOf=${(t) => t.transactional_id} empty="No transactional producer is known"
    rowKey=${(t) => t.transactional_id} commands=${{ cli: 'millstream txn list', curl: `curl ${location.origin}/v1/transactions` }}>
    ${(state) =>
      abort
        ? html`<${ActDialog} title=${`Abort ${abort.transactional_id}`} label="Abort the transaction" danger=${true} typed=${abort.transactional_id} onClose=${() => setAbort(null)} onDone=${state.reload}
      act=${() => call('POST', `/v1/transactions/${part(abort.transactional_id)}:abort`)}><p>Its records will never be read by read_committed consumers, and its producer is fenced.</p></${ActDialog}>`
        : null}
  </${ListPage}>`;
}
