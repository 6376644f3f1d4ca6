// Roles and ACLs: create and delete; what an ACL was is shown before it goes.
import { useState } from '../vendor/hooks.js';
import { html, Chip } from '../parts/ui.js';
import { ActDialog, Field } from '../parts/overlay.js';
import { Code } from '../parts/states.js';
import { Table } from '../parts/table.js';
import { call } from '../data/api.js';
import { text } from './access.words.js';

export const OPERATIONS = [
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
export const KINDS = ['topic', 'group', 'cluster', 'transactional_id', 'delegation_token', 'user'];

export const Choose = ({ label, value, options, onPick }) =>
  html`<${Field} label=${label}><select class="field" value=${value} onChange=${(e) => onPick(e.target.value)}>${options.map((o) => html`<option value=${o}>${o}</option>`)}</select></${Field}>`;

export function CreateRole({ onClose, onDone }) {
  const [name, setName] = useState('');
  const [description, setDescription] = useState('');
  return html`<${ActDialog} title=${text.create.roles} label=${text.createNamed(name, text.theRole)} isReady=${name !== ''} onClose=${onClose} onDone=${onDone} act=${() => call('POST', '/v1/roles', { body: { name, description } })}>
    <div class="form"><${Field} label=${text.name}><input class="field mono" autofocus value=${name} onInput=${(e) => setName(e.target.value.trim())} /></${Field}><div class="whole"><${Field} label=${text.description}><input class="field" value=${description} onInput=${(e) => setDescription(e.target.value)} /></${Field}></div></div>
    <${Code} text=${`millstream role create ${name || 'NAME'}`} /></${ActDialog}>`;
}

const START = { principal: 'User:', operation: 'read', permission: 'allow', host: '*', resource_type: 'topic', resource_name: '', pattern: 'literal' };

export function CreateAcl({ onClose, onDone }) {
  const [rule, setRule] = useState(START);
  const set = (key) => (value) => setRule({ ...rule, [key]: value });
  const typed = (key, label, isFirst) =>
    html`<${Field} label=${label}><input class="field mono" autofocus=${isFirst} value=${rule[key]} onInput=${(e) => set(key)(e.target.value)} /></${Field}>`;
  const isReady = rule.resource_name !== '' && /^(User|Role):.+/.test(rule.principal);
  return html`<${ActDialog} title=${text.create.acls} label=${text.theRule} isReady=${isReady} onClose=${onClose} onDone=${onDone} act=${() => call('POST', '/v1/acls', { body: { acls: [rule] } })}>
    <div class="form">${typed('principal', text.columns.principal, true)}<${Choose} label=${text.columns.operation} value=${rule.operation} options=${OPERATIONS} onPick=${set('operation')} />
      <${Choose} label=${text.columns.permission} value=${rule.permission} options=${['allow', 'deny']} onPick=${set('permission')} />${typed('host', text.from)}
      <${Choose} label=${text.resource} value=${rule.resource_type} options=${KINDS} onPick=${set('resource_type')} /><${Choose} label=${text.pattern} value=${rule.pattern} options=${['literal', 'prefixed']} onPick=${set('pattern')} />
      <div class="whole">${typed('resource_name', text.name)}</div></div></${ActDialog}>`;
}

const same = (a, b) => Object.keys(START).every((key) => a[key] === b[key]);

export function DeleteAcl({ rule, onClose, onDone }) {
  const query = Object.fromEntries(Object.keys(START).map((key) => [key, rule[key]]));
  const act = async () => {
    const { data } = await call('DELETE', '/v1/acls', { query });
    return data.items.some((removed) => same(removed, rule));
  };
  return html`<${ActDialog} title=${text.removeAcls(1)} label=${text.removeAcls(1)} danger=${true} onClose=${onClose} onDone=${onDone} act=${act}>
    <${Table} label=${text.removeAcls(1)} inset=${true} rows=${[rule]} columns=${aclColumns(null)} /><p>${text.removeAclNote}</p></${ActDialog}>`;
}

const removal = (open, subject, name) => ({
  key: 'act',
  head: '',
  label: text.columns.acts,
  width: 84,
  cell: (row) => (subject(row) ? html`<button type="button" class="link" aria-label=${`${text.remove} ${name(row)}`} onClick=${() => open('remove', row)}>${text.remove}</button>` : null),
});

export const roleColumns = (open) => [
  { key: 'name', head: text.columns.role, width: 200, sort: (r) => r.name, cell: (r) => html`<b>${r.name}</b>` },
  { key: 'description', head: text.columns.for, plain: (r) => r.description, cell: (r) => html`<span class="muted">${r.is_built_in ? text.builtIn : r.description}</span>` },
  { key: 'users', head: text.columns.users, plain: (r) => r.users.join(' '), cell: (r) => r.users.join(', ') || '–' },
  removal(
    open,
    (r) => !r.is_built_in,
    (r) => r.name,
  ),
];

export const aclColumns = (open) => [
  { key: 'principal', head: text.columns.principal, sort: (a) => a.principal, cell: (a) => html`<b>${a.principal}</b>` },
  { key: 'permission', head: text.columns.permission, width: 112, sort: (a) => a.permission, cell: (a) => html`<${Chip} level=${a.permission === 'deny' ? 'bad' : 'good'}>${a.permission}</${Chip}>` },
  { key: 'operation', head: text.columns.operation, width: 140, sort: (a) => a.operation, cell: (a) => a.operation },
  {
    key: 'resource',
    head: text.columns.resource,
    plain: (a) => `${a.resource_type}:${a.resource_name}`,
    cell: (a) => html`<code>${a.resource_type}:${a.resource_name}</code> ${a.pattern === 'prefixed' ? html`<${Chip}>${text.prefix}</${Chip}>` : null}`,
  },
  { key: 'host', head: text.columns.host, width: 120, hide: 'hide-narrow', cell: (a) => html`<code>${a.host}</code>` },
  ...(open
    ? [
        removal(
          open,
          () => true,
          (a) => `${a.principal} ${a.operation} ${a.resource_name}`,
        ),
      ]
    : []),
];
