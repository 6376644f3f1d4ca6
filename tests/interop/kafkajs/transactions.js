'use strict'

const { Partitioners } = require('kafkajs')

const RELAY_MS_MAX = 20_000

module.exports = ({ kafka, toRecord }) => {
  const producers = new Map()
  const open = async (transactionalId, transactionTimeout) => {
    const producer = kafka.producer({
      createPartitioner: Partitioners.DefaultPartitioner,
      transactionalId,
      transactionTimeout,
      maxInFlightRequests: 1,
      idempotent: true,
      // Kafka's names reach the test sooner when a refusal is not tried for long.
      retry: { initialRetryTime: 50, retries: 8 },
    })
    await producer.connect()
    return producer
  }

  return {
    /** Only the first transaction asks for the producer's id: it is begun here already. */
    async transaction_open({ member, transactional_id, timeout_ms = 30_000 }) {
      const producer = await open(transactional_id, timeout_ms)
      producers.set(member, { producer, transaction: await producer.transaction() })
    },

    async transaction_begin({ member }) {
      const one = producers.get(member)
      if (!one.transaction.isActive()) one.transaction = await one.producer.transaction()
    },

    async transaction_send({ member, topic, records }) {
      await producers.get(member).transaction.send({ topic, messages: records.map(toRecord) })
    },

    async transaction_commit({ member }) {
      await producers.get(member).transaction.commit()
    },

    async transaction_abort({ member }) {
      await producers.get(member).transaction.abort()
    },

    /** Reads `count` records in a group and writes them on in one transaction with their offsets. */
    async relay({ transactional_id, group, topic, target, count, committed }) {
      const producer = await open(transactional_id, 30_000)
      const consumer = kafka.consumer({ groupId: group, maxWaitTimeInMs: 100 })
      await consumer.connect()
      await consumer.subscribe({ topic, fromBeginning: true })
      const transaction = await producer.transaction()
      const last = new Map()
      let left = count
      try {
        await new Promise((resolve, reject) => {
          const late = new Error(`${left} records are missing`)
          const timer = setTimeout(() => reject(late), RELAY_MS_MAX)
          const eachMessage = async ({ partition, message }) => {
            if (left === 0) return
            await transaction.send({ topic: target, messages: [{ value: message.value }] })
            last.set(partition, String(Number(message.offset) + 1))
            left -= 1
            if (left === 0) resolve(clearTimeout(timer))
          }
          consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
          consumer.run({ autoCommit: false, eachMessage }).catch(reject)
        })
        const partitions = [...last].map(([partition, offset]) => ({ partition, offset }))
        await transaction.sendOffsets({ consumerGroupId: group, topics: [{ topic, partitions }] })
        await (committed ? transaction.commit() : transaction.abort())
      } finally {
        await consumer.disconnect()
        await producer.disconnect()
      }
    },
  }
}
