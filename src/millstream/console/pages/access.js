// Access: users, roles and ACLs, and why somebody may or may not do something.
import { useState } from '../vendor/hooks.js';
import { html, Chip, Icon, Panel, Title, Act } from '../parts/ui.js';
import { Table } from '../parts/table.js';
import { ActDialog, Field } from '../parts/overlay.js';
import { Loaded, Empty, Note, Problem } from '../parts/states.js';
import { all, call, part, post } from '../data/api.js';
import { useLoad } from '../data/use.js';
import { useTitle } from '../data/frame.js';
import { go, href } from '../data/place.js';

const TABS = [
  ['users', 'Users'],
  ['roles', 'Roles'],
  ['acls', 'ACLs'],
  ['why', 'Why?'],
];
const OPERATIONS = [
  'read',
  'write',
  'create',
  'delete',
  'alter',
  'describe',
  'cluster_action',
  'describe_configs',
  'alter_configs',
  'idempotent_write',
  'all',
];
const KINDS = ['topic', 'group', 'cluster', 'transactional_id'];

function UserDialog({ onClose, onDone }) {
  const [name, setName] = useState('');
  const [password, setPassword] = useState('');
  const [roles, setRoles] = useState('');
  return html`<${ActDialog} title="Create a user" label=${`Create ${name || 'the user'}`} isReady=${name !== '' && password.length > 0} onClose=${onClose} onDone=${onDone} act=${() => call('POST', '/v1/users', { body: { name, password, roles: roles.split(/[\s,]+/).filter(Boolean) } })}>
    <div class="form"><${Field} label="Name"><input class="field mono" autofocus autocomplete="off" value=${name} onInput=${(e) => setName(e.target.value)} /></${Field}><${Field} label="Password"><input class="field" type="password" autocomplete="new-password" value=${password} onInput=${(e) => setPassword(e.target.value)} /></${Field}>
      <div class="whole"><${Field} label="Roles, separated by commas"><input class="field mono" value=${roles} onInput=${(e) => setRoles(e.target.value)} /></${Field}></div></div></${ActDialog}>`;
}

function AclDialog({ onClose, onDone }) {
  const [rule, setRule] = useState({
    principal: 'User:',
    operation: 'read',
    permission: 'allow',
    host: '*',
    resource_type: 'topic',
    resource_name: '',
    pattern: 'literal',
  });
  const set = (key) => (e) => setRule({ ...rule, [key]: e.target.value });
  const choose = (key, label, options) =>
    html`<${Field} label=${label}><select class="field" value=${rule[key]} onChange=${set(key)}>${options.map((o) => html`<option value=${o}>${o}</option>`)}</select></${Field}>`;
  return html`<${ActDialog} title="Create an ACL" label="Create the rule" isReady=${rule.resource_name !== '' && /^(User|Role):.+/.test(rule.principal)} onClose=${onClose} onDone=${onDone} act=${() => call('POST', '/v1/acls', { body: { acls: [rule] } })}>
    <div class="form"><${Field} label="Principal"><input class="field mono" autofocus value=${rule.principal} onInput=${set('principal')} /></${Field}>${choose('operation', 'Operation', OPERATIONS)}${choose('permission', 'Permission', ['allow', 'deny'])}
      <${Field} label="From host"><input class="field mono" value=${rule.host} onInput=${set('host')} /></${Field}>${choose('resource_type', 'Resource', KINDS)}${choose('pattern', 'Pattern', ['literal', 'prefixed'])}<div class="whole"><${Field} label="Name"><input class="field mono" value=${rule.resource_name} onInput=${set('resource_name')} /></${Field}></div></div></${ActDialog}>`;
}

function Why() {
  const [asked, setAsked] = useState({
    principal: 'User:',
    operation: 'read',
    resource_type: 'topic',
    resource_name: '',
    host: '127.0.0.1',
  });
  const [answer, setAnswer] = useState(null);
  const [error, setError] = useState(null);
  const set = (key) => (e) => setAsked({ ...asked, [key]: e.target.value });
  const check = (event) => {
    event.preventDefault();
    setError(null);
    post('/v1/acls:check', asked).then(setAnswer, setError);
  };
  return html`<form class="panel" onSubmit=${check}><div class="body stack12"><div class="form"><${Field} label="Principal"><input class="field mono" value=${asked.principal} onInput=${set('principal')} /></${Field}>
      <${Field} label="Operation"><select class="field" value=${asked.operation} onChange=${set('operation')}>${OPERATIONS.map((o) => html`<option value=${o}>${o}</option>`)}</select></${Field}>
      <${Field} label="Resource"><select class="field" value=${asked.resource_type} onChange=${set('resource_type')}>${KINDS.map((k) => html`<option value=${k}>${k}</option>`)}</select></${Field}><${Field} label="Name"><input class="field mono" value=${asked.resource_name} onInput=${set('resource_name')} /></${Field}><${Field} label="From host"><input class="field mono" value=${asked.host} onInput=${set('host')} /></${Field}></div>
    <div><button type="submit" class="button primary">May it?</button></div><${Problem} error=${error} />
    ${answer ? html`<${Note} level=${answer.is_allowed ? 'good' : 'bad'}><b>${answer.is_allowed ? 'Allowed' : 'Denied'}</b> by ${answer.rule ?? 'no rule'}</${Note}>` : null}</div></form>`;
}

const userColumns = (remove) => [
  { key: 'name', head: 'User', sort: (u) => u.name, cell: (u) => html`<b>${u.name}</b>` },
  { key: 'roles', head: 'Roles', cell: (u) => (u.roles ?? []).map((r) => html`<${Chip}>${r}</${Chip}> `) },
  {
    key: 'enabled',
    head: 'State',
    width: 120,
    cell: (u) => (!u.is_enabled ? html`<${Chip} level="warn">disabled</${Chip}>` : html`<span class="muted">enabled</span>`),
  },
  {
    key: 'act',
    head: '',
    label: 'Delete',
    width: 92,
    cell: (u) => html`<button type="button" class="link" onClick=${() => remove('users', u.name)}>Delete…</button>`,
  },
];
const roleColumns = () => [
  { key: 'name', head: 'Role', width: 200, sort: (r) => r.name, cell: (r) => html`<b>${r.name}</b>` },
  { key: 'description', head: 'For', cell: (r) => html`<span class="muted">${r.is_built_in ? 'built in' : r.description}</span>` },
  { key: 'users', head: 'Users', plain: (r) => r.users.join(' '), cell: (r) => r.users.join(', ') || '–' },
];
const aclColumns = () => [
  { key: 'principal', head: 'Principal', sort: (a) => a.principal, cell: (a) => html`<b>${a.principal}</b>` },
  {
    key: 'permission',
    head: 'Permission',
    width: 112,
    sort: (a) => a.permission,
    cell: (a) => html`<${Chip} level=${a.permission === 'deny' ? 'bad' : 'good'}>${a.permission}</${Chip}>`,
  },
  { key: 'operation', head: 'Operation', width: 160, sort: (a) => a.operation, cell: (a) => a.operation },
  {
    key: 'resource',
    head: 'Resource',
    plain: (a) => `${a.resource_type}:${a.resource_name}`,
    cell: (a) =>
      html`<code>${a.resource_type}:${a.resource_name}</code> ${a.pattern === 'prefixed' ? html`<${Chip}>prefix</${Chip}>` : null}`,
  },
  { key: 'host', head: 'Host', width: 140, hide: 'hide-narrow', cell: (a) => html`<code>${a.host}</code>` },
];

export function Page({ query }) {
  const tab = query.tab ?? 'users';
  const [dialog, setDialog] = useState(null);
  const state = useLoad((signal) => (tab === 'why' ? [] : all(`/v1/${tab}`, { signal })), [tab], 10000);
  useTitle({
    title: 'Access',
    crumbs: [['Access']],
    commands: {
      cli: {
        users: 'millstream user list',
        roles: 'millstream role list',
        acls: 'millstream acl list',
        why: 'millstream acl test --principal User:ann --operation READ --topic orders',
      }[tab],
      curl: `curl ${location.origin}/v1/${tab === 'why' ? 'acls:check' : tab}`,
    },
  });
  const remove = (kind, name) => setDialog(['delete', kind, name]);
  const columns = { users: userColumns(remove), roles: roleColumns(), acls: aclColumns() }[tab];
  return html`<div class="page"><${Title} acts=${tab === 'users' || tab === 'acls' ? html`<${Act} primary=${true} dataKey="p" onClick=${() => setDialog([tab])}><${Icon} name="plus" size=${14} />Create</${Act}>` : null}>Access</${Title}>
    <nav class="tabs" aria-label="Access">${TABS.map(([key, label]) => html`<a href=${href('/access', { tab: key })} aria-current=${key === tab ? 'page' : null}>${label}</a>`)}</nav>
    ${tab === 'why' ? html`<${Why} />` : html`<${Loaded} of=${state}>${(rows) => (rows.length ? html`<${Panel} flush=${true}><${Table} label=${tab} inset=${true} rows=${rows} columns=${columns} sort=${query.sort} onSort=${(sort) => go({ sort })} /></${Panel}>` : html`<${Empty} title=${`There are no ${tab}`} code=${tab === 'users' ? 'millstream user create ann' : null} />`)}</${Loaded}>`}
    ${dialog?.[0] === 'users' ? html`<${UserDialog} onClose=${() => setDialog(null)} onDone=${state.reload} />` : null}${dialog?.[0] === 'acls' ? html`<${AclDialog} onClose=${() => setDialog(null)} onDone=${state.reload} />` : null}
    ${dialog?.[0] === 'delete' ? html`<${ActDialog} title=${`Delete ${dialog[2]}`} label=${`Delete ${dialog[2]}`} danger=${true} typed=${dialog[2]} onClose=${() => setDialog(null)} onDone=${state.reload} act=${() => call('DELETE', `/v1/${dialog[1]}/${part(dialog[2])}`)}><p>Connections of this user end within a second.</p></${ActDialog}>` : null}</div>`;
}
