// Records of a topic: read by page or live, filtered by the broker, one record in detail beside the list.
import { useEffect, useMemo, useRef, useState } from '../vendor/hooks.js';
import { html, Icon, Shape, Chip } from '../parts/ui.js';
import { Table } from '../parts/table.js';
import { JsonLine } from '../parts/json.js';
import { Waiting, Empty, Problem, Code } from '../parts/states.js';
import { address, get, part } from '../data/api.js';
import { useStream } from '../data/use.js';
import { go } from '../data/place.js';
import { parseExact, atPath, tree } from '../data/json.js';
import { shown, oneLine, placeOf } from '../data/record.js';
import { clock, num, utc, visible, when } from '../data/format.js';
import { alive } from '../data/alive.js';
import { FilterBar, Jump } from './topic.records_bar.js';
import { Detail } from './topic.records_detail.js';
import { ExportDialog } from './topic.records_export.js';
import { filterOf } from './topic.records_filter.js';
import { queryOf } from './topic.records_query.js';
import { TimeStrip } from './topic.records_time.js';
import { text } from './topic.records_words.js';

const KEPT = 10000; // Records that a live tail keeps.
const FLUSH_MS = 100;

function usePages(topic, query, isLive) {
  const [state, setState] = useState({ items: [], next: null, scanned: null, stopped: '', error: null, isLoading: true, seconds: 0 });
  const asked = queryOf(query);
  const key = JSON.stringify([topic, asked, query.decode]);
  const turn = useRef(0);
  const load = async (after, items) => {
    const mine = ++turn.current;
    const began = performance.now();
    setState((old) => ({ ...old, error: null, isLoading: true, items, next: after ? old.next : null }));
    try {
      const page = await get(`/v1/topics/${part(topic)}/records`, { query: { ...asked, after } });
      if (turn.current !== mine) return;
      alive.succeeded();
      setState((old) => ({
        items: [...items, ...page.items],
        next: page.next,
        scanned: page.scanned && {
          records: (after ? (old.scanned?.records ?? 0) : 0) + page.scanned.records,
          bytes: (after ? (old.scanned?.bytes ?? 0) : 0) + page.scanned.bytes,
          until: page.scanned.until,
        },
        stopped: page.stopped,
        error: null,
        isLoading: false,
        seconds: (performance.now() - began) / 1000,
      }));
    } catch (error) {
      if (turn.current === mine) setState((old) => ({ ...old, error, isLoading: false }));
    }
  };
  useEffect(() => {
    if (!isLive) load(null, []);
    return () => {
      turn.current++;
    };
  }, [key, isLive]);
  return {
    ...state,
    more: () => load(state.next, state.items),
    reload: () => load(null, []),
    stop: () => {
      turn.current++;
      setState((old) => ({ ...old, isLoading: false }));
    },
  };
}

// Records come in bursts: they are gathered, and drawn ten times a second.
function useTail(topic, query, isOn) {
  const [rows, setRows] = useState([]);
  const [skipped, setSkipped] = useState(0);
  const [rate, setRate] = useState(0);
  const [ended, setEnded] = useState('');
  const waiting = useRef([]);
  const counted = useRef([]);
  const asked = queryOf({ filter: query.filter, partition: query.partition });
  const url = address(`/v1/topics/${part(topic)}/records/tail`, { partition: asked.partition, filter: asked.filter });
  useStream(
    url,
    (name, data) => {
      if (name === 'record' || name === 'records' || name === 'message') {
        const value = parseExact(data);
        waiting.current.push(...(Array.isArray(value) ? value : (value.items ?? [value])));
      } else if (name === 'skipped') setSkipped((n) => n + (parseExact(data).count ?? 0));
      else if (name === 'end') setEnded(parseExact(data).reason ?? '');
      else if (name === 'open') setEnded('');
    },
    isOn,
  );
  useEffect(() => {
    if (!isOn) return undefined;
    const timer = setInterval(() => {
      const fresh = waiting.current;
      waiting.current = [];
      const now = Date.now();
      counted.current = [...counted.current.filter(([at]) => now - at < 2000), [now, fresh.length]];
      setRate(counted.current.reduce((n, [, k]) => n + k, 0) / 2);
      if (fresh.length) setRows((old) => [...fresh.reverse(), ...old].slice(0, KEPT));
    }, FLUSH_MS);
    return () => clearInterval(timer);
  }, [isOn, url]);
  useEffect(() => {
    setRows([]);
    setSkipped(0);
  }, [url]);
  return { rows, skipped, rate, ended };
}

function columnsOf(paths, decode, hasDetail) {
  const cell = (value) => {
    const { kind, text: shownText } = shown(value, decode);
    if (kind === 'null') return html`<span class="json"><span class="w">null</span></span>`;
    return kind === 'json'
      ? html`<${JsonLine} text=${shownText} />`
      : html`<span class="mono">${kind === 'hex' ? oneLine(value) : visible(shownText.slice(0, 400))}</span>`;
  };
  const at = (record, path) => {
    const { kind, text: source } = shown(record.value);
    return kind === 'json' ? (atPath(tree(source), path) ?? '') : '';
  };
  return [
    {
      key: 'time',
      head: text.columns.time,
      width: 124,
      className: 'mono',
      cell: (r) =>
        html`<time datetime=${utc(r.timestamp_ms)} title=${utc(r.timestamp_ms)}>${Date.now() - r.timestamp_ms < 864e5 ? clock(r.timestamp_ms, true) : when(r.timestamp_ms)}</time>`,
    },
    { key: 'partition', head: text.columns.partition, num: true, width: 44, className: 'mono muted c-part', cell: (r) => r.partition },
    { key: 'offset', head: text.columns.offset, num: true, width: 100, className: 'mono c-offset', cell: (r) => num(r.offset) },
    {
      key: 'key',
      head: text.columns.key,
      width: 120,
      className: 'mono c-key',
      cell: (r) => (r.key == null ? html`<span class="muted">–</span>` : oneLine(r.key)),
    },
    ...paths.map((path) => ({
      key: path,
      head: path.split('.').pop(),
      title: path,
      width: Math.max(88, path.length * 5),
      className: 'mono c-path',
      cell: (r) => html`<span class="json"><span class="s">${visible(at(r, path))}</span></span>`,
    })),
    { key: 'value', head: text.columns.value, className: 'c-value', cell: (r) => cell(r.value) },
    ...(hasDetail
      ? []
      : [
          {
            key: 'headers',
            head: text.columns.headers,
            width: 208,
            className: 'c-headers',
            hide: 'hide-mid',
            cell: (r) =>
              (r.headers ?? [])
                .slice(0, 3)
                .map(
                  (header) =>
                    html`<${Chip} level=${header.name.startsWith('ms-') ? 'accent' : ''} title=${`${header.name}: ${oneLine(header.value)}`}>${visible(header.name)}</${Chip}>`,
                ),
          },
        ]),
  ];
}

function Status({ pages, tail, isLive, isPaused, setPaused, query, topic, onExport }) {
  if (isLive)
    return html`<div class="status" role="status"><${Shape} level=${tail.ended ? 'bad' : 'live'} /><b>${isPaused ? text.pause : text.live}</b>
      <span>${text.tailRate(tail.rate)}</span>${tail.skipped ? html`<span class="warn">${text.skipped(tail.skipped)}</span>` : null}${tail.ended ? html`<span class="bad">${tail.ended}</span>` : null}
      <span class="grow" /><button type="button" class="button quiet" onClick=${() => setPaused(!isPaused)}><${Icon} name=${isPaused ? 'play' : 'pause'} size=${12} />${isPaused ? text.resume : text.pause}</button></div>`;
  const filter = filterOf(query.filter);
  return html`<div class="status" role="status">
    <b>${filter ? text.matches(pages.items.length) : query.where ? text.oldest(pages.items.length) : text.newest(pages.items.length)}</b>
    ${pages.scanned ? html`<span>${text.looked(pages.scanned)}</span><span class="muted wide-only">${text.budget(pages.scanned, pages.seconds)}${text.stoppedBy[pages.stopped] ? `, ${text.stoppedBy[pages.stopped]}` : ''}</span>` : null}
    ${pages.next ? html`<button type="button" class="link" onClick=${pages.more}>${text.goOn}</button>` : null}
    <span class="grow" />
    ${filter ? html`<a class="button quiet wide-only" href=${`/console/views?create=1&topic=${part(topic)}&filter=${encodeURIComponent(filter)}`}><${Icon} name="views" size=${14} />${text.makeView}</a>` : null}
    <button type="button" class="button quiet wide-only" data-key="x" onClick=${onExport}><${Icon} name="download" size=${14} />${text.exportAs}</button>
  </div>`;
}

export function Records({ topic, query, onProduce }) {
  const [isExporting, setExporting] = useState(false);
  const isLive = query.live === '1';
  const [isPaused, setPaused] = useState(false);
  const pages = usePages(topic.name, query, isLive);
  const tail = useTail(topic.name, query, isLive && !isPaused);
  const rows = isLive ? tail.rows : pages.items;
  const paths = useMemo(() => (query.columns ?? '').split(',').filter(Boolean), [query.columns]);
  const [single, setSingle] = useState(null);
  const chosen = query.at ? (rows.find((r) => placeOf(r) === query.at) ?? single) : null;
  useEffect(() => {
    setSingle(null);
    if (!query.at || rows.some((r) => placeOf(r) === query.at)) return;
    const [partition, offset] = query.at.split('@');
    get(`/v1/topics/${part(topic.name)}/records/${partition}/${offset}`).then(setSingle, () => null);
  }, [query.at]);
  const columns = useMemo(() => columnsOf(paths, query.decode, Boolean(chosen)), [paths, query.decode, Boolean(chosen)]);
  const scroller = useRef(null);
  const onScroll = () => {
    const el = scroller.current;
    if (isLive && !isPaused && el.scrollTop > 8) setPaused(true);
    if (!isLive && !filterOf(query.filter) && pages.next && !pages.isLoading && el.scrollTop + el.clientHeight > el.scrollHeight - 400)
      pages.more();
  };
  const empty = pages.error
    ? html`<${Problem} error=${pages.error} onRetry=${pages.reload} />`
    : pages.isLoading && !isLive
      ? html`<${Waiting} onStop=${pages.stop} rows=${10} />`
      : query.filter
        ? html`<${Empty} title=${text.nothingMatches}>${pages.scanned ? text.looked(pages.scanned) : ''} ${pages.next ? html`<button type="button" class="button primary" onClick=${pages.more}>${text.goOn}</button>` : null}</${Empty}>`
        : html`<${Empty} title=${text.nothing}><${Code} text=${text.produceHint(topic.name)} /></${Empty}>`;
  return html`<div class="stack12 records-top"><${FilterBar} topic=${topic} query=${query} isLive=${isLive} error=${pages.error} onRefresh=${pages.reload} /><${Jump} query=${query} /><${TimeStrip} topic=${topic} query=${query} /></div>
    <div class="result"><${Status} pages=${pages} tail=${tail} isLive=${isLive} isPaused=${isPaused} setPaused=${setPaused} query=${query} topic=${topic.name} onExport=${() => setExporting(true)} />
      <div class=${`records${chosen ? ' with-detail' : ''}`}>
        <div class="scroll rows" ref=${scroller} onScroll=${onScroll} tabindex="0">
          ${rows.length ? html`<${Table} label=${`Records of ${topic.name}`} rows=${rows} columns=${columns} rowKey=${placeOf} chosen=${(r) => placeOf(r) === query.at} onOpen=${(r) => go({ at: placeOf(r) })} />` : empty}
          ${rows.length && pages.error && !isLive ? html`<${Problem} error=${pages.error} onRetry=${pages.more} />` : null}
        </div>
        ${chosen ? html`<${Detail} record=${chosen} topic=${topic} query=${query} rows=${rows} onProduce=${onProduce} />` : null}
      </div>
    </div>${isExporting ? html`<${ExportDialog} topic=${topic.name} query=${query} onClose=${() => setExporting(false)} />` : null}`;
}
