// The first page of a new broker: it watches, and ticks each step off when it happens.
import { html, Icon, Shape, Copy, Segments, Panel } from '../parts/ui.js';
import { Code } from '../parts/states.js';
import { useLoad } from '../data/use.js';
import { get } from '../data/api.js';
import { go } from '../data/place.js';

const host = location.hostname;
const origin = location.origin;
const WAYS = {
  millstream: [
    'millstream topic create orders --partitions 3',
    `millstream produce orders '{"item": "flour", "kg": 25}' --key 42`,
    'millstream consume orders --group mill --show-key',
  ],
  Python: [
    'from millstream.client import connect\nclient = connect()\nclient.create_topic("orders", partitions=3)',
    'client.produce("orders", \'{"item": "flour", "kg": 25}\', key="42")',
    'with client.consumer("orders", group="mill") as consumer:\n    print(next(iter(consumer)).value)',
  ],
  kcat: [
    '# the first record creates the topic',
    `echo '42:{"item": "flour", "kg": 25}' | kcat -b ${host}:9092 -P -t orders -K:`,
    `kcat -b ${host}:9092 -G mill orders`,
  ],
  Java: [
    'kafka-topics.sh --bootstrap-server ' + `${host}:9092 --create --topic orders --partitions 3`,
    `kafka-console-producer.sh --bootstrap-server ${host}:9092 --topic orders`,
    `kafka-console-consumer.sh --bootstrap-server ${host}:9092 --topic orders --group mill --from-beginning`,
  ],
  curl: [
    `curl ${origin}/v1/topics -H 'Content-Type: application/json' -d '{"name": "orders", "partitions": 3}'`,
    `curl ${origin}/v1/topics/orders/records -H 'Content-Type: application/json' -d '{"records": [{"key": {"text": "42"}, "value": {"json": {"item": "flour", "kg": 25}}}]}'`,
    `curl -N ${origin}/v1/topics/orders/records/tail`,
  ],
};
const STEPS = [
  ['Create a topic', 'Three partitions, kept as the broker is set.'],
  ['Send a record', 'Acknowledged when it is on disk.'],
  ['Read it as a group', 'The broker remembers the place; its lag appears under Groups.'],
];
const THEN = [
  ['pipelines', 'Turn records with Spark', 'millstream pipeline init grams'],
  ['delayed', 'Send one for later', "millstream produce orders '{}' --delay 10m"],
  ['access', 'Let only known users in', 'millstream serve --secure'],
  ['overview', 'See it all at once', 'millstream demo'],
];

export function Fresh({ data, query }) {
  const way = WAYS[query.with] ? query.with : 'millstream';
  const config = useLoad((signal) => get('/v1/cluster', { signal }).catch(() => null), []);
  const own = data.topics.filter((t) => !t.is_internal);
  const done = [own.length > 0, own.some((t) => (t.bytes ?? 0) > 0 || (t.records ?? 0) > 0), data.groups.length > 0];
  const current = done.indexOf(false);
  const listeners = config.data?.nodes?.[0]?.listeners ?? [];
  return html`<div class="fresh-in"><div class="title"><div><h1>The broker runs, and is empty</h1><p class="muted">Three steps to records that are written, read and kept. This page sees each one happen.</p></div></div>
    <${Segments} label="With" options=${Object.keys(WAYS).map((name) => [name, name])} value=${way} onPick=${(name) => go({ with: name })} />
    <ol class="steps">${STEPS.map(
      (
        [title, note],
        i,
      ) => html`<li class=${done[i] ? 'done' : i === current ? 'now' : 'later'}><span class="tick">${done[i] ? html`<${Icon} name="check" size=${14} />` : i + 1}</span>
      <div class="grow"><div class="row"><h2>${title}</h2>${i === current ? html`<span class="muted"><span class="pulse"><${Shape} level="live" /></span> waiting for it…</span>` : done[i] ? html`<span class="good">done</span>` : null}</div><p class="muted">${note}</p><${Code} text=${WAYS[way][i]} prompt=${way !== 'Python'} /></div></li>`,
    )}</ol>
    ${listeners.length ? html`<${Panel} title="It listens here"><dl class="pairs listeners">${listeners.map((l) => html`<dt>${l.name}</dt><dd><code>${l.address}</code><${Copy} text=${l.address} /></dd>`)}</dl></${Panel}>` : null}
    <${Panel} title="Then" flush=${true}><ul class="then">${THEN.map(([icon, title, command]) => html`<li><${Icon} name=${icon} /><span class="grow">${title}</span><code class="muted">${command}</code><${Copy} text=${command} /></li>`)}</ul></${Panel}></div>`;
}
