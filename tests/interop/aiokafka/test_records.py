"""aiokafka writes records and reads the same ones back."""

import asyncio

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import MessageSizeTooLargeError, OffsetOutOfRangeError

from tests.interop.aiokafka.clients import as_sample, consuming, produce, producing, take
from tests.interop.samples import CODECS, INIT_PRODUCER_ID, Sample, needs, samples
from tests.support.broker_process import BrokerProcess


@pytest.mark.parametrize("acks", [0, 1, "all"])
@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_as_they_were_sent(
    broker: BrokerProcess, topic: str, codec: str, acks: int | str
) -> None:
    sent = samples()

    async def scenario() -> list[object]:
        kind = None if codec == "none" else codec
        await produce(broker.address, topic, sent, compression_type=kind, acks=acks)
        async with consuming(broker.address) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            return await take(consumer, len(sent))

    taken = asyncio.run(scenario())

    assert [as_sample(record) for record in taken] == sent
    assert [record.offset for record in taken] == list(range(len(sent)))  # type: ignore[attr-defined]


def test_answers_tell_where_each_record_lies(broker: BrokerProcess, topic: str) -> None:
    async def scenario() -> list[int | None]:
        first = await produce(broker.address, topic, samples(), acks="all")
        return first + await produce(broker.address, topic, samples(), acks="all")

    assert asyncio.run(scenario()) == list(range(2 * len(samples())))


def test_a_reader_finds_the_first_record_at_or_after_a_time(
    broker: BrokerProcess, topic: str
) -> None:
    sent, target = samples(), TopicPartition(topic, 0)

    async def scenario() -> tuple[list[object], list[object]]:
        await produce(broker.address, topic, sent)
        async with consuming(broker.address) as consumer:
            consumer.assign([target])
            times = [sent[2].timestamp_ms, sent[2].timestamp_ms + 1, sent[-1].timestamp_ms + 1]
            collected = [(await consumer.offsets_for_times({target: ms}))[target] for ms in times]
            consumer.seek(target, collected[0].offset)
            return collected, await take(consumer, len(sent) - 2)

    collected, taken = asyncio.run(scenario())

    assert collected == [(2, sent[2].timestamp_ms), (3, sent[3].timestamp_ms), None]
    assert [as_sample(record) for record in taken] == sent[2:]


def test_the_ends_of_a_partition_frame_what_was_written(broker: BrokerProcess, topic: str) -> None:
    target = TopicPartition(topic, 0)

    async def scenario() -> tuple[object, object]:
        await produce(broker.address, topic, samples())
        async with consuming(broker.address) as consumer:
            return (
                await consumer.beginning_offsets([target]),
                await consumer.end_offsets([target]),
            )

    assert asyncio.run(scenario()) == ({target: 0}, {target: len(samples())})


def test_a_reader_beyond_the_end_is_set_back_to_the_start(
    broker: BrokerProcess, topic: str
) -> None:
    async def scenario() -> list[int]:
        await produce(broker.address, topic, samples())
        async with consuming(broker.address, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            consumer.seek(TopicPartition(topic, 0), 1_000_000)
            return [record.offset for record in await take(consumer, len(samples()))]

    assert asyncio.run(scenario()) == list(range(len(samples())))


def test_a_reader_beyond_the_end_that_wants_no_reset_is_told(
    broker: BrokerProcess, topic: str
) -> None:
    async def scenario() -> None:
        await produce(broker.address, topic, samples())
        async with consuming(broker.address, auto_offset_reset="none") as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            consumer.seek(TopicPartition(topic, 0), 1_000_000)
            await take(consumer, 1)

    with pytest.raises(OffsetOutOfRangeError):
        asyncio.run(scenario())


def test_a_record_too_large_for_the_topic_is_refused_and_the_next_one_taken(
    broker: BrokerProcess, topic: str
) -> None:
    async def scenario() -> int:
        async with producing(broker.address, max_request_size=5_000_000) as producer:
            with pytest.raises(MessageSizeTooLargeError):
                await producer.send_and_wait(topic, b"x" * 2_000_000, partition=0)
            return (await producer.send_and_wait(topic, b"small", partition=0)).offset

    assert asyncio.run(scenario()) == 0


@needs(INIT_PRODUCER_ID)
@pytest.mark.parametrize("codec", CODECS)
def test_an_idempotent_producer_writes_each_record_once(
    broker: BrokerProcess, topic: str, codec: str
) -> None:
    start, target = samples()[0], TopicPartition(topic, 0)
    sent = [Sample(b"%d" % at, b"v" * 50, [], start.timestamp_ms + at) for at in range(300)]

    async def scenario() -> tuple[list[object], int]:
        kind = None if codec == "none" else codec
        idempotent = {"enable_idempotence": True, "max_batch_size": 1_000}
        await produce(broker.address, topic, sent, compression_type=kind, **idempotent)
        async with consuming(broker.address) as consumer:
            consumer.assign([target])
            taken = await take(consumer, len(sent))
            return taken, (await consumer.end_offsets([target]))[target]

    taken, end = asyncio.run(scenario())

    assert [as_sample(record) for record in taken] == sent
    assert end == len(sent)
