// Users: create, change roles and state by plan, set a password, delete.
import { useState } from '../vendor/hooks.js';
import { html, Chip } from '../parts/ui.js';
import { ActDialog, Field } from '../parts/overlay.js';
import { Code } from '../parts/states.js';
import { Table } from '../parts/table.js';
import { call, part } from '../data/api.js';
import { text } from './access.words.js';

const listed = (typed) => typed.split(/[\s,]+/).filter(Boolean);

export function CreateUser({ onClose, onDone }) {
  const [name, setName] = useState('');
  const [password, setPassword] = useState('');
  const [roles, setRoles] = useState('');
  const flags = listed(roles)
    .map((role) => ` --role ${role}`)
    .join('');
  return html`<${ActDialog} title=${text.create.users} label=${text.createNamed(name, text.theUser)} isReady=${name !== '' && password !== ''} onClose=${onClose} onDone=${onDone} act=${() => call('POST', '/v1/users', { body: { name, password, roles: listed(roles) } })}>
    <div class="form"><${Field} label=${text.name}><input class="field mono" autofocus autocomplete="off" value=${name} onInput=${(e) => setName(e.target.value)} /></${Field}>
      <${Field} label=${text.password}><input class="field" type="password" autocomplete="new-password" value=${password} onInput=${(e) => setPassword(e.target.value)} /></${Field}>
      <div class="whole"><${Field} label=${text.rolesField}><input class="field mono" value=${roles} onInput=${(e) => setRoles(e.target.value)} /></${Field}></div></div>
    <${Code} text=${`millstream user create ${name || 'NAME'}${flags}`} /></${ActDialog}>`;
}

const planColumns = [
  { key: 'what', head: '', label: text.name, width: 120, cell: (row) => html`<span class="muted">${row[0]}</span>` },
  { key: 'before', head: text.before, cell: (row) => row[1] || '–' },
  { key: 'after', head: text.after, cell: (row) => html`<b>${row[2] || '–'}</b>` },
];

export function ChangeUser({ user, onClose, onDone }) {
  const [roles, setRoles] = useState(user.roles.join(', '));
  const [isEnabled, setEnabled] = useState(user.is_enabled);
  const rows = [
    [text.columns.roles, user.roles.join(', '), listed(roles).join(', ')],
    [text.columns.state, user.is_enabled ? text.enabled : text.disabled, isEnabled ? text.enabled : text.disabled],
  ];
  const isChanged = rows.some(([, before, after]) => before !== after);
  return html`<${ActDialog} title=${text.changeUser(user.name)} label=${text.changeUser(user.name)} isReady=${isChanged} onClose=${onClose} onDone=${onDone} act=${() => call('PATCH', `/v1/users/${part(user.name)}`, { body: { roles: listed(roles), is_enabled: isEnabled } })}>
    <${Field} label=${text.rolesField}><input class="field mono" autofocus value=${roles} onInput=${(e) => setRoles(e.target.value)} /></${Field}>
    <label class="row"><input type="checkbox" checked=${isEnabled} onChange=${(e) => setEnabled(e.target.checked)} />${text.isEnabled}</label>
    <${Table} label=${text.changeUser(user.name)} inset=${true} rows=${rows} columns=${planColumns} /></${ActDialog}>`;
}

export function SetPassword({ user, onClose, onDone }) {
  const [password, setPassword] = useState('');
  const [disconnect, setDisconnect] = useState(true);
  return html`<${ActDialog} title=${text.passwordOf(user.name)} label=${text.passwordOf(user.name)} isReady=${password !== ''} onClose=${onClose} onDone=${onDone} act=${() => call('POST', `/v1/users/${part(user.name)}/password`, { body: { password, disconnect } })}>
    <${Field} label=${text.newPassword}><input class="field" type="password" autofocus autocomplete="new-password" value=${password} onInput=${(e) => setPassword(e.target.value)} /></${Field}>
    <label class="row"><input type="checkbox" checked=${disconnect} onChange=${(e) => setDisconnect(e.target.checked)} />${text.disconnect}</label></${ActDialog}>`;
}

export const userColumns = (open, isAllowed, needs) => {
  const act = (kind, label, user) =>
    html`<button type="button" class="link" aria-label=${`${label} ${user.name}`} aria-disabled=${isAllowed ? null : 'true'} title=${isAllowed ? null : needs} onClick=${() => isAllowed && open(kind, user)}>${label}</button> `;
  return [
    { key: 'name', head: text.columns.user, sort: (u) => u.name, cell: (u) => html`<b>${u.name}</b>` },
    { key: 'roles', head: text.columns.roles, plain: (u) => u.roles.join(' '), cell: (u) => u.roles.map((r) => html`<${Chip}>${r}</${Chip}> `) },
    { key: 'mechanisms', head: text.columns.mechanisms, hide: 'hide-narrow', cell: (u) => html`<span class="muted">${u.mechanisms.join(', ') || text.noPassword}</span>` },
    { key: 'enabled', head: text.columns.state, width: 100, hide: 'hide-narrow', cell: (u) => (u.is_enabled ? html`<span class="muted">${text.enabled}</span>` : html`<${Chip} level="warn">${text.disabled}</${Chip}>`) },
    { key: 'act', head: '', label: text.columns.acts, width: 248, className: 'links', cell: (u) => [act('change', text.change, u), act('password', text.setPassword, u), act('remove', text.remove, u)] },
  ];
};
