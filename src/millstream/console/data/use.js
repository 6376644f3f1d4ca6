// Hooks between the API and a page: loading, refreshing while the page is seen, streams.
import { useEffect, useRef, useState, useCallback } from '../vendor/hooks.js';
import { alive } from './alive.js';

// {data, error, isLoading, reload}. Runs `load(signal, show)` at once, again when `inputs` change, and every `everyMs` while
// the tab is seen. A failed refresh keeps the data: the page greys, and says since when. A load that takes long may `show`
// what it has so far; a page that has data already keeps it until all is there.
export function useLoad(load, inputs, everyMs = 0) {
  const [state, setState] = useState({ data: undefined, error: null, isLoading: true });
  const latest = useRef(load);
  latest.current = load;
  const turn = useRef(0);
  const [nudge, setNudge] = useState(0);
  useEffect(() => {
    const mine = ++turn.current;
    const abort = new AbortController();
    let timer = null;
    let wait = everyMs;
    const run = async (isFirst) => {
      if (!isFirst && document.hidden) return again();
      try {
        const show = (data) => {
          if (turn.current === mine) setState((old) => (old.isWhole ? old : { data, error: null, isLoading: true }));
        };
        const data = await latest.current(abort.signal, show);
        if (turn.current !== mine) return;
        alive.succeeded();
        wait = everyMs;
        setState({ data, error: null, isLoading: false, isWhole: true });
      } catch (error) {
        if (error.name === 'AbortError' || turn.current !== mine) return;
        if (error.status === 0 || error.status === 503) alive.failed(error);
        wait = Math.min(Math.max(wait, 1000) * 1.5, 10000);
        setState((old) => ({ ...old, error, isLoading: false }));
      }
      return again();
    };
    const again = () => {
      if (everyMs || wait !== everyMs) timer = setTimeout(run, wait || 2000, false);
    };
    const seen = () => {
      if (!document.hidden && everyMs) {
        clearTimeout(timer);
        run(true);
      }
    };
    setState((old) => ({ ...old, error: null, isLoading: true }));
    run(true);
    document.addEventListener('visibilitychange', seen);
    return () => {
      turn.current++;
      abort.abort();
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', seen);
    };
  }, [...inputs, nudge, everyMs]);
  const reload = useCallback(() => setNudge((n) => n + 1), []);
  return { ...state, reload };
}

// A server-sent stream, open while the tab is seen. EventSource goes on from its cursor by itself.
export function useStream(url, onEvent, isOn = true) {
  const latest = useRef(onEvent);
  latest.current = onEvent;
  useEffect(() => {
    if (!isOn || !url) return undefined;
    let source = null;
    const open = () => {
      source = new EventSource(url);
      for (const name of ['message', 'record', 'records', 'skipped', 'end', 'figures', 'health', 'topics', 'job'])
        source.addEventListener(name, (event) => latest.current(name, event.data, event.lastEventId));
      source.addEventListener('open', () => latest.current('open'));
      source.addEventListener('error', () => latest.current('error'));
    };
    const seen = () => {
      if (document.hidden) source?.close();
      else open();
    };
    if (!document.hidden) open();
    document.addEventListener('visibilitychange', seen);
    return () => {
      source?.close();
      document.removeEventListener('visibilitychange', seen);
    };
  }, [url, isOn]);
}
