// Index health: for each partition how dense its index is, the longest stretch that a search reads, and gaps.
import { html, Bytes } from '../parts/ui.js';
import { ListPage } from '../parts/list_page.js';
import { Note } from '../parts/states.js';
import { all, part } from '../data/api.js';
import { href, visit } from '../data/place.js';
import { num } from '../data/format.js';

const TOPICS_MAX = 50; // Topics whose partitions are asked for, the largest first.
const AT_ONCE = 4;

async function load(signal) {
  const topics = (await all('/v1/topics', { signal, query: { internal: 'true' } })).filter((t) => t.kind !== 'view');
  const largest = topics.sort((a, b) => (b.bytes ?? 0) - (a.bytes ?? 0)).slice(0, TOPICS_MAX);
  const rows = [];
  for (let at = 0; at < largest.length; at += AT_ONCE) {
    const some = largest.slice(at, at + AT_ONCE).map((t) => all(`/v1/topics/${part(t.name)}/partitions`, { signal }).catch(() => []));
    rows.push(...(await Promise.all(some)).flat());
  }
  rows.topicsLeftOut = topics.length - largest.length;
  return rows;
}

const toTopic = (p) => ['/topics/' + part(p.topic) + '/partitions', { partition: String(p.partition) }];
const columns = () => [
  { key: 'topic', head: 'Topic', sort: (p) => p.topic, cell: (p) => html`<a class="name" href=${href(...toTopic(p))}>${p.topic}</a>` },
  { key: 'partition', head: 'P', num: true, width: 56, sort: (p) => p.partition, cell: (p) => p.partition },
  { key: 'bytes', head: 'Size', num: true, width: 96, sort: (p) => p.bytes, cell: (p) => html`<${Bytes} of=${p.bytes} />` },
  { key: 'segments', head: 'Segments', num: true, width: 96, sort: (p) => p.segments, cell: (p) => num(p.segments) },
  { key: 'entries', head: 'Entries', num: true, width: 108, hide: 'hide-narrow', sort: (p) => p.index.entries, cell: (p) => num(p.index.entries) },
  { key: 'density', head: 'Bytes for an entry', num: true, width: 148, hide: 'hide-narrow', sort: (p) => p.index.bytes_per_entry, cell: (p) => html`<${Bytes} of=${p.index.bytes_per_entry} />` },
  { key: 'stretch', head: 'Longest stretch', num: true, width: 132, sort: (p) => p.index.stretch_bytes, title: 'The most bytes that a search may have to read', cell: (p) => html`<${Bytes} of=${p.index.stretch_bytes} />` },
  { key: 'gaps', head: 'Gaps', num: true, width: 80, sort: (p) => p.index.gaps, title: 'Sealed segments without an index on disk', cell: (p) => (p.index.gaps ? html`<span class="warn">${num(p.index.gaps)}</span>` : html`<span class="muted">–</span>`) },
  { key: 'problem', head: 'Problem', hide: 'hide-narrow', plain: (p) => p.problem ?? '', cell: (p) => (p.problem ? html`<span class="bad">${p.problem}</span>` : null) },
];

export const Page = ({ query }) => html`<${ListPage} title="Index health" query=${{ sort: '-stretch', ...query }} load=${load} refreshMs=${30000} columns=${columns} textOf=${(p) => `${p.topic}/${p.partition}`} rowKey=${(p) => `${p.topic}/${p.partition}`}
  onOpen=${(p) => visit(...toTopic(p))} empty="There is no partition yet" emptyCode="millstream topic create orders" commands=${{ cli: 'millstream doctor', curl: `curl ${location.origin}/v1/topics/orders/partitions` }}
  before=${(state) => (state.data?.topicsLeftOut ? html`<${Note}>The ${TOPICS_MAX} largest topics are shown; ${num(state.data.topicsLeftOut)} are left out.</${Note}>` : null)} />`;
