// Topics with dead letters, and how many of them wait. The list has what is kept; waiting is asked for by topic.
import { all, get, part } from './api.js';

const ASKED_MAX = 20;

export async function deadTopics({ signal } = {}) {
  const topics = (await all('/v1/dead-letters', { signal })).filter((t) => t.kept > 0).sort((a, b) => b.kept - a.kept);
  return Promise.all(
    topics.map(async (topic, i) => {
      const stats = i < ASKED_MAX ? await get(`/v1/dead-letters/${part(topic.topic)}/stats`, { signal }).catch(() => null) : null;
      return {
        ...topic,
        count: stats?.waiting ?? topic.kept,
        first_ms: stats?.oldest ? Date.parse(stats.oldest) : undefined,
        reasons: stats?.by_reason ?? {},
      };
    }),
  );
}
