// What the address asks of the broker: place, partition, filter. Pure.
import { filterOf } from './topic.records_filter.js';

export const PAGE = 100;

// A time that is none goes to the broker as it is: its sentence says what is wrong.
function instant(typed) {
  const at = Date.parse(typed);
  return Number.isNaN(at) ? typed : new Date(at).toISOString();
}

export function queryOf(query) {
  const where = query.where ?? '';
  const from = { earliest: 'earliest', offset: query.offset, time: query.time && instant(query.time), age: query.age }[where];
  return {
    limit: PAGE,
    partition: query.partition,
    filter: filterOf(query.filter),
    order: where ? undefined : 'newest',
    from,
    until: where === 'time' && query.until ? instant(query.until) : undefined,
  };
}
