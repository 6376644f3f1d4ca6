// Pipelines on Spark: a graph of topics and flows, rates on the edges, and what each flow last did.
import { html, Shape, Panel, Title } from '../parts/ui.js';
import { Table } from '../parts/table.js';
import { Graph } from '../parts/graph.js';
import { Loaded, Empty, Note } from '../parts/states.js';
import { all, part } from '../data/api.js';
import { useLoad } from '../data/use.js';
import { useTitle } from '../data/frame.js';
import { href, visit } from '../data/place.js';
import { agoMs, num, short, span } from '../data/format.js';

const REFRESH_MS = 2000;
const LEVEL = { running: 'good', done: 'good', stopped: 'idle', lost: 'bad', failed: 'bad' };

function graphOf(pipeline) {
  const nodes = new Map();
  const edges = [];
  const topic = (name, note) =>
    nodes.has(`t:${name}`) ||
    nodes.set(`t:${name}`, { id: `t:${name}`, type: name.endsWith('.dlq') ? 'dead' : 'topic', lines: [name, note ?? ''], topic: name });
  for (const flow of pipeline.flows) {
    const id = `f:${flow.name}`;
    nodes.set(id, {
      id,
      type: 'flow',
      state: pipeline.state === 'lost' || pipeline.state === 'failed' ? 'lost' : '',
      lines: [flow.name, flow.batch >= 0 ? `batch ${num(flow.batch)}, ${span(flow.duration_ms / 1000)}` : flow.does],
    });
    for (const name of flow.reads) {
      topic(name, flow.lag ? `${short(flow.lag)} behind` : '');
      edges.push([
        `t:${name}`,
        id,
        { text: flow.rows_per_second ? `${short(flow.rows_per_second)}/s` : '', level: pipeline.state === 'lost' ? 'lost' : '' },
      ]);
    }
    for (const name of flow.writes) {
      topic(name);
      edges.push([
        id,
        `t:${name}`,
        {
          text: name.endsWith('.dlq') ? (flow.dead_letters ? short(flow.dead_letters) : '') : short(flow.rows_out),
          level: name.endsWith('.dlq') ? 'bad' : '',
        },
      ]);
    }
  }
  return { nodes: [...nodes.values()], edges };
}

const flowColumns = [
  { key: 'name', head: 'Flow', cell: (f) => html`<b>${f.name}</b>` },
  { key: 'does', head: 'Does', hide: 'hide-narrow', cell: (f) => html`<span class="muted">${f.does}</span>` },
  { key: 'batch', head: 'Batch', num: true, width: 96, cell: (f) => (f.batch < 0 ? '–' : num(f.batch)) },
  { key: 'rate', head: 'Rate', num: true, width: 96, cell: (f) => (f.rows_per_second ? `${short(f.rows_per_second)}/s` : '–') },
  { key: 'in', head: 'Rows in', num: true, width: 110, hide: 'hide-narrow', cell: (f) => num(f.rows_in) },
  { key: 'out', head: 'Rows out', num: true, width: 110, hide: 'hide-narrow', cell: (f) => num(f.rows_out) },
  { key: 'time', head: 'Took', num: true, width: 96, hide: 'hide-narrow', cell: (f) => span(f.duration_ms / 1000) },
  { key: 'lag', head: 'Behind', num: true, width: 96, cell: (f) => num(f.lag) },
  { key: 'dead', head: 'Dead letters', num: true, width: 112, hide: 'hide-narrow', cell: (f) => num(f.dead_letters) },
];

function One({ pipeline }) {
  const { nodes, edges } = graphOf(pipeline);
  const open = (node) => node.topic && visit(`/topics/${part(node.topic)}`);
  return html`<${Title} facts=${[html`<${Shape} level=${LEVEL[pipeline.state] ?? 'idle'} label=${pipeline.state} /> ${pipeline.state}`, pipeline.updated_ms ? `reported ${agoMs(pipeline.updated_ms)}` : null]}>${pipeline.name}</${Title}>
    ${pipeline.error ? html`<${Note} level="bad"><b>${pipeline.state}</b> <code>${pipeline.error}</code></${Note}>` : null}
    ${nodes.length ? html`<section class="panel graph-panel"><div class="graph-box scroll" tabindex="0"><${Graph} label=${`Flows of ${pipeline.name}`} nodes=${nodes} edges=${edges} onOpen=${open} /></div></section>` : null}
    <${Panel} title="Flows" flush=${true}><${Table} label="Flows" inset=${true} rows=${pipeline.flows} columns=${flowColumns} /></${Panel}>`;
}

export function Page({ params: [name] }) {
  const state = useLoad((signal) => all('/v1/pipelines', { signal }), [], REFRESH_MS);
  const chosen = name ?? state.data?.[0]?.name;
  useTitle({
    title: name ?? 'Pipelines',
    crumbs: name ? [['Pipelines', '/pipelines'], [name]] : [['Pipelines']],
    commands: { cli: 'millstream pipeline top', curl: `curl ${location.origin}/v1/pipelines` },
  });
  const content = (list) => {
    if (!list.length)
      return html`<${Title}>Pipelines</${Title}><${Empty} title="No pipeline reports here" code="millstream pipeline init grams && millstream pipeline run grams">A pipeline that runs on Spark reports its flows to this broker by itself.</${Empty}>`;
    const pipeline = list.find((p) => p.name === chosen);
    return html`${list.length > 1 ? html`<nav class="tabs" aria-label="Pipelines">${list.map((p) => html`<a href=${href(`/pipelines/${part(p.name)}`)} aria-current=${p.name === chosen ? 'page' : null}>${p.name}</a>`)}</nav>` : null}
      ${pipeline ? html`<${One} pipeline=${pipeline} />` : html`<${Empty} title=${`There is no pipeline ${name}`} />`}`;
  };
  return html`<div class="page"><${Loaded} of=${state}>${content}</${Loaded}></div>`;
}
