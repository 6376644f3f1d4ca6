// What a page shows while it waits, when there is nothing, and when something went wrong.
import { useEffect, useState } from '../vendor/hooks.js';
import { html, Icon, Shape, Copy } from './ui.js';
import { words } from '../words.js';

// A skeleton at once; after a second a count that moves.
export function Waiting({ onStop, rows = 6 }) {
  const [seconds, setSeconds] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => setSeconds((s) => s + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  return html`<div class="waiting" role="status" aria-label=${words.loading}>
    ${Array.from({ length: rows }, (_, i) => html`<span class="skeleton" style=${{ width: `${88 - ((i * 37) % 41)}%` }} />`)}
    ${seconds ? html`<p class="muted">${words.waited(seconds)} ${onStop ? html`<button type="button" class="link" onClick=${onStop}>${words.stop}</button>` : null}</p>` : null}
  </div>`;
}

export const Empty = ({ title, children, code }) => html`<div class="empty">
  <h2>${title}</h2>${children ? html`<p>${children}</p>` : null}${code ? html`<${Code} text=${code} />` : null}
</div>`;

// The broker's own sentence, with the request id; it stays until it is read.
export function Problem({ error, onRetry, onDismiss }) {
  if (!error) return null;
  return html`<div class="note bad" role="alert">
    <${Shape} level="bad" label=${words.wrong} />
    <div class="grow"><b>${error.message}</b>
      ${error.fields?.length ? html`<ul>${error.fields.map((field) => html`<li><code>${field.place ?? field.path ?? ''}</code> ${field.message ?? String(field)}</li>`)}</ul>` : null}
      <div class="muted">${[error.code, error.status ? `HTTP ${error.status}` : '', error.requestId && words.request(error.requestId)].filter(Boolean).join(' · ')}</div>
      ${onRetry ? html`<button type="button" class="button" onClick=${onRetry}>${words.again}</button>` : null}
    </div>
    ${onDismiss ? html`<button type="button" class="icon-button" aria-label=${words.close} onClick=${onDismiss}><${Icon} name="close" size=${14} /></button>` : null}
  </div>`;
}

// The parts of a page that need data: skeleton, error, or the children with it.
export function Loaded({ of: { data, error, isLoading, reload }, children, rows }) {
  if (data === undefined && isLoading) return html`<${Waiting} rows=${rows} />`;
  if (data === undefined) return html`<${Problem} error=${error} onRetry=${reload} />`;
  return html`${error && error.status !== 0 ? html`<${Problem} error=${error} onRetry=${reload} />` : null}${children(data)}`;
}

export const Code = ({ text, prompt = true }) => html`<div class="code">
  <pre tabindex="0">${prompt && !text.includes('\n') ? html`<span class="prompt">$ </span>` : null}${text}</pre><${Copy} text=${text} />
</div>`;

export const Note = ({ level = 'warn', children }) => html`<div class=${`note ${level}`}>
  <${Shape} level=${level} label=${level === 'bad' ? words.wrong : level === 'warn' ? words.soon : words.well} /><div class="grow">${children}</div>
</div>`;
