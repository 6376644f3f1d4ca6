'use strict'

module.exports = ({ kafka, tell, nameOf }) => {
  const members = new Map()

  return {
    /** Joins a group and tells what it is given, what it reads and when it rejoins. */
    async member_start({ member, group, topic, committed = false, session_ms = 6000 }) {
      const consumer = kafka.consumer({
        groupId: group,
        sessionTimeout: session_ms,
        heartbeatInterval: 200,
        maxWaitTimeInMs: 100,
        readUncommitted: !committed,
        retry: { initialRetryTime: 50, maxRetryTime: 500, retries: 12 },
      })
      let owned = []
      const giveUp = () => {
        tell({ event: 'revoked', member, partitions: owned })
        owned = []
      }
      consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
        giveUp()
        owned = payload.memberAssignment[topic] || []
        tell({ event: 'assigned', member, partitions: owned })
      })
      consumer.on(consumer.events.REBALANCING, giveUp)
      consumer.on(consumer.events.STOP, giveUp)
      consumer.on(consumer.events.CRASH, ({ payload }) => {
        giveUp()
        tell({ event: 'error', member, error: nameOf(payload.error) })
      })
      members.set(member, consumer)
      await consumer.connect()
      await consumer.subscribe({ topic, fromBeginning: true })
      await consumer.run({
        autoCommitThreshold: 1,
        eachMessage: async ({ partition, message }) => {
          const value = message.value.toString()
          tell({ event: 'record', member, value, partition, offset: Number(message.offset) })
        },
      })
    },

    async member_stop({ member }) {
      await members.get(member).disconnect()
      members.delete(member)
    },
  }
}
