// Above the records: the filter with the place of a mistake, where to read from, which partition, and the live switch.
import { useEffect, useRef, useState } from '../vendor/hooks.js';
import { html, Icon, Shape } from '../parts/ui.js';
import { FilterText } from '../parts/json.js';
import { post } from '../data/api.js';
import { go } from '../data/place.js';
import { filterOf } from './topic.records_filter.js';
import { text } from './topic.records_words.js';

const CHECK_MS = 250;

// {mistake, sentence} of what is typed, asked of the broker's own parser.
function useCheck(typed, topic) {
  const [state, setState] = useState({ mistake: null, sentence: '' });
  useEffect(() => {
    const filter = filterOf(typed);
    if (!filter) {
      setState({ mistake: null, sentence: '' });
      return undefined;
    }
    const timer = setTimeout(() => {
      post('/v1/filters:check', { filter }).then(
        (answer) => setState(answer.is_valid ? { mistake: null, sentence: '' } : { mistake: answer.place, sentence: answer.message }),
        () => setState({ mistake: null, sentence: '' }),
      );
    }, CHECK_MS);
    return () => clearTimeout(timer);
  }, [typed]);
  return state;
}

function Pick({ label, name, options, query, dataKey }) {
  return html`<label class="pick"><span class="muted">${label}</span><select aria-label=${label} data-key=${dataKey} value=${query[name] ?? ''}
    onChange=${(e) => go({ [name]: e.target.value, at: null, live: null })}>${options.map(([value, shown]) => html`<option value=${value}>${shown}</option>`)}</select></label>`;
}

export function FilterBar({ topic, query, isLive, onRefresh }) {
  const [typed, setTyped] = useState(query.filter ?? '');
  const shownText = useRef(null);
  useEffect(() => setTyped(query.filter ?? ''), [query.filter]);
  const { mistake, sentence } = useCheck(typed, topic.name);
  const onKey = (event) => {
    if (event.key === 'Enter') {
      if (typed === (query.filter ?? '')) onRefresh();
      else go({ filter: typed, at: null });
    } else if (event.key === 'Escape') event.currentTarget.blur();
  };
  const count = topic.partitions ?? 1;
  return html`<div class="filterbar">
    <div class=${`fieldbox filter${sentence ? ' wrong' : ''}`}><${Icon} name="search" size=${14} />
      <div class="typed"><div class="shown json mono" aria-hidden="true" ref=${shownText}><${FilterText} text=${typed} mistake=${mistake} /></div>
        <input class="mono" data-find spellcheck="false" autocomplete="off" aria-label=${text.filter} aria-invalid=${sentence ? 'true' : null} aria-describedby=${sentence ? 'filter-mistake' : null}
          placeholder=${text.filterHint} value=${typed} onInput=${(e) => setTyped(e.target.value)} onScroll=${(e) => {
            shownText.current.scrollLeft = e.target.scrollLeft;
          }} onKeyDown=${onKey} /></div>
      ${
        typed
          ? html`<button type="button" class="icon-button small" aria-label=${text.removeFilter} onClick=${() => {
              setTyped('');
              go({ filter: null, at: null });
            }}><${Icon} name="close" size=${12} /></button>`
          : html`<kbd>/</kbd>`
      }</div>
    <div class="picks">
      <${Pick} label=${text.from} name="where" options=${text.froms} query=${query} dataKey="j" />
      <${Pick} label=${text.partition} name="partition" options=${[['', text.allPartitions], ...Array.from({ length: Math.min(count, 2000) }, (_, i) => [String(i), String(i)])]} query=${query} />
      <${Pick} label=${text.decode} name="decode" options=${text.decodes} query=${query} dataKey="d" />
      <button type="button" class="button live-button" aria-pressed=${String(isLive)} data-key="l" onClick=${() => go({ live: isLive ? null : '1', at: null })}>
        ${isLive ? html`<${Shape} level="live" />` : html`<${Icon} name="play" size=${12} />`}${isLive ? text.live : text.goLive}<kbd>l</kbd></button>
      <button type="button" class="visually-hidden" data-key="r" onClick=${onRefresh}>${text.goOn}</button>
    </div>
    ${sentence ? html`<p class="bad mistake-text" id="filter-mistake" role="alert">${sentence}</p>` : null}
  </div>`;
}

// Offset, time or age, when `From` asks for one.
export function Jump({ query }) {
  const name = { offset: 'offset', time: 'time', age: 'age' }[query.where];
  const [typed, setTyped] = useState(query[name] ?? '');
  useEffect(() => setTyped(query[name] ?? ''), [name, query[name]]);
  if (!name) return null;
  return html`<form class="row" onSubmit=${(e) => {
    e.preventDefault();
    go({ [name]: typed, at: null });
  }}>
    <label class="row"><span class="muted">${text.jump[name]}</span><input class="field mono" autofocus value=${typed} onInput=${(e) => setTyped(e.target.value)} type=${name === 'time' ? 'datetime-local' : 'text'} step="1" /></label>
    <button type="submit" class="button">${text.from}</button></form>`;
}
