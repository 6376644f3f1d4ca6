// About: versions, the session, and a bundle for a report.
import { html, Panel, Title } from '../parts/ui.js';
import { Loaded } from '../parts/states.js';
import { call, get } from '../data/api.js';
import { useLoad } from '../data/use.js';
import { useTitle } from '../data/frame.js';

export function Page() {
  const state = useLoad(
    async (signal) => ({
      who: await get('/v1/whoami', { signal }).catch(() => ({})),
      cluster: await get('/v1/cluster', { signal }).catch(() => ({})),
    }),
    [],
  );
  useTitle({ title: 'About', crumbs: [['About']], commands: { cli: 'millstream --version', curl: `curl ${location.origin}/v1/cluster` } });
  const logout = () => call('DELETE', '/v1/session').finally(() => location.assign('/console/login'));
  return html`<div class="page"><${Title}>About</${Title}><${Loaded} of=${state}>${({
    who,
    cluster,
  }) => html`<${Panel}><dl class="pairs"><dt>Version</dt><dd>${cluster.version ?? '–'}</dd><dt>Cluster</dt><dd><code>${cluster.id ?? '–'}</code></dd><dt>Principal</dt><dd>${who.principal ?? '–'}</dd></dl>
    <div class="acts-row"><a class="button" download="diagnostics.zip" href="/v1/diagnostics">Diagnostic bundle</a><button type="button" class="button" onClick=${logout}>Log out</button></div></${Panel}>`}</${Loaded}></div>`;
}
