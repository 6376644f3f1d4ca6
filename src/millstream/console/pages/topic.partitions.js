// The partitions of a topic: where they lie, their places, and the segments of the chosen one.
import { html, Bytes, Panel } from '../parts/ui.js';
import { Table } from '../parts/table.js';
import { Loaded, Code } from '../parts/states.js';
import { MapKey, Squares } from '../parts/partition_map.js';
import { SegmentAxis, SegmentTable } from '../parts/segments.js';
import { segmentWords } from '../parts/segments.words.js';
import { all, get, part } from '../data/api.js';
import { useLoad } from '../data/use.js';
import { go } from '../data/place.js';
import { num } from '../data/format.js';
import { text } from './topic.words.js';

const REFRESH_MS = 5000;
const c = text.columns;

const columns = [
  { key: 'partition', head: c.partition, num: true, width: 48, sort: (p) => p.partition, cell: (p) => p.partition },
  { key: 'leader', head: c.leader, num: true, width: 72, cell: (p) => p.leader ?? html`<span class="bad">none</span>` },
  { key: 'epoch', head: c.epoch, num: true, width: 72, hide: 'hide-narrow', cell: (p) => p.leader_epoch },
  { key: 'start', head: c.start, num: true, width: 112, hide: 'hide-narrow', sort: (p) => p.low_watermark, cell: (p) => num(p.low_watermark) },
  { key: 'end', head: c.watermark, num: true, width: 112, sort: (p) => p.high_watermark, cell: (p) => num(p.high_watermark) },
  { key: 'stable', head: c.stable, num: true, width: 112, hide: 'hide-mid hide-narrow', cell: (p) => num(p.last_stable_offset) },
  { key: 'bytes', head: c.bytes, num: true, width: 92, sort: (p) => p.bytes, cell: (p) => html`<${Bytes} of=${p.bytes} />` },
  { key: 'segments', head: c.segments, num: true, width: 92, hide: 'hide-narrow', cell: (p) => num(p.segments) },
  {
    key: 'index',
    head: c.index,
    num: true,
    width: 120,
    hide: 'hide-narrow hide-mid',
    title: text.indexNote,
    cell: (p) => html`${num(p.index.entries)}${p.index.gaps ? html` <span class="warn">${num(p.index.gaps)} gaps</span>` : null}`,
  },
  {
    key: 'insync',
    head: c.inSync,
    hide: 'hide-narrow',
    cell: (p) => (p.problem ? html`<span class=${p.leader == null ? 'bad' : 'muted'}>${p.problem}</span>` : p.in_sync.join(', ')),
  },
];

function Placement({ partitions }) {
  const nodes = [...new Set(partitions.flatMap((p) => p.replicas))].sort((a, b) => a - b);
  if (nodes.length < 2) return null;
  return html`<section class="panel map"><header><h2>${text.map}</h2><${MapKey} /></header><div class="body"><dl class="pairs">
    ${nodes.map((node) => html`<dt>${text.node(node)}</dt><dd><${Squares} partitions=${partitions} node=${node} /></dd>`)}</dl></div></section>`;
}

function Segments({ name, partition }) {
  const state = useLoad((signal) => get(`/v1/topics/${part(name)}/partitions/${partition}`, { signal }), [name, partition], REFRESH_MS);
  return html`<${Panel} title=${text.segmentsOf(name, partition)} aside=${html`<span class="muted wide-only">${segmentWords.note}</span>`} flush=${true}>
    <${Loaded} of=${state}>${({ segment_list: segments }) => html`<div class="body"><${SegmentAxis} segments=${segments} words=${segmentWords} /></div>
      <${SegmentTable} segments=${segments} words=${segmentWords} /><div class="body"><${Code} text=${`millstream inspect`} /></div>`}</${Loaded}></${Panel}>`;
}

export function Partitions({ name, query }) {
  const state = useLoad((signal) => all(`/v1/topics/${part(name)}/partitions`, { signal }), [name], REFRESH_MS);
  const chosen = query.partition ?? '0';
  return html`<${Loaded} of=${state}>${(rows) => html`<${Placement} partitions=${rows} />
    <${Panel} flush=${true}><${Table} label=${text.tabs.partitions} inset=${true} rows=${rows} columns=${columns} sort=${query.sort} onSort=${(sort) => go({ sort })} rowKey=${(p) => p.partition}
      chosen=${(p) => String(p.partition) === chosen} onOpen=${(p) => go({ partition: String(p.partition) }, { replace: true })} /></${Panel}>
    <${Segments} key=${chosen} name=${name} partition=${chosen} />`}</${Loaded}>`;
}
