// Export of what the filter finds, as NDJSON or CSV: counted while it comes, and stopped by a button.
import { useRef, useState } from '../vendor/hooks.js';
import { html, Icon, Segments } from '../parts/ui.js';
import { Dialog } from '../parts/overlay.js';
import { Code, Note, Problem } from '../parts/states.js';
import { save } from '../parts/table.js';
import { address, download, part } from '../data/api.js';
import { queryOf } from './topic.records_query.js';
import { text } from './topic.records_words.js';

const BYTES_MAX = 512 * 1024 * 1024; // Kept in the tab until the file is written.
const FORMS = [
  ['ndjson', 'NDJSON'],
  ['csv', 'CSV'],
];

const lines = (bytes) => bytes.reduce((n, byte) => n + (byte === 10 ? 1 : 0), 0);

// The parts of an answer, counted as they come. More than fits into the tab is refused, with the way that has no limit.
async function gather(path, signal, onProgress) {
  const parts = [];
  let [records, size] = [0, 0];
  for await (const bytes of download(path, signal)) {
    parts.push(bytes);
    records += lines(bytes);
    size += bytes.length;
    if (size > BYTES_MAX) throw new Error(text.export.tooLarge);
    onProgress({ records, size });
  }
  return parts;
}

export function ExportDialog({ topic, query, onClose }) {
  const [form, setForm] = useState('ndjson');
  const [state, setState] = useState({ kind: 'idle' });
  const abort = useRef(null);
  const { filter, partition, from, until } = queryOf(query);
  const path = address(`/v1/topics/${part(topic)}/records/export`, { format: form, filter, partition, from, until });
  const run = async () => {
    abort.current = new AbortController();
    setState({ kind: 'running', records: 0, size: 0 });
    const isHeadless = form === 'csv' ? 1 : 0;
    try {
      let seen = { records: 0, size: 0 };
      const parts = await gather(path, abort.current.signal, (progress) => {
        seen = { ...progress, records: progress.records - isHeadless };
        setState({ kind: 'running', ...seen });
      });
      save(`${topic}.${form}`, new Blob(parts, { type: form === 'csv' ? 'text/csv' : 'application/x-ndjson' }));
      setState({ kind: 'done', ...seen });
    } catch (error) {
      setState(error.name === 'AbortError' ? { kind: 'idle', wasStopped: true } : { kind: 'failed', error });
    }
  };
  const isRunning = state.kind === 'running';
  const close = () => {
    abort.current?.abort();
    onClose();
  };
  const footer = html`<span class="grow" role="status">${isRunning || state.kind === 'done' ? text.export.progress(state) : state.wasStopped ? text.export.stopped : ''}</span>
    ${isRunning ? html`<button type="button" class="button" onClick=${() => abort.current.abort()}><${Icon} name="stop" size=${12} />${text.export.stop}</button>` : html`<button type="button" class="button primary" onClick=${run}>${text.export.act(form.toUpperCase())}</button>`}`;
  return html`<${Dialog} title=${text.export.title(topic)} sub=${text.export.sub} className="act" onClose=${close} footer=${footer}><div class="stack12">
    <${Segments} label=${text.export.form} options=${FORMS} value=${form} onPick=${setForm} />
    <dl class="pairs"><dt>${text.filter}</dt><dd>${filter ? html`<code>${filter}</code>` : text.export.every}</dd><dt>${text.partition}</dt><dd>${partition ?? text.export.all}</dd>
      <dt>${text.from}</dt><dd>${from ?? text.export.earliest}</dd><dt>${text.export.until}</dt><dd>${until ?? text.export.end}</dd></dl>
    ${state.kind === 'done' ? html`<${Note} level="good">${text.export.done}</${Note}>` : null}<${Problem} error=${state.error} />
    <${Code} text=${`curl -o ${topic}.${form} '${location.origin}${path}'`} /></div></${Dialog}>`;
}
