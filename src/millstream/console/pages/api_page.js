// The API: every route of the OpenAPI document, with its right and a command to copy.
import { useState } from '../vendor/hooks.js';
import { html, Chip, Icon, Panel, Title } from '../parts/ui.js';
import { Loaded, Code } from '../parts/states.js';
import { get } from '../data/api.js';
import { useLoad } from '../data/use.js';
import { useTitle } from '../data/frame.js';
import { go } from '../data/place.js';

const METHODS = ['get', 'post', 'put', 'patch', 'delete'];
const LEVEL = { get: 'accent', delete: 'bad', post: 'good', put: 'warn', patch: 'warn' };

function operations(document) {
  return Object.entries(document.paths ?? {}).flatMap(([path, item]) =>
    METHODS.filter((m) => item[m]).map((method) => ({ path, method, ...item[method] })),
  );
}

function Operation({ of }) {
  const [isOpen, setOpen] = useState(false);
  const [answer, setAnswer] = useState('');
  const body = Object.values(of.requestBody?.content ?? {})[0];
  const example = body?.example ?? Object.values(body?.examples ?? {})[0]?.value;
  const data =
    of.method === 'get'
      ? ''
      : ` -X ${of.method.toUpperCase()}${example ? ` -H 'Content-Type: application/json' -d '${JSON.stringify(example)}'` : ''}`;
  const run = async () => setAnswer((await (await fetch(of.path, { headers: { Accept: 'application/json' } })).text()).slice(0, 20000));
  const isPlain = of.method === 'get' && !of.path.includes('{') && !/tail|events|export/.test(of.path);
  return html`<li class="operation"><button type="button" class="kind" aria-expanded=${String(isOpen)} onClick=${() => setOpen(!isOpen)}><${Chip} level=${LEVEL[of.method]}>${of.method.toUpperCase()}</${Chip}><code class="grow">${of.path}</code><span class="muted cut">${of.summary ?? ''}</span></button>
    ${isOpen ? html`<div class="body stack12"><p>${of.description ?? ''}</p><${Code} text=${`curl${data} '${location.origin}${of.path}'`} />${isPlain ? html`<div><button type="button" class="button" onClick=${run}>Try it</button></div>` : null}${answer ? html`<${Code} prompt=${false} text=${answer} />` : null}</div>` : null}</li>`;
}

export function Page({ query }) {
  const state = useLoad((signal) => get('/v1/openapi.json', { signal }), []);
  useTitle({ title: 'API', crumbs: [['API']], commands: { cli: 'millstream health', curl: `curl ${location.origin}/v1/openapi.json` } });
  const find = (query.name ?? '').toLowerCase();
  return html`<div class="page"><${Title}>API</${Title}><div class="toolbar"><label class="fieldbox finder"><${Icon} name="search" size=${14} /><input data-find aria-label="Find a route" placeholder="Path or word" value=${query.name ?? ''} onInput=${(e) => go({ name: e.target.value }, { replace: true })} /><kbd>/</kbd></label></div>
    <${Loaded} of=${state}>${(document) =>
      html`<${Panel} flush=${true}><ul class="kinds">${operations(document)
        .filter((o) => !find || `${o.path} ${o.summary}`.toLowerCase().includes(find))
        .map((o) => html`<${Operation} key=${o.method + o.path} of=${o} />`)}</ul></${Panel}>`}</${Loaded}></div>`;
}
