// Who may do what to a resource as a matrix, and why: the broker answers by which rule.
import { useState } from '../vendor/hooks.js';
import { html, Shape } from '../parts/ui.js';
import { Field } from '../parts/overlay.js';
import { Empty, Loaded, Note, Problem } from '../parts/states.js';
import { all, post, rules } from '../data/api.js';
import { useLoad } from '../data/use.js';
import { go } from '../data/place.js';
import { Choose, KINDS, OPERATIONS } from './access.rules.js';
import { words } from '../words.js';
import { text } from './access.words.js';

const PRINCIPALS_MAX = 20;
const SHOWN = ['read', 'write', 'create', 'delete', 'alter', 'describe'];
const HOST = '127.0.0.1';

const Verdict = ({ answer }) =>
  html`<${Note} level=${answer.is_allowed ? 'good' : 'bad'}><b>${answer.is_allowed ? text.allowed : text.denied}</b> ${text.by(answer.rule)}</${Note}>`;

export function Why() {
  const [question, setQuestion] = useState({ principal: 'User:', operation: 'read', resource_type: 'topic', resource_name: '', host: HOST });
  const [answer, setAnswer] = useState(null);
  const [error, setError] = useState(null);
  const set = (key) => (value) => setQuestion({ ...question, [key]: value });
  const typed = (key, label) =>
    html`<${Field} label=${label}><input class="field mono" value=${question[key]} onInput=${(e) => set(key)(e.target.value)} /></${Field}>`;
  const check = (event) => {
    event.preventDefault();
    setError(null);
    setAnswer(null);
    post('/v1/acls:check', question).then(setAnswer, setError);
  };
  return html`<form class="panel" onSubmit=${check}><div class="body stack12 padded"><div class="form">${typed('principal', text.columns.principal)}
      <${Choose} label=${text.columns.operation} value=${question.operation} options=${OPERATIONS} onPick=${set('operation')} /><${Choose} label=${text.resource} value=${question.resource_type} options=${KINDS} onPick=${set('resource_type')} />
      ${typed('resource_name', text.name)}${typed('host', text.from)}</div>
    <div><button type="submit" class="button primary">${text.may}</button></div><${Problem} error=${error} />${answer ? html`<${Verdict} answer=${answer} />` : null}</div></form>`;
}

async function matrix(kind, name, signal) {
  const [users, roles, acls] = await Promise.all([all('/v1/users', { signal }), all('/v1/roles', { signal }), rules('/v1/acls', { signal, most: 1 })]);
  if (acls.isOff) return { isOff: true };
  const names = [...users.map((u) => `User:${u.name}`), ...roles.map((r) => `Role:${r.name}`)];
  const rows = [];
  for (const principal of names.slice(0, PRINCIPALS_MAX)) {
    const ask = (operation) => post('/v1/acls:check', { principal, operation, resource_type: kind, resource_name: name, host: HOST }, { signal });
    rows.push({ principal, cells: await Promise.all(SHOWN.map(ask)) });
  }
  return { rows, isCut: names.length > PRINCIPALS_MAX };
}

const Cell = ({ principal, operation, answer, onPick }) =>
  html`<td><button type="button" aria-label=${text.cell(principal, operation, answer.is_allowed, answer.rule)} onClick=${onPick}><${Shape} level=${answer.is_allowed ? 'good' : 'idle'} /></button></td>`;

export function Matrix({ query }) {
  const kind = query.kind ?? 'topic';
  const name = query.of ?? '*';
  const [chosen, setChosen] = useState(null);
  const state = useLoad((signal) => matrix(kind, name, signal), [kind, name]);
  return html`<div class="toolbar"><${Choose} label=${text.resource} value=${kind} options=${KINDS} onPick=${(next) => go({ kind: next })} />
      <${Field} label=${text.name}><input class="field mono" value=${name} onChange=${(e) => go({ of: e.target.value })} /></${Field}></div>
    <${Loaded} of=${state}>${({ rows, isCut, isOff }) => (isOff ? html`<${Empty} title=${words.rulesOff} code=${words.rulesOn} />` : html`<section class="panel"><div class="body padded scroll" tabindex="0"><table class="matrix access-matrix" aria-label=${text.tabs.matrix}>
        <thead><tr><th scope="col">${text.columns.principal}</th>${SHOWN.map((operation) => html`<th scope="col">${operation}</th>`)}</tr></thead>
        <tbody>${rows.map(({ principal, cells }) => html`<tr><th scope="row">${principal}</th>${cells.map((answer, i) => html`<${Cell} principal=${principal} operation=${SHOWN[i]} answer=${answer} onPick=${() => setChosen([principal, SHOWN[i], answer])} />`)}</tr>`)}</tbody></table></div></section>
      <div role="status">${chosen ? html`<p><b>${chosen[0]}</b> ${chosen[1]} <code>${kind}:${name}</code></p><${Verdict} answer=${chosen[2]} />` : html`<p class="muted">${text.matrixNote}</p>`}</div>
      ${isCut ? html`<p class="muted">${text.matrixCut(PRINCIPALS_MAX)}</p>` : null}`)}</${Loaded}>`;
}
