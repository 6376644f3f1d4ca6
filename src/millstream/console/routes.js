// Addresses to pages, the navigation, and the keys that go to a page.
import { words } from './words.js';

const NAME = '([^/]+)';
const exact = (path) => new RegExp(`^${path.replaceAll('{}', NAME)}$`);

export const ROUTES = [
  [/^\/$/, 'overview'],
  [exact('/topics'), 'topics'],
  [exact('/topics/{}'), 'topic'],
  [exact('/topics/{}/{}'), 'topic'],
  [exact('/groups'), 'groups'],
  [exact('/groups/{}'), 'group'],
  [exact('/dead-letters'), 'dead_letters'],
  [exact('/delayed'), 'delayed'],
  [exact('/views'), 'views'],
  [exact('/schemas'), 'schemas'],
  [exact('/schemas/{}'), 'schema'],
  [exact('/pipelines'), 'pipelines'],
  [exact('/pipelines/{}'), 'pipelines'],
  [exact('/subscriptions'), 'subscriptions'],
  [exact('/connections'), 'connections'],
  [exact('/transactions'), 'transactions'],
  [exact('/cluster'), 'cluster'],
  [exact('/index'), 'index_health'],
  [exact('/access'), 'access'],
  [exact('/audit'), 'audit'],
  [exact('/quotas'), 'quotas'],
  [exact('/config'), 'config'],
  [exact('/jobs'), 'jobs'],
  [exact('/api'), 'api_page'],
  [exact('/login'), 'login'],
  [exact('/about'), 'about'],
];

export const NAV = [
  [null, [['Overview', '/', 'overview']]],
  [
    words.sections.data,
    [
      ['Topics', '/topics', 'topics'],
      ['Groups', '/groups', 'groups'],
      ['Dead letters', '/dead-letters', 'dead'],
      ['Delayed', '/delayed', 'delayed'],
      ['Views', '/views', 'views'],
      ['Schemas', '/schemas', 'schemas'],
    ],
  ],
  [
    words.sections.flow,
    [
      ['Pipelines', '/pipelines', 'pipelines'],
      ['Subscriptions', '/subscriptions', 'subscriptions'],
      ['Transactions', '/transactions', 'transactions'],
      ['Connections', '/connections', 'connections'],
    ],
  ],
  [
    words.sections.broker,
    [
      ['Cluster', '/cluster', 'cluster'],
      ['Index health', '/index', 'index'],
      ['Access', '/access', 'access'],
      ['Audit', '/audit', 'audit'],
      ['Quotas', '/quotas', 'quotas'],
      ['Config', '/config', 'config'],
      ['Jobs', '/jobs', 'jobs'],
      ['API', '/api', 'api'],
      ['About', '/about', 'about'],
    ],
  ],
];

export const GO = {
  '/': 'o',
  '/topics': 't',
  '/groups': 'g',
  '/dead-letters': 'd',
  '/delayed': 'y',
  '/views': 'v',
  '/schemas': 's',
  '/pipelines': 'p',
  '/cluster': 'c',
  '/access': 'a',
};
