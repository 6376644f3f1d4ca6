// What the shell shows around a page: title, crumbs, commands; who is logged in, and what the navigation counts.
import { useEffect, useState } from '../vendor/hooks.js';
import { get, setCsrf } from './api.js';

const POLL_MS = 10000;
const state = {
  title: 'Overview',
  crumbs: [],
  commands: { cli: 'millstream health' },
  counts: {},
  cluster: null,
  principal: null,
  rights: null,
};
const listeners = new Set();
const tell = () => listeners.forEach((listener) => listener({ ...state }));

// Called by each page in its body. Equal frames are told once.
export function useTitle({ title, crumbs = [], commands }) {
  const key = JSON.stringify([title, crumbs, commands]);
  useEffect(() => {
    Object.assign(state, { title, crumbs, commands });
    tell();
  }, [key]);
}

export const whoami = () => state.rights;

// Whether the principal may do it. What is not known is allowed: the broker decides in the end.
export function may(operation, kind) {
  if (kind !== 'cluster' || !state.rights) return true;
  return state.rights.cluster_operations.includes(operation.toLowerCase());
}

// The same for one topic: (operation) => whether it is allowed. Until the broker has answered, all is.
export function useTopicRights(topic) {
  const [operations, setOperations] = useState(null);
  useEffect(() => {
    get('/v1/whoami', { query: { topic } }).then(
      (who) => setOperations(who.topic_operations),
      () => null,
    );
  }, [topic]);
  return (operation) => !operations || operations.includes(operation.toLowerCase());
}

async function refresh() {
  const [who, cluster, health] = await Promise.all([
    get('/v1/whoami').catch(() => null),
    get('/v1/cluster').catch(() => null),
    get('/v1/session').catch(() => null),
  ]);
  if (who) {
    state.principal = who.principal;
    state.rights = who;
  }
  if (health?.csrf) setCsrf(health.csrf);
  if (cluster) state.cluster = { nodes: cluster.nodes.length, version: cluster.version };
  tell();
}

export function setCounts(counts) {
  if (JSON.stringify(counts) === JSON.stringify(state.counts)) return;
  state.counts = counts;
  tell();
}

export function useFrame() {
  const [frame, setFrame] = useState({ ...state });
  useEffect(() => {
    listeners.add(setFrame);
    refresh();
    const timer = setInterval(() => document.hidden || refresh(), POLL_MS);
    return () => {
      listeners.delete(setFrame);
      clearInterval(timer);
    };
  }, []);
  return frame;
}
