// A topic: its facts, its acts, and a tab for each thing that belongs to it. Records come first.
import { useState } from '../vendor/hooks.js';
import { html, Icon, Chip, Act, Keys, Title } from '../parts/ui.js';
import { Loaded, Note } from '../parts/states.js';
import { ProduceDialog } from '../parts/produce.js';
import { Menu } from '../parts/menu.js';
import { call, part } from '../data/api.js';
import { useLoad } from '../data/use.js';
import { kindOf, retentionMs, tagsOf } from '../data/topic.js';
import { useTitle, useTopicRights } from '../data/frame.js';
import { href } from '../data/place.js';
import { num, sizeText, short, span } from '../data/format.js';
import { words } from '../words.js';
import { Records } from './topic.records.js';
import { queryOf } from './topic.records_query.js';
import { TABS } from './topic.tabs.js';
import { GrowDialog, TruncateDialog, DeleteDialog } from './topic.acts.js';
import { text } from './topic.words.js';

const REFRESH_MS = 5000;

function commandsOf(name, tab, query) {
  const at = (path) => `curl ${location.origin}/v1/topics/${part(name)}${path}`;
  if (tab !== 'records')
    return { cli: text.commands[tab]?.(name) ?? `millstream topic describe ${name}`, curl: at(tab === 'partitions' ? '/partitions' : '') };
  const asked = queryOf(query);
  const flags = [
    asked.filter && `--filter ${JSON.stringify(asked.filter)}`,
    asked.partition && `--partition ${asked.partition}`,
    query.live ? '--follow' : asked.from ? `--from ${asked.from}` : '--from latest',
    query.live ? '' : '--count 100',
  ]
    .filter(Boolean)
    .join(' ');
  const data = asked.filter ? ` --data-urlencode ${JSON.stringify(`filter=${asked.filter}`)}` : '';
  return {
    cli: `millstream consume ${name} ${flags}`,
    curl: query.live
      ? `curl -N ${location.origin}/v1/topics/${part(name)}/records/tail`
      : `curl -G ${location.origin}/v1/topics/${part(name)}/records -d order=newest${data}`,
    python: `connect().consumer(${JSON.stringify(name)}${asked.filter ? `, filter=${JSON.stringify(asked.filter)}` : ''})`,
  };
}

function Head({ topic, setDialog, isAllowed }) {
  const name = topic.name;
  const rights = { write: isAllowed('WRITE'), alter: isAllowed('ALTER'), remove: isAllowed('DELETE') };
  const facts = [
    text.kinds[kindOf(topic)] ?? topic.kind,
    html`<b>${num(topic.partitions)}</b> ${text.partitions}`,
    topic.append_rate ? html`<b>${short(topic.append_rate)}</b>/s ${text.written}` : null,
    topic.bytes != null ? html`<b>${sizeText(topic.bytes)}</b>` : null,
    retentionMs(topic) > 0 ? html`${text.kept} <b>${span(retentionMs(topic) / 1000)}</b>` : null,
    topic.owner ? html`${text.owner} <b>${topic.owner}</b>` : null,
  ];
  const acts = html`<${Act} may=${rights.write} needs=${words.needs('WRITE', 'topic', name)} dataKey="p" onClick=${() => setDialog(['produce'])}><${Icon} name="plus" size=${14} />${text.produce}<${Keys} of="p" /></${Act}>
    <${Menu} label=${text.more} items=${[
      [text.grow, () => setDialog(['grow']), rights.alter, words.needs('ALTER', 'topic', name)],
      [text.truncate, () => setDialog(['truncate']), rights.remove, words.needs('DELETE', 'topic', name)],
      [text.remove, () => setDialog(['delete']), rights.remove, words.needs('DELETE', 'topic', name)],
    ]} />`;
  return html`<${Title} facts=${facts} acts=${acts}><span class="cut">${name}</span>${tagsOf(topic).map((tag) => html`<${Chip}>${tag}</${Chip}>`)}</${Title}>
    ${topic.settings?.purpose ? html`<p class="muted">${topic.settings.purpose}</p>` : null}`;
}

export function Page({ params: [name, tab = 'records'], query }) {
  const topic = useLoad(
    async (signal) => {
      const { data, etag } = await call('GET', `/v1/topics/${part(name)}`, { signal });
      return { ...data, etag };
    },
    [name],
    REFRESH_MS,
  );
  const isAllowed = useTopicRights(name);
  const [dialog, setDialog] = useState(null);
  const [said, setSaid] = useState('');
  useTitle({ title: name, crumbs: [['Topics', '/topics'], [name]], commands: commandsOf(name, tab, query) });
  const Tab = TABS.find(([key]) => key === tab)?.[1];
  const done = (sentence) => {
    setSaid(sentence);
    topic.reload();
  };
  const produced = (answer) => done(text.produced(name, answer?.items?.[0] ?? {}));
  const content = (data) => html`<div class="stack12"><${Head} topic=${data} setDialog=${setDialog} isAllowed=${isAllowed} />
      ${said ? html`<${Note} level="good">${said}</${Note}>` : null}
      <nav class="tabs" aria-label=${text.ofThisTopic}>${[['records'], ...TABS].map(([key]) => html`<a href=${href(`/topics/${part(name)}${key === 'records' ? '' : `/${key}`}`)} aria-current=${key === tab ? 'page' : null}>${text.tabs[key]}</a>`)}</nav></div>
    ${Tab ? html`<${Tab} topic=${data} name=${name} isAllowed=${isAllowed} query=${query} reload=${topic.reload} />` : html`<${Records} topic=${data} query=${query} onProduce=${(record) => setDialog(['produce', record])} />`}
    ${dialog?.[0] === 'produce' ? html`<${ProduceDialog} topic=${name} record=${dialog[1]} onClose=${() => setDialog(null)} onDone=${produced} />` : null}
    ${dialog?.[0] === 'grow' ? html`<${GrowDialog} topic=${data} onClose=${() => setDialog(null)} onDone=${() => done(text.grown)} />` : null}
    ${dialog?.[0] === 'truncate' ? html`<${TruncateDialog} topic=${data} onClose=${() => setDialog(null)} onDone=${() => done(text.truncated)} />` : null}
    ${dialog?.[0] === 'delete' ? html`<${DeleteDialog} topic=${data} onClose=${() => setDialog(null)} />` : null}`;
  return html`<div class=${`page${tab === 'records' ? ' full records-page' : ''}`}><${Loaded} of=${topic}>${content}</${Loaded}></div>`;
}
