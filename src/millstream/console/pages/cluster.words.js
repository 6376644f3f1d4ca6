// The texts of the cluster page.
import { num, plural } from '../data/format.js';

export const text = {
  title: 'Cluster',
  node: (id) => `Node ${id}`,
  controller: 'controller',
  leads: 'Leads',
  ofPartitions: (count) => `of ${plural(count, 'replica')}`,
  behind: 'Not in step',
  none: 'none',
  rack: 'Rack',
  version: 'Version',
  drain: 'Drain…',
  undrain: 'Take back…',
  invite: 'Invite a node',
  inviteNote: 'One node joins with this token within an hour. It is a secret.',
  ofNodes: (count) => `of ${plural(count, 'node')} up`,
  leaderless: (count) => `${num(count)} without a leader`,
  behindCount: (count) => `${num(count)} behind`,
  down: (ids) => `${ids.length === 1 ? 'Node' : 'Nodes'} ${ids.join(', ')} cannot be reached from here.`,
  health: 'Health of this node',
  healthLabel: 'Health checks',
  map: 'Partitions',
  mapLabel: 'Partitions by node',
  mapNote: 'a square is a replica; topics that need a look come first',
  more: (count) => `${plural(count, 'topic')} more.`,
  showAll: 'Show all',
  cut: (count) => `Only the first ${num(count)} partitions are shown.`,
  columns: { check: 'Check', now: 'Now', value: 'Value', limit: 'Limit', since: 'Since', topic: 'Topic', state: 'State' },
  changeTitle: { drain: (id) => `Drain node ${id}`, undrain: (id) => `Take node ${id} back` },
  changeNote: {
    drain: (node) =>
      `It hands the ${plural(node.leaders, 'partition')} that it leads to replicas in step, and gets no new replicas, until it is taken back. It still counts for the majority.`,
    undrain: () => 'It may lead again, and gets new replicas.',
  },
};
