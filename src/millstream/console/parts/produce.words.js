// The texts of the produce dialog.
export const produceWords = {
  title: (topic) => `Produce to ${topic}`,
  sub: 'Acknowledged when it is on disk, as the topic and the broker are set.',
  act: 'Produce 1 record',
  value: 'Value',
  valueForm: 'Form of the value',
  key: 'Key',
  keyForm: 'Form of the key',
  headers: 'Headers',
  headersHint: 'One on a line: name: value',
  partition: 'Partition',
  partitionHint: 'Empty: by the key, as every client does',
  tombstone: 'A null value deletes the key where the topic is compacted.',
  forms: { json: 'JSON', text: 'text', base64: 'base64', null: 'null' },
  options: { delay_ms: 'Delay, ms', deliver_at: 'Deliver at (RFC 3339)', ttl_ms: 'Lifetime, ms', message_id: 'Message id' },
};
