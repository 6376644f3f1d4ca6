// JSON drawn from its text: one coloured line for rows, a tree for the detail, and the filter while it is typed.
import { useMemo, useState } from '../vendor/hooks.js';
import { html, Icon } from './ui.js';
import { TOKEN, kindOf, tree } from '../data/json.js';
import { visible } from '../data/format.js';
import { words } from '../words.js';

const LINE_MAX = 420;
const NODES_MAX = 5000;

export function JsonLine({ text }) {
  const parts = [];
  let length = 0;
  for (const match of text
    .replace(/^\s*\{/, '')
    .slice(0, LINE_MAX * 2)
    .matchAll(TOKEN)) {
    const token = match[0];
    const isKey = Boolean(match[1]);
    parts.push(
      html`<span class=${kindOf(token, isKey)}>${visible(isKey ? `${token.replace(/^"|"\s*:$/g, '')}: ` : token === ',' ? ', ' : token)}</span>`,
    );
    length += token.length;
    if (length > LINE_MAX) break;
  }
  return html`<span class="json mono">${parts}</span>`;
}

const child = (path, key) =>
  typeof key === 'number' ? `${path}[${key}]` : /^[\w-]+$/.test(key) ? `${path}.${key}` : `${path}[${JSON.stringify(key)}]`;

function summary(node, isClosed) {
  const [open, end] = node.kind === 'array' ? ['[', ']'] : ['{', '}'];
  if (isClosed) return `${open} ${node.items.length} ${end}`;
  return node.kind === 'array' ? `[${node.items.length}]` : node.items.length ? '' : '{}';
}

// tools(path, node): [[label, act]] of the chosen row. errors: {path: sentence}.
export function JsonTree({ text, tools = () => [], errors = {} }) {
  const root = useMemo(() => tree(text), [text]);
  const [closed, setClosed] = useState(new Set());
  const [chosen, setChosen] = useState(null);
  const rows = [];
  const toggle = (path, node) => {
    setChosen(path);
    if (!node.items?.length) return;
    setClosed((old) => {
      const next = new Set(old);
      if (!next.delete(path)) next.add(path);
      return next;
    });
  };
  const add = (node, key, depth, path) => {
    if (rows.length >= NODES_MAX) return;
    const isClosed = closed.has(path);
    const shown = node.items ? summary(node, isClosed) : node.text;
    rows.push(html`<div class=${`node${errors[path] ? ' error' : ''}`} role="treeitem" aria-selected=${String(path === chosen)} aria-level=${depth + 1}
      aria-expanded=${node.items?.length ? String(!isClosed) : null} style=${{ '--depth': depth }} title=${path} tabindex=${path === (chosen ?? '$') || (!chosen && rows.length === 0) ? 0 : -1}
      onClick=${() => toggle(path, node)} onKeyDown=${(e) => onKey(e, path, node)}>
      <span class="twist">${node.items?.length ? html`<${Icon} name=${isClosed ? 'right' : 'down'} size=${12} />` : null}</span>
      ${key == null ? null : typeof key === 'number' ? html`<span class="x">${key}</span>` : html`<span class="k">${visible(key)}</span><span class="x colon">:</span>`}
      <span class=${`value ${node.items ? 'x' : shown.includes('•••') ? 'masked' : node.kind}`}>${visible(shown.slice(0, 2000))}</span>
      ${errors[path] ? html`<span class="says">${errors[path]}</span>` : null}
      ${
        path === chosen
          ? html`<span class="tools">${tools(path, node).map(
              ([label, act]) =>
                html`<button type="button" onClick=${(e) => {
                  e.stopPropagation();
                  act();
                }}>${label}</button>`,
            )}</span>`
          : null
      }
    </div>`);
    if (node.items && !isClosed) for (const [k, item] of node.items) add(item, k, depth + 1, child(path, k));
  };
  const onKey = (event, path, node) => {
    const row = event.currentTarget;
    if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
      event.preventDefault();
      (event.key === 'ArrowDown' ? row.nextElementSibling : row.previousElementSibling)?.focus();
    } else if (event.key === 'Enter' || event.key === ' ') {
      if (event.target !== row) return;
      event.preventDefault();
      toggle(path, node);
    }
  };
  if (root.items) for (const [k, item] of root.items) add(item, k, 0, child('$', k));
  else add(root, null, 0, '$');
  if (rows.length === 0)
    rows.push(
      html`<div class="node" role="treeitem" style=${{ '--depth': 0 }}><span class="x">${root.kind === 'array' ? '[]' : '{}'}</span></div>`,
    );
  return html`<div class="tree json" role="tree" aria-label=${words.value}>${rows}${rows.length >= NODES_MAX ? html`<p class="muted">${words.treeCut(NODES_MAX)}</p>` : null}</div>`;
}

const FILTER =
  /'(?:[^']|'')*'?|"(?:[^"]|"")*"?|\$[\w.[\]]*|\b(?:and|or|not|in|contains|value|key|headers?|timestamp|offset|partition|true|false|null)\b|-?\d+(?:\.\d+)?|==|!=|<=|>=|[<>~()]|\s+|./g;

// `mistake` is the place of the first wrong character: the token there is underlined.
export function FilterText({ text, mistake = null }) {
  const parts = [];
  for (const match of text.matchAll(FILTER)) {
    const token = match[0];
    const kind = /^['"]/.test(token)
      ? 's'
      : token[0] === '$' || /^(value|key|headers?|timestamp|offset|partition)$/.test(token)
        ? 'k'
        : /^(and|or|not|in|contains|true|false|null)$/.test(token)
          ? 'w'
          : /^-?\d/.test(token)
            ? 'n'
            : 'x';
    const isWrong = mistake != null && mistake >= match.index && mistake < match.index + token.length;
    parts.push(html`<span class=${kind + (isWrong ? ' mistake' : '')}>${token}</span>`);
  }
  return parts;
}
