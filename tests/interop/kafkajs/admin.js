'use strict'

const { AssignerProtocol, ConfigResourceTypes } = require('kafkajs')
const { offsetAt } = require('./records.js')

const RESET_MS_MAX = 10_000

module.exports = ({ kafka }) => {
  const administered = async (work) => {
    const admin = kafka.admin({ retry: { retries: 5 } })
    await admin.connect()
    try {
      return await work(admin)
    } finally {
      await admin.disconnect()
    }
  }
  const byGroup = ({ group, topic }) => ({ groupId: group, topics: topic && [topic] })

  return {
    topics: () => administered((admin) => admin.listTopics()),

    cluster: () =>
      administered(async (admin) => {
        const { brokers, controller, clusterId } = await admin.describeCluster()
        const nodes = brokers.map(({ nodeId, host, port }) => [nodeId, host, port])
        return { nodes, controller, cluster_id: clusterId }
      }),

    create_topic: ({ topic, partitions, replicas = 1, settings = {} }) =>
      administered(async (admin) => {
        const configEntries = Object.entries(settings).map(([name, value]) => ({ name, value }))
        const wanted = { topic, numPartitions: partitions, replicationFactor: replicas, configEntries }
        // kafkajs answers false, without a reason, where the only fault is that it exists.
        const made = await admin.createTopics({ topics: [wanted] })
        if (!made) throw Object.assign(new Error(topic), { type: 'TOPIC_ALREADY_EXISTS' })
      }),

    delete_topic: ({ topic }) => administered((admin) => admin.deleteTopics({ topics: [topic] })),

    grow_topic: ({ topic, partitions }) =>
      administered((admin) =>
        admin.createPartitions({ topicPartitions: [{ topic, count: partitions }] }),
      ),

    partition_count: ({ topic }) =>
      administered(async (admin) => {
        const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
        return topics[0].partitions.length
      }),

    offsets: ({ topic, partition = 0 }) =>
      administered(async (admin) => {
        const found = await admin.fetchTopicOffsets(topic)
        const one = found.find((each) => each.partition === partition)
        return [Number(one.low), Number(one.high)]
      }),

    offset_at: ({ topic, partition = 0, time_ms }) => offsetAt(kafka, topic, partition, time_ms),

    delete_records: ({ topic, partition = 0, offset }) =>
      administered(async (admin) => {
        // It looks for the leader in what it knows already, and knows nothing yet.
        await admin.fetchTopicOffsets(topic)
        const partitions = [{ partition, offset: String(offset) }]
        await admin.deleteTopicRecords({ topic, partitions })
      }),

    settings: ({ topic }) =>
      administered(async (admin) => {
        const resources = [{ type: ConfigResourceTypes.TOPIC, name: topic }]
        const found = await admin.describeConfigs({ includeSynonyms: false, resources })
        const entries = found.resources[0].configEntries
        return Object.fromEntries(entries.map((one) => [one.configName, one.configValue]))
      }),

    alter: ({ topic, settings }) =>
      administered(async (admin) => {
        const configEntries = Object.entries(settings).map(([name, value]) => ({ name, value }))
        const resources = [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries }]
        await admin.alterConfigs({ validateOnly: false, resources })
      }),

    groups: () =>
      administered(async (admin) => (await admin.listGroups()).groups.map((one) => one.groupId)),

    group: ({ group }) =>
      administered(async (admin) => {
        const { groups } = await admin.describeGroups([group])
        const { state, members } = groups[0]
        const owned = members.flatMap(({ memberAssignment }) => {
          const given = AssignerProtocol.MemberAssignment.decode(memberAssignment)
          return Object.values(given ? given.assignment : {}).flat()
        })
        return { state, members: members.length, partitions: owned.sort() }
      }),

    delete_group: ({ group }) => administered((admin) => admin.deleteGroups([group])),

    committed: (asked) =>
      administered(async (admin) => {
        const found = await admin.fetchOffsets(byGroup(asked))
        return found
          .flatMap((one) => one.partitions)
          .map((one) => [one.partition, Number(one.offset), one.metadata])
      }),

    commit: ({ partition = 0, offset, ...asked }) =>
      administered((admin) =>
        admin.setOffsets({
          groupId: asked.group,
          topic: asked.topic,
          partitions: [{ partition, offset: String(offset) }],
        }),
      ),

    /** kafkajs says nothing, and waits for ever, when the commit inside is refused. */
    reset: ({ group, topic, earliest }) =>
      administered((admin) => {
        const late = new Error('the offsets were not reset')
        const timer = new Promise((_, reject) => setTimeout(reject, RESET_MS_MAX, late))
        return Promise.race([admin.resetOffsets({ groupId: group, topic, earliest }), timer])
      }),

    reassignments: ({ topic }) =>
      administered(async (admin) => {
        const topics = [{ topic, partitions: [0] }]
        return (await admin.listPartitionReassignments({ topics })).topics
      }),
  }
}
