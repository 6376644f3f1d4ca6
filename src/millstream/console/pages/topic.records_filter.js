// What is typed into the filter box, as a filter of the broker. Pure.

// Plain words search the value; anything with an operator is the filter language.
export function filterOf(typed) {
  if (!typed) return undefined;
  return /[=<>~()$]|\b(contains|and|or|not|in|starts|key|headers?|value)\b/.test(typed) ? typed : `value contains ${JSON.stringify(typed)}`;
}
