"""Builds the parts of push delivery for a node.

Resolves their one cycle: `begin` wakes the pump when a shard starts, and the pump needs the shards.
"""

from random import Random
from typing import NamedTuple

from millstream.config import Config
from millstream.control.catalog import Catalog
from millstream.engine.dead_letters.writer import DeadLetterWriter
from millstream.engine.gate import Gate
from millstream.engine.ledgers.exactly_once import WriterContext
from millstream.engine.ledgers.shards import InternalTopicSpec, Shards
from millstream.engine.partitions.service import Partitions
from millstream.engine.push.pump import Pump
from millstream.engine.push.service import Deliveries
from millstream.engine.push.shard import DELIVERIES_SETTINGS, DeliveryShard
from millstream.engine.topic_defaults import TopicDefaults
from millstream.engine.topics import Topics
from millstream.metrics import Metrics
from millstream.names import DELIVERIES_TOPIC
from millstream.replication.hub import Hub
from millstream.replication.replica import Replica


class Delivering(NamedTuple):
    deliveries: Deliveries
    pump: Pump
    shards: Shards[DeliveryShard]
    dead_letter_writer: DeadLetterWriter


def open_deliveries(
    gate: Gate,
    catalog: Catalog,
    hub: Hub,
    partitions: Partitions,
    topics: Topics,
    context: WriterContext,
    *,
    config: Config,
    defaults: TopicDefaults,
    metrics: Metrics,
    entropy: Random,
) -> Delivering:
    """`topics` creates internal topics for the broker: its gate must admit it."""
    clock = context.clock

    def begin(replica: Replica) -> DeliveryShard:
        pump.wake()
        return DeliveryShard(replica, context)

    topic = InternalTopicSpec(DELIVERIES_TOPIC, config.delivery_partitions, DELIVERIES_SETTINGS)
    shards = Shards(topic, catalog, hub, topics, begin, config=config)
    unpacking = partitions.unpacking
    dead_letter_writer = DeadLetterWriter(
        catalog, hub, topics, shards, unpacking, config=config, defaults=defaults, clock=clock
    )
    pump = Pump(
        catalog, hub, partitions, shards, dead_letter_writer, gate, config=config, clock=clock
    )
    deliveries = Deliveries(
        gate,
        catalog,
        partitions,
        shards,
        pump,
        config=config,
        clock=clock,
        metrics=metrics,
        chance=entropy.random,
    )
    return Delivering(deliveries, pump, shards, dead_letter_writer)
