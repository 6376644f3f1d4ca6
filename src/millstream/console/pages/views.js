// Views: filtered topics that every client reads. Creating one shows how much passes.
import { useEffect, useState } from '../vendor/hooks.js';
import { html, Icon, Act } from '../parts/ui.js';
import { ListPage } from '../parts/list_page.js';
import { ActDialog, Field } from '../parts/overlay.js';
import { Code } from '../parts/states.js';
import { all, call, part, post } from '../data/api.js';
import { go, href, visit } from '../data/place.js';
import { num } from '../data/format.js';

const CHECK_MS = 300;

function useCheck(filter, topic) {
  const [answer, setAnswer] = useState(null);
  useEffect(() => {
    setAnswer(null);
    if (!filter || !topic) return undefined;
    const timer = setTimeout(
      () => post('/v1/filters:check', { filter, topic }).then(setAnswer, (error) => setAnswer({ message: error.message, is_valid: false })),
      CHECK_MS,
    );
    return () => clearTimeout(timer);
  }, [filter, topic]);
  return answer;
}

function CreateDialog({ query, onClose, onDone }) {
  const [name, setName] = useState('');
  const [topic, setTopic] = useState(query.topic ?? '');
  const [filter, setFilter] = useState(query.filter ?? '');
  const answer = useCheck(filter, topic);
  const isWrong = answer?.is_valid === false;
  return html`<${ActDialog} title="Create a view" sub="A read-only topic: every client reads the records that pass." label=${`Create ${name || 'the view'}`} isReady=${Boolean(name && topic && filter && !isWrong)} onClose=${onClose}
    onDone=${onDone} act=${() => call('POST', '/v1/views', { body: { name, topic, filter } })}>
    <div class="form"><${Field} label="Name"><input class="field mono" autofocus value=${name} onInput=${(e) => setName(e.target.value.trim())} /></${Field}>
      <${Field} label="Topic"><input class="field mono" value=${topic} onInput=${(e) => setTopic(e.target.value.trim())} /></${Field}>
      <div class="whole"><${Field} label="Filter" error=${isWrong ? answer.message : ''}><textarea class="field" rows="3" spellcheck="false" value=${filter} onInput=${(e) => setFilter(e.target.value)} /></${Field}></div></div>
    ${answer && !isWrong ? html`<p role="status"><b>${num(answer.passed)}</b> of the last ${num(answer.looked_at)} records pass.</p>` : null}
    <${Code} text=${`millstream view create ${name || 'NAME'} --topic ${topic || 'TOPIC'} --filter ${JSON.stringify(filter)}`} />
  </${ActDialog}>`;
}

export function Page({ query }) {
  const [remove, setRemove] = useState(null);
  const columns = () => [
    {
      key: 'name',
      head: 'View',
      width: 260,
      sort: (v) => v.name,
      cell: (v) => html`<a class="name" href=${href(`/topics/${part(v.name)}`)}>${v.name}</a>`,
    },
    {
      key: 'topic',
      head: 'Topic',
      width: 220,
      sort: (v) => v.topic,
      cell: (v) => html`<a class="plain" href=${href(`/topics/${part(v.topic)}`)}>${v.topic}</a>`,
    },
    { key: 'filter', head: 'Filter', plain: (v) => v.filter, cell: (v) => html`<code title=${v.filter}>${v.filter}</code>` },
    {
      key: 'act',
      head: '',
      label: 'Delete',
      width: 92,
      cell: (v) => html`<button type="button" class="link" onClick=${() => setRemove(v)}>Delete…</button>`,
    },
  ];
  return html`<${ListPage} title="Views" query=${query} load=${(signal) => all('/v1/views', { signal })} columns=${columns} textOf=${(v) => `${v.name} ${v.topic} ${v.filter}`} rowKey=${(v) => v.name} empty="No view yet"
    emptyCode=${"millstream view create big-orders --topic orders --filter '$.total > 500'"} acts=${() => html`<${Act} primary=${true} dataKey="p" onClick=${() => go({ create: '1' })}><${Icon} name="plus" size=${14} />Create</${Act}>`}
    commands=${{ cli: 'millstream view list', curl: `curl ${location.origin}/v1/views` }}>
    ${(state) => html`${
      query.create
        ? html`<${CreateDialog} query=${query} onClose=${() => go({ create: null, topic: null, filter: null })} onDone=${() => {
            visit('/views');
            state.reload();
          }} />`
        : null
    }
      ${remove ? html`<${ActDialog} title=${`Delete ${remove.name}`} label=${`Delete ${remove.name}`} danger=${true} typed=${remove.name} onClose=${() => setRemove(null)} onDone=${state.reload} act=${() => call('DELETE', `/v1/views/${part(remove.name)}`)}><p>The topic ${remove.topic} and its records stay.</p></${ActDialog}>` : null}`}
  </${ListPage}>`;
}
