// Two texts by lines: longest common subsequence. Pure.
const LINES_MAX = 2000;

export function lines(before, after) {
  const A = before.split('\n').slice(0, LINES_MAX);
  const B = after.split('\n').slice(0, LINES_MAX);
  const L = Array.from({ length: A.length + 1 }, () => new Uint16Array(B.length + 1));
  for (let i = A.length - 1; i >= 0; i--)
    for (let j = B.length - 1; j >= 0; j--) L[i][j] = A[i] === B[j] ? L[i + 1][j + 1] + 1 : Math.max(L[i + 1][j], L[i][j + 1]);
  const rows = [];
  let gone = [];
  const flush = () => {
    for (const line of gone) rows.push({ a: line, b: null, kind: 'gone' });
    gone = [];
  };
  for (let i = 0, j = 0; i < A.length || j < B.length;) {
    if (i < A.length && j < B.length && A[i] === B[j]) {
      flush();
      rows.push({ a: [i + 1, A[i++]], b: [j + 1, B[j++]], kind: 'same' });
    } else if (i < A.length && (j >= B.length || L[i + 1][j] >= L[i][j + 1])) gone.push([i + 1, A[i++]]);
    else {
      const line = gone.shift();
      rows.push({ a: line ?? null, b: [j + 1, B[j++]], kind: line ? 'changed' : 'new' });
    }
  }
  flush();
  return rows;
}

// [same start, changed middle, same end] of a line against another.
export function inner(text, other) {
  let start = 0;
  let end = 0;
  while (start < Math.min(text.length, other.length) && text[start] === other[start]) start++;
  while (end < Math.min(text.length, other.length) - start && text.at(-1 - end) === other.at(-1 - end)) end++;
  return [text.slice(0, start), text.slice(start, text.length - end), text.slice(text.length - end)];
}
