// Dialogs, the plan of an act, and the palette of Ctrl K.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from '../vendor/hooks.js';
import { html, Icon, Keys } from './ui.js';
import { Problem } from './states.js';
import { visit } from '../data/place.js';
import { num } from '../data/format.js';
import { words } from '../words.js';

export function Dialog({ title, sub, children, footer, onClose, onKeyDown, className = '' }) {
  const box = useRef(null);
  // Before the next key: what is typed at once goes into the dialog.
  useLayoutEffect(() => {
    const before = document.activeElement;
    box.current.showModal();
    return () => before?.focus?.();
  }, []);
  return html`<dialog ref=${box} class=${className} aria-label=${title} onClose=${onClose} onKeyDown=${onKeyDown} onClick=${(e) => e.target === box.current && box.current.close()}>
    <header><div class="grow"><h2>${title}</h2>${sub ? html`<div class="muted">${sub}</div>` : null}</div>
      <button type="button" class="icon-button" aria-label=${words.close} onClick=${() => box.current.close()}><${Icon} name="close" /></button></header>
    <div class="body" tabindex="0">${children}</div>
    ${footer ? html`<footer>${footer}</footer>` : null}
  </dialog>`;
}

// An act: its plan, then one button that names it. `typed` is the text to type where nothing can be undone.
export function ActDialog({ title, sub, act, label, danger, typed, onClose, onDone, children, isReady = true, className = '' }) {
  const [text, setText] = useState('');
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const isAllowed = isReady && !isBusy && (!typed || text === typed);
  const run = async () => {
    if (!isAllowed) return;
    setBusy(true);
    setError(null);
    try {
      onDone?.(await act());
      onClose();
    } catch (problem) {
      setError(problem);
    } finally {
      setBusy(false);
    }
  };
  const onKey = (event) => {
    if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault(); // A focused button would do it a second time.
    run();
  };
  const footer = html`<span class="grow">${
    typed
      ? html`<label class="row"><span class="muted">${words.typeToConfirm(typed)}</span>
      <input class="field mono" value=${text} onInput=${(e) => setText(e.target.value)} aria-label=${words.typeToConfirm(typed)} autocomplete="off" /></label>`
      : null
  }</span>
    <button type="button" class="button" onClick=${onClose}>${words.leave}</button>
    <button type="button" class=${`button ${danger ? 'danger' : 'primary'}`} aria-disabled=${isAllowed ? null : 'true'} onClick=${run}>${isBusy ? words.working : label}</button>`;
  return html`<${Dialog} title=${title} sub=${sub} onClose=${onClose} footer=${footer} className=${`act ${className}`} onKeyDown=${onKey}>
    <div class="stack12">${children}<${Problem} error=${error} onDismiss=${() => setError(null)} /></div>
  </${Dialog}>`;
}

export const Field = ({ label, hint, error, children }) => html`<label class="stack"><span class="muted">${label}</span>${children}
  ${error ? html`<span class="bad" role="alert">${error}</span>` : hint ? html`<span class="muted small">${hint}</span>` : null}</label>`;

const PER_KIND = { [words.kinds.record]: 1, [words.kinds.page]: 8, [words.kinds.topic]: 6, [words.kinds.group]: 4, [words.kinds.act]: 4 };

function hitsOf(candidates, text) {
  const place = text.match(/^([\w.-]+)\/(\d+)@(\d+)$/);
  const hits = place
    ? [
        {
          name: text,
          path: `/topics/${encodeURIComponent(place[1])}`,
          query: { at: `${place[2]}@${place[3]}` },
          icon: 'arrow',
          kind: words.kinds.record,
          note: words.placeNote(place[2], num(place[3])),
        },
      ]
    : [];
  const lower = text.toLowerCase();
  for (const kind of text
    ? [words.kinds.topic, words.kinds.group, words.kinds.act, words.kinds.page]
    : [words.kinds.page, words.kinds.act, words.kinds.topic])
    hits.push(
      ...candidates
        .filter((c) => c.kind === kind)
        .map((c) => ({ ...c, at: c.name.toLowerCase().indexOf(lower) }))
        .filter((c) => c.at >= 0)
        .sort((a, b) => (text ? a.at - b.at || a.name.length - b.name.length : 0))
        .slice(0, PER_KIND[kind]),
    );
  return hits;
}

export function Palette({ candidates, onClose }) {
  const box = useRef(null);
  const [text, setText] = useState('');
  const [index, setIndex] = useState(0);
  // Before the next key: what is typed at once goes into the dialog.
  useLayoutEffect(() => {
    const before = document.activeElement;
    box.current.showModal();
    return () => before?.focus?.();
  }, []);
  const hits = useMemo(() => hitsOf(candidates, text.trim()), [candidates, text]);
  const chosen = hits.length ? ((index % hits.length) + hits.length) % hits.length : 0;
  useEffect(() => box.current.querySelector('[aria-selected=true]')?.scrollIntoView({ block: 'nearest' }), [chosen, text]);
  const open = (hit) => {
    if (!hit) return;
    box.current.close();
    if (hit.act) hit.act();
    else visit(hit.path, hit.query);
  };
  const onKey = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) setIndex(chosen + step);
    else if (event.key === 'Enter') open(hits[chosen]);
    else return;
    event.preventDefault();
  };
  const mark = (hit) =>
    text && hit.at >= 0
      ? html`${hit.name.slice(0, hit.at)}<mark>${hit.name.slice(hit.at, hit.at + text.trim().length)}</mark>${hit.name.slice(hit.at + text.trim().length)}`
      : hit.name;
  return html`<dialog ref=${box} class="palette" aria-label=${words.goto} onClose=${onClose} onClick=${(e) => e.target === box.current && box.current.close()}>
    <div class="search"><${Icon} name="search" /><input placeholder=${words.gotoHint} aria-label=${words.goto} role="combobox" aria-controls="palette-list" aria-expanded="true"
      aria-activedescendant=${hits.length ? `hit-${chosen}` : null} value=${text} onInput=${(e) => {
        setText(e.target.value);
        setIndex(0);
      }} onKeyDown=${onKey} autocomplete="off" /><kbd>Esc</kbd></div>
    <ul role="listbox" id="palette-list" aria-label=${words.goto}>
      ${hits.map(
        (hit, i) => html`${i === 0 || hits[i - 1].kind !== hit.kind ? html`<li class="head" role="presentation">${hit.kind}</li>` : null}
        <li role="option" id=${`hit-${i}`} aria-selected=${String(i === chosen)} onClick=${() => open(hit)} onPointerMove=${() => i !== chosen && setIndex(i)}>
          <${Icon} name=${hit.icon} /><span class="cut">${mark(hit)}</span><span class="side-note">${hit.keys ? html`<${Keys} of=${hit.keys} />` : hit.note}</span></li>`,
      )}
      ${hits.length ? null : html`<li class="head" role="option" aria-selected="false">${words.nothingNamed(text)}</li>`}
    </ul>
  </dialog>`;
}

export const KeyHelp = ({ onClose }) => html`<${Dialog} title=${words.keys} onClose=${onClose} className="keyhelp">
  <div class="cols">${words.keyTable.map(([name, rows]) => html`<section><h3>${name}</h3><ul>${rows.map(([keys, meaning]) => html`<li><${Keys} of=${keys} />${meaning}</li>`)}</ul></section>`)}</div>
</${Dialog}>`;
