// A subject: its versions, the difference of any two, and a new version checked while it is typed.
import { useEffect, useState } from '../vendor/hooks.js';
import { html, Chip, Panel, Title } from '../parts/ui.js';
import { ActDialog } from '../parts/overlay.js';
import { Loaded, Note, Problem, Code } from '../parts/states.js';
import { Diff } from '../parts/diff.js';
import { call, get, part, post } from '../data/api.js';
import { useLoad } from '../data/use.js';
import { useTitle } from '../data/frame.js';
import { go, visit } from '../data/place.js';
import { plural } from '../data/format.js';

const CHECK_MS = 400;
const LEVELS = ['NONE', 'BACKWARD', 'BACKWARD_TRANSITIVE', 'FORWARD', 'FORWARD_TRANSITIVE', 'FULL', 'FULL_TRANSITIVE'];
const pretty = (schema, type) => {
  if (type === 'PROTOBUF') return schema;
  try {
    return JSON.stringify(JSON.parse(schema), null, 2);
  } catch {
    return schema;
  }
};

async function load(subject, signal) {
  const numbers = await get(`/subjects/${part(subject)}/versions`, { signal });
  const [versions, level] = await Promise.all([
    Promise.all(numbers.slice(-50).map((n) => get(`/subjects/${part(subject)}/versions/${n}`, { signal }))),
    get(`/config/${part(subject)}`, { signal, query: { defaultToGlobal: 'true' } }).catch(() => ({})),
  ]);
  return { versions, level: level.compatibilityLevel ?? 'BACKWARD' };
}

function useExplain(subject, type, schema) {
  const [answer, setAnswer] = useState(null);
  useEffect(() => {
    setAnswer(null);
    if (!schema.trim()) return undefined;
    const timer = setTimeout(
      () =>
        post('/v1/schemas:explain', { subject, schema, type }).then(
          (data) => setAnswer({ data }),
          (error) => setAnswer({ error }),
        ),
      CHECK_MS,
    );
    return () => clearTimeout(timer);
  }, [schema]);
  return answer;
}

function Verdict({ answer }) {
  if (!answer) return null;
  if (answer.error) return html`<${Problem} error=${answer.error} />`;
  const levels = answer.data.levels ?? [];
  const differences = answer.data.differences ?? levels.flatMap((l) => l.differences ?? []);
  const isGood = answer.data.is_compatible ?? levels.every((l) => l.is_compatible);
  return html`<${Note} level=${isGood ? 'good' : 'bad'}><b>${isGood ? 'It may be registered.' : 'It would be refused.'}</b>
    <ul class="levels">${levels.map((l) => html`<li><${Chip} level=${l.is_compatible ? 'good' : 'bad'}>${l.level}</${Chip}></li>`)}</ul>
    ${differences.slice(0, 20).map((d) => html`<div class="said-box"><div><code>${d.path}</code> <b>${d.rule}</b><p>${d.message ?? d.breaks ?? ''}</p>${(d.advice ?? d.instead) ? html`<p class="good">${d.advice ?? d.instead}</p>` : null}</div></div>`)}</${Note}>`;
}

function NewVersion({ subject, newest, onClose, onDone }) {
  const [schema, setSchema] = useState(pretty(newest.schema, newest.schemaType));
  const answer = useExplain(subject, newest.schemaType ?? 'AVRO', schema);
  return html`<${ActDialog} className="wide" title=${`New version of ${subject}`} label="Register the version" isReady=${!answer?.error} onClose=${onClose} onDone=${onDone}
    act=${() => call('POST', `/subjects/${part(subject)}/versions`, { body: { schema, schemaType: newest.schemaType, references: newest.references } })}>
    <textarea class="field" rows="16" spellcheck="false" aria-label="Schema" value=${schema} onInput=${(e) => setSchema(e.target.value)} /><${Verdict} answer=${answer} /></${ActDialog}>`;
}

function Versions({ data, query, subject }) {
  const [a, b] = [
    query.base ? Number(query.base) : data.versions.at(-2)?.version,
    query.version ? Number(query.version) : data.versions.at(-1)?.version,
  ];
  const of = (n) => data.versions.find((v) => v.version === n);
  const [before, after] = [of(a), of(b)];
  return html`<div class="rail-split"><${Panel} title="Versions" flush=${true}><ul class="rail">${[...data.versions].reverse().map(
    (v) => html`<li aria-current=${v.version === b ? 'true' : v.version === a ? 'base' : null}>
        <button type="button" class="link" onClick=${() => go({ version: v.version })}><b>v${v.version}</b></button><span class="muted">id ${v.id}</span><span class="grow" />${v.version !== b ? html`<button type="button" class="link" onClick=${() => go({ base: v.version })}>compare</button>` : null}</li>`,
  )}</ul></${Panel}>
    <${Panel} title=${before ? `v${a} and v${b}` : `v${b}`} flush=${true}>${
      before && after
        ? html`<${Diff} label=${`Difference of versions ${a} and ${b} of ${subject}`} names=${[`v${a}`, `v${b}`]} before=${pretty(before.schema, before.schemaType)} after=${pretty(after.schema, after.schemaType)} />`
        : html`<div class="body"><${Code} prompt=${false} text=${pretty(after?.schema ?? '', after?.schemaType)} /></div>`
    }</${Panel}></div>`;
}

export function Page({ params: [subject], query }) {
  const state = useLoad((signal) => load(subject, signal), [subject], 15000);
  const [dialog, setDialog] = useState('');
  useTitle({
    title: subject,
    crumbs: [['Schemas', '/schemas'], [subject]],
    commands: {
      cli: `millstream schema describe ${subject}`,
      curl: `curl ${location.origin}/subjects/${part(subject)}/versions/latest`,
      python: `SchemaRegistryClient({"url": "${location.origin}"}).get_latest_version("${subject}")`,
    },
  });
  const setLevel = (level) => call('PUT', `/config/${part(subject)}`, { body: { compatibility: level } }).then(state.reload);
  const content = (data) => {
    const newest = data.versions.at(-1);
    return html`<${Title} facts=${[newest.schemaType ?? 'AVRO', plural(data.versions.length, 'version'), html`id <b>${newest.id}</b>`]} acts=${html`<button type="button" class="button primary" data-key="p" onClick=${() => setDialog('new')}>New version…</button><button type="button" class="button danger" onClick=${() => setDialog('delete')}>Delete…</button>`}><span class="cut">${subject}</span></${Title}>
      <label class="row"><span class="muted">Compatibility</span><select class="field" value=${data.level} onChange=${(e) => setLevel(e.target.value)}>${LEVELS.map((level) => html`<option value=${level}>${level}</option>`)}</select></label>
      <${Versions} data=${data} query=${query} subject=${subject} />
      ${dialog === 'new' ? html`<${NewVersion} subject=${subject} newest=${newest} onClose=${() => setDialog('')} onDone=${state.reload} />` : null}
      ${dialog === 'delete' ? html`<${ActDialog} title=${`Delete ${subject}`} label=${`Delete ${subject}`} danger=${true} typed=${subject} onClose=${() => setDialog('')} onDone=${() => visit('/schemas')} act=${() => call('DELETE', `/subjects/${part(subject)}`)}><p>Softly: its ids stay readable, registering brings it back.</p></${ActDialog}>` : null}`;
  };
  return html`<div class="page"><${Loaded} of=${state}>${content}</${Loaded}></div>`;
}
