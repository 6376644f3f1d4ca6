"""The doors of a node: which protocol is spoken on which port.

Owns opening them once the node is ready and closing them before it stops. All of them open before
any client is told so, and one that cannot open keeps the node from serving: a door that is silently
shut would be found out by a client.
"""

import asyncio
import logging
from collections.abc import Callable

from millstream.protocols.kafka.context import Broker, Endpoint
from millstream.protocols.kafka.fetch_sessions import Sessions
from millstream.protocols.kafka.gateway import KafkaGateway
from millstream.protocols.kafka.router import HANDLERS
from millstream.server.connection import Address, Gateway, Pace
from millstream.server.listener import Listener
from millstream.server.node import Node
from millstream.server.outbox import Outbox

_log = logging.getLogger(__name__)

# Stands between a connection and its gateway: sees what is asked, and what is answered.
Interpose = Callable[[Gateway], Gateway]


class Doors:
    def __init__(self, node: Node, interpose: Interpose | None = None) -> None:
        self._config = config = node.config
        self._interpose = interpose
        self._broker = Broker(
            config=config,
            cluster_id=node.cluster_id,
            topics=node.topics,
            partitions=node.partitions,
            groups=node.groups,
            consumer_groups=node.consumer_groups,
            producer_ids=node.producer_ids,
            fetch_sessions=Sessions(config.limits, node.entropy),
            transactions=node.transactions,
            batch_groups=node.batch_groups,
            client_quotas=node.client_quotas,
            usage=node.usage,
        )
        self.kafka = Listener(
            "Kafka", Address(config.host, config.port), self._greet_kafka, config.limits
        )

    @property
    def all(self) -> list[Listener]:
        """Every port that is open, or will be."""
        return [self.kafka]

    async def run(self, opened: asyncio.Event) -> None:
        """Serve until cancelled; `opened` is set once clients can connect."""
        async with asyncio.TaskGroup() as group:
            for door in self.all:
                is_open = asyncio.Event()
                group.create_task(door.run(is_open))
                await is_open.wait()
            opened.set()

    async def stop(self) -> None:
        """Accept nobody more, and let those who are here have what they wait for."""
        limit_s = self._config.timing.stop_ms_max / 1000
        try:
            async with asyncio.timeout(limit_s):
                await asyncio.gather(*(door.stop() for door in self.all))
        except TimeoutError:
            _log.warning("closed connections that were still waiting after %.0f s", limit_s)

    def _greet_kafka(self, *, dialled: Address, peer: str, pace: Pace, outbox: Outbox) -> Gateway:
        here = Endpoint(
            self._config.advertised_host or dialled.host,
            self._config.advertised_port or dialled.port,
        )
        gateway = KafkaGateway(
            self._broker, HANDLERS, self._config.limits, dialled=here, peer=peer, pace=pace
        )
        return gateway if self._interpose is None else self._interpose(gateway)
