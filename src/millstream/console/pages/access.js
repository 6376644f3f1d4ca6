// Access: users, roles and ACLs, the matrix of who may do what, and why.
import { useState } from '../vendor/hooks.js';
import { html, Icon, Panel, Title, Act } from '../parts/ui.js';
import { Table } from '../parts/table.js';
import { ActDialog } from '../parts/overlay.js';
import { Loaded, Empty } from '../parts/states.js';
import { call, part, rules } from '../data/api.js';
import { useLoad } from '../data/use.js';
import { may, useTitle } from '../data/frame.js';
import { go, href } from '../data/place.js';
import { words } from '../words.js';
import { ChangeUser, CreateUser, SetPassword, userColumns } from './access.users.js';
import { CreateAcl, CreateRole, DeleteAcl, aclColumns, roleColumns } from './access.rules.js';
import { Matrix, Why } from './access.why.js';
import { text } from './access.words.js';

const REFRESH_MS = 10000;
const TABS = Object.keys(text.tabs);
const LISTS = { users: userColumns, roles: roleColumns, acls: aclColumns };
const CREATE = { users: CreateUser, roles: CreateRole, acls: CreateAcl };

const DeleteNamed = ({ tab, row, onClose, onDone }) => html`<${ActDialog} title=${text.removeNamed(row.name)} label=${text.removeNamed(row.name)} danger=${true} typed=${row.name} onClose=${onClose} onDone=${onDone}
  act=${() => call('DELETE', `/v1/${tab}/${part(row.name)}`)}><p>${text.removeNote[tab]}</p></${ActDialog}>`;

function Open({ tab, dialog: [kind, row], ...rest }) {
  if (kind === 'create') return html`<${CREATE[tab]} ...${rest} />`;
  if (kind === 'change') return html`<${ChangeUser} user=${row} ...${rest} />`;
  if (kind === 'password') return html`<${SetPassword} user=${row} ...${rest} />`;
  return tab === 'acls' ? html`<${DeleteAcl} rule=${row} ...${rest} />` : html`<${DeleteNamed} tab=${tab} row=${row} ...${rest} />`;
}

function List({ tab, query, version, open, isAllowed, needs }) {
  const state = useLoad((signal) => rules(`/v1/${tab}`, { signal }), [version], REFRESH_MS);
  const columns = LISTS[tab](open, isAllowed, needs);
  return html`<${Loaded} of=${state}>${(rows) =>
    rows.length
      ? html`<${Panel} flush=${true}><${Table} label=${text.tabs[tab]} inset=${true} rows=${rows} columns=${columns} sort=${query.sort} onSort=${(sort) => go({ sort })} /></${Panel}>`
      : html`<${Empty} title=${rows.isOff ? words.rulesOff : text.none[tab]} code=${rows.isOff ? words.rulesOn : text.code[tab]} />`}</${Loaded}>`;
}

export function Page({ query }) {
  const tab = TABS.includes(query.tab) ? query.tab : 'users';
  const isList = tab in LISTS;
  const [dialog, setDialog] = useState(null);
  const [version, setVersion] = useState(0);
  const isAllowed = may('ALTER', 'cluster');
  const needs = words.needs('ALTER', 'cluster', 'kafka-cluster');
  useTitle({
    title: text.title,
    crumbs: [[text.title]],
    commands: { cli: text.commands[tab], curl: `curl ${location.origin}/v1/${isList ? tab : 'acls:check'}` },
  });
  const open = (kind, row) => setDialog([kind, row]);
  const acts = isList
    ? html`<${Act} primary=${true} dataKey="p" may=${isAllowed} needs=${needs} onClick=${() => open('create')}><${Icon} name="plus" size=${14} />${text.create[tab]}</${Act}>`
    : null;
  return html`<div class="page"><${Title} acts=${acts}>${text.title}</${Title}>
    <nav class="tabs" aria-label=${text.title}>${TABS.map((key) => html`<a href=${href('/access', { tab: key })} aria-current=${key === tab ? 'page' : null}>${text.tabs[key]}</a>`)}</nav>
    ${tab === 'why' ? html`<${Why} />` : tab === 'matrix' ? html`<${Matrix} query=${query} />` : html`<${List} key=${tab} tab=${tab} query=${query} version=${version} open=${open} isAllowed=${isAllowed} needs=${needs} />`}
    ${dialog ? html`<${Open} tab=${tab} dialog=${dialog} onClose=${() => setDialog(null)} onDone=${() => setVersion(version + 1)} />` : null}</div>`;
}
