"""Which handler answers which API: the table of what the Kafka door serves.

Owns the table. What is not in it is neither advertised nor decoded.
"""

from functools import partial

from millstream.protocols.kafka import (
    admin,
    batches,
    commits,
    configs,
    consumer_groups,
    coordination,
    damage,
    data,
    dead_letters,
    delayed,
    discovery,
    fetch,
    logs,
    placement,
    quotas,
    transactions,
)
from millstream.protocols.kafka.gateway import Handler

_WITHOUT_API_VERSIONS: dict[int, Handler] = {
    **coordination.HANDLERS,
    **consumer_groups.HANDLERS,
    **commits.HANDLERS,
    **admin.HANDLERS,
    **configs.HANDLERS,
    **placement.HANDLERS,
    **quotas.HANDLERS,
    **data.HANDLERS,
    **fetch.HANDLERS,
    **discovery.HANDLERS,
    **transactions.HANDLERS,
    **batches.HANDLERS,
    **dead_letters.HANDLERS,
    **logs.HANDLERS,
    **delayed.HANDLERS,
    **damage.HANDLERS,
}

SERVED = tuple(sorted([*_WITHOUT_API_VERSIONS, 18]))

HANDLERS: dict[int, Handler] = {
    **_WITHOUT_API_VERSIONS,
    18: partial(discovery.api_versions_handler, served=SERVED),
}
