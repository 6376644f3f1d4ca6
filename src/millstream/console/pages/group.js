// A group: what is wrong in a sentence, lag over time, then each partition and member.
import { useRef, useState } from '../vendor/hooks.js';
import { html, Icon, Chip, Panel, Title, Act } from '../parts/ui.js';
import { LineChart } from '../parts/chart.js';
import { Table } from '../parts/table.js';
import { ActDialog } from '../parts/overlay.js';
import { Loaded, Note, Empty } from '../parts/states.js';
import { Menu } from '../parts/menu.js';
import { call, get, part } from '../data/api.js';
import { useLoad } from '../data/use.js';
import { useTitle, may } from '../data/frame.js';
import { go, href, visit } from '../data/place.js';
import { agoMs, num, plural, span, short } from '../data/format.js';
import { words } from '../words.js';
import { ResetDialog } from './group.plan.js';

const REFRESH_MS = 3000;
const POINTS_MAX = 300; // A quarter of an hour of this page.
const text = {
  lag: 'Lag',
  lagNote: 'age of the oldest record not committed; records not committed',
  partitions: 'Partitions',
  members: 'Members',
  reset: 'Reset…',
  remove: 'Delete the group…',
  more: 'More acts',
  noMembers: 'No member is there. ',
  noMembersNote: 'Records wait; what retention deletes before anyone reads is lost for this group.',
  behind: 'falls behind',
  stuck: (count, member) => `${plural(count, 'partition')} of ${member || 'no member'} hold it up. `,
  firstPoints: 'The curve begins with the second answer of the broker.',
  noOffsets: 'It has committed nothing yet',
  removed: 'The member is gone; its partitions go to the others.',
};

// The partitions that hold the group up: most of the lag is theirs.
function stuck(partitions, lag) {
  const worst = Math.max(0, ...partitions.map((p) => p.lag ?? 0));
  return (lag.seconds ?? 0) > 60 ? partitions.filter((p) => (p.lag ?? 0) > worst / 2) : [];
}

function Why({ group, partitions, lag }) {
  if (/^empty$/i.test(group.state) && group.lag > 0) return html`<${Note}><b>${text.noMembers}</b>${text.noMembersNote}</${Note}>`;
  const late = stuck(partitions, lag);
  if (!late.length) return null;
  const member = late[0].client_id;
  return html`<${Note} level="bad"><b>${text.stuck(late.length, member)}</b>
    ${late.slice(0, 4).map((p, i) => html`${i ? ', ' : ''}<a href=${href(`/topics/${part(p.topic)}`, { at: `${p.partition}@${p.offset}` })}>${p.topic}/${p.partition}@${num(p.offset)}</a>`)} ${late.length < partitions.length ? `The other ${num(partitions.length - late.length)} are less behind.` : ''}</${Note}>`;
}

// The last hour as the broker remembers it. Where it remembers less than two points, those since the page was opened.
function usePoints(lag) {
  const points = useRef([]);
  if (lag && lag !== points.current.at(-1)?.lag) points.current = [...points.current, { at: Date.now(), lag }].slice(-POINTS_MAX);
  const past = (lag?.history ?? []).map((point) => ({ at: point.at_ms, lag: point }));
  return past.length > 1 ? past : points.current;
}

function Lag({ points }) {
  const seconds = (v) => (v >= 60 ? span(v) : `${Math.round(v * 10) / 10} s`);
  const [from, to] = [points[0]?.at, points.at(-1)?.at];
  return html`<${Panel} title=${text.lag} className="lag" aside=${html`<span class="muted wide-only">${text.lagNote}</span>`}>
    ${
      points.length > 1
        ? html`<${LineChart} label="Lag in seconds" height=${148} right=${84} from=${from} to=${to} format=${seconds} series=${[{ name: 'behind', color: 'c1', values: points.map((p) => p.lag.seconds ?? 0) }]} />
      <${LineChart} label="Lag in records" height=${116} right=${84} from=${from} to=${to} format=${(v) => short(Math.round(v))} series=${[{ name: 'records', color: 'c3', values: points.map((p) => p.lag.records) }]} />`
        : html`<p class="muted">${text.firstPoints}</p>`
    }
  </${Panel}>`;
}

const partitionColumns = [
  {
    key: 'topic',
    head: 'Topic',
    sort: (p) => p.topic,
    cell: (p) => html`<a class="name" href=${href(`/topics/${part(p.topic)}`)}>${p.topic}</a>`,
  },
  { key: 'partition', head: 'P', num: true, width: 52, sort: (p) => p.partition, cell: (p) => p.partition },
  {
    key: 'member',
    head: 'Member',
    hide: 'hide-narrow',
    sort: (p) => p.client_id ?? '',
    cell: (p) => p.client_id ?? html`<span class="warn">none</span>`,
  },
  { key: 'committed', head: 'Committed', num: true, width: 116, hide: 'hide-narrow', cell: (p) => num(p.offset) },
  { key: 'end', head: 'End', num: true, width: 116, hide: 'hide-narrow', cell: (p) => num(p.end_offset) },
  { key: 'records', head: 'Records behind', num: true, width: 128, sort: (p) => p.lag ?? -1, cell: (p) => num(p.lag) },
  {
    key: 'at',
    head: 'Last commit',
    num: true,
    width: 160,
    hide: 'hide-narrow',
    cell: (p) => (p.committed_at ? agoMs(Date.parse(p.committed_at)) : '–'),
  },
];

function Members({ group, onDone }) {
  const [member, setMember] = useState(null);
  const columns = [
    { key: 'client', head: 'Client', cell: (m) => html`<b>${m.client_id}</b>` },
    { key: 'id', head: 'Member', hide: 'hide-narrow', cell: (m) => html`<code class="muted">${m.id}</code>` },
    { key: 'host', head: 'Host', width: 140, hide: 'hide-narrow', cell: (m) => html`<code>${m.host}</code>` },
    { key: 'partitions', head: 'Partitions', num: true, width: 100, cell: (m) => num(m.partitions.length) },
    {
      key: 'act',
      head: '',
      label: 'Remove',
      width: 92,
      cell: (m) => html`<button type="button" class="link" onClick=${() => setMember(m)}>Remove…</button>`,
    },
  ];
  if (!group.member_list.length) return null;
  return html`<${Panel} title=${text.members} flush=${true}><${Table} label=${text.members} inset=${true} rows=${group.member_list} columns=${columns} /></${Panel}>
    ${
      member
        ? html`<${ActDialog} title=${`Remove ${member.client_id}`} label=${`Remove ${member.client_id}`} danger=${true} onClose=${() => setMember(null)} onDone=${onDone}
      act=${() => call('POST', `/v1/groups/${part(group.name)}/members/${part(member.id)}:remove`)}><p>${text.removed}</p></${ActDialog}>`
        : null
    }`;
}

export function Page({ params: [name], query }) {
  const state = useLoad(
    async (signal) => {
      const [group, lag] = await Promise.all([
        get(`/v1/groups/${part(name)}`, { signal }),
        get(`/v1/groups/${part(name)}/lag`, { signal }),
      ]);
      return { group, lag };
    },
    [name],
    REFRESH_MS,
  );
  const points = usePoints(state.data?.lag);
  const [dialog, setDialog] = useState('');
  const plan = query.plan === 'reset';
  useTitle({
    title: name,
    crumbs: [['Groups', '/groups'], [name]],
    commands: plan
      ? {
          cli: `millstream group reset ${name} --to earliest --dry-run`,
          curl: `curl ${location.origin}/v1/groups/${part(name)}:plan -H "Content-Type: application/json" -d '{"to": {"earliest": true}}'`,
        }
      : { cli: `millstream group lag ${name}`, curl: `curl ${location.origin}/v1/groups/${part(name)}/lag` },
  });
  const content = ({ group, lag }) => {
    const owners = new Map(group.member_list.flatMap((m) => m.partitions.map((p) => [`${p.topic}/${p.partition}`, m.client_id])));
    const partitions = group.offsets.map((o) => ({ ...o, client_id: owners.get(`${o.topic}/${o.partition}`) }));
    const isEmpty = /^empty$/i.test(group.state);
    const acts = html`<${Act} may=${may('READ', 'group', name)} needs=${words.needs('READ', 'group', name)} onClick=${() => go({ plan: 'reset' })}><${Icon} name="undo" size=${14} />${text.reset}</${Act}>
      <${Menu} label=${text.more} items=${[[text.remove, () => setDialog('delete'), may('DELETE', 'group', name), words.needs('DELETE', 'group', name)]]} />`;
    return html`<${Title} acts=${acts} facts=${[group.kind, html`<b>${num(group.members)}</b> members`, group.coordinator != null ? html`coordinator <b>${group.coordinator}</b>` : null, html`<b>${num(group.lag)}</b> records behind`, lag.seconds == null ? null : html`<b>${span(lag.seconds)}</b> behind`]}>
        <span class="cut">${name}</span><${Chip} level=${isEmpty ? 'warn' : 'good'}>${isEmpty ? 'no members' : String(group.state).toLowerCase()}</${Chip}></${Title}>
      <${Why} group=${group} partitions=${partitions} lag=${lag} />
      <${Lag} points=${points} />
      ${partitions.length ? html`<${Panel} title=${text.partitions} flush=${true}><${Table} label=${text.partitions} inset=${true} rows=${partitions} columns=${partitionColumns} sort=${query.sort} onSort=${(sort) => go({ sort })} rowClass=${(p) => (stuck(partitions, lag).includes(p) ? 'row-bad' : '')} /></${Panel}>` : html`<${Empty} title=${text.noOffsets} />`}
      <${Members} group=${group} onDone=${state.reload} />
      ${plan ? html`<${ResetDialog} group=${group} onClose=${() => go({ plan: null })} onDone=${state.reload} />` : null}
      ${dialog === 'delete' ? html`<${ActDialog} title=${`Delete ${name}`} label=${`Delete ${name}`} danger=${true} typed=${name} onClose=${() => setDialog('')} onDone=${() => visit('/groups')} act=${() => call('DELETE', `/v1/groups/${part(name)}`)}><p>Its committed offsets are deleted. Records stay.</p></${ActDialog}>` : null}`;
  };
  return html`<div class="page group"><${Loaded} of=${state}>${content}</${Loaded}></div>`;
}
