'use strict'

const { CompressionTypes, Partitioners } = require('kafkajs')

const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}
const ACKS = { 0: 0, 1: 1, all: -1 }
const READ_MS_MAX = 20_000
let readers = 0

module.exports = ({ kafka, toRecord, fromRecord }) => ({
  /** Writes the records; returns partition and offset of the first one of each partition. */
  async produce({ topic, records, acks = 'all', codec = 'none', create = false, idempotent = false }) {
    const producer = kafka.producer({
      createPartitioner: Partitioners.DefaultPartitioner,
      allowAutoTopicCreation: create,
      idempotent,
      retry: { retries: 5 },
    })
    await producer.connect()
    try {
      const sent = await producer.send({
        topic,
        acks: ACKS[acks],
        compression: CODECS[codec],
        messages: records.map(toRecord),
      })
      return sent.map((one) => [one.partition, Number(one.baseOffset)])
    } finally {
      await producer.disconnect()
    }
  },

  /** Returns `count` records of one partition from an offset or a time on; it needs a group. */
  async read({ topic, partition = 0, offset = 0, time_ms, count, committed = false }) {
    if (time_ms != null) offset = await offsetAt(kafka, topic, partition, time_ms)
    if (count === 0) return []
    const consumer = kafka.consumer({
      groupId: `reader-${process.pid}-${(readers += 1)}`,
      readUncommitted: !committed,
      maxWaitTimeInMs: 100,
      allowAutoTopicCreation: false,
    })
    await consumer.connect()
    await consumer.subscribe({ topic, fromBeginning: true })
    const found = []
    try {
      await new Promise((resolve, reject) => {
        const late = new Error(`${count} records were awaited`)
        const timer = setTimeout(() => reject(late), READ_MS_MAX)
        const failed = ({ payload }) => reject(payload.error)
        consumer.on(consumer.events.CRASH, failed)
        const eachMessage = async ({ partition: from, message }) => {
          // What was fetched before the seek took effect is not asked for.
          if (from !== partition || Number(message.offset) < offset) return
          if (found.length < count) found.push(fromRecord(partition, message))
          if (found.length === count) resolve(clearTimeout(timer))
        }
        consumer.run({ autoCommit: false, eachMessage }).catch(reject)
        consumer.seek({ topic, partition, offset: String(offset) })
      })
    } finally {
      await consumer.disconnect()
    }
    return found
  },
})

async function offsetAt(kafka, topic, partition, time_ms) {
  const admin = kafka.admin()
  await admin.connect()
  try {
    const found = await admin.fetchTopicOffsetsByTimestamp(topic, time_ms)
    return Number(found.find((one) => one.partition === partition).offset)
  } finally {
    await admin.disconnect()
  }
}

module.exports.offsetAt = offsetAt
