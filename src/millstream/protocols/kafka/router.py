"""The table of the handlers that answer Kafka APIs.

Owns the table. What is not in it is neither advertised nor decoded.
"""

from functools import partial

from millstream.protocols.kafka.gateway import Handler
from millstream.protocols.kafka.handlers import (
    commits,
    configs,
    consumer_groups,
    data,
    discovery,
    fetch,
    groups,
    placement,
    quotas,
    security,
    topics,
    transactions,
)
from millstream.protocols.kafka.handlers.access import acls, rights
from millstream.protocols.kafka.handlers.own import (
    audit,
    batch_groups,
    cluster,
    damage,
    dead_letters,
    delayed,
    encryption,
    features,
    logs,
    users,
)

_WITHOUT_API_VERSIONS: dict[int, Handler] = {
    **groups.HANDLERS,
    **consumer_groups.HANDLERS,
    **commits.HANDLERS,
    **topics.HANDLERS,
    **configs.HANDLERS,
    **placement.HANDLERS,
    **quotas.HANDLERS,
    **data.HANDLERS,
    **fetch.HANDLERS,
    **discovery.HANDLERS,
    **features.HANDLERS,
    **transactions.HANDLERS,
    **batch_groups.HANDLERS,
    **dead_letters.HANDLERS,
    **logs.HANDLERS,
    **delayed.HANDLERS,
    **damage.HANDLERS,
    **security.HANDLERS,
    **users.HANDLERS,
    **acls.HANDLERS,
    **rights.HANDLERS,
    **audit.HANDLERS,
    **encryption.HANDLERS,
    **cluster.HANDLERS,
}

SERVED = tuple(sorted([*_WITHOUT_API_VERSIONS, 18]))

HANDLERS: dict[int, Handler] = {
    **_WITHOUT_API_VERSIONS,
    18: partial(discovery.api_versions_handler, served=SERVED),
}
