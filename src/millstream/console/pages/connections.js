// Connections: protocol, principal, client, address, age, bytes; an operator can cut one.
import { useState } from '../vendor/hooks.js';
import { html, Bytes } from '../parts/ui.js';
import { ListPage } from '../parts/list_page.js';
import { ActDialog } from '../parts/overlay.js';
import { all, call, part } from '../data/api.js';
import { may } from '../data/frame.js';
import { span } from '../data/format.js';

export function Page({ query }) {
  const [cut, setCut] = useState(null);
  const isAllowed = may('ALTER', 'cluster', 'kafka-cluster');
  const columns = () => [
    {
      key: 'listener',
      head: 'Listener',
      width: 120,
      sort: (c) => c.listener,
      cell: (c) => html`${c.listener} <span class="muted">${c.protocols.join(', ')}</span>`,
    },
    { key: 'client', head: 'Client', sort: (c) => c.client_id ?? '', cell: (c) => html`<b>${c.client_id || '–'}</b>` },
    { key: 'principal', head: 'Principal', sort: (c) => c.principal ?? '', hide: 'hide-narrow', cell: (c) => c.principal },
    {
      key: 'address',
      head: 'Address',
      width: 180,
      hide: 'hide-narrow',
      sort: (c) => c.address ?? '',
      cell: (c) => html`<code>${c.address}</code>`,
    },
    { key: 'since', head: 'Open for', num: true, width: 120, sort: (c) => c.age_ms, cell: (c) => span(c.age_ms / 1000) },
    { key: 'in', head: 'In', num: true, width: 96, sort: (c) => c.received_bytes, cell: (c) => html`<${Bytes} of=${c.received_bytes} />` },
    {
      key: 'throttled',
      head: '',
      label: 'Throttled',
      width: 96,
      hide: 'hide-narrow',
      cell: (c) => (c.is_throttled ? html`<span class="warn">throttled</span>` : null),
    },
    {
      key: 'act',
      head: '',
      label: 'Cut',
      width: 72,
      cell: (c) =>
        html`<button type="button" class="link" aria-disabled=${isAllowed ? null : 'true'} title=${isAllowed ? null : 'needs ALTER on cluster kafka-cluster'} onClick=${() => isAllowed && setCut(c)}>Cut…</button>`,
    },
  ];
  return html`<${ListPage} title="Connections" query=${query} load=${(signal) => all('/v1/connections', { signal })} columns=${columns} textOf=${(c) => `${c.listener} ${c.client_id} ${c.principal} ${c.address}`} empty="No client is connected"
    rowKey=${(c) => c.id} commands=${{ cli: 'millstream health', curl: `curl ${location.origin}/v1/connections` }}>
    ${(state) => (cut ? html`<${ActDialog} title=${`Cut ${cut.client_id || cut.address}`} label="Cut the connection" danger=${true} onClose=${() => setCut(null)} onDone=${state.reload} act=${() => call('DELETE', `/v1/connections/${part(String(cut.id))}`)}><p>The client sees a closed connection and usually connects again.</p></${ActDialog}>` : null)}
  </${ListPage}>`;
}
