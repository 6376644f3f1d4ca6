// A kafkajs client that the tests ask in JSON lines; see tests/interop/programs/process.py.
'use strict'

const readline = require('node:readline')
const { Kafka, logLevel, CompressionTypes, CompressionCodecs } = require('kafkajs')
const { installCodecs } = require('./codecs.js')

const connection = {
  clientId: 'interop',
  brokers: [process.argv[2]],
  logLevel: logLevel.WARN,
  logCreator: () => ({ namespace, level, log }) => {
    process.stderr.write(`${level} ${namespace} ${log.message} ${log.error || ''}\n`)
  },
  retry: { initialRetryTime: 50, maxRetryTime: 500, retries: 12 },
}

const { INTEROP_MECHANISM, INTEROP_USER, INTEROP_PASSWORD, INTEROP_CA } = process.env
if (INTEROP_CA) connection.ssl = { ca: [require('node:fs').readFileSync(INTEROP_CA, 'utf-8')] }
if (INTEROP_MECHANISM) {
  connection.sasl = {
    mechanism: INTEROP_MECHANISM.toLowerCase(),
    username: INTEROP_USER,
    password: INTEROP_PASSWORD,
  }
}

const shared = { kafka: new Kafka(connection), connection, tell, nameOf, toRecord, fromRecord }

const operations = {
  ...require('./records.js')(shared),
  ...require('./members.js')(shared),
  ...require('./transactions.js')(shared),
  ...require('./admin.js')(shared),
}

function tell(line) {
  process.stdout.write(JSON.stringify(line) + '\n')
}

/** Kafka's name of an error; kafkajs wraps it in one or two of its own. */
function nameOf(error) {
  const inside = (one) => {
    const [part] = one.errors || one.groups || one.partitions || []
    return one.cause || (part && (part.error || part))
  }
  for (let one = error; one; one = inside(one)) {
    if (one.type) return one.type
  }
  return error.name || 'CLIENT_ERROR'
}

const bytes = (text) => (text == null ? null : Buffer.from(text, 'base64'))
const text = (data) => (data == null ? null : data.toString('base64'))

function toRecord(one) {
  const headers = {}
  for (const [name, value] of one.headers || []) (headers[name] ||= []).push(bytes(value))
  const record = { key: bytes(one.key), value: bytes(one.value), headers }
  if (one.partition != null) record.partition = one.partition
  if (one.timestamp) record.timestamp = String(one.timestamp)
  return record
}

function fromRecord(partition, message) {
  const headers = Object.entries(message.headers || {}).flatMap(([name, values]) =>
    [values].flat().map((value) => [name, text(value)]),
  )
  return {
    partition,
    offset: Number(message.offset),
    key: text(message.key),
    value: text(message.value),
    headers,
    timestamp: Number(message.timestamp),
  }
}

async function reply({ id, op, ...asked }) {
  try {
    if (!operations[op]) throw Object.assign(new Error(op), { type: 'UNKNOWN_OPERATION' })
    tell({ id, result: (await operations[op](asked)) ?? null })
  } catch (error) {
    tell({ id, error: nameOf(error), message: String(error.stack || error) })
  }
}

installCodecs(CompressionTypes, CompressionCodecs).then(() => {
  const lines = readline.createInterface({ input: process.stdin })
  lines.on('line', (line) => reply(JSON.parse(line)))
  lines.on('close', () => process.exit(0))
})
