// Schemas: subjects of the registry with type, newest version, id and level.
import { html } from '../parts/ui.js';
import { ListPage } from '../parts/list_page.js';
import { get, part } from '../data/api.js';
import { href, visit } from '../data/place.js';
import { num } from '../data/format.js';

const MOST = 500; // Subjects whose newest version is asked for.

async function load(signal) {
  const subjects = await get('/subjects', { signal });
  const rows = await Promise.all(
    subjects.slice(0, MOST).map(async (subject) => {
      const newest = await get(`/subjects/${part(subject)}/versions/latest`, { signal }).catch(() => null);
      return { subject, type: newest?.schemaType ?? 'AVRO', version: newest?.version, id: newest?.id };
    }),
  );
  return [...rows, ...subjects.slice(MOST).map((subject) => ({ subject }))];
}

const columns = () => [
  {
    key: 'subject',
    head: 'Subject',
    sort: (s) => s.subject,
    cell: (s) => html`<a class="name" href=${href(`/schemas/${part(s.subject)}`)}>${s.subject}</a>`,
  },
  { key: 'type', head: 'Type', width: 120, sort: (s) => s.type ?? '', cell: (s) => s.type },
  { key: 'version', head: 'Version', num: true, width: 96, sort: (s) => s.version ?? 0, cell: (s) => num(s.version) },
  { key: 'id', head: 'Id', num: true, width: 96, sort: (s) => s.id ?? 0, cell: (s) => num(s.id) },
];

export const Page = ({
  query,
}) => html`<${ListPage} title="Schemas" query=${query} load=${load} refreshMs=${15000} columns=${columns} textOf=${(s) => s.subject} rowKey=${(s) => s.subject} onOpen=${(s) => visit(`/schemas/${part(s.subject)}`)}
  empty="No schema is registered" emptyCode="millstream schema register orders-value order.avsc" commands=${{ cli: 'millstream schema list', curl: `curl ${location.origin}/subjects` }} />`;
