// What needs a person, in sentences: from health, groups, dead letters and pipelines. Pure.
import { num, span, plural } from './format.js';

const LATE_S = 60;

// [{level, parts: [text or {bold}], evidence, sinceMs, path, query, act}], the worst first.
export function findings({ health, groups, dead, pipelines }) {
  const list = [];
  for (const check of health?.checks ?? [])
    if (check.status !== 'healthy')
      list.push({
        level: check.status === 'unhealthy' ? 'bad' : 'warn',
        parts: [{ bold: check.name }, ': ', check.message],
        evidence: check.limit != null ? `limit ${check.limit}` : '',
        sinceMs: check.since_ms ?? Date.parse(check.since ?? ''),
        path: '/cluster',
        act: 'Look at the node',
      });
  for (const group of groups ?? []) {
    const isEmpty = /^empty$/i.test(group.state);
    if ((group.lag_seconds ?? 0) <= LATE_S) continue;
    list.push({
      level: 'bad',
      parts: isEmpty
        ? ['No member reads for group ', { bold: group.name }, ': ', { bold: span(group.lag_seconds) }, ' behind']
        : ['Group ', { bold: group.name }, ' is behind: ', { bold: span(group.lag_seconds) }],
      evidence: `${plural(group.lag, 'record')} not committed in ${(group.topics ?? []).slice(0, 3).join(', ')}`,
      path: `/groups/${encodeURIComponent(group.name)}`,
      act: 'Look at the group',
    });
  }
  for (const topic of dead ?? [])
    if (topic.count > 0)
      list.push({
        level: 'warn',
        parts: [{ bold: num(topic.count) }, ' dead letters of ', { bold: topic.topic }],
        evidence: Object.entries(topic.reasons)
          .map(([reason, n]) => `${num(n)} ${reason.replaceAll('_', ' ')}`)
          .join(', '),
        sinceMs: topic.first_ms,
        path: '/dead-letters',
        query: { topic: topic.topic },
        act: 'Triage',
      });
  for (const pipeline of pipelines ?? [])
    if (pipeline.state === 'lost' || pipeline.state === 'failed')
      list.push({
        level: 'bad',
        parts: ['Pipeline ', { bold: pipeline.name }, ` is ${pipeline.state}`],
        evidence: pipeline.error ?? '',
        path: `/pipelines/${encodeURIComponent(pipeline.name)}`,
        act: 'Look at it',
      });
  return list.sort((a, b) => (a.level === b.level ? 0 : a.level === 'bad' ? -1 : 1));
}

const NUMBERS = ['Nothing', 'One', 'Two', 'Three', 'Four', 'Five', 'Six', 'Seven', 'Eight', 'Nine'];
export const headline = (count) =>
  count === 0 ? 'All is well' : count === 1 ? 'One thing needs you' : `${NUMBERS[count] ?? num(count)} things need you`;
