"""The services that a Flux gateway calls."""

from dataclasses import dataclass, field

from millstream.config import Config
from millstream.engine.partitions.service import Partitions
from millstream.engine.publish.publisher import Publisher
from millstream.engine.push import Deliveries
from millstream.engine.quotas.accounts import Usage
from millstream.engine.topics import Topics
from millstream.protocols.flux.envelopes import Envelopes
from millstream.protocols.flux.wire.frames import Known


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Shared by all connections of a Flux listener, caches included."""

    config: Config
    cluster_id: str
    topics: Topics
    partitions: Partitions
    publisher: Publisher
    deliveries: Deliveries
    usage: Usage
    envelopes: Envelopes
    known: Known = field(default_factory=dict)
