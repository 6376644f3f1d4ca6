// Configuration: every key with its value and where it comes from; secrets stay hidden.
import { html, Chip } from '../parts/ui.js';
import { ListPage } from '../parts/list_page.js';
import { get } from '../data/api.js';

const shownValue = (k) => (k.value == null ? '–' : typeof k.value === 'object' ? JSON.stringify(k.value) : String(k.value));
const columns = () => [
  { key: 'name', head: 'Key', width: 340, sort: (k) => k.name, cell: (k) => html`<code>${k.name}</code>` },
  { key: 'value', head: 'Value', width: 240, plain: shownValue, cell: (k) => html`<code>${shownValue(k)}</code>` },
  {
    key: 'origin',
    head: 'From',
    width: 100,
    sort: (k) => k.origin,
    cell: (k) => (k.origin === 'default' ? html`<span class="muted">default</span>` : html`<${Chip} level="accent">${k.origin}</${Chip}>`),
  },
  { key: 'meaning', head: 'Meaning', hide: 'hide-narrow', cell: (k) => html`<span class="muted" title=${k.meaning}>${k.meaning}</span>` },
];

export const Page = ({ query }) => html`<${ListPage} title="Config" query=${query} load=${async (signal) => {
  const data = await get('/v1/config', { signal });
  return data.items ?? data;
}} refreshMs=${0} columns=${columns} textOf=${(k) => `${k.name} ${shownValue(k)} ${k.origin}`} empty="There is no configuration"
  commands=${{ cli: 'millstream config show', curl: `curl ${location.origin}/v1/config` }} />`;
