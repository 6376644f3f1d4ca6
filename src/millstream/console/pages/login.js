// Log in with the user and password of every protocol.
import { useState } from '../vendor/hooks.js';
import { html, Panel } from '../parts/ui.js';
import { Field } from '../parts/overlay.js';
import { Problem } from '../parts/states.js';
import { call, setCsrf } from '../data/api.js';
import { useTitle } from '../data/frame.js';

export function Page({ query }) {
  const [user, setUser] = useState('');
  const [password, setPassword] = useState('');
  const [error, setError] = useState(null);
  useTitle({
    title: 'Log in',
    crumbs: [['Log in']],
    commands: { cli: 'millstream whoami', curl: `curl -u USER ${location.origin}/v1/whoami` },
  });
  const login = async (event) => {
    event.preventDefault();
    try {
      const { data } = await call('POST', '/v1/session', { body: { user, password } });
      setCsrf(data?.csrf);
      location.assign(query.back?.startsWith('/console') ? query.back : '/console/');
    } catch (problem) {
      setError(problem);
    }
  };
  return html`<div class="page"><div class="fresh-in"><${Panel} title="Log in"><form class="stack12" onSubmit=${login}><${Field} label="User"><input class="field" autofocus autocomplete="username" value=${user} onInput=${(e) => setUser(e.target.value)} /></${Field}>
    <${Field} label="Password"><input class="field" type="password" autocomplete="current-password" value=${password} onInput=${(e) => setPassword(e.target.value)} /></${Field}><${Problem} error=${error} /><div><button type="submit" class="button primary">Log in</button></div></form></${Panel}></div></div>`;
}
