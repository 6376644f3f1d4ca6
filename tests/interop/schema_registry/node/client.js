// Registers, evolves, is refused and decodes with two registry clients of npm; prints one line of JSON.
'use strict'

const confluent = require('@confluentinc/schemaregistry')
const kafkajs = require('@kafkajs/confluent-schema-registry')

const url = process.argv[2]
const field = (name, more) => ({ name, type: 'string', ...more })
const record = (...fields) => JSON.stringify({ type: 'record', name: 'Order', fields })
const FIRST = record(field('id'))
const GROWN = record(field('id'), field('city', { default: 'Mill' }))
const BROKEN = record(field('id'), field('street'))

async function refusal(work) {
  try {
    await work()
  } catch (problem) {
    const response = problem.response || {}
    return problem.status || response.status || String(problem.message || problem)
  }
  return 'none'
}

async function withConfluent() {
  const subject = 'node-value'
  const client = new confluent.SchemaRegistryClient({ baseURLs: [url] })
  const first = await client.register(subject, { schema: FIRST, schemaType: 'AVRO' })
  const serializer = new confluent.AvroSerializer(client, confluent.SerdeType.VALUE, { useLatestVersion: true })
  const data = await serializer.serialize('node', { id: 'a' })
  const grown = await client.register(subject, { schema: GROWN, schemaType: 'AVRO' })
  const refused = await refusal(() => client.register(subject, { schema: BROKEN, schemaType: 'AVRO' }))
  const deserializer = new confluent.AvroDeserializer(client, confluent.SerdeType.VALUE, {})
  const decoded = await deserializer.deserialize('node', data)
  return { first, grown, refused, decoded, versions: await client.getAllVersions(subject) }
}

async function withKafkajs() {
  const registry = new kafkajs.SchemaRegistry({ host: url })
  const options = { subject: 'kafkajs-value' }
  const avro = (schema) => ({ type: kafkajs.SchemaType.AVRO, schema })
  const first = await registry.register(avro(FIRST), options)
  const data = await registry.encode(first.id, { id: 'a' })
  const grown = await registry.register(avro(GROWN), options)
  const refused = await refusal(() => registry.register(avro(BROKEN), options))
  const json = await registry.register(
    { type: kafkajs.SchemaType.JSON, schema: JSON.stringify({ type: 'object', title: 'J' }) },
    { subject: 'kafkajs-json-value' },
  )
  const proto = await registry.register(
    { type: kafkajs.SchemaType.PROTOBUF, schema: 'syntax = "proto3"; package mill; message P { string id = 1; }' },
    { subject: 'kafkajs-proto-value' },
  )
  const framed = await registry.encode(proto.id, { id: 'p' })
  return {
    first: first.id,
    grown: grown.id,
    refused,
    decoded: await new kafkajs.SchemaRegistry({ host: url }).decode(data),
    json: await registry.decode(await registry.encode(json.id, { a: 1 })),
    proto: await new kafkajs.SchemaRegistry({ host: url }).decode(framed),
    latest: await registry.getLatestSchemaId('kafkajs-value'),
  }
}

async function main() {
  const answer = { confluent: await withConfluent(), kafkajs: await withKafkajs() }
  process.stdout.write(JSON.stringify(answer) + '\n')
}

main().catch((problem) => {
  process.stderr.write(`${problem.stack || problem}\n`)
  process.exit(1)
})
