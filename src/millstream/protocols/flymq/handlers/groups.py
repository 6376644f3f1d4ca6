"""Handlers of consumer groups: start offsets, committed offsets, and lag.

Translates between FlyMQ's groups, of which each topic has its own, and the engine's, in which a
group has offsets in any topics. They are the same offsets for every protocol, so Kafka's tools see
what FlyMQ's clients did and the other way round. FlyMQ's own tool leaves the topic empty where it
describes or deletes a group.
"""

import asyncio
from collections.abc import Mapping

from millstream.engine.groups.views import Commit, Committed
from millstream.engine.partitions.slices import AtTime, Earliest, Latest, Place
from millstream.errors import InvalidRequest
from millstream.errors.groups import GroupNotFound
from millstream.model import Offset, TopicPartition
from millstream.protocols.flymq.context import Context, TopicGroup
from millstream.protocols.flymq.gateway import Handler
from millstream.protocols.flymq.handlers.records import checked_offset
from millstream.protocols.flymq.handlers.topics import find_offset
from millstream.protocols.flymq.wire import bodies
from millstream.protocols.flymq.wire.frames import Opcode

NAME_BYTES_MAX = 2**16 - 1  # Kafka's clients may have groups that cannot be named here.

_PLACES: Mapping[str, Place] = {"earliest": Earliest(), "latest": Latest()}
# FlyMQ's tool says the longer word, its server knows the shorter one.
_WHERE_COMMITTED = {"commit", "committed"}
_AT_OFFSET = "offset"

_Offsets = dict[int, Offset]  # By partition.


async def subscribe(context: Context, request: bodies.Subscribe) -> bodies.Place:
    target = TopicPartition(request.topic, request.partition)
    context.services.partitions.admit_read(context.session, request.topic)
    if request.group:
        context.services.groups.admit_member(context.session, request.group)
    offset = await _start(context, request.group, target, request.mode or "latest")
    if request.group:
        context.conversation.attend(TopicGroup(request.topic, request.group))
    return bodies.Place(offset)


async def _start(context: Context, group: str, target: TopicPartition, mode: str) -> Offset:
    if mode in _WHERE_COMMITTED:
        committed = await _committed(context, group, target)
        if committed is not None:
            return committed
        mode = "earliest"
    if mode not in _PLACES:
        raise InvalidRequest(f"unknown subscribe mode: {mode}")
    return await find_offset(context, target, _PLACES[mode])


async def commit(context: Context, request: bodies.Commit) -> bodies.Done:
    target = TopicPartition(request.topic, request.partition)
    return await _commit(context, request.group, target, checked_offset(request.offset))


async def get_offset(context: Context, request: bodies.GroupPartition) -> bodies.Place:
    offsets = await _offsets(context, TopicGroup(request.topic, request.group))
    return bodies.Place(offsets.get(request.partition, 0))


async def reset_offset(context: Context, request: bodies.ResetOffset) -> bodies.Done:
    target = TopicPartition(request.topic, request.partition)
    if request.mode == _AT_OFFSET:
        offset = checked_offset(request.offset)
    elif request.mode in _PLACES:
        offset = await find_offset(context, target, _PLACES[request.mode])
    else:
        raise InvalidRequest(f"unknown reset mode: {request.mode}")
    return await _commit(context, request.group, target, offset)


async def get_lag(context: Context, request: bodies.GroupPartition) -> bodies.Lag:
    target = TopicPartition(request.topic, request.partition)
    latest = await find_offset(context, target, Latest())
    offsets = await _offsets(context, TopicGroup(request.topic, request.group))
    committed = offsets.get(request.partition, 0)
    return bodies.Lag(committed, committed, latest, max(0, latest - committed))


async def seek_to_timestamp(context: Context, request: bodies.SeekToTimestamp) -> bodies.Place:
    target = TopicPartition(request.topic, request.partition)
    return bodies.Place(await find_offset(context, target, AtTime(request.timestamp_ms)))


# -- groups --------------------------------------------------------------------------------------


async def list_groups(context: Context, request: bodies.Nothing) -> bodies.Groups:
    groups, session = context.services.groups, context.session
    names = {listing.group_id for listing in groups.list(session)}
    names |= {name for name in context.services.attendance.groups() if groups.sees(session, name)}
    listed = []
    for name in sorted(names):
        if len(name.encode()) > NAME_BYTES_MAX:
            continue
        for topic, offsets in sorted((await _by_topic(context, name)).items()):
            listed.append(await _described(context, TopicGroup(topic, name), offsets))
        await asyncio.sleep(0)  # There may be many, and none of them waits for anything.
    return bodies.Groups(tuple(listed))


async def describe_group(context: Context, request: bodies.GroupOfTopic) -> bodies.Group:
    by_topic = await _by_topic(context, request.group)
    topic = request.topic or min(by_topic, default="")
    if topic not in by_topic:
        raise _unknown(TopicGroup(request.topic, request.group))
    return await _described(context, TopicGroup(topic, request.group), by_topic[topic])


async def delete_group(context: Context, request: bodies.GroupOfTopic) -> bodies.Done:
    groups, session = context.services.groups, context.session
    by_topic = await _by_topic(context, request.group)
    if request.topic:
        by_topic = {topic: by_topic[topic] for topic in by_topic if topic == request.topic}
    if not by_topic:
        raise _unknown(TopicGroup(request.topic, request.group))
    targets = [TopicPartition(topic, at) for topic, offsets in by_topic.items() for at in offsets]
    if targets and request.topic:
        outcomes = await groups.delete_offsets(session, request.group, targets)
        for problem in filter(None, outcomes.values()):
            raise problem
    elif targets:
        await groups.delete(session, request.group)
    for topic in by_topic:
        context.services.attendance.forget(TopicGroup(topic, request.group))
    return bodies.Done(True)


async def _described(context: Context, group: TopicGroup, offsets: _Offsets) -> bodies.Group:
    members = context.services.attendance.count(group) + await _members(context, group.group)
    return bodies.Group(
        group.topic,
        group.group,
        members,
        tuple(bodies.GroupOffset(at, offsets[at]) for at in sorted(offsets)),
    )


async def _members(context: Context, group: str) -> int:
    """How many have joined through Kafka, in a group of either kind."""
    services, session = context.services, context.session
    try:
        return len((await services.groups.describe(session, group)).members)
    except GroupNotFound:
        pass
    try:
        return len((await services.consumer_groups.describe(session, group)).members)
    except GroupNotFound:
        return 0


# -- offsets -------------------------------------------------------------------------------------


async def _commit(
    context: Context, group: str, target: TopicPartition, offset: Offset
) -> bodies.Done:
    groups = context.services.groups
    outcomes = await groups.commit_offsets(context.session, group, {target: Commit(offset)})
    problem = outcomes[target]
    if problem is not None:
        raise problem
    return bodies.Done(True)


async def _committed(context: Context, group: str, target: TopicPartition) -> Offset | None:
    offsets = await context.services.groups.fetch_offsets(context.session, group, [target])
    committed = offsets[target]
    if not isinstance(committed, Committed):
        raise committed
    return committed.offset if committed.offset >= 0 else None


async def _offsets(context: Context, group: TopicGroup) -> _Offsets:
    """The offsets of a group in its topic; none is possible while the group has members."""
    by_topic = await _by_topic(context, group.group)
    if group.topic not in by_topic:
        raise _unknown(group)
    return by_topic[group.topic]


async def _by_topic(context: Context, group: str) -> dict[str, _Offsets]:
    """The committed offsets of a group by topic; also the topics in which it has only members."""
    offsets = await context.services.groups.fetch_offsets(context.session, group)
    by_topic: dict[str, _Offsets] = {
        topic: {}
        for topic in context.services.attendance.topics_of(group)
        if context.services.topics.sees(context.session, topic)
    }
    for target, committed in offsets.items():
        if isinstance(committed, Committed) and committed.offset >= 0:
            by_topic.setdefault(target.topic, {})[target.partition] = committed.offset
    return by_topic


def _unknown(group: TopicGroup) -> InvalidRequest:
    name = f"{group.topic}:{group.group}" if group.topic else group.group
    return InvalidRequest(f"consumer group not found: {name}")


HANDLERS: dict[Opcode, Handler] = {
    Opcode.SUBSCRIBE: subscribe,
    Opcode.COMMIT: commit,
    Opcode.GET_OFFSET: get_offset,
    Opcode.RESET_OFFSET: reset_offset,
    Opcode.LIST_GROUPS: list_groups,
    Opcode.DESCRIBE_GROUP: describe_group,
    Opcode.GET_LAG: get_lag,
    Opcode.DELETE_GROUP: delete_group,
    Opcode.SEEK_TO_TIMESTAMP: seek_to_timestamp,
}
