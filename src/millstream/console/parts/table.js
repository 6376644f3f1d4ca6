// Table: columns as data, sort, keyboard, and only the rows in sight in the document.
import { useEffect, useMemo, useRef, useState } from '../vendor/hooks.js';
import { html, Icon } from './ui.js';

const OVERSCAN = 12;
const WHOLE_BELOW = 150; // Shorter tables are drawn whole.

// columns: [{key, head, cell(row), num, width, hide, sort(row), className}]. `sort` is '-rate' or 'name'.
export function sorted(rows, columns, sort) {
  const column = columns.find((c) => c.key === (sort || '').replace('-', ''));
  if (!column?.sort) return rows;
  const sign = sort[0] === '-' ? -1 : 1;
  const keyed = rows.map((row) => [column.sort(row), row]);
  keyed.sort(
    ([a], [b]) =>
      sign * (typeof a === 'string' || typeof b === 'string' ? String(a).localeCompare(String(b)) : (a ?? -Infinity) - (b ?? -Infinity)),
  );
  return keyed.map(([, row]) => row);
}

function Head({ columns, sort, onSort }) {
  const cell = (c) => {
    const isSorted = sort && sort.replace('-', '') === c.key;
    const isDown = isSorted && sort[0] === '-';
    return html`<th scope="col" class=${[c.num && 'num', c.hide].filter(Boolean).join(' ')} title=${c.title}
      aria-sort=${isSorted ? (isDown ? 'descending' : 'ascending') : null}>
      ${
        c.sort && onSort
          ? html`<button type="button" onClick=${() => onSort(isSorted ? (isDown ? c.key : `-${c.key}`) : c.num ? `-${c.key}` : c.key)}>
            ${c.head}${isSorted ? html`<${Icon} name=${isDown ? 'down' : 'up'} size=${12} />` : null}</button>`
          : c.head || html`<span class="visually-hidden">${c.label || c.key}</span>`
      }
    </th>`;
  };
  return html`<thead><tr>${columns.map(cell)}</tr></thead>`;
}

function useWindow(box, count, rowHeight) {
  const [from, setFrom] = useState(0);
  const [height, setHeight] = useState(800);
  useEffect(() => {
    const el = box.current?.closest('.scroll') ?? box.current;
    if (!el) return undefined;
    let frame = 0;
    const update = () => {
      frame = 0;
      setFrom(Math.max(0, Math.floor(el.scrollTop / rowHeight) - OVERSCAN));
      setHeight(el.clientHeight || 800);
    };
    const onScroll = () => {
      frame ||= requestAnimationFrame(update);
    };
    const observer = new ResizeObserver(onScroll);
    observer.observe(el);
    el.addEventListener('scroll', onScroll, { passive: true });
    update();
    return () => {
      observer.disconnect();
      el.removeEventListener('scroll', onScroll);
      cancelAnimationFrame(frame);
    };
  }, [count > WHOLE_BELOW, rowHeight]);
  const isWhole = count <= WHOLE_BELOW;
  const first = isWhole ? 0 : Math.min(from, Math.max(0, count - 1));
  const last = isWhole ? count : Math.min(count, first + Math.ceil(height / rowHeight) + 2 * OVERSCAN);
  return { first, last };
}

const ROW_PIXELS = 28; // Until the first row is drawn and can be measured.

// Measured when the first row comes and when the window changes: asking with every key would lay the page out each time.
function useRowPixels(box, isEmpty) {
  const [pixels, setPixels] = useState(ROW_PIXELS);
  useEffect(() => {
    const measure = () => setPixels((old) => box.current?.querySelector('tbody tr:not(.spacer)')?.offsetHeight || old);
    measure();
    addEventListener('resize', measure);
    return () => removeEventListener('resize', measure);
  }, [isEmpty]);
  return pixels;
}

export function Table({ columns, rows, label, sort, onSort, chosen, onOpen, rowKey, rowClass, inset }) {
  const ordered = useMemo(() => sorted(rows, columns, sort), [rows, sort]);
  const box = useRef(null);
  const pixels = useRowPixels(box, ordered.length === 0);
  const { first, last } = useWindow(box, ordered.length, pixels);
  const onKey = (event, row, index) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.target !== event.currentTarget) return;
    if (step) {
      event.preventDefault();
      const sibling = step > 0 ? event.currentTarget.nextElementSibling : event.currentTarget.previousElementSibling;
      if (sibling?.hasAttribute('tabindex')) sibling.focus();
    } else if (event.key === 'Enter') onOpen?.(row, index);
  };
  const line = (row, index) => html`<tr key=${rowKey ? rowKey(row) : index} aria-rowindex=${index + 2} class=${rowClass?.(row) || ''}
    aria-selected=${chosen?.(row) ? 'true' : null} tabindex=${onOpen ? 0 : null} onKeyDown=${(e) => onKey(e, row, index)}
    onClick=${onOpen ? (e) => !e.target.closest('a, button, input, label') && onOpen(row, index) : null}>
    ${columns.map((c) => html`<td class=${[c.num && 'num', c.hide, c.className].filter(Boolean).join(' ')}>${c.cell(row, index)}</td>`)}
  </tr>`;
  const spacer = (height) =>
    height > 0 ? html`<tr class="spacer" aria-hidden="true"><td style=${{ height: `${height}px` }} /></tr>` : null;
  return html`<table class=${`table${inset ? ' inset' : ''}${onOpen ? ' opens' : ''}`} aria-label=${label} aria-rowcount=${ordered.length + 1} ref=${box}>
    <colgroup>${columns.map((c) => html`<col class=${c.hide || ''} style=${c.width ? { width: `${c.width}px` } : null} />`)}</colgroup>
    <${Head} columns=${columns} sort=${sort} onSort=${onSort} />
    <tbody>${spacer(first * pixels)}${ordered.slice(first, last).map((row, i) => line(row, first + i))}${spacer((ordered.length - last) * pixels)}</tbody>
  </table>`;
}

// The table as CSV, as it is sorted and filtered.
export function csv(columns, rows) {
  const quote = (value) => {
    const text = value == null ? '' : String(value);
    // A leading sign would be a formula in a spreadsheet.
    const safe = /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const plain = columns.filter((c) => c.plain || c.sort);
  return [plain.map((c) => quote(c.key)), ...rows.map((row) => plain.map((c) => quote((c.plain ?? c.sort)(row))))]
    .map((line) => line.join(','))
    .join('\r\n');
}

export function save(name, blob) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

export const download = (name, text, type = 'text/csv') => save(name, new Blob([text], { type }));
