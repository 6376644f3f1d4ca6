// Partitions that move between nodes, and nodes that leave: what is under way, and acts by plan.
import { useEffect, useState } from '../vendor/hooks.js';
import { html } from '../parts/ui.js';
import { ActDialog, Field } from '../parts/overlay.js';
import { Code, Problem } from '../parts/states.js';
import { Table } from '../parts/table.js';
import { call, post } from '../data/api.js';
import { text } from './cluster.words.js';

const PLAN_MS = 300;
const numbers = (typed) => (typed.match(/\d+/g) ?? []).map(Number);

const columns = [
  { key: 'partition', head: text.columns.partition, cell: (m) => html`<b>${m.topic}/${m.partition}</b>` },
  { key: 'replicas', head: text.columns.replicas, width: 140, cell: (m) => m.replicas.join(', ') },
  { key: 'adding', head: text.columns.adding, width: 120, cell: (m) => m.adding.join(', ') || '–' },
  { key: 'removing', head: text.columns.removing, width: 120, cell: (m) => m.removing.join(', ') || '–' },
];

export function Moves({ moves, onDone, isAllowed }) {
  const [error, setError] = useState(null);
  if (!moves.length) return null;
  const stop = (m) => call('DELETE', '/v1/reassignments', { query: { topic: m.topic, partition: m.partition } }).then(onDone, setError);
  const act = {
    key: 'act',
    head: '',
    label: text.takeBack,
    width: 112,
    cell: (m) => html`<button type="button" class="link" aria-disabled=${isAllowed ? null : 'true'} onClick=${() => isAllowed && stop(m)}>${text.takeBack}</button>`,
  };
  return html`<section class="panel"><header><h2>${text.moves}</h2><span class="muted">${text.underWay(moves.length)}</span></header>
    <${Table} label=${text.moves} inset=${true} rows=${moves} columns=${[...columns, act]} /><${Problem} error=${error} onDismiss=${() => setError(null)} /></section>`;
}

// The broker plans the move by `dry_run`; what it would refuse stands here before the act.
function usePlan(topic, partitions) {
  const [plan, setPlan] = useState({ items: [], error: null });
  const key = JSON.stringify([topic, partitions]);
  useEffect(() => {
    if (!topic || !Object.values(partitions).every((nodes) => nodes.length)) {
      setPlan({ items: [], error: null });
      return undefined;
    }
    const timer = setTimeout(
      () =>
        post('/v1/reassignments', { topic, partitions, dry_run: true }).then(
          (answer) => setPlan({ items: answer.items, error: null }),
          (error) => setPlan({ items: [], error }),
        ),
      PLAN_MS,
    );
    return () => clearTimeout(timer);
  }, [key]);
  return plan;
}

export function MoveDialog({ onClose, onDone }) {
  const [topic, setTopic] = useState('');
  const [partition, setPartition] = useState('0');
  const [nodes, setNodes] = useState('');
  const partitions = { [partition]: numbers(nodes) };
  const plan = usePlan(topic, partitions);
  return html`<${ActDialog} className="wide" title=${text.move} sub=${text.moveNote} label=${text.moveAct(plan.items.length)} isReady=${plan.items.length > 0} onClose=${onClose} onDone=${onDone} act=${() => post('/v1/reassignments', { topic, partitions })}>
    <div class="form"><${Field} label=${text.columns.topic}><input class="field mono" autofocus value=${topic} onInput=${(e) => setTopic(e.target.value.trim())} /></${Field}>
      <${Field} label=${text.columns.partition}><input class="field mono" inputmode="numeric" value=${partition} onInput=${(e) => setPartition(e.target.value.trim())} /></${Field}>
      <div class="whole"><${Field} label=${text.moveNodes}><input class="field mono" value=${nodes} onInput=${(e) => setNodes(e.target.value)} /></${Field}></div></div>
    ${plan.items.length ? html`<${Table} label=${text.plan} inset=${true} rows=${plan.items} columns=${columns} />` : null}<${Problem} error=${plan.error} />
    <${Code} text=${`curl ${location.origin}/v1/reassignments -H 'Content-Type: application/json' -d '${JSON.stringify({ topic, partitions, dry_run: true })}'`} /></${ActDialog}>`;
}

export const LeaveDialog = ({ node, onClose, onDone }) => html`<${ActDialog} title=${text.leaveTitle(node.id)} label=${text.leaveTitle(node.id)} danger=${true} typed=${String(node.id)} onClose=${onClose} onDone=${onDone}
  act=${() => call('POST', `/v1/nodes/${node.id}:decommission`)}><p>${text.leaveNote(node)}</p><${Code} text=${`curl -X POST ${location.origin}/v1/nodes/${node.id}:decommission`} /></${ActDialog}>`;
