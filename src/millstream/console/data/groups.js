// Groups with their lag in seconds. The list of the API has records; seconds are asked for where records wait.
import { all, get, part } from './api.js';

const ASKED_MAX = 20; // Groups that are asked for seconds, those with most records first.

export async function groupsWithLag({ signal, query } = {}) {
  const groups = await all('/v1/groups', { signal, query });
  const late = groups
    .filter((g) => g.lag > 0)
    .sort((a, b) => b.lag - a.lag)
    .slice(0, ASKED_MAX);
  await Promise.all(
    late.map(async (group) => {
      const lag = await get(`/v1/groups/${part(group.name)}/lag`, { signal }).catch(() => null);
      group.lag_seconds = lag?.seconds ?? null;
    }),
  );
  for (const group of groups) if (group.lag === 0) group.lag_seconds = 0;
  return groups;
}
