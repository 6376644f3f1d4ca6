// The shell: pages by address, navigation, command line, palette, keys. A page is a function of its address.
import { render } from './vendor/preact.js';
import { useEffect, useState } from './vendor/hooks.js';
import { html, Icon, Shape, Copy, Keys, copyText } from './parts/ui.js';
import { Waiting, Empty, Problem } from './parts/states.js';
import { Palette, KeyHelp } from './parts/overlay.js';
import { get, all } from './data/api.js';
import { alive } from './data/alive.js';
import { usePlace, followLinks, visit, href } from './data/place.js';
import { useFrame } from './data/frame.js';
import { ROUTES, NAV, GO } from './routes.js';
import { words } from './words.js';

const loaded = new Map();

function usePage(path) {
  const route = ROUTES.find(([pattern]) => pattern.test(path));
  const file = route?.[1];
  const [state, setState] = useState({ file: null, Page: null, error: null });
  useEffect(() => {
    if (!file) return undefined;
    let isCurrent = true;
    const take = (module) => isCurrent && setState({ file, Page: module.Page, error: null });
    if (loaded.has(file)) take(loaded.get(file));
    else
      import(`./pages/${file}.js`).then(
        (module) => {
          loaded.set(file, module);
          take(module);
        },
        (error) => isCurrent && setState({ file, Page: null, error }),
      );
    return () => {
      isCurrent = false;
    };
  }, [file]);
  const params = route ? path.match(route[0]).slice(1).map(decodeURIComponent) : [];
  return { isKnown: Boolean(route), params, ...(state.file === file ? state : { Page: null, error: null }) };
}

function Side({ path, frame }) {
  const isHere = (target) => (target === '/' ? path === '/' : path === target || path.startsWith(`${target}/`));
  return html`<aside class="side" id="side">
    <a class="brand" href=${href('/')}><svg class="icon" viewBox="0 0 16 16" width="18" height="18" aria-hidden="true">
      <path d="M1 4c3 0 3 2 7 2s4-2 7-2M1 8c3 0 3 2 7 2s4-2 7-2M1 12c3 0 3 2 7 2s4-2 7-2" /></svg>${words.brand}</a>
    <nav aria-label=${words.pages}>${NAV.map(
      ([section, links]) => html`${section ? html`<h2>${section}</h2>` : null}
      ${links.map(
        ([
          label,
          target,
          icon,
        ]) => html`<a href=${href(target)} aria-current=${isHere(target) ? 'page' : null}><${Icon} name=${icon} />${label}
        ${frame.counts?.[target] ? html`<span class=${`count ${frame.counts[target][1]}`}><${Shape} level=${frame.counts[target][1]} />${frame.counts[target][0]}</span>` : null}</a>`,
      )}`,
    )}
    </nav>
    <footer>${frame.cluster ? html`${words.nodes(frame.cluster.nodes)}${frame.cluster.version ? `, version ${frame.cluster.version}` : ''}` : ''}<br />${frame.principal ?? ''}</footer>
  </aside>`;
}

function Alive() {
  const [, draw] = useState(0);
  useEffect(() => {
    const off = alive.subscribe(() => draw((n) => n + 1));
    const timer = setInterval(() => alive.brokenSince && draw((n) => n + 1), 1000);
    return () => {
      off();
      clearInterval(timer);
    };
  }, []);
  const isBroken = alive.brokenSince !== 0;
  document.documentElement.toggleAttribute('data-stale', isBroken);
  return html`<span class="alive" role="status"><${Shape} level=${isBroken ? 'bad' : 'live'} />
    <span>${isBroken ? words.stale(Math.round((Date.now() - alive.brokenSince) / 1000)) : words.live}</span></span>`;
}

function CommandLine({ commands }) {
  const [form, setForm] = useState('cli');
  const shown = commands[form] ? form : 'cli';
  return html`<footer class="commandline" aria-label=${words.byCommand}><${Icon} name="terminal" size=${14} />
    <code title=${commands[shown]} data-command>${commands[shown]}</code>
    <div class="segments small" role="group" aria-label=${words.byCommand}>${Object.keys(words.forms)
      .filter((k) => commands[k])
      .map(
        (k) => html`<button type="button"
      aria-pressed=${String(k === shown)} onClick=${() => setForm(k)}>${words.forms[k]}</button>`,
      )}</div>
    <${Copy} text=${commands[shown]} label=${words.copyCommand} /></footer>`;
}

export function switchTheme() {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  root.dataset.theme = isDark ? 'light' : 'dark';
  localStorage.setItem('theme', root.dataset.theme);
}

async function candidates() {
  const pages = NAV.flatMap(([, links]) => links).map(([name, path, icon]) => ({
    name,
    path,
    icon,
    kind: words.kinds.page,
    keys: GO[path] && `g ${GO[path]}`,
  }));
  const acts = [{ name: words.theme, act: switchTheme, icon: 'moon', kind: words.kinds.act }];
  const [topics, groups] = await Promise.all([
    all('/v1/topics', { most: 5000 }).catch(() => []),
    all('/v1/groups', { most: 5000 }).catch(() => []),
  ]);
  return [
    ...pages,
    ...acts,
    ...topics.map((t) => ({
      name: t.name,
      path: `/topics/${encodeURIComponent(t.name)}`,
      icon: 'topics',
      kind: words.kinds.topic,
      note: t.kind,
    })),
    ...groups.map((g) => ({
      name: g.name,
      path: `/groups/${encodeURIComponent(g.name)}`,
      icon: 'groups',
      kind: words.kinds.group,
      note: g.state,
    })),
  ];
}

function useKeys(open) {
  useEffect(() => {
    let before = '';
    const onKey = (event) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'k') {
        event.preventDefault();
        return open('palette');
      }
      if (event.target.closest?.('input, textarea, select, dialog') || event.ctrlKey || event.metaKey || event.altKey) return undefined;
      const path = before === 'g' && Object.entries(GO).find(([, key]) => key === event.key)?.[0];
      before = event.key;
      if (path) return visit(path);
      if (event.key === '?') return open('keys');
      if (event.key === '/') {
        event.preventDefault();
        return document.querySelector('[data-find]')?.focus();
      }
      if (event.key === 'c') return copyText(document.querySelector('[data-command]')?.textContent ?? '');
      const control = document.querySelector(`main [data-key="${CSS.escape(event.key)}"]`);
      if (control) {
        event.preventDefault();
        return control.matches('select, input') ? control.focus() : control.click();
      }
      return undefined;
    };
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  }, []);
}

function Content({ page, path, place }) {
  const { isKnown, Page, params, error } = page;
  if (!isKnown) return html`<div class="page"><${Empty} title=${words.notFound}><code>${path}</code></${Empty}></div>`;
  if (error) return html`<div class="page"><${Problem} error=${error} onRetry=${() => location.reload()} /></div>`;
  return Page
    ? html`<${Page} key=${path} params=${params} query=${place.query} path=${path} />`
    : html`<div class="page"><${Waiting} /></div>`;
}

function Shell() {
  const place = usePlace();
  const page = usePage(place.path);
  const frame = useFrame();
  const [over, setOver] = useState(null);
  const [names, setNames] = useState([]);
  const [isNavOpen, setNavOpen] = useState(false);
  const open = (kind) => {
    setOver(kind);
    if (kind === 'palette') candidates().then(setNames);
  };
  useKeys(open);
  useEffect(() => setNavOpen(false), [place.path]);
  useEffect(() => {
    document.title = `${frame.title} · ${words.brand}`;
  }, [frame.title]);
  const bottom = [
    ['Overview', '/', 'overview'],
    ['Topics', '/topics', 'topics'],
    ['Groups', '/groups', 'groups'],
    ['Dead letters', '/dead-letters', 'dead'],
  ];
  return html`<div class=${`shell${isNavOpen ? ' nav-open' : ''}`}>
    <a class="skip" href="#main">${words.skip}</a>
    <${Side} path=${place.path} frame=${frame} />
    <header class="top">
      <button type="button" class="icon-button only-narrow" aria-label=${words.menu} aria-expanded=${String(isNavOpen)} onClick=${() => setNavOpen(!isNavOpen)}><${Icon} name="menu" /></button>
      <nav class="crumbs" aria-label=${words.place}><b>${frame.cluster?.name ?? location.host}</b>${frame.crumbs.map(([label, target]) => html`<span class="sep">/</span>${target ? html`<a href=${href(target)}>${label}</a>` : html`<span class="cut">${label}</span>`}`)}</nav>
      <span class="grow" />
      <button type="button" class="fieldbox goto" aria-label=${words.goto} onClick=${() => open('palette')}><${Icon} name="search" size=${14} /><span>${words.goto}</span><${Keys} of="Ctrl K" /></button>
      <${Alive} />
      <button type="button" class="icon-button wide-only" aria-label=${words.theme} title=${words.theme} onClick=${switchTheme}><${Icon} name="moon" /></button>
      <button type="button" class="icon-button wide-only" aria-label=${words.keys} title=${`${words.keys} (?)`} onClick=${() => open('keys')}><${Icon} name="help" /></button>
    </header>
    <main id="main" tabindex="0"><${Content} page=${page} path=${place.path} place=${place} /></main>
    <${CommandLine} commands=${frame.commands} />
    <nav class="tabs-bottom" aria-label=${words.pages}>${bottom.map(([label, target, icon]) => html`<a href=${href(target)} aria-current=${place.path === target ? 'page' : null}><${Icon} name=${icon} size=${20} />${label}</a>`)}
      <button type="button" onClick=${() => setNavOpen(!isNavOpen)}><${Icon} name="menu" size=${20} />${words.more}</button></nav>
    <div class="scrim" onClick=${() => setNavOpen(false)} />
    ${over === 'palette' ? html`<${Palette} candidates=${names} onClose=${() => setOver(null)} />` : null}
    ${over === 'keys' ? html`<${KeyHelp} onClose=${() => setOver(null)} />` : null}
  </div>`;
}

const theme = localStorage.getItem('theme');
if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
followLinks();
addEventListener('login-needed', () => {
  if (location.pathname !== href('/login')) visit('/login', { back: location.pathname + location.search });
});
get('/v1/whoami').catch(() => null);
render(html`<${Shell} />`, document.body);
