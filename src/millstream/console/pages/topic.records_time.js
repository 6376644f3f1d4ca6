// The strip above the records: how many there are over the kept span, and time travel by it.
import { html } from '../parts/ui.js';
import { Strip } from '../parts/strip.js';
import { get, part } from '../data/api.js';
import { useLoad } from '../data/use.js';
import { go } from '../data/place.js';
import { localTime } from '../data/format.js';
import { text } from './topic.records_words.js';

const REFRESH_MS = 15000;

const spanOf = (query) =>
  query.where === 'time' && query.time
    ? { from: Date.parse(query.time), until: query.until ? Date.parse(query.until) : null }
    : null;

function travel(span) {
  if (!span) return go({ where: null, time: null, until: null, at: null });
  return go({ where: 'time', time: localTime(span.from), until: span.until && localTime(span.until), at: null, live: null });
}

export function TimeStrip({ topic, query }) {
  const state = useLoad(
    (signal) => get(`/v1/topics/${part(topic.name)}/records/timeline`, { signal, query: { partition: query.partition } }),
    [topic.name, query.partition],
    REFRESH_MS,
  );
  const line = state.data;
  if (!line?.counts?.length) return null;
  const span = spanOf(query);
  return html`<div class="strip-row"><${Strip} line=${line} chosen=${span} onPick=${travel} words=${text.strip} />
    ${span?.until ? html`<button type="button" class="link" onClick=${() => travel(null)}>${text.strip.leave}</button>` : null}</div>`;
}
