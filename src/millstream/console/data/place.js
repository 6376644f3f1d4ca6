// The address is the state of a page: path below /console/, and a query. Links and `back` work by themselves.
import { useEffect, useState } from '../vendor/hooks.js';

export const BASE = '/console';

export function read() {
  const path = location.pathname.startsWith(BASE) ? location.pathname.slice(BASE.length) || '/' : '/';
  return { path, query: Object.fromEntries(new URLSearchParams(location.search)) };
}

export function href(path, query = {}) {
  const entries = Object.entries(query).filter(([, value]) => value != null && value !== '');
  return BASE + path + (entries.length ? `?${new URLSearchParams(entries)}` : '');
}

const moved = () => dispatchEvent(new CustomEvent('place'));

export function visit(path, query = {}, { replace = false } = {}) {
  history[replace ? 'replaceState' : 'pushState'](null, '', href(path, query));
  moved();
}

// Changes some keys of the query and keeps the others.
export function go(patch, options) {
  const { path, query } = read();
  visit(path, { ...query, ...patch }, options);
}

export function usePlace() {
  const [place, setPlace] = useState(read);
  useEffect(() => {
    const update = () => setPlace(read());
    addEventListener('place', update);
    addEventListener('popstate', update);
    return () => {
      removeEventListener('place', update);
      removeEventListener('popstate', update);
    };
  }, []);
  return place;
}

// A click on a link of the console changes the place without a new document.
export function followLinks() {
  addEventListener('click', (event) => {
    const link = event.target.closest?.('a[href]');
    if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    if (link.target || link.hasAttribute('download') || link.origin !== location.origin || !link.pathname.startsWith(`${BASE}/`)) return;
    event.preventDefault();
    history.pushState(null, '', link.href);
    moved();
    document.getElementById('main')?.focus({ preventScroll: true });
  });
}
