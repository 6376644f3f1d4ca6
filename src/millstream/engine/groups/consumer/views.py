"""Views of consumer groups: the values of a description, and how a live group is described."""

from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple
from uuid import UUID

from msgspec import Struct

from millstream.control.catalog import Catalog
from millstream.engine.groups.consumer.group import ConsumerGroup
from millstream.engine.groups.consumer.members import Consumer
from millstream.engine.groups.consumer.vocabulary import ConsumersState
from millstream.errors import UnknownTopic
from millstream.internal_topics.consumer_groups import listed
from millstream.model import LogId


class Share(NamedTuple):
    """Partitions of one topic, in order."""

    topic: str
    topic_id: UUID
    partitions: tuple[int, ...]


class ConsumerDescription(Struct, frozen=True, kw_only=True):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    epoch: int
    names: tuple[str, ...]
    pattern: str
    assigned: tuple[Share, ...]
    target: tuple[Share, ...]


class ConsumersDescription(Struct, frozen=True, kw_only=True):
    group_id: str
    state: ConsumersState
    epoch: int
    target_epoch: int
    assignor: str
    members: tuple[ConsumerDescription, ...]


def described(group: ConsumerGroup, catalog: Catalog) -> ConsumersDescription:
    return ConsumersDescription(
        group_id=group.group_id,
        state=group.state,
        epoch=group.epoch,
        target_epoch=group.target_epoch,
        assignor=group.assignor,
        members=tuple(_member(member, catalog) for member in group.members),
    )


def _member(member: Consumer, catalog: Catalog) -> ConsumerDescription:
    said = member.subscription
    return ConsumerDescription(
        member_id=member.member_id,
        instance_id=said.instance_id,
        rack_id=said.rack_id,
        client_id=said.client_id,
        client_host=said.client_host,
        epoch=member.holding.epoch,
        names=said.names,
        pattern=said.pattern,
        assigned=_named(member.holding.assigned, catalog),
        target=_named(member.target, catalog),
    )


def _named(partitions: Iterable[LogId], catalog: Catalog) -> tuple[Share, ...]:
    """The partitions with topic names; deleted topics are left out."""
    shares = []
    for topic_id, indexes in ((share.topic_id, share.partitions) for share in listed(partitions)):
        with suppress(UnknownTopic):
            shares.append(Share(catalog.find_id(topic_id).name, topic_id, indexes))
    return tuple(shares)
