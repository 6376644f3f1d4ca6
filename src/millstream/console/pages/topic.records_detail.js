// One record beside the list: value as tree, raw or hex, then everything that is known about it.
import { html, Icon, Copy, Segments, copyText } from '../parts/ui.js';
import { JsonTree } from '../parts/json.js';
import { go, href } from '../data/place.js';
import { shown, oneLine, placeOf } from '../data/record.js';
import { agoMs, num, plural, sizeText, utc, visible, when } from '../data/format.js';
import { words } from '../words.js';
import { text } from './topic.records_words.js';

// Text of the filter language: a quote in it is written twice.
const quoted = (value) => `'${value.replaceAll("'", "''")}'`;
const literal = (source) => (source[0] === '"' ? quoted(JSON.parse(source)) : source);

function Value({ record, query }) {
  const decode = query.form === 'hex' ? 'hex' : query.decode === 'msgpack' ? 'msgpack' : '';
  const { kind, text: source, problem } = shown(record.value, decode);
  if (kind === 'null') return html`<p class="muted">null: a tombstone where the topic is compacted</p>`;
  if (kind !== 'json' || query.form === 'raw')
    return html`${problem ? html`<p class="warn">${text.problem}: ${problem}</p>` : null}<pre class="rawtext mono" tabindex="0">${kind === 'hex' ? source : visible(source)}</pre>`;
  const tools = (path, node) => [
    ...(node.items
      ? []
      : [
          [
            text.tools.filter,
            () => go({ filter: [query.filter, `${path} == ${literal(node.text)}`].filter(Boolean).join(' and '), at: null }),
          ],
        ]),
    [text.tools.column, () => go({ columns: [...new Set([...(query.columns ?? '').split(',').filter(Boolean), path])].join(',') })],
    [text.tools.copy, () => copyText(node.items ? path : node.text)],
  ];
  return html`<${JsonTree} text=${source} tools=${tools} />`;
}

const Headers = ({ list }) =>
  list.length === 0
    ? html`<span class="muted">${text.noHeaders}</span>`
    : html`<dl class="pairs">${list.slice(0, 200).map(
        (
          header,
        ) => html`<dt class="mono">${visible(header.name)}</dt><dd><code class="cut" title=${oneLine(header.value)}>${oneLine(header.value)}</code>
      ${text.meaning[header.name] ? html`<div class="muted">${text.meaning[header.name]}</div>` : null}</dd>`,
      )}</dl>`;

export function Detail({ record, topic, query, rows, onProduce }) {
  const at = rows.findIndex((r) => placeOf(r) === placeOf(record));
  const near = (step) => rows[at + step] && go({ at: placeOf(rows[at + step]) }, { replace: true });
  const key = record.key == null ? null : oneLine(record.key);
  const value = record.value;
  return html`<aside class="detail" aria-label=${text.detail}>
    <header><div class="grow"><h2 class="mono">${topic.name}/${record.partition}@${num(record.offset)}</h2><div class="muted">${when(record.timestamp_ms)}, ${agoMs(record.timestamp_ms)}</div></div>
      <button type="button" class="icon-button" aria-label=${text.newer} data-key="[" disabled=${at <= 0} onClick=${() => near(-1)}><${Icon} name="up" /></button>
      <button type="button" class="icon-button" aria-label=${text.older} data-key="]" disabled=${at < 0 || at >= rows.length - 1} onClick=${() => near(1)}><${Icon} name="down" /></button>
      <${Copy} text=${() => location.href} label=${text.copyLink} />
      <button type="button" class="icon-button" aria-label=${words.close} data-key="Escape" onClick=${() => go({ at: null })}><${Icon} name="close" /></button></header>
    <div class="detail-body">
      <section><div class="row section-head"><h3>${text.columns.key}</h3><code class="cut">${key ?? '–'}</code><span class="grow" />
        ${key == null ? null : html`<button type="button" class="link" onClick=${() => go({ filter: `key == ${quoted(key)}`, at: null })}>${text.allOfKey}</button>`}</div></section>
      <section><div class="row section-head"><h3>${words.value}</h3>${value?.schema_id ? html`<span class="muted">${value.schema_type ?? ''} <a href=${href(`/schemas/${encodeURIComponent(value.subject ?? '')}`)}>${value.subject ?? ''}</a> ${value.schema_id}</span>` : null}<span class="grow" />
          <${Segments} small=${true} label=${words.value} options=${text.forms.map((form) => [form, form])} value=${query.form ?? 'tree'} onPick=${(form) => go({ form }, { replace: true })} /></div>
        ${value?.problem ? html`<p class="warn">${text.problem}: ${value.problem}</p>` : null}<${Value} record=${record} query=${query} /></section>
      <section><h3>${text.headers}</h3><${Headers} list=${record.headers ?? []} /></section>
      <section><h3>${text.about}</h3><dl class="pairs"><dt>${text.time}</dt><dd>${utc(record.timestamp_ms)}</dd><dt>${text.size}</dt>
        <dd>${sizeText(value?.size ?? 0)}<span class="muted">, key ${sizeText(record.key?.size ?? 0)}, ${plural(record.headers?.length ?? 0, 'header')}</span></dd></dl></section>
    </div>
    <footer><button type="button" class="button" data-key="e" onClick=${() => onProduce(record)}>${text.edit}</button>
      <button type="button" class="button" onClick=${() => onProduce(record)}>${text.resend}</button></footer>
  </aside>`;
}
