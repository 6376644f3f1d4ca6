// A button that opens a list of acts.
import { useEffect, useRef, useState } from '../vendor/hooks.js';
import { html, Icon } from './ui.js';

// items: [[label, act, may, needs]].
export function Menu({ label, items }) {
  const [isOpen, setOpen] = useState(false);
  const box = useRef(null);
  useEffect(() => {
    if (!isOpen) return undefined;
    box.current.querySelector('li button')?.focus();
    const close = (event) => box.current?.contains(event.target) || setOpen(false);
    addEventListener('click', close, true);
    return () => removeEventListener('click', close, true);
  }, [isOpen]);
  const onKey = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === 'Escape') setOpen(false);
    if (!step || !isOpen) return;
    event.preventDefault();
    const buttons = [...box.current.querySelectorAll('li button')];
    buttons[(buttons.indexOf(document.activeElement) + step + buttons.length) % buttons.length].focus();
  };
  const run = (act, isAllowed) => {
    if (!isAllowed) return;
    setOpen(false);
    act();
  };
  return html`<div class="menu" ref=${box} onKeyDown=${onKey}>
    <button type="button" class="icon-button" aria-label=${label} aria-haspopup="menu" aria-expanded=${String(isOpen)} onClick=${() => setOpen(!isOpen)}><${Icon} name="more" /></button>
    ${
      isOpen
        ? html`<ul role="menu">${items.map(
            ([
              name,
              act,
              isAllowed = true,
              needs,
            ]) => html`<li role="none"><button type="button" role="menuitem" aria-disabled=${isAllowed ? null : 'true'}
      title=${isAllowed ? null : needs} onClick=${() => run(act, isAllowed)}>${name}</button></li>`,
          )}</ul>`
        : null
    }</div>`;
}
