// Topics with what their list does not say: rates from two answers, groups and their lag, dead letters.
import { all } from './api.js';

const POINTS_MAX = 40; // Rates of one topic that are kept, for its spark line.
const seen = new Map(); // By name: {at, records, rates}.

// The rate since the answer before. Retention takes records away: then nothing is known.
export function rateOf(before, records, now) {
  if (!before || now <= before.at || records < before.records) return null;
  return ((records - before.records) * 1000) / (now - before.at);
}

function measure(topic, now) {
  const before = seen.get(topic.name);
  const rate = rateOf(before, topic.records ?? 0, now);
  const rates = rate == null ? (before?.rates ?? []) : [...before.rates, rate].slice(-POINTS_MAX);
  seen.set(topic.name, { at: now, records: topic.records ?? 0, rates });
  topic.append_rate ??= rate;
  topic.rates = rates;
}

export function addGroups(topics, groups) {
  const byName = new Map(topics.map((topic) => [topic.name, topic]));
  for (const group of groups)
    for (const name of group.topics ?? []) {
      const topic = byName.get(name);
      if (!topic) continue;
      topic.group_count = (topic.group_count ?? 0) + 1;
      if (group.lag_seconds != null) topic.lag_seconds = Math.max(topic.lag_seconds ?? 0, group.lag_seconds);
    }
}

// `groups` and `dead` are promises of their lists: all three are asked for at once. `show` gets the topics so far.
export async function topicsWithFigures({ signal, query, groups = [], dead = [], show } = {}) {
  const [topics, groupList, deadList] = await Promise.all([all('/v1/topics', { signal, query, show }), groups, dead]);
  const now = Date.now();
  for (const topic of topics) measure(topic, now);
  const kept = new Map(deadList.map((each) => [each.topic, each.kept]));
  for (const topic of topics) topic.dead_letters ??= kept.get(topic.name);
  addGroups(topics, groupList);
  return topics;
}
