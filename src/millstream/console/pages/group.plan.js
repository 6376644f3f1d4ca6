// The plan of a reset: choose, see every partition before and after, then one button that names the act.
import { useEffect, useState } from '../vendor/hooks.js';
import { html } from '../parts/ui.js';
import { ActDialog, Field } from '../parts/overlay.js';
import { Table } from '../parts/table.js';
import { Problem, Note, Code } from '../parts/states.js';
import { post, part } from '../data/api.js';
import { num, plural } from '../data/format.js';

const WAYS = [
  ['earliest', 'Earliest'],
  ['latest', 'Latest'],
  ['time', 'A time'],
  ['age', 'An age'],
  ['offset', 'An offset'],
  ['shift', 'Shift by'],
];
const HINTS = { time: '2026-11-17T13:50', age: '1h30m', offset: '88204000', shift: '-1000' };
const PLAN_MS = 250;

function target(way, value) {
  if (way === 'earliest' || way === 'latest') return { [way]: true };
  if (value === '') return null;
  if (way === 'time') return { time: new Date(value).toISOString() };
  return { [way]: way === 'age' ? value : Number(value) };
}

const columns = [
  { key: 'topic', head: 'Topic', cell: (r) => r.topic },
  { key: 'partition', head: 'P', num: true, width: 44, cell: (r) => r.partition },
  { key: 'from', head: 'Now', num: true, width: 108, hide: 'hide-narrow', cell: (r) => num(r.from) },
  { key: 'to', head: 'After', num: true, width: 108, cell: (r) => html`<b>${num(r.to)}</b>` },
  {
    key: 'means',
    head: 'Means',
    width: 180,
    cell: (r) =>
      r.repeated
        ? html`<span class="accent">${num(r.repeated)} read again</span>`
        : r.skipped
          ? html`<span class="warn">${num(r.skipped)} never read</span>`
          : html`<span class="muted">stays</span>`,
  },
];

export function ResetDialog({ group, onClose, onDone }) {
  const [way, setWay] = useState('earliest');
  const [value, setValue] = useState('');
  const [plan, setPlan] = useState(null);
  const [error, setError] = useState(null);
  const to = target(way, value);
  useEffect(() => {
    if (!to) return undefined;
    const timer = setTimeout(
      () =>
        post(`/v1/groups/${part(group.name)}:plan`, { to }).then(
          (answer) => {
            setPlan(answer);
            setError(null);
          },
          (problem) => {
            setPlan(null);
            setError(problem);
          },
        ),
      PLAN_MS,
    );
    return () => clearTimeout(timer);
  }, [way, value]);
  const rows = plan?.items ?? [];
  const again = plan?.repeated ?? 0;
  const skipped = plan?.skipped ?? 0;
  const members = group.members;
  const flag = way === 'shift' ? `--shift ${value || 0}` : `--to ${way === 'earliest' || way === 'latest' ? way : value || HINTS[way]}`;
  return html`<${ActDialog} className="wide" title=${`Reset ${group.name}`} sub="Every partition, before and after. Nothing has changed yet." label=${`Reset ${plural(rows.length, 'partition')}`} isReady=${rows.length > 0 && members === 0}
    onClose=${onClose} onDone=${onDone} act=${() => post(`/v1/groups/${part(group.name)}:reset`, { token: plan.token })}>
    ${members ? html`<${Note}><b>${plural(members, 'member')} still ${members === 1 ? 'reads' : 'read'}.</b> A reset is refused meanwhile: stop them first.</${Note}>` : null}
    <div class="plan"><div class="stack12"><fieldset><legend>Go to</legend>${WAYS.map(([key, label]) => html`<label class="radio"><input type="radio" name="way" checked=${key === way} onChange=${() => setWay(key)} />${label}</label>`)}</fieldset>
        ${HINTS[way] ? html`<${Field} label=${WAYS.find(([key]) => key === way)[1]}><input class="field mono" placeholder=${HINTS[way]} type=${way === 'time' ? 'datetime-local' : 'text'} value=${value} onInput=${(e) => setValue(e.target.value)} /></${Field}>` : null}</div>
      <div class="plan-table" tabindex="0"><${Table} label="Plan" inset=${true} rows=${rows} columns=${columns} /></div></div>
    <p role="status">${again ? html`<b>${num(again)}</b> records are read again` : ''}${again && skipped ? ', ' : ''}${skipped ? html`<span class="warn"><b>${num(skipped)}</b> are skipped and never read</span>` : ''}</p>
    <${Problem} error=${error} /><${Code} text=${`millstream group reset ${group.name} ${flag} --dry-run`} />
  </${ActDialog}>`;
}
