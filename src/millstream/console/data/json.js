// JSON read from its text, so that numbers keep all their digits. Pure.

const SAFE = Number.MAX_SAFE_INTEGER;
const PARSED_DEPTH = 200; // Deeper values are null; their source text is whole.
const DRAWN_DEPTH = 100;

// A number that may be beyond 2^53: many digits, or an exponent.
const LONG_NUMBER = /\d{16}|(?:^|[:,[])\s*-?[\d.]+[eE]/;

// Like JSON.parse, with two differences: whole numbers beyond 2^53 stay text, and for each member whose name is in `raw`
// the member NAME_text has its source text. A text with neither is read by the browser, ten times as fast.
export function parseExact(text, raw = new Set(['json'])) {
  if (!LONG_NUMBER.test(text) && ![...raw].some((name) => text.includes(`"${name}"`))) return JSON.parse(text);
  let at = 0;
  const skip = () => {
    while (at < text.length && text.charCodeAt(at) <= 32) at++;
  };
  const string = () => {
    const from = at++;
    while (text[at] !== '"') {
      if (at >= text.length) throw new SyntaxError('a text has no end');
      at += text[at] === '\\' ? 2 : 1;
    }
    at++;
    return JSON.parse(text.slice(from, at));
  };
  const NUMBER = /-?\d+(\.\d+)?([eE][+-]?\d+)?/y;
  const scalar = () => {
    for (const [word, value] of [
      ['true', true],
      ['false', false],
      ['null', null],
    ])
      if (text.startsWith(word, at)) {
        at += word.length;
        return value;
      }
    NUMBER.lastIndex = at;
    const match = NUMBER.exec(text);
    if (!match) throw new SyntaxError(`unexpected character at ${at}`);
    at += match[0].length;
    const number = Number(match[0]);
    return Number.isInteger(number) && Math.abs(number) > SAFE ? match[0] : number;
  };
  // Over a value of any depth, without recursion.
  const pass = () => {
    let open = 0;
    do {
      skip();
      const c = text[at];
      if (c === undefined) throw new SyntaxError('a value has no end');
      if (c === '"') string();
      else if ('{['.includes(c)) {
        open++;
        at++;
      } else if ('}]'.includes(c)) {
        open--;
        at++;
      } else if (',:'.includes(c)) at++;
      else scalar();
    } while (open > 0);
    return null;
  };
  const value = (depth) => {
    skip();
    if (depth > PARSED_DEPTH) return pass();
    if (text[at] === '"') return string();
    if (text[at] === '{') {
      const object = {};
      at++;
      for (skip(); text[at] !== '}'; skip()) {
        const key = string();
        skip();
        at++; // the colon
        skip();
        const from = at;
        const member = value(depth + 1);
        // Assigned, this name would be the prototype.
        if (key === '__proto__') Object.defineProperty(object, key, { value: member, enumerable: true, writable: true, configurable: true });
        else object[key] = member;
        if (raw.has(key)) object[`${key}_text`] = text.slice(from, at);
        skip();
        if (text[at] === ',') at++;
        else if (text[at] !== '}') throw new SyntaxError(`unexpected character at ${at}`);
        skip();
      }
      at++;
      return object;
    }
    if (text[at] === '[') {
      const list = [];
      at++;
      for (skip(); text[at] !== ']'; skip()) {
        list.push(value(depth + 1));
        skip();
        if (text[at] === ',') at++;
        else if (text[at] !== ']') throw new SyntaxError(`unexpected character at ${at}`);
      }
      at++;
      return list;
    }
    return scalar();
  };
  const result = value(0);
  skip();
  if (at !== text.length) throw new SyntaxError(`unexpected character at ${at}`);
  return result;
}

export const TOKEN = /"(?:[^"\\]|\\.)*"(\s*:)?|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null|[{}[\],:]|\s+|./g;

// The class of a token for its colour: key, string, number, word, other.
export function kindOf(token, isKey) {
  if (token[0] === '"') return isKey ? 'k' : token.includes('•••') ? 'masked' : 's';
  if (/[-\d]/.test(token[0])) return 'n';
  return /^(true|false|null)$/.test(token) ? 'w' : 'x';
}

// A tree of {kind, items} and {kind, text}: the texts are slices of the source.
export function tree(text) {
  const tokens = [...text.matchAll(TOKEN)].map((m) => m[0]).filter((t) => t.trim());
  let at = 0;
  const node = (depth) => {
    const token = tokens[at++];
    if (depth > DRAWN_DEPTH && (token === '{' || token === '[')) {
      for (let open = 1; open > 0 && at < tokens.length; at++) open += '{['.includes(tokens[at]) ? 1 : '}]'.includes(tokens[at]) ? -1 : 0;
      return { kind: 'x', text: '…' };
    }
    if (token === '{' || token === '[') {
      const end = token === '{' ? '}' : ']';
      const items = [];
      while (at < tokens.length && tokens[at] !== end) {
        const key = token === '{' ? JSON.parse(tokens[at++].replace(/\s*:$/, '')) : items.length;
        if (tokens[at] === ':') at++;
        items.push([key, node(depth + 1)]);
        if (tokens[at] === ',') at++;
      }
      at++;
      return { kind: token === '{' ? 'object' : 'array', items };
    }
    return { kind: kindOf(token ?? '', false), text: token ?? '' };
  };
  return node(0);
}

// The text of the value at a path such as $.customer.country or $.items[0].sku; null if there is none.
export function atPath(root, path) {
  let node = root;
  for (const part of path.replace(/^\$\.?/, '').match(/[^.[\]]+/g) ?? []) {
    const item = node?.items?.find(([key]) => String(key) === part);
    if (!item) return null;
    node = item[1];
  }
  return node?.items ? (node.kind === 'array' ? `[${node.items.length}]` : '{…}') : (node?.text ?? null);
}
