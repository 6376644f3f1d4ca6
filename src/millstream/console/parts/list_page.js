// A page that is one list: find box, table, empty state, CSV. Columns and loading are data.
import { html, Icon, Panel, Title } from './ui.js';
import { Table, csv, download } from './table.js';
import { Loaded, Empty } from './states.js';
import { useLoad } from '../data/use.js';
import { useTitle } from '../data/frame.js';
import { go } from '../data/place.js';

export function ListPage({
  title,
  commands,
  load,
  columns,
  query,
  empty,
  emptyCode,
  textOf,
  refreshMs = 5000,
  acts,
  facts,
  onOpen,
  before,
  inputs = [],
  children,
  rowKey,
}) {
  const state = useLoad(load, inputs, refreshMs);
  useTitle({ title, crumbs: [[title]], commands });
  const find = (query.name ?? '').toLowerCase();
  const rows = (state.data ?? []).filter((row) => !find || textOf(row).toLowerCase().includes(find));
  const body = (all) =>
    all.length
      ? html`<${Panel} flush=${true}><${Table} label=${title} inset=${true} rows=${rows} columns=${columns(state)} sort=${query.sort} onSort=${(sort) => go({ sort })} onOpen=${onOpen} rowKey=${rowKey} /></${Panel}>`
      : html`<${Empty} title=${empty} code=${emptyCode} />`;
  return html`<div class="page"><${Title} acts=${acts?.(state)} facts=${state.data && facts?.(state.data)}>${title}</${Title}>
    ${before?.(state)}
    ${
      state.data?.length
        ? html`<div class="toolbar"><label class="fieldbox finder"><${Icon} name="search" size=${14} /><input data-find aria-label=${`Find in ${title}`} placeholder="Find" value=${query.name ?? ''} onInput=${(e) => go({ name: e.target.value }, { replace: true })} /><kbd>/</kbd></label>
      <span class="grow" /><button type="button" class="button quiet wide-only" onClick=${() => download(`${title.toLowerCase()}.csv`, csv(columns(state), rows))}><${Icon} name="download" size=${14} />CSV</button></div>`
        : null
    }
    <${Loaded} of=${state}>${body}</${Loaded}>${children?.(state)}</div>`;
}
